//! The empty file system: what mke2fs 1.47 chooses for a device and its flags, and the writing of
//! it.
//!
//! Three steps, each with one type between it and the next:
//!
//! ```text
//! Options ──layout()──▶ Layout ──format()──▶ device
//! flags     pure: shape → groups → files      bitmaps, tables, copies, superblock last
//! ```
//!
//! [`Options`] holds what the flags of mke2fs say and nothing else; [`parse_features`],
//! [`parse_extended`], [`parse_journal`] and [`parse_size`] read their values. [`layout`]
//! chooses: type by size, features, counts of groups and inodes, then where each structure goes.
//! A [`Layout`] knows how many blocks and inodes will be free, so that a planner can ask without
//! a device. [`format`](format()) writes it in large batches; its cost is that of the metadata
//! written, and no step works block by block: 16 TiB are 131,072 descriptors and 8,192 runs.
//!
//! Units: blocks of the file system unless a name says bytes, clusters or groups. Identity and time
//! are options: the same options give the same bytes.
//!
//! [`change_uuid`] gives a file system that is there another UUID, with all that depends on it.
//!
//! Left out: external journals, bad block lists, filling from a directory (that is the
//! image builder's), and asking the device for its alignment.

mod added_groups;
mod bitmaps;
mod error;
mod extended;

mod feature_list;
mod file_map;
mod format;
mod fs_type;
mod gdt;
mod groups;
mod journal;
mod journal_options;
mod layout;
mod mmp;
mod new_uuid;
mod options;
mod orphan_file;
mod plan;
mod profile;
mod quota;
mod resize_inode;
mod resolve;
mod root;
mod shape;
mod size;
mod space;
mod target;

pub use added_groups::{AddedGroups, added_groups, without_short_group};
pub use error::Error;
pub use extended::{Extended, QuotaTypes, parse_extended, parse_uuid};
pub use feature_list::{FeatureEdit, parse_features};
pub use format::format;
pub use fs_type::FsType;
pub use journal_options::{JournalOptions, parse_journal};
pub use layout::{Layout, layout};
pub use new_uuid::{NewUuid, change_uuid};
pub use options::{BlockSizeWish, ErrorsBehavior, Options};
pub use profile::UsageType;
pub use resize_inode::{ResizeMap, resize_map};
pub use size::{Size, parse_size};
pub use space::Run;
pub use target::{ALIASES, Alias, PROFILES, Profile, profile};
