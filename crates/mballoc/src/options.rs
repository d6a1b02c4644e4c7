//! How an allocator decides: its policies and the kernel's tunables.

use crate::{Normalize, Search};

/// Policies and tunables of one [`crate::Allocator`]; the names of the kernel's `/sys/fs/ext4/*/mb_*`
/// files, with the kernel's units and defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// `mb_normalize=`: how much is asked for beyond the need.
    pub normalize: Normalize,
    /// `mb_search=`: in which groups a run is looked for.
    pub search: Search,
    /// `stripe=`: blocks of a full stripe of the RAID below, 0 for none.
    pub stripe: u32,
    /// Groups whose bitmaps lie together (`2^s_log_groups_per_flex`), at least 1.
    pub flex_groups: u32,
    /// The device seeks: near groups are tried one by one before any index.
    pub rotational: bool,
    /// Whether what was taken beyond the need is kept for the file.
    pub preallocate: bool,
    /// `mb_max_to_scan`: free runs looked at before the best is taken. Default: 200.
    pub max_to_scan: u32,
    /// `mb_min_to_scan`: free runs looked at although one is good enough. Default: 10.
    pub min_to_scan: u32,
    /// `mb_order2_req`: log₂ of the shortest power of two that is looked for by order. Default: 2.
    pub order2_req: u32,
    /// `mb_stream_req`: blocks from which on a file is a stream of its own. Default: 16.
    pub stream_req: u32,
    /// `mb_group_prealloc`: blocks preallocated for small files at once. Default: 512.
    pub group_prealloc: u32,
    /// `mb_max_linear_groups`: groups tried one by one on a rotational device. Default: 4.
    pub max_linear_groups: u32,
    /// `mb_best_avail_max_trim_order`: orders a request may shrink before all groups are walked.
    /// Default: 3.
    pub best_avail_max_trim_order: u32,
    /// `mb_prefetch`: bitmaps read ahead at once. Default: 32.
    pub prefetch: u32,
    /// `mb_prefetch_limit`: bitmaps read ahead for one request. Default: 128.
    pub prefetch_limit: u32,
    /// Goals of streams kept at most; the kernel has as many as there are processors. Default: 16.
    pub stream_goals: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            normalize: Normalize::default(),
            search: Search::default(),
            stripe: 0,
            flex_groups: 16,
            rotational: false,
            preallocate: true,
            max_to_scan: 200,
            min_to_scan: 10,
            order2_req: 2,
            stream_req: 16,
            group_prealloc: 512,
            max_linear_groups: 4,
            best_avail_max_trim_order: 3,
            prefetch: 32,
            prefetch_limit: 128,
            stream_goals: 16,
        }
    }
}
