//! Trace events with the names of the kernel's `ext4` events, for any thread that subscribes to
//! the target `extent_status` of crate `tracing`. Where no thread does, an event costs a load.

use tracing::{Level, event_enabled, trace};

use crate::extent::Extent;
use crate::scan::Scan;

/// A change, a cached extent or a removal; `seq` answers the tree's number after it.
pub(crate) fn change(name: &'static str, extent: &Extent, seq: impl FnOnce() -> u64) {
    if event_enabled!(target: "extent_status", Level::TRACE) {
        let seq = seq();
        trace!(target: "extent_status", name, lblk = extent.lblk.0, len = extent.len,
            pblk = extent.pblk.0, status = ?extent.status, seq);
    }
}

/// Extents were read from the map on the device.
pub(crate) fn cached(extents: impl Iterator<Item = Extent>, seq: impl Fn() -> u64) {
    if event_enabled!(target: "extent_status", Level::TRACE) {
        extents.for_each(|extent| change("ext4_es_cache_extent", &extent, &seq));
    }
}

/// A lookup was answered.
pub(crate) fn lookup(lblk: u32, found: Option<&Extent>) {
    if event_enabled!(target: "extent_status", Level::TRACE) {
        trace!(target: "extent_status", name = "ext4_es_lookup_extent_exit", lblk, ?found);
    }
}

/// A caller asked how much there is to drop.
pub(crate) fn shrink_count(count: usize) {
    trace!(target: "extent_status", name = "ext4_es_shrink_count", count);
}

/// A scan begins.
pub(crate) fn shrink_scan_enter(nr: usize) {
    trace!(target: "extent_status", name = "ext4_es_shrink_scan_enter", nr);
}

/// A scan ended.
pub(crate) fn shrink(scan: &Scan, scan_time: u64) {
    trace!(target: "extent_status", name = "ext4_es_shrink", nr_shrunk = scan.freed, scan_time,
        nr_skipped = scan.trylock_failed, retried = scan.second_rounds);
}
