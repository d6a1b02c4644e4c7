//! The statistics of a mount, read back from the page of [`metrics`](crate::metrics), and shown.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::json::Json;
use crate::show::size_text;

/// One value.
#[derive(Clone, Debug, PartialEq)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

/// Columns of a line of counters.
const WIDTH: usize = 98;

/// All values at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot(Vec<Sample>);

/// The name, the labels and the value in a line; `None` for a comment or an invalid line.
fn sample(line: &str) -> Option<Sample> {
    let (head, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let (name, mut rest) = head.split_once('{').unwrap_or((head, ""));
    let mut labels = Vec::new();
    while let Some((label, after)) = rest.split_once("=\"") {
        let mut text = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next()? {
                (_, '\\') => match chars.next()?.1 {
                    'n' => text.push('\n'),
                    other => text.push(other),
                },
                (end, '"') => break end,
                (_, other) => text.push(other),
            }
        };
        labels.push((label.to_owned(), text));
        // OK to index: behind the quotation mark that was found.
        rest = after[end + 1..].trim_start_matches([',', '}']);
    }
    Some(Sample {
        name: name.to_owned(),
        labels,
        value,
    })
}

impl Sample {
    fn label(&self, name: &str) -> Option<&str> {
        let found = self.labels.iter().find(|(label, _)| label == name);
        found.map(|(_, text)| text.as_str())
    }

    /// The name without a prefix and without its unit, and the value in that unit.
    fn item(&self, prefix: &str) -> String {
        let name = self.name.strip_prefix(prefix).unwrap_or(&self.name);
        let name = name.strip_suffix("_total").unwrap_or(name);
        if let Some(name) = name.strip_suffix("_seconds") {
            return format!("{name} {}", duration(self.value));
        }
        if let Some(name) = name.strip_suffix("_bytes") {
            return format!("{name} {}", bytes(self.value));
        }
        match self.label("found") {
            Some(found) => format!("{name} found in {found} {}", self.value),
            None => format!("{name} {}", self.value),
        }
    }
}

impl Snapshot {
    /// Of a page.
    pub fn parse(page: &str) -> Self {
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        Self(lines.filter_map(sample).collect())
    }

    /// All values of a name.
    fn each<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.0.iter().filter(move |sample| sample.name == name)
    }

    /// The value of a name without labels; 0 where there is none.
    fn value(&self, name: &str) -> f64 {
        self.each(name).next().map_or(0.0, |sample| sample.value)
    }

    /// The value of a name whose first label says so.
    fn of(&self, name: &str, text: &str) -> f64 {
        let first = |sample: &&Sample| sample.labels.first().is_some_and(|(_, is)| is == text);
        self.each(name)
            .find(first)
            .map_or(0.0, |sample| sample.value)
    }

    fn sum(&self, name: &str) -> f64 {
        // The sum of none is -0.
        self.each(name).map(|sample| sample.value).sum::<f64>() + 0.0
    }

    /// One JSON object: a name's value, or a list of values with their labels.
    pub fn json(&self, json: &mut Json) {
        json.open_object();
        let mut printed = BTreeSet::new();
        for first in &self.0 {
            if !printed.insert(&first.name) {
                continue;
            }
            json.key(&first.name);
            if first.labels.is_empty() {
                number(json, first.value);
                continue;
            }
            json.open_array();
            for sample in self.each(&first.name) {
                json.open_object();
                for (label, text) in &sample.labels {
                    json.key(label).string(text);
                }
                json.key("value");
                number(json, sample.value);
                json.close_object();
            }
            json.close_array();
        }
        json.close_object();
        json.end_line();
    }

    /// Every counter of the caches of metadata, in lines of at most 100 columns.
    pub fn details(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (title, prefix, of) in [
            ("buffers", "uext4_buffer_", None),
            ("extents", "uext4_extent_status_", None),
            ("mbcache", "uext4_mbcache_", Some("blocks")),
            ("mbcache", "uext4_mbcache_", Some("values")),
        ] {
            let head = format!(
                "{title:<11}{}",
                of.map_or_else(String::new, |of| format!("of {of}: "))
            );
            let mut line = head;
            let mut is_first = true;
            for sample in self
                .0
                .iter()
                .filter(|sample| sample.name.starts_with(prefix))
            {
                if of.is_some_and(|of| sample.label("of") != Some(of)) {
                    continue;
                }
                let item = sample.item(prefix);
                if line.len() + item.len() > WIDTH {
                    lines.push(std::mem::replace(&mut line, " ".repeat(11)));
                    is_first = true;
                }
                line.push_str(if is_first { "" } else { ", " });
                line.push_str(&item);
                is_first = false;
            }
            if !is_first {
                lines.push(line);
            }
        }
        lines
    }

    /// Lines for a reader; with an earlier snapshot, rates since then.
    pub fn lines(&self, before: Option<(&Self, f64)>) -> Vec<String> {
        let mut lines = vec![self.title(), self.space()];
        self.requests(before, &mut lines);
        lines.push(self.caches());
        lines.push(self.memory());
        lines.extend(self.designs());
        if self.each("uext4_journal_commits_total").next().is_some() {
            lines.extend([
                self.shrinker(),
                self.journal(before),
                self.dirty(),
                self.writers(),
                self.allocator(),
            ]);
        }
        lines
    }

    fn title(&self) -> String {
        let info = self.each("uext4_info").next();
        let said = |label| info.and_then(|info| info.label(label)).unwrap_or("?");
        let parts = self.each("uext4_sandbox").filter(|part| part.value > 0.0);
        let parts: Vec<_> = parts.filter_map(|part| part.label("part")).collect();
        let sandbox = match parts.is_empty() {
            true => "none".to_owned(),
            false => parts.join(", "),
        };
        let mut transports = self.each("uext4_transport").filter(|each| each.value > 0.0);
        let transport = transports.next().and_then(|each| each.label("name"));
        format!(
            "{} on {}, {}, over {}, for {} s; sandbox: {sandbox}",
            said("image"),
            said("dir"),
            said("mode"),
            transport.unwrap_or("?"),
            self.value("uext4_uptime_seconds") as u64,
        )
    }

    fn space(&self) -> String {
        let block = self.value("uext4_block_size_bytes");
        let size = |state| bytes(self.of("uext4_blocks", state) * block);
        format!(
            "space      {}, {} free, {} available; {} inodes, {} free",
            size("all"),
            size("free"),
            size("available"),
            self.of("uext4_inodes", "all"),
            self.of("uext4_inodes", "free"),
        )
    }

    fn requests(&self, before: Option<(&Self, f64)>, lines: &mut Vec<String>) {
        const NAME: &str = "uext4_request_seconds";
        const COUNT: &str = "uext4_request_seconds_count";
        const ERRORS: &str = "uext4_request_errors_total";
        let errors = self.sum(ERRORS);
        let total = self.sum(COUNT);
        let rate = rate(total, before, |before| before.sum(COUNT));
        lines.push(format!("requests   {total}{rate}, {errors} with errors"));
        lines.push(format!(
            "  {:<18}{:>10}{:>9}{:>8}{:>10}{:>10}{:>10}{:>10}",
            "", "count", "/s", "errors", "half", "90 %", "99 %", "all"
        ));
        for sample in self.each(COUNT) {
            let op = sample.label("op").unwrap_or_default();
            let mut line = format!("  {op:<18}{:>10}", sample.value);
            let since = before.map(|(before, secs)| (sample.value - before.of(COUNT, op)) / secs);
            let since = since.map_or_else(|| "-".to_owned(), |since| format!("{since:.0}"));
            let failed = self.each(ERRORS).filter(|one| one.label("op") == Some(op));
            let failed = failed.map(|one| one.value).sum::<f64>() + 0.0;
            // Writing to a string cannot fail.
            _ = write!(line, "{since:>9}{failed:>8}");
            let took = self
                .each(NAME)
                .filter(|sample| sample.label("op") == Some(op));
            for sample in took {
                _ = write!(line, "{:>10}", duration(sample.value));
            }
            lines.push(line);
        }
        for one in self.each(ERRORS) {
            let label = |name| one.label(name).unwrap_or("?");
            let count = one.value;
            lines.push(format!(
                "  failed: {} with {}, {count} times",
                label("op"),
                label("errno")
            ));
        }
    }

    fn caches(&self) -> String {
        const LOOKUPS: &str = "uext4_buffer_lookups_total";
        let share = |hits: f64, misses: f64| match hits + misses {
            0.0 => "none asked".to_owned(),
            all => format!("{:.1} % of {all}", 100.0 * hits / all),
        };
        let buffers = share(
            self.of(LOOKUPS, "lru") + self.of(LOOKUPS, "table"),
            self.of(LOOKUPS, "device"),
        );
        let extents = share(
            self.value("uext4_extent_status_hits_total"),
            self.value("uext4_extent_status_misses_total"),
        );
        let finds = self.sum("uext4_mbcache_finds_total");
        let found = self.sum("uext4_mbcache_hits_total");
        let xattrs = share(found, (finds - found).max(0.0));
        format!("caches     blocks {buffers}; extents {extents}; equal attributes {xattrs}")
    }

    fn memory(&self) -> String {
        format!(
            "memory     {} of {}; {} reclaims, {} freed",
            bytes(self.sum("uext4_memory_bytes")),
            bytes(self.value("uext4_memory_limit_bytes")),
            self.sum("uext4_memory_reclaims_total"),
            bytes(self.value("uext4_memory_reclaimed_bytes_total")),
        )
    }

    fn shrinker(&self) -> String {
        format!(
            "shrinker   {} scans of {}, {} at most; {} extents freed, {} a scan; {} of {} reclaimable",
            self.value("uext4_extent_status_scans_total"),
            duration(self.value("uext4_extent_status_scan_seconds")),
            duration(self.value("uext4_extent_status_max_scan_seconds")),
            self.value("uext4_extent_status_freed_total"),
            self.value("uext4_extent_status_shrunk"),
            self.value("uext4_extent_status_reclaimable"),
            self.value("uext4_extent_status_extents"),
        )
    }

    /// The design of each subsystem; none of a mount that is only read.
    fn designs(&self) -> Option<String> {
        let designs = self.each("uext4_design").filter_map(|sample| {
            let (subsystem, design) = (sample.label("subsystem")?, sample.label("design")?);
            Some(format!("{subsystem} {design}"))
        });
        let designs: Vec<_> = designs.collect();
        (!designs.is_empty()).then(|| format!("designs    {}", designs.join(", ")))
    }

    fn journal(&self, before: Option<(&Self, f64)>) -> String {
        const COMMITS: &str = "uext4_journal_commits_total";
        let commits = self.value(COMMITS);
        let rate = rate(commits, before, |before| before.value(COMMITS));
        format!(
            "journal    {commits} commits{rate}, {} blocks of log; {} checkpoints, {} blocks home",
            self.value("uext4_journal_log_blocks_total"),
            self.value("uext4_journal_checkpoints_total"),
            self.value("uext4_journal_home_blocks_total"),
        )
    }

    fn dirty(&self) -> String {
        let pages = |state| bytes(self.of("uext4_page_bytes", state));
        format!(
            "dirty      {} of {}, {} being written; {} written, {} errors, {} lost",
            pages("dirty"),
            bytes(self.of("uext4_dirty_limit_bytes", "writers wait")),
            pages("writeback"),
            bytes(self.value("uext4_written_bytes_total")),
            self.value("uext4_write_errors_total"),
            bytes(self.value("uext4_lost_bytes_total")),
        )
    }

    fn writers(&self) -> String {
        format!(
            "writers    throttled {} times, {} pauses of {} in all; the device writes {}/s",
            self.value("uext4_writers_throttled_total"),
            self.value("uext4_throttle_pauses_total"),
            duration(self.value("uext4_throttle_pause_seconds_total")),
            bytes(self.value("uext4_write_bandwidth_bytes")),
        )
    }

    fn allocator(&self) -> String {
        let mut line = format!(
            "allocator  {} requests, {} at their goal, {} blocks; by criterion",
            self.value("uext4_allocator_requests_total"),
            self.value("uext4_allocator_goal_hits_total"),
            self.value("uext4_allocator_blocks_total"),
        );
        for sample in self.each("uext4_allocator_criterion_hits_total") {
            _ = write!(line, " {}", sample.value);
        }
        line
    }
}

/// What came since, a second.
fn rate(now: f64, before: Option<(&Snapshot, f64)>, of: impl Fn(&Snapshot) -> f64) -> String {
    before.map_or_else(String::new, |(before, secs)| {
        format!(" ({:.1}/s)", (now - of(before)) / secs)
    })
}

/// Whole numbers without a point.
fn number(json: &mut Json, value: f64) {
    match value.fract() == 0.0 && value.abs() < 2f64.powi(53) {
        // OK to truncate: whole, and within what a float counts exactly.
        true => json.number(value as i64),
        false => json.exactly(value),
    }
}

/// OK to truncate: the value was a number of bytes.
fn bytes(value: f64) -> String {
    size_text(value as u64)
}

/// Seconds in the unit that fits.
fn duration(secs: f64) -> String {
    match secs {
        _ if secs <= 0.0 => "0".to_owned(),
        _ if secs < 1e-3 => format!("{:.1} µs", secs * 1e6),
        _ if secs < 1.0 => format!("{:.1} ms", secs * 1e3),
        _ => format!("{secs:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# HELP a What.\nuext4_uptime_seconds 3.5\n\
        uext4_info{image=\"a \\\"b\\\"\\\\c\",dir=\"/x\",mode=\"rw\"} 1\n\
        uext4_transport{name=\"/dev/fuse\"} 0\nuext4_transport{name=\"io_uring\"} 1\n\
        uext4_request_seconds{op=\"read\",quantile=\"0.5\"} 0.000002\n\
        uext4_request_seconds{op=\"read\",quantile=\"1\"} 0.25\n\
        uext4_request_seconds_count{op=\"read\"} 40\n\
        uext4_request_errors_total{op=\"read\",errno=\"EIO\"} 2\n\
        uext4_request_errors_total{op=\"read\",errno=\"EUCLEAN\"} 3\n\
        uext4_request_refusals_total{op=\"read\",errno=\"EINVAL\"} 7\n\
        uext4_journal_commits_total 10\nno number x\n";

    #[test]
    fn a_page_is_read_back() {
        let snapshot = Snapshot::parse(PAGE);
        assert_eq!(snapshot.0.len(), 11);
        assert_eq!(snapshot.value("uext4_uptime_seconds"), 3.5);
        assert_eq!(snapshot.of("uext4_request_seconds_count", "read"), 40.0);
        let info = snapshot.each("uext4_info").next().unwrap();
        assert_eq!(info.label("image"), Some("a \"b\"\\c"));
        assert_eq!(info.label("mode"), Some("rw"));
        for odd in ["x{", "x{a=\"", "x{a=\"b 1", "{} 1", "x{a} 2"] {
            Snapshot::parse(odd);
        }
    }

    #[test]
    fn lines_and_rates() {
        let snapshot = Snapshot::parse(PAGE);
        let before = Snapshot::parse(&PAGE.replace("40", "20").replace("total 10", "total 5"));
        let lines = snapshot.lines(Some((&before, 2.0))).join("\n");
        for printed in [
            "a \"b\"\\c on /x, rw, over io_uring, for 3 s; sandbox: none",
            "requests   40 (10.0/s), 5 with errors",
            "failed: read with EUCLEAN, 3 times",
            "2.0 µs",
            "250.0 ms",
            "10 commits (2.5/s)",
        ] {
            assert!(lines.contains(printed), "{printed}: {lines}");
        }
    }

    #[test]
    fn json_has_numbers_and_lists() {
        let mut json = Json::new();
        Snapshot::parse(PAGE).json(&mut json);
        let printed = String::from_utf8(json.as_bytes().to_vec()).unwrap();
        let read: serde_json::Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(read["uext4_journal_commits_total"], 10);
        assert_eq!(read["uext4_uptime_seconds"], 3.5);
        assert_eq!(read["uext4_request_seconds"][1]["quantile"], "1");
        assert_eq!(read["uext4_request_seconds"][1]["value"], 0.25);
    }
}
