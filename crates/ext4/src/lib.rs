//! ext2, ext3 and ext4 in user space, in safe Rust: the engine.
//!
//! Goals, in this order: never lose or corrupt data; speed; ease of use. No image, however damaged,
//! makes it panic, hang, or take memory by a number it read: what is wrong comes back as an
//! [`Error`] that names the structure and the numbers.
//!
//! # Reading
//!
//! ```no_run
//! use std::sync::Arc;
//! use uext4::{Filesystem, FollowLast, OpenOptions};
//! use uext4_blockdev::{Access, FileDevice};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Arc::new(FileDevice::open("disk.img", Access::ReadOnly)?);
//! let fs = Filesystem::open(device, &OpenOptions::default())?;
//! let dir = fs.resolve(b"/etc", FollowLast::Yes)?;
//! for entry in fs.read_dir(&dir)? {
//!     let entry = entry?;
//!     println!("{:8} {}", entry.ino, String::from_utf8_lossy(&entry.name));
//! }
//! # Ok(())
//! # }
//! ```
//! A [`Filesystem`] is a handle: clones share one state and may be used from many threads. An
//! [`Inode`] is a copy of what was read. File data goes straight from the device to the caller;
//! metadata goes through a cache of bounded size and has its checksum verified once, when it comes
//! in. A journal that was not replayed is replayed in memory; the image stays as it is.
//!
//! # Writing
//!
//! ```no_run
//! use std::sync::Arc;
//! use uext4::{Creation, Filesystem, NewInode, OpenOptions};
//! use uext4_blockdev::{Access, FileDevice, SystemClock};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Arc::new(FileDevice::open("disk.img", Access::ReadWrite)?);
//! let clock = Arc::new(SystemClock);
//! let fs = Filesystem::open_rw(device, clock, &OpenOptions::default())?;
//! let etc = fs.root()?.lookup(b"etc")?;
//! let file = etc.create(b"motd", NewInode::File, &Creation::file())?;
//! file.write(0, b"hello\n")?;
//! file.fsync()?;
//! fs.close()?;
//! # Ok(())
//! # }
//! ```
//! Opening for writing claims the device ([`uext4_blockdev::Claim`]): a second [`Filesystem::open_rw`]
//! of the same image, in this process or another, is refused until the first is closed. A
//! [`Filesystem`] that is dropped without [`Filesystem::close`] is closed by its last clone, or by the
//! last [`OpenInode`] if one lives longer: what can be written is, and an error, which nobody is left to
//! get, goes to `tracing`. A thread that panics writes nothing more: then it is as after a power cut.
//!
//! An [`OpenInode`] is in use as long as it lives: unlinked, it keeps its contents until then. Every
//! call is atomic in memory, seen whole by other threads, and durable once an `fsync` or
//! [`Filesystem::sync`] after it returned, or a commit passed (every 5 s). The same operations by
//! path are methods of [`Filesystem`]. Permissions are the caller's business, as in a file server;
//! flags, limits and kinds are checked here, in the kernel's order.
//!
//! # Layers
//!
//! Files carry the kernel's names where it has one and import only downwards:
//!
//! ```text
//! paths  filesystem  open_inode                 the two layers of the API
//! super  leave  rename  setattr  fallocate      opening and closing; operations ...
//! create  unlink  file_change  readdir  statfs  ... on names, contents and attributes
//! redo  in_use  open_options  writeback_options fast commits that wait; closing; what there is to choose
//! inode_ref  evict                              inodes in use, and their end
//! dir_change  htree_change  inline_dir          names of a directory
//! xattr_change  acl  ea_inode                   attributes
//! file_pages  map_change  extents_change  ...   where data is, changed
//! handle  space  groups  orphan_change  sealer  changing a block; blocks, inodes, orphans; commits
//! rw  reclaim  discards                         what writing adds; its memory; what the device is told
//! namei  file  symlink  xattr  crypto  orphan   reading: paths, contents, targets, attributes, names
//! check                                         is it what it says it is?
//! htree  dir  map  extents  indirect  inline    reading: directories, where data is
//! quota_change  quota  quota_file  dquot        who has how much, and may have
//! icache  bitmap  inode  sbi  lock_order        inodes in memory, the mounted state, order of locks
//! fast_commit  memory  mapping  error           changes laid over the rest; the budget; small types
//! mount_limits  caller                          what a mount sets itself; on whose behalf
//! ```
//! The mounted state lives in `sbi`; functions take `&Sbi`.

mod acl;
mod acl_kind;
mod attr;
mod auto_da_alloc;
mod background;
mod bitmap;
mod bits;
mod bulk;
mod caller;
mod check;
mod copy_range;
mod create;
mod crypto;
mod data_blocks;
mod delayed_tables;
mod dentry;
mod description;
mod dir;
mod dir_block;
mod dir_change;
mod dir_grow;
mod discards;
mod dquot;
mod ea_inode;
mod edit;
mod error;
mod error_record;
mod evict;
mod extent_path;
mod extents;
mod extents_change;
mod fallocate;
mod fast_commit;
mod fiemap;
mod file;
mod file_blocks;
mod file_change;
mod file_pages;
mod filesystem;
mod fitrim;
mod groups;
mod handle;
mod htree;
mod htree_change;
mod ialloc;
mod icache;
mod in_use;
mod indirect;
mod indirect_change;
mod inline;
mod inline_dir;
mod inline_file;
mod inode;
mod inode_ref;
mod inode_store;
mod journal;
mod label;
mod leave;
mod lock_order;
mod map;
mod map_change;
mod mapping;
mod memory;
mod mmp;
mod mount_limits;
mod namei;
mod open_inode;
mod open_options;
mod orphan;
mod orphan_change;
mod owned;
mod owner;
mod paths;
mod policies;
mod quota;
mod quota_change;
mod quota_file;
mod reach;
mod readdir;
mod readpage;
mod reclaim;
mod redo;
mod rename;
mod rescue;
mod reservations;
mod rw;
mod sbi;
mod sealer;
mod setattr;
mod space;
mod statfs;
#[path = "super.rs"]
mod super_;
mod symlink;
mod taking;
#[cfg(test)]
mod testing;
mod unfinished;
mod unlink;
mod writeback_options;
mod xattr;
mod xattr_block;
mod xattr_change;
mod xattr_layout;
mod xattr_shared;

pub use attr::{SetId, VISIBLE as VISIBLE_FLAGS};
pub use bulk::{
    Attributes, Creator, CreatorOptions, FileContent, FileFootprint, Footprint, NewInode, Summary,
    XattrFootprint,
};
pub use caller::Caller;
pub use check::{Issue, Summary as CheckSummary};
pub use create::Creation;
pub use dir::{DirEntry, ReadDir};
pub use dquot::{Quota, QuotaLimits};
pub use error::{Error, Result};
pub use fallocate::{Fallocate, Seek};
pub use fast_commit::ReplaySummary;
pub use fiemap::{ExtentState, FileExtent};
pub use file::DataRanges;
pub use file_change::WriteMode;
pub use filesystem::Filesystem;
pub use inode::Inode;
pub use mapping::{MapState, Mapping};
pub use memory::MemoryUse;
pub use mount_limits::{MountLimits, OnDamage};
pub use namei::FollowLast;
pub use open_inode::OpenInode;
pub use open_options::OpenOptions;
pub use policies::Policies;
pub use readdir::Listed;
pub use rename::RenameMode;
pub use rescue::{CutOff, LostSuperblock, Rescue, SuperblockCopy, backup_of};
pub use rw::AccessTimes;
pub use setattr::{SetAttributes, SetTime};
pub use statfs::Statfs;
pub use uext4_buffer_cache::Stats as BufferStats;
pub use uext4_extent_status::{
    OptionError as ExtentStatusError, Options as ExtentStatusOptions, Shrinker,
    Stats as ExtentStatusStats, StatsMode,
};
pub use uext4_jbd2::Stats as JournalStats;
pub use uext4_mballoc::{
    CriterionStats, OptionError, Options as AllocatorOptions, PreallocationStats,
    Stats as AllocatorStats,
};
pub use uext4_mbcache::{
    OptionError as MbcacheOptionError, Options as MbcacheOptions, Policy as MbcachePolicy,
    Stats as MbcacheStats,
};
pub use uext4_ondisk::inode::{DeviceNumber, FileType, InodeFlags, Timestamp};
pub use uext4_ondisk::quota::QuotaKind;
pub use uext4_ondisk::{Damage, Geometry, GroupNr, Ino, Lblk, Pblk};
pub use uext4_writeback::throttle::{
    Class as WriterClass, Mode as WritebackMode, TunableError, Tunables,
};
pub use uext4_writeback::{Cancel, DeviceStats, DirtyLimits, Paced, Stats as PageStats, Writer};
pub use writeback_options::WritebackOptions;
pub use xattr::Xattr;
pub use xattr_change::SetMode;
