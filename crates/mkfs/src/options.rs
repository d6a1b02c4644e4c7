//! What the user wished: one field a flag of mke2fs, nothing resolved yet.
//!
//! `None` means "not said", and [`crate::layout`] then chooses what mke2fs 1.47 would. Nothing here
//! comes from a clock or from chance: identity and time are fields.

use std::ops::Range;

use uext4_ondisk::BlockSize;
use uext4_ondisk::features::Features;

use crate::extended::Extended;
use crate::feature_list::FeatureEdit;
use crate::fs_type::FsType;
use crate::journal_options::JournalOptions;
use crate::profile::UsageType;

/// `-b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockSizeWish {
    /// This size.
    Exactly(BlockSize),
    /// The default for the file system's size, but at least this (`-b -2048`).
    AtLeast(BlockSize),
}

/// `-e`: what the kernel does when it finds damage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u16)]
pub enum ErrorsBehavior {
    /// Goes on.
    #[default]
    Continue = 1,
    /// Remounts read-only.
    RemountReadOnly = 2,
    /// Panics.
    Panic = 3,
}

impl ErrorsBehavior {
    /// From the value of `-e`.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "continue" => Self::Continue,
            "remount-ro" => Self::RemountReadOnly,
            "panic" => Self::Panic,
            _ => return None,
        })
    }
}

/// Everything mke2fs's flags say.
#[derive(Clone, Debug)]
pub struct Options {
    /// `-t`.
    pub fs_type: FsType,
    /// `-T`; empty: by the size of the file system.
    pub usage: Vec<UsageType>,
    /// The size argument in bytes; `None`: the whole device.
    pub size: Option<u64>,
    /// `-b`.
    pub block_size: Option<BlockSizeWish>,
    /// `-C`: bytes of a cluster, with `bigalloc`.
    pub cluster_size: Option<u64>,
    /// `-g`: blocks of a group (clusters with `bigalloc`).
    pub blocks_per_group: Option<u32>,
    /// `-G`: groups of a flex group, a power of two.
    pub groups_per_flex: Option<u32>,
    /// `-i`: bytes per inode.
    pub inode_ratio: Option<u64>,
    /// `-I`: bytes of an inode.
    pub inode_size: Option<u16>,
    /// `-N`: inodes, rounded up to fill their tables.
    pub inodes: Option<u64>,
    /// `-m`: per cent of the blocks only root may take, 0 to 50.
    pub reserved_percent: f64,
    /// `-r 0`: the first revision of the format, without features and with inodes of 128 bytes.
    pub is_revision_0: bool,
    /// `-O`, in the order given.
    pub features: Vec<FeatureEdit>,
    /// `-E`.
    pub extended: Extended,
    /// `-j` and `-J`.
    pub journal: JournalOptions,
    /// `-L`: at most 16 bytes, padded with zero bytes.
    pub label: [u8; 16],
    /// `-M`: padded with zero bytes.
    pub last_mounted: [u8; 64],
    /// `-e`.
    pub errors: ErrorsBehavior,
    /// `-U`.
    pub uuid: [u8; 16],
    /// `-E hash_seed=`.
    pub hash_seed: [u8; 16],
    /// Every time stamp, seconds since 1970.
    pub time: u32,
    /// The device is known to read as zeroes everywhere: nothing is discarded or zeroed, and the
    /// inode tables count as zeroed.
    pub assume_zeroed: bool,
    /// Blocks that hold contents of files already, ascending and disjoint. They are in use from
    /// the start, and the bitmaps and tables of all groups lie after the last of them, which
    /// needs `flex_bg`.
    pub occupied: Vec<Range<u64>>,
}

impl Options {
    /// The defaults of `mke2fs -t ext4`, with this identity.
    pub fn new(uuid: [u8; 16], hash_seed: [u8; 16], time: u32) -> Self {
        Self {
            fs_type: FsType::Ext4,
            usage: Vec::new(),
            size: None,
            block_size: None,
            cluster_size: None,
            blocks_per_group: None,
            groups_per_flex: None,
            inode_ratio: None,
            inode_size: None,
            inodes: None,
            reserved_percent: 5.0,
            is_revision_0: false,
            features: Vec::new(),
            extended: Extended::default(),
            journal: JournalOptions::default(),
            label: [0; 16],
            last_mounted: [0; 64],
            errors: ErrorsBehavior::Continue,
            uuid,
            hash_seed,
            time,
            assume_zeroed: false,
            occupied: Vec::new(),
        }
    }

    /// True if inode tables will read as zeroes without being written: the device is discarded
    /// first, or known to be zeroed.
    pub(crate) fn tables_read_as_zeroes(&self) -> bool {
        self.assume_zeroed || self.extended.assume_storage_prezeroed || self.extended.discard
    }

    /// The features after the defaults of the type and the edits of `-O`, `-j` and `-J`.
    pub(crate) fn wished_features(&self) -> Features {
        let mut features = match self.is_revision_0 {
            true => Features::default(),
            false => crate::profile::default_features(self.fs_type),
        };
        for edit in &self.features {
            edit.apply(&mut features);
        }
        if self.journal.wished() {
            features.compat |= uext4_ondisk::features::Compat::HAS_JOURNAL;
        }
        features
    }
}
