//! The caches of metadata: the buffer cache and its LRU, the extent status cache, mbcache.
//!
//! Every counter of these crates is a metric: the destructuring patterns below do not compile when
//! a counter is added, and mbcache lists its own.

use uext4::stats::{BufferStats, Designs, ExtentStatusStats, MbcacheStats, Stats};

use super::Page;

/// What each metric is: its name, its type and what it counts.
pub(super) const METRICS: &str = "\
uext4_design gauge The design that each subsystem runs.
uext4_buffer_lookups_total counter Look-ups of blocks of metadata, by where they were found.
uext4_buffer_all_lookups_total counter All look-ups of blocks of metadata.
uext4_buffer_reads_total counter Blocks of metadata read, readahead included.
uext4_buffer_readahead_total counter Blocks of metadata read ahead.
uext4_buffer_writes_total counter Blocks of metadata written.
uext4_buffer_evictions_total counter Blocks of metadata dropped.
uext4_buffer_clock_steps_total counter Blocks of metadata examined in order to drop some.
uext4_buffer_verifications_total counter Verifications of a block of metadata.
uext4_buffer_lock_contended_total counter Look-ups that waited for the lock of another thread.
uext4_buffer_blocks gauge Blocks of metadata in memory.
uext4_buffer_dirty_blocks gauge Blocks of metadata in memory that differ from the device.
uext4_extent_status_hits_total counter Look-ups in the extent status cache that were answered.
uext4_extent_status_misses_total counter Look-ups in the extent status cache that were not answered.
uext4_extent_status_hit_locks_total counter Answered look-ups that took a lock.
uext4_extent_status_ghost_hits_total counter Leaves that came back soon after they were dropped.
uext4_extent_status_extents gauge Extents in the extent status cache.
uext4_extent_status_reclaimable gauge Extents that may be dropped.
uext4_extent_status_inodes gauge Inodes with extents that may be dropped.
uext4_extent_status_scans_total counter Scans of the shrinker.
uext4_extent_status_scan_seconds gauge Time of a scan, a moving average.
uext4_extent_status_max_scan_seconds gauge Time of the longest scan.
uext4_extent_status_shrunk gauge Extents that a scan drops, a moving average.
uext4_extent_status_freed_total counter Extents that scans dropped.
uext4_extent_status_trylock_failed_total counter Trees that scans passed over because they were in use.
uext4_extent_status_second_rounds_total counter Rounds of scans after the first.
uext4_extent_status_scan_steps_total counter Steps of all scans.
uext4_extent_status_max_steps_under_lock gauge Most steps of a scan under one lock.
uext4_extent_status_leaves_evicted_total counter Leaves that scans dropped.
uext4_mbcache_entries gauge Entries.
uext4_mbcache_max gauge Entries from which on some are dropped; 0: no such number.
uext4_mbcache_memory_bytes gauge Memory of the entries and the index.
uext4_mbcache_chain_max gauge Most entries examined for one search.
uext4_mbcache_creates_total counter Entries created.
uext4_mbcache_ebusy_total counter Entries not created because they existed.
uext4_mbcache_refused_total counter Entries not created because the cache was full.
uext4_mbcache_finds_total counter Searches for equal attributes.
uext4_mbcache_hits_total counter Searches that found a candidate.
uext4_mbcache_compares_total counter Candidates returned, to be read and compared.
uext4_mbcache_chain_steps_total counter Entries examined by searches.
uext4_mbcache_reuse_ok_total counter Candidates that got one more user.
uext4_mbcache_reuse_retry_total counter Candidates whose entry had left the index before that.
uext4_mbcache_saturated_total counter Candidates that reached the largest number of users.
uext4_mbcache_found_saturated_total counter Candidates that had the largest number of users.
uext4_mbcache_deletes_total counter Entries removed because the block is freed or changed.
uext4_mbcache_deletes_lost_total counter Removals that failed because a thread had found the entry.
uext4_mbcache_waits_unused_total counter Waits until no thread has found an entry.
uext4_mbcache_touches_total counter Marks of use.
uext4_mbcache_shrunk_sync_total counter Entries dropped for a new one.
uext4_mbcache_shrunk_pressure_total counter Entries dropped because memory is short.
uext4_mbcache_scanned_total counter Entries that scans examined.
uext4_mbcache_referenced_second_chances_total counter Entries that scans left because of their use.
uext4_mbcache_ghost_refused_total counter Blocks read for the first time, which get no entry.
uext4_mbcache_content_hashes_total counter Hashes of contents computed.
uext4_mbcache_list_locks_total counter Locks of parts of the index taken.
uext4_mbcache_lock_contended_total counter Locks that were waited for.
uext4_mbcache_lock_handoffs_total counter Locks that another thread had held before.
uext4_mbcache_swaps_lost_total counter Compare-and-swap operations that failed.
uext4_mbcache_sleeps_total counter Times a thread went to sleep.
uext4_mbcache_wakeups_total counter Threads woken.
uext4_mbcache_wakeups_wasted_total counter Threads woken that had to sleep again.
";

/// Nanoseconds in a second.
const SECOND: f64 = 1e9;

/// All of them.
pub(super) fn write(stats: &Stats, page: &mut Page) {
    if let Some(designs) = &stats.designs {
        write_designs(designs, page);
    }
    buffers(&stats.buffers, page);
    if let Some(extents) = &stats.extent_status {
        extent_status(extents, page);
    }
    if let (Some(blocks), Some(values)) = (&stats.xattr_blocks, &stats.xattr_values) {
        mbcache(blocks, values, page);
    }
}

fn write_designs(designs: &Designs, page: &mut Page) {
    let Designs {
        bh_lru,
        extent_status,
        mballoc,
        mbcache,
        writeback,
    } = designs;
    page.head("uext4_design");
    for (subsystem, design) in [
        ("bh-lru", bh_lru),
        ("extent-status", extent_status),
        ("mballoc", mballoc),
        ("mbcache", mbcache),
        ("writeback", writeback),
    ] {
        let labels = [("subsystem", subsystem), ("design", design)];
        page.value("uext4_design", &labels, 1);
    }
}

fn buffers(stats: &BufferStats, page: &mut Page) {
    let BufferStats {
        lookups,
        lru_hits,
        hits,
        misses,
        reads,
        readahead,
        writes,
        evictions,
        clock_steps,
        verifications,
        nr_buffers,
        nr_dirty,
        lock_contended,
    } = *stats;
    let found = [("lru", lru_hits), ("table", hits), ("device", misses)];
    page.family("uext4_buffer_lookups_total", "found", &found);
    for (name, value) in [
        ("uext4_buffer_all_lookups_total", lookups),
        ("uext4_buffer_reads_total", reads),
        ("uext4_buffer_readahead_total", readahead),
        ("uext4_buffer_writes_total", writes),
        ("uext4_buffer_evictions_total", evictions),
        ("uext4_buffer_clock_steps_total", clock_steps),
        ("uext4_buffer_verifications_total", verifications),
        ("uext4_buffer_lock_contended_total", lock_contended),
        ("uext4_buffer_blocks", nr_buffers),
        ("uext4_buffer_dirty_blocks", nr_dirty),
    ] {
        page.one(name, value);
    }
}

fn extent_status(stats: &ExtentStatusStats, page: &mut Page) {
    let ExtentStatusStats {
        es_stats_cache_hits,
        es_stats_cache_misses,
        es_stats_all_cnt,
        es_stats_shk_cnt,
        s_es_nr_inode,
        es_stats_scan_time,
        es_stats_max_scan_time,
        es_stats_shrunk,
        scans,
        freed,
        trylock_failed,
        second_rounds,
        steps,
        max_steps_under_lock,
        leaves_evicted,
        ghost_hits,
        lookup_hit_locks,
    } = *stats;
    for (name, value) in [
        ("hits_total", es_stats_cache_hits),
        ("misses_total", es_stats_cache_misses),
        ("hit_locks_total", lookup_hit_locks),
        ("ghost_hits_total", ghost_hits),
        ("extents", es_stats_all_cnt),
        ("reclaimable", es_stats_shk_cnt),
        ("inodes", s_es_nr_inode),
        ("scans_total", scans),
        ("shrunk", es_stats_shrunk),
        ("freed_total", freed),
        ("trylock_failed_total", trylock_failed),
        ("second_rounds_total", second_rounds),
        ("scan_steps_total", steps),
        ("max_steps_under_lock", max_steps_under_lock),
        ("leaves_evicted_total", leaves_evicted),
    ] {
        page.one(&format!("uext4_extent_status_{name}"), value);
    }
    for (name, nanoseconds) in [
        ("uext4_extent_status_scan_seconds", es_stats_scan_time),
        (
            "uext4_extent_status_max_scan_seconds",
            es_stats_max_scan_time,
        ),
    ] {
        page.one(name, nanoseconds as f64 / SECOND);
    }
}

fn mbcache(blocks: &MbcacheStats, values: &MbcacheStats, page: &mut Page) {
    for ((field, of_blocks), (_, of_values)) in blocks.each().zip(values.each()) {
        let end = match field {
            "entries" | "max" | "chain_max" => "",
            "memory" => "_bytes",
            _ => "_total",
        };
        let name = format!("uext4_mbcache_{field}{end}");
        page.family(&name, "of", &[("blocks", of_blocks), ("values", of_values)]);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The numbers in the `Debug` form of a structure, none of which is within another structure.
    fn fields(debug: &str) -> usize {
        debug.matches(": ").count()
    }

    /// How many samples a page has; each has a type.
    fn samples(page: &Page) -> usize {
        let typed: BTreeSet<_> = page.0.lines().filter_map(typed).collect();
        let samples: Vec<_> = page.0.lines().filter(|l| !l.starts_with('#')).collect();
        for sample in &samples {
            let name = sample.split(['{', ' ']).next().unwrap();
            assert!(typed.contains(name), "{name} has no type");
        }
        samples.len()
    }

    fn typed(line: &str) -> Option<&str> {
        line.strip_prefix("# TYPE ")?.split(' ').next()
    }

    #[test]
    fn every_counter_of_each_cache_is_a_metric() {
        let mut page = Page::default();
        buffers(&BufferStats::default(), &mut page);
        let all = fields(&format!("{:?}", BufferStats::default()));
        assert_eq!((samples(&page), all), (13, 13), "{}", page.0);
        let mut page = Page::default();
        extent_status(&ExtentStatusStats::default(), &mut page);
        let all = fields(&format!("{:?}", ExtentStatusStats::default()));
        assert_eq!((samples(&page), all), (17, 17), "{}", page.0);
        let mut page = Page::default();
        let stats = MbcacheStats::default();
        mbcache(&stats, &stats, &mut page);
        let all = fields(&format!("{stats:?}"));
        // Of blocks and of values.
        assert_eq!(samples(&page), 2 * all, "{}", page.0);
        assert_eq!(stats.each().count(), all);
    }

    #[test]
    fn times_are_seconds_and_designs_are_labels() {
        let mut page = Page::default();
        let stats = ExtentStatusStats {
            es_stats_max_scan_time: 2_500_000,
            ..ExtentStatusStats::default()
        };
        extent_status(&stats, &mut page);
        write_designs(&Designs::default(), &mut page);
        for line in [
            "uext4_extent_status_max_scan_seconds 0.0025\n",
            "uext4_design{subsystem=\"mbcache\",design=\"one-donor\"} 1\n",
        ] {
            assert!(page.0.contains(line), "{line}: {}", page.0);
        }
    }
}
