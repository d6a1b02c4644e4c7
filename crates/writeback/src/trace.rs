//! Trace events with the names and fields of the kernel's `writeback` events, for any thread that
//! subscribes to the target `writeback` of crate `tracing`. Where no thread does, an event costs
//! a load.
//!
//! `balance_dirty_pages` lacks `dirtied` and `dirtied_pause`: pacing has no such counts.
//!
//! Pages have 4 KiB, rates are in kB a second and times in milliseconds, as in the kernel; `bdi` is
//! the number of the cache among those that share limits, `ino` the order of the file's [`Place`].

use std::time::Duration;

use tracing::{Level, enabled, trace};

use crate::Place;
use crate::throttle::PAGE_SIZE;
use crate::writer::Gate;

/// Why flushers write, in the kernel's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Background,
    Periodic,
    Sync,
    Vmscan,
}

impl Reason {
    fn name(self) -> &'static str {
        match self {
            Self::Background => "background",
            Self::Periodic => "periodic",
            Self::Sync => "sync",
            Self::Vmscan => "vmscan",
        }
    }
}

fn is_enabled() -> bool {
    enabled!(target: "writeback", Level::TRACE)
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A writer is about to sleep for `pause`, after it has slept for `paused` in this throttling and
/// has thought for `think` before it.
pub(crate) fn balance_dirty_pages(gate: &Gate, pause: Duration, paused: Duration, think: Duration) {
    if !is_enabled() {
        return;
    }
    let (domain, stats) = (gate.limits.domain(), gate.bdi.stats(gate.now()));
    let limit = domain.thresh();
    let setpoint = limit.midpoint(domain.freerun());
    let part = u128::from(setpoint) * u128::from(stats.thresh) / u128::from(limit.max(1));
    let ratelimit = stats.dirty_ratelimit.saturating_mul(4);
    trace!(
        name: "balance_dirty_pages",
        target: "writeback",
        bdi = gate.number,
        limit,
        setpoint,
        dirty = domain.unwritten(),
        wb_setpoint = u64::try_from(part).unwrap_or(u64::MAX),
        wb_dirty = gate.bdi.unwritten(),
        dirty_ratelimit = ratelimit,
        task_ratelimit = ratelimit,
        paused = ms(paused),
        pause = ms(pause),
        period = ms(think.saturating_add(pause)),
        think = ms(think),
    );
    global_dirty_state(gate);
}

fn global_dirty_state(gate: &Gate) {
    let (domain, stats) = (gate.limits.domain(), gate.bdi.stats(gate.now()));
    trace!(
        name: "global_dirty_state",
        target: "writeback",
        nr_dirty = domain.nr_dirty(),
        nr_writeback = domain.nr_writeback(),
        background_thresh = domain.background(),
        dirty_thresh = domain.thresh(),
        dirty_limit = domain.thresh(),
        nr_dirtied = stats.dirtied,
        nr_written = stats.written,
    );
}

/// Flushers are to write.
pub(crate) fn queue(gate: &Gate, reason: Reason) {
    trace!(
        name: "writeback_queue",
        target: "writeback",
        bdi = gate.number,
        nr_pages = gate.bdi.reclaimable(),
        reason = reason.name(),
    );
}

/// A pass over the dirty files begins.
pub(crate) fn start(gate: &Gate, reason: Reason) {
    trace!(
        name: "writeback_start",
        target: "writeback",
        bdi = gate.number,
        nr_pages = gate.bdi.reclaimable(),
        sync_mode = u32::from(reason == Reason::Sync),
        for_kupdate = u32::from(reason == Reason::Periodic),
        for_background = u32::from(reason == Reason::Background),
        range_cyclic = u32::from(reason != Reason::Sync),
        reason = reason.name(),
    );
}

/// A pass ended that wrote so many bytes; what the device is taken to write now.
pub(crate) fn written(gate: &Gate, reason: Reason, bytes: u64) {
    if !is_enabled() {
        return;
    }
    trace!(
        name: "writeback_written",
        target: "writeback",
        bdi = gate.number,
        nr_pages = bytes / PAGE_SIZE,
        reason = reason.name(),
    );
    let stats = gate.bdi.stats(gate.now());
    trace!(
        name: "bdi_dirty_ratelimit",
        target: "writeback",
        bdi = gate.number,
        write_bw = stats.write_bandwidth.saturating_mul(4),
        avg_write_bw = stats.write_bandwidth.saturating_mul(4),
        dirty_ratelimit = stats.dirty_ratelimit.saturating_mul(4),
        task_ratelimit = stats.dirty_ratelimit.saturating_mul(4),
        balanced_dirty_ratelimit = stats.dirty_ratelimit.saturating_mul(4),
    );
    global_dirty_state(gate);
}

/// A thread waits for what is written.
pub(crate) fn wait(gate: &Gate, reason: Reason) {
    trace!(
        name: "writeback_wait",
        target: "writeback",
        bdi = gate.number,
        nr_pages = gate.bdi.unwritten(),
        reason = reason.name(),
    );
}

/// The turn of the file at this place begins, with so many bytes at most.
pub(crate) fn turn_start(gate: &Gate, place: Place, budget: u64) {
    trace!(
        name: "writeback_single_inode_start",
        target: "writeback",
        bdi = gate.number,
        ino = place.order,
        nr_to_write = budget / PAGE_SIZE,
        wrote = 0u64,
    );
}

/// The turn ended, with so many bytes written.
pub(crate) fn turn_end(gate: &Gate, place: Place, budget: u64, written: u64) {
    trace!(
        name: "writeback_single_inode",
        target: "writeback",
        bdi = gate.number,
        ino = place.order,
        nr_to_write = budget.saturating_sub(written) / PAGE_SIZE,
        wrote = written / PAGE_SIZE,
    );
}

/// The turn was too short for the file.
pub(crate) fn requeued(place: Place) {
    trace!(
        name: "writeback_sb_inodes_requeue",
        target: "writeback",
        ino = place.order,
    );
}
