//! What a running mount tells of itself: one page in the text format of Prometheus, from which
//! `uext4 stats` makes all it shows.
//!
//! Names are `uext4_ROOM_WHAT`, counters end in `_total`, times are seconds, sizes bytes.

use std::fmt::{Display, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use uext4::Image;
use uext4::stats::{BufferStats, MemoryUse, Stats};
use uext4_fuse::Server;
use uext4_fuse::latency::SHARES;

use crate::sandbox::Sandbox;

/// Bytes of the pages that rates are counted in.
const PAGE: u64 = 4096;

/// A running mount, told by many.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    server: Arc<Server>,
    image: String,
    dir: String,
    began: Instant,
    sandbox: Mutex<Sandbox>,
}

/// A page being written.
#[derive(Default)]
struct Page(String);

/// A metric, without its values.
struct Metric<'a> {
    name: &'a str,
    /// The type, in the words of the text format.
    kind: &'a str,
    help: &'a str,
}

impl<'a> Metric<'a> {
    fn counter(name: &'a str, help: &'a str) -> Self {
        let kind = "counter";
        Self { name, kind, help }
    }

    fn gauge(name: &'a str, help: &'a str) -> Self {
        let kind = "gauge";
        Self { name, kind, help }
    }
}

/// A label and its value.
type Label<'a> = (&'a str, &'a str);

impl Page {
    /// What a metric is, before its values.
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn value(&mut self, name: &str, labels: &[Label<'_>], value: impl Display) {
        self.0.push_str(name);
        for (number, (label, text)) in labels.iter().enumerate() {
            self.0.push(if number == 0 { '{' } else { ',' });
            let text = text.replace('\\', "\\\\").replace('"', "\\\"");
            let text = text.replace('\n', "\\n");
            _ = write!(self.0, "{label}=\"{text}\"");
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        _ = writeln!(self.0, " {value}");
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        self.value(name, &[], value);
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, "gauge", help);
        self.value(name, &[], value);
    }

    /// One metric with a label that takes several values.
    fn family(&mut self, metric: &Metric<'_>, label: &str, all: &[(&str, u64)]) {
        self.head(metric.name, metric.kind, metric.help);
        for (text, value) in all {
            self.value(metric.name, &[(label, text)], value);
        }
    }
}

impl Metrics {
    /// Of a mount that begins now.
    pub fn new(server: &Arc<Server>, image: &Path, dir: &Path) -> Self {
        Self(Arc::new(Inner {
            server: Arc::clone(server),
            image: image.to_string_lossy().into_owned(),
            dir: dir.to_string_lossy().into_owned(),
            began: Instant::now(),
            sandbox: Mutex::default(),
        }))
    }

    /// What the daemon has given up.
    pub fn set_sandbox(&self, sandbox: Sandbox) {
        let mut mine = self
            .0
            .sandbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *mine = sandbox;
    }

    /// All of it.
    pub fn text(&self) -> String {
        let mut page = Page::default();
        let fs = self.0.server.file_system();
        self.mount(&mut page);
        self.requests(&mut page);
        space(fs, &mut page);
        let stats = fs.stats();
        memory(&stats.memory, &mut page);
        buffers(&stats.buffers, &mut page);
        extents(&stats, &mut page);
        shared_attributes(&stats, &mut page);
        journal(&stats, &mut page);
        pages(&stats, &mut page);
        self.throttling(&stats, &mut page);
        allocator(&stats, &mut page);
        page.0
    }

    fn mount(&self, page: &mut Page) {
        let mine = &self.0;
        page.head("uext4_info", "gauge", "What is mounted where.");
        let mode = match mine.server.is_writable() {
            true => "rw",
            false => "ro",
        };
        let labels = [
            ("image", mine.image.as_str()),
            ("dir", &mine.dir),
            ("mode", mode),
            ("version", env!("CARGO_PKG_VERSION")),
        ];
        page.value("uext4_info", &labels, 1);
        let uptime = mine.began.elapsed().as_secs_f64();
        page.gauge("uext4_uptime_seconds", "Since it was mounted.", uptime);
        let sandbox = *mine.sandbox.lock().unwrap_or_else(PoisonError::into_inner);
        page.family(
            &Metric::gauge("uext4_sandbox", "What the daemon has given up."),
            "part",
            &[
                ("capabilities", sandbox.capabilities.into()),
                ("landlock", sandbox.landlock.into()),
                ("seccomp", sandbox.seccomp.into()),
            ],
        );
    }

    fn requests(&self, page: &mut Page) {
        let all = self.0.server.latencies().all();
        let errors: Vec<_> = all.iter().map(|one| (one.name, one.errors)).collect();
        page.family(
            &Metric::counter(
                "uext4_request_errors_total",
                "Requests answered with an error.",
            ),
            "op",
            &errors,
        );
        let name = "uext4_request_seconds";
        page.head(
            name,
            "summary",
            "What requests took, until they were answered.",
        );
        for one in &all {
            for (share, took) in SHARES.iter().zip(one.percentiles) {
                let labels = [("op", one.name), ("quantile", &share.to_string())];
                page.value(name, &labels, took.as_secs_f64());
            }
            let labels = [("op", one.name)];
            page.value(
                "uext4_request_seconds_sum",
                &labels,
                one.total.as_secs_f64(),
            );
            page.value("uext4_request_seconds_count", &labels, one.count);
        }
    }

    fn throttling(&self, stats: &Stats, page: &mut Page) {
        let Some(device) = &stats.device else { return };
        let pauses = self.0.server.latencies().pauses();
        page.counter(
            "uext4_throttle_pauses_total",
            "Times a writer over the dirty limits was told to wait.",
            pauses.count,
        );
        page.head(
            "uext4_throttle_pause_seconds_total",
            "counter",
            "How long these were told to wait.",
        );
        let seconds = pauses.total.as_secs_f64();
        page.value("uext4_throttle_pause_seconds_total", &[], seconds);
        for (name, help, pages) in [
            (
                "uext4_write_bandwidth_bytes",
                "What the device writes a second.",
                device.bdi.write_bandwidth * PAGE,
            ),
            (
                "uext4_dirty_ratelimit_bytes",
                "What each writer may dirty a second.",
                device.bdi.dirty_ratelimit * PAGE,
            ),
        ] {
            page.gauge(name, help, pages);
        }
    }
}

fn space(fs: &Image, page: &mut Page) {
    let told = fs.statfs();
    page.gauge(
        "uext4_block_size_bytes",
        "Bytes of a block.",
        told.block_size,
    );
    page.family(
        &Metric::gauge("uext4_blocks", "Blocks for files and directories."),
        "state",
        &[
            ("all", told.blocks),
            ("free", told.free),
            ("available", told.available),
        ],
    );
    page.family(
        &Metric::gauge("uext4_inodes", "Inodes."),
        "state",
        &[("all", told.inodes), ("free", told.free_inodes)],
    );
}

fn memory(told: &MemoryUse, page: &mut Page) {
    page.gauge(
        "uext4_memory_limit_bytes",
        "What may be kept in memory.",
        told.limit,
    );
    page.family(
        &Metric::gauge("uext4_memory_bytes", "What is kept in memory."),
        "part",
        &[
            ("pages", told.pages),
            ("buffers", told.buffers),
            ("extents", told.extents),
            ("buddies", told.buddies),
            ("xattrs", told.xattrs),
            ("inodes", told.inodes),
            ("names", told.names),
        ],
    );
    page.family(
        &Metric::counter("uext4_memory_reclaims_total", "Times memory was freed."),
        "by",
        &[
            ("caller", told.direct_reclaims),
            ("thread", told.background_reclaims),
        ],
    );
    page.counter(
        "uext4_memory_reclaimed_bytes_total",
        "Bytes freed so.",
        told.reclaimed,
    );
}

fn buffers(told: &BufferStats, page: &mut Page) {
    page.family(
        &Metric::counter(
            "uext4_buffer_lookups_total",
            "Look-ups of blocks of metadata, by where they were found.",
        ),
        "found",
        &[
            ("lru", told.lru_hits),
            ("table", told.hits),
            ("device", told.misses),
        ],
    );
    for (name, help, value) in [
        (
            "uext4_buffer_reads_total",
            "Blocks of metadata read.",
            told.reads,
        ),
        (
            "uext4_buffer_writes_total",
            "Blocks of metadata written.",
            told.writes,
        ),
        (
            "uext4_buffer_evictions_total",
            "Blocks of metadata dropped.",
            told.evictions,
        ),
    ] {
        page.counter(name, help, value);
    }
}

fn extents(stats: &Stats, page: &mut Page) {
    let Some(told) = &stats.extent_status else {
        return;
    };
    for (name, help, value) in [
        (
            "uext4_extent_status_hits_total",
            "Look-ups of where files lie that were known.",
            told.es_stats_cache_hits,
        ),
        (
            "uext4_extent_status_misses_total",
            "Those that were not.",
            told.es_stats_cache_misses,
        ),
        (
            "uext4_extent_status_scans_total",
            "Scans of the shrinker.",
            told.scans,
        ),
        (
            "uext4_extent_status_freed_total",
            "Extents that these freed.",
            told.freed,
        ),
    ] {
        page.counter(name, help, value);
    }
    page.gauge(
        "uext4_extent_status_extents",
        "Extents known.",
        told.es_stats_all_cnt,
    );
}

fn shared_attributes(stats: &Stats, page: &mut Page) {
    let (Some(blocks), Some(values)) = (&stats.xattr_blocks, &stats.xattr_values) else {
        return;
    };
    let both = |name: &str, help: &str, kind: &str, of_blocks, of_values, page: &mut Page| {
        let all = [("blocks", of_blocks), ("values", of_values)];
        page.family(&Metric { name, kind, help }, "of", &all);
    };
    both(
        "uext4_mbcache_finds_total",
        "Searches for equal attributes.",
        "counter",
        blocks.finds,
        values.finds,
        page,
    );
    both(
        "uext4_mbcache_hits_total",
        "Those that found some.",
        "counter",
        blocks.hits,
        values.hits,
        page,
    );
    both(
        "uext4_mbcache_entries",
        "What may be found.",
        "gauge",
        blocks.entries,
        values.entries,
        page,
    );
}

fn journal(stats: &Stats, page: &mut Page) {
    let Some(told) = &stats.journal else { return };
    for (name, help, value) in [
        (
            "uext4_journal_commits_total",
            "Transactions committed.",
            told.commits,
        ),
        (
            "uext4_journal_log_blocks_total",
            "Blocks written to the log.",
            told.log_blocks,
        ),
        (
            "uext4_journal_checkpoints_total",
            "Checkpoints.",
            told.checkpoints,
        ),
        (
            "uext4_journal_home_blocks_total",
            "Blocks that these wrote home.",
            told.home_blocks,
        ),
    ] {
        page.counter(name, help, value);
    }
}

fn pages(stats: &Stats, page: &mut Page) {
    let Some(told) = &stats.pages else { return };
    page.family(
        &Metric::gauge("uext4_page_bytes", "Data of files in memory."),
        "state",
        &[
            ("cached", told.nr_file_pages),
            ("dirty", told.nr_dirty),
            ("writeback", told.nr_writeback),
        ],
    );
    page.family(
        &Metric::gauge("uext4_dirty_limit_bytes", "Data that may be dirty."),
        "limit",
        &[
            ("writers wait", told.nr_dirty_threshold),
            ("flushers write", told.nr_dirty_background_threshold),
        ],
    );
    for (name, help, value) in [
        (
            "uext4_dirtied_bytes_total",
            "Data made dirty.",
            told.nr_dirtied,
        ),
        (
            "uext4_written_bytes_total",
            "Data written.",
            told.nr_written,
        ),
        ("uext4_read_bytes_total", "Data read.", told.nr_read),
        (
            "uext4_writers_throttled_total",
            "Times a writer waited for flushers.",
            told.throttled,
        ),
        (
            "uext4_write_errors_total",
            "Runs of pages that could not be written, each attempt.",
            told.write_errors,
        ),
        ("uext4_lost_bytes_total", "Data given up.", told.nr_lost),
    ] {
        page.counter(name, help, value);
    }
}

fn allocator(stats: &Stats, page: &mut Page) {
    let (Some(told), Some(kept)) = (&stats.allocator, &stats.preallocation) else {
        return;
    };
    for (name, help, value) in [
        (
            "uext4_allocator_requests_total",
            "Requests for blocks.",
            told.reqs,
        ),
        (
            "uext4_allocator_blocks_total",
            "Blocks given.",
            told.allocated,
        ),
        (
            "uext4_allocator_freed_total",
            "Blocks given back.",
            told.freed,
        ),
        (
            "uext4_allocator_goal_hits_total",
            "Requests whose goal was free.",
            told.goal_hits,
        ),
    ] {
        page.counter(name, help, value);
    }
    page.gauge(
        "uext4_allocator_preallocated",
        "Blocks kept for files.",
        kept.kept,
    );
    const NAMES: [&str; 5] = ["0", "1", "2", "3", "4"];
    let of = |f: fn(&uext4::stats::CriterionStats) -> u64| -> Vec<(&str, u64)> {
        NAMES.into_iter().zip(told.criteria.iter().map(f)).collect()
    };
    for (name, help, all) in [
        (
            "uext4_allocator_criterion_hits_total",
            "Requests a search of this criterion served.",
            of(|c| c.hits),
        ),
        (
            "uext4_allocator_criterion_groups_total",
            "Groups it considered.",
            of(|c| c.groups_considered),
        ),
        (
            "uext4_allocator_criterion_extents_total",
            "Free runs it looked at.",
            of(|c| c.extents_scanned),
        ),
    ] {
        page.family(&Metric::counter(name, help), "criterion", &all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_in_the_format_of_prometheus() {
        let mut page = Page::default();
        page.counter("a_total", "How many.", 7);
        page.family(
            &Metric::gauge("b", "More."),
            "of",
            &[("x\"y\\", 1), ("z", 2)],
        );
        assert_eq!(
            page.0,
            "# HELP a_total How many.\n# TYPE a_total counter\na_total 7\n\
             # HELP b More.\n# TYPE b gauge\nb{of=\"x\\\"y\\\\\"} 1\nb{of=\"z\"} 2\n"
        );
    }
}
