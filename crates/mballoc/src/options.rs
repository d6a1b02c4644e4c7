//! The options of an allocator: the kernel's tunables that users know.

use uext4_tunables::{Tunable, number};

/// Bitmaps read ahead at once, at most (the kernel's `mb_prefetch`).
pub(crate) const PREFETCH: u32 = 32;
/// Bitmaps read ahead for one request, at most (the kernel's `mb_prefetch_limit`).
pub(crate) const PREFETCH_LIMIT: u32 = 128;

/// Options of one [`crate::Allocator`]; [`TUNABLES`] has those that users set by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Blocks of a full stripe of the RAID below, at most a group; 0 for none.
    pub stripe: u32,
    /// Groups whose bitmaps lie together (`2^s_log_groups_per_flex`), at least 1.
    pub flex_groups: u32,
    /// `mb_stream_req`: blocks from which on a file is a stream of its own. Default: 16.
    pub stream_req: u32,
    /// `mb_group_prealloc`: blocks preallocated for small files at once. Default: 512.
    pub group_prealloc: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            stripe: 0,
            flex_groups: 16,
            stream_req: 16,
            group_prealloc: 512,
        }
    }
}

/// What users set by name: the names, units and defaults of the kernel's `/sys/fs/ext4/*/mb_*`.
pub const TUNABLES: &[Tunable<Options>] = &[
    number!(
        "mb_stream_req",
        stream_req,
        0..=1 << 20,
        "blocks",
        "Size from which on files are allocated as streams of their own"
    ),
    number!(
        "mb_group_prealloc",
        group_prealloc,
        0..=1 << 15,
        "blocks",
        "Blocks preallocated at once for small files"
    ),
];

#[cfg(test)]
mod tests {
    use uext4_tunables::{describe, set};

    use super::*;

    #[test]
    fn options_are_set_by_name_within_their_ranges() {
        let mut options = Options::default();
        for option in ["mb_stream_req=0", "mb_group_prealloc=64"] {
            assert_eq!(set(TUNABLES, &mut options, option), Ok(true));
        }
        assert_eq!((options.stream_req, options.group_prealloc), (0, 64));
        let error = set(TUNABLES, &mut options, "mb_group_prealloc=32769").unwrap_err();
        let says = "mb_group_prealloc=32769: must be 0 to 32768 blocks";
        assert_eq!(error.to_string(), says);
        assert_eq!(set(TUNABLES, &mut options, "mb_more=1"), Ok(false));
        let rows = describe(TUNABLES, &Options::default());
        let defaults: Vec<_> = rows.into_iter().map(|row| row.default).collect();
        assert_eq!(defaults, [Some("16".to_owned()), Some("512".to_owned())]);
    }
}
