//! The statistics of a running mount: one page in the text format of Prometheus, from which
//! `uext4 stats` makes all it shows.
//!
//! Names are `uext4_ROOM_WHAT`, counters end in `_total`, times are seconds, sizes bytes.

mod subsystems;

use std::fmt::{Display, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use uext4::Image;
use uext4::stats::{MemoryUse, Stats};
use uext4_fuse::latency::SHARES;
use uext4_fuse::session::Placed;
use uext4_fuse::{PlacementCounts, Server, SpreadReason, Transport};

use crate::sandbox::Sandbox;

/// What each metric is: its name, its type and what it counts.
const METRICS: &str = "\
uext4_info gauge What is mounted where.
uext4_uptime_seconds gauge Since it was mounted.
uext4_sandbox gauge What the daemon has given up.
uext4_transport gauge How requests come from the kernel.
uext4_placement_total counter Serving where the caller is: requests (stayed), moves (followed), beginnings (entered).
uext4_placement_left_total counter Ends of serving on the caller's processor, by reason.
uext4_request_errors_total counter Requests that failed, by errno.
uext4_request_refusals_total counter Requests answered with an errno of no failure (ENOENT).
uext4_request_seconds summary What requests took, until they were answered.
uext4_throttle_pauses_total counter Pauses of writers over the dirty limits.
uext4_throttle_pause_seconds_total counter Total length of these pauses.
uext4_write_bandwidth_bytes gauge What the device writes a second.
uext4_dirty_ratelimit_bytes gauge What each writer may dirty a second.
uext4_block_size_bytes gauge Bytes of a block.
uext4_blocks gauge Blocks for files and directories.
uext4_inodes gauge Inodes.
uext4_memory_limit_bytes gauge Limit of the memory of all caches.
uext4_memory_bytes gauge Memory of all caches.
uext4_memory_reclaims_total counter Times memory was freed.
uext4_memory_reclaimed_bytes_total counter Bytes freed so.
uext4_journal_commits_total counter Transactions committed.
uext4_journal_log_blocks_total counter Blocks written to the log.
uext4_journal_checkpoints_total counter Checkpoints.
uext4_journal_home_blocks_total counter Blocks that these wrote home.
uext4_page_bytes gauge Data of files in memory.
uext4_dirty_limit_bytes gauge Data that may be dirty.
uext4_dirtied_bytes_total counter Data made dirty.
uext4_written_bytes_total counter Data written.
uext4_read_bytes_total counter Data read.
uext4_writers_throttled_total counter Times a writer waited for flushers.
uext4_write_errors_total counter Runs of pages that could not be written, each attempt.
uext4_lost_bytes_total counter Data given up.
uext4_allocator_requests_total counter Requests for blocks.
uext4_allocator_blocks_total counter Blocks given.
uext4_allocator_freed_total counter Blocks given back.
uext4_allocator_goal_hits_total counter Requests whose goal was free.
uext4_allocator_preallocated gauge Blocks preallocated for files.
uext4_allocator_criterion_hits_total counter Requests a search of this criterion served.
uext4_allocator_criterion_groups_total counter Groups it considered.
uext4_allocator_criterion_extents_total counter Free runs it looked at.
";

/// Bytes of the pages that rates are counted in.
const PAGE: u64 = 4096;

/// A running mount, shared by all that report on it.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    server: Arc<Server>,
    image: String,
    dir: String,
    began: Instant,
    sandbox: Mutex<Sandbox>,
    /// Set when INIT has been answered.
    transport: OnceLock<(Transport, Option<Placed>)>,
}

/// A label and its value.
type Label<'a> = (&'a str, &'a str);

/// A page being written.
#[derive(Default)]
struct Page(String);

impl Page {
    /// What a metric is, before its values.
    fn head(&mut self, name: &str) {
        let rest = |line: &'static str| line.strip_prefix(name)?.strip_prefix(' ');
        let metric = METRICS
            .lines()
            .chain(subsystems::METRICS.lines())
            .find_map(rest);
        if let Some((kind, help)) = metric.and_then(|rest| rest.split_once(' ')) {
            // Writing to a string cannot fail.
            _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
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

    /// A metric with one value.
    fn one(&mut self, name: &str, value: impl Display) {
        self.head(name);
        self.value(name, &[], value);
    }

    /// A metric with a label that takes several values.
    fn family(&mut self, name: &str, label: &str, all: &[(&str, u64)]) {
        self.head(name);
        for (text, value) in all {
            self.value(name, &[(label, text)], value);
        }
    }
}

fn placement(counts: &PlacementCounts, page: &mut Page) {
    let all = [
        ("stayed", counts.stayed),
        ("followed", counts.followed),
        ("entered", counts.entered),
    ];
    page.family("uext4_placement_total", "event", &all);
    let left = SpreadReason::ALL.iter().zip(counts.left);
    let left: Vec<_> = left.map(|(reason, count)| (reason.name(), count)).collect();
    page.family("uext4_placement_left_total", "reason", &left);
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
            transport: OnceLock::new(),
        }))
    }

    /// How requests come from the kernel, and what serves them near their callers, if anything
    /// does. The first call counts.
    pub fn set_transport(&self, transport: Transport, placed: Option<Placed>) {
        _ = self.0.transport.set((transport, placed));
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
        subsystems::write(&stats, &mut page);
        journal(&stats, &mut page);
        pages(&stats, &mut page);
        self.throttling(&stats, &mut page);
        allocator(&stats, &mut page);
        page.0
    }

    fn mount(&self, page: &mut Page) {
        let mine = &self.0;
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
        page.head("uext4_info");
        page.value("uext4_info", &labels, 1);
        page.one("uext4_uptime_seconds", mine.began.elapsed().as_secs_f64());
        let sandbox = *mine.sandbox.lock().unwrap_or_else(PoisonError::into_inner);
        let parts = [
            ("capabilities", sandbox.capabilities.into()),
            ("landlock", sandbox.landlock.into()),
            ("seccomp", sandbox.seccomp.into()),
        ];
        page.family("uext4_sandbox", "part", &parts);
        let transport = mine.transport.get();
        let is_over =
            |which| u64::from(transport.is_some_and(|(transport, _)| *transport == which));
        let all = [
            ("/dev/fuse", is_over(Transport::Dev)),
            ("io_uring", is_over(Transport::Uring)),
        ];
        page.family("uext4_transport", "name", &all);
        if let Some((_, Some(placed))) = transport {
            placement(&placed.counts(), page);
        }
    }

    fn requests(&self, page: &mut Page) {
        let all = self.0.server.latencies().all();
        let errors = self.0.server.latencies().errors();
        for (name, are_failures) in [
            ("uext4_request_errors_total", true),
            ("uext4_request_refusals_total", false),
        ] {
            page.head(name);
            for one in errors.iter().filter(|one| one.is_failure == are_failures) {
                page.value(name, &[("op", one.op), ("errno", one.errno)], one.count);
            }
        }
        page.head("uext4_request_seconds");
        for one in &all {
            for (share, took) in SHARES.iter().zip(one.percentiles) {
                let labels = [("op", one.name), ("quantile", &share.to_string())];
                page.value("uext4_request_seconds", &labels, took.as_secs_f64());
            }
            let labels = [("op", one.name)];
            let sum = one.total.as_secs_f64();
            page.value("uext4_request_seconds_sum", &labels, sum);
            page.value("uext4_request_seconds_count", &labels, one.count);
        }
    }

    fn throttling(&self, stats: &Stats, page: &mut Page) {
        let Some(device) = &stats.device else { return };
        let (pauses, bdi) = (self.0.server.latencies().pauses(), &device.bdi);
        page.one("uext4_throttle_pauses_total", pauses.count);
        let paused = pauses.total.as_secs_f64();
        page.one("uext4_throttle_pause_seconds_total", paused);
        let (bandwidth, limit) = (bdi.write_bandwidth * PAGE, bdi.dirty_ratelimit * PAGE);
        page.one("uext4_write_bandwidth_bytes", bandwidth);
        page.one("uext4_dirty_ratelimit_bytes", limit);
    }
}

fn space(fs: &Image, page: &mut Page) {
    let space = fs.statfs();
    page.one("uext4_block_size_bytes", space.block_size);
    let blocks = [
        ("all", space.blocks),
        ("free", space.free),
        ("available", space.available),
    ];
    page.family("uext4_blocks", "state", &blocks);
    let inodes = [("all", space.inodes), ("free", space.free_inodes)];
    page.family("uext4_inodes", "state", &inodes);
}

fn memory(memory: &MemoryUse, page: &mut Page) {
    page.one("uext4_memory_limit_bytes", memory.limit);
    let parts = [
        ("pages", memory.pages),
        ("buffers", memory.buffers),
        ("extents", memory.extents),
        ("buddies", memory.buddies),
        ("xattrs", memory.xattrs),
        ("inodes", memory.inodes),
        ("names", memory.names),
    ];
    page.family("uext4_memory_bytes", "part", &parts);
    let reclaims = [
        ("caller", memory.direct_reclaims),
        ("thread", memory.background_reclaims),
    ];
    page.family("uext4_memory_reclaims_total", "by", &reclaims);
    page.one("uext4_memory_reclaimed_bytes_total", memory.reclaimed);
}

fn journal(stats: &Stats, page: &mut Page) {
    let Some(journal) = &stats.journal else {
        return;
    };
    page.one("uext4_journal_commits_total", journal.commits);
    page.one("uext4_journal_log_blocks_total", journal.log_blocks);
    page.one("uext4_journal_checkpoints_total", journal.checkpoints);
    page.one("uext4_journal_home_blocks_total", journal.home_blocks);
}

fn pages(stats: &Stats, page: &mut Page) {
    let Some(pages) = &stats.pages else { return };
    let states = [
        ("cached", pages.nr_file_pages),
        ("dirty", pages.nr_dirty),
        ("writeback", pages.nr_writeback),
    ];
    page.family("uext4_page_bytes", "state", &states);
    let limits = [
        ("writers wait", pages.nr_dirty_threshold),
        ("flushers write", pages.nr_dirty_background_threshold),
    ];
    page.family("uext4_dirty_limit_bytes", "limit", &limits);
    page.one("uext4_dirtied_bytes_total", pages.nr_dirtied);
    page.one("uext4_written_bytes_total", pages.nr_written);
    page.one("uext4_read_bytes_total", pages.nr_read);
    page.one("uext4_writers_throttled_total", pages.throttled);
    page.one("uext4_write_errors_total", pages.write_errors);
    page.one("uext4_lost_bytes_total", pages.nr_lost);
}

fn allocator(stats: &Stats, page: &mut Page) {
    let (Some(stats), Some(preallocated)) = (&stats.allocator, &stats.preallocation) else {
        return;
    };
    page.one("uext4_allocator_requests_total", stats.reqs);
    page.one("uext4_allocator_blocks_total", stats.allocated);
    page.one("uext4_allocator_freed_total", stats.freed);
    page.one("uext4_allocator_goal_hits_total", stats.goal_hits);
    page.one("uext4_allocator_preallocated", preallocated.kept);
    let mut each = |name, count: fn(&uext4::stats::CriterionStats) -> u64| {
        let counts = stats.criteria.iter().map(count);
        let all: Vec<_> = ["0", "1", "2", "3", "4"].into_iter().zip(counts).collect();
        page.family(name, "criterion", &all);
    };
    each("uext4_allocator_criterion_hits_total", |c| c.hits);
    each("uext4_allocator_criterion_groups_total", |c| {
        c.groups_considered
    });
    each("uext4_allocator_criterion_extents_total", |c| {
        c.extents_scanned
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_in_the_format_of_prometheus() {
        let mut page = Page::default();
        page.one("uext4_journal_commits_total", 7);
        page.family("uext4_inodes", "of", &[("x\"y\\", 1), ("z", 2)]);
        assert_eq!(
            page.0,
            "# HELP uext4_journal_commits_total Transactions committed.\n\
             # TYPE uext4_journal_commits_total counter\nuext4_journal_commits_total 7\n\
             # HELP uext4_inodes Inodes.\n# TYPE uext4_inodes gauge\n\
             uext4_inodes{of=\"x\\\"y\\\\\"} 1\nuext4_inodes{of=\"z\"} 2\n"
        );
    }
}
