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

mod alloc;
mod api;
mod base;
mod bulk;
mod check;
mod dir;
mod file;
mod inode;
mod journal;
mod map;
mod mount;
mod names;
mod orphan;
mod quota;
mod replay;
#[cfg(test)]
mod testing;
mod xattr;

pub use api::filesystem::Filesystem;
pub use api::open_inode::OpenInode;
pub use base::caller::Caller;
pub use base::error::{Error, Result};
pub use base::fast_commit::ReplaySummary;
pub use base::mapping::{MapState, Mapping};
pub use base::memory::MemoryUse;
pub use base::policies::Policies;
pub use base::rescue::{CutOff, LostSuperblock, Rescue, SuperblockCopy, backup_of};
pub use bulk::{
    Attributes, Creator, CreatorOptions, FileContent, FileFootprint, Footprint, NewInode, Summary,
    XattrFootprint,
};
pub use check::{Issue, Summary as CheckSummary};
pub use dir::namei::FollowLast;
pub use dir::readdir::Listed;
pub use dir::{DirEntry, ReadDir};
pub use file::DataRanges;
pub use file::change::WriteMode;
pub use file::fallocate::{Fallocate, Seek};
pub use file::fiemap::{ExtentState, FileExtent};
pub use file::setattr::{SetAttributes, SetTime};
pub use inode::Inode;
pub use inode::attr::{SetId, VISIBLE as VISIBLE_FLAGS};
pub use inode::dquot::{Quota, QuotaLimits};
pub use journal::mount_limits::{MountLimits, OnDamage};
pub use journal::rw::AccessTimes;
pub use mount::open_options::OpenOptions;
pub use mount::statfs::Statfs;
pub use mount::writeback_options::WritebackOptions;
pub use names::create::Creation;
pub use names::rename::RenameMode;
pub use uext4_buffer_cache::Stats as BufferStats;
pub use uext4_extent_status::{Stats as ExtentStatusStats, StatsMode};
pub use uext4_jbd2::Stats as JournalStats;
pub use uext4_mballoc::{
    CriterionStats, OptionError, Options as AllocatorOptions, PreallocationStats,
    Stats as AllocatorStats,
};
pub use uext4_mbcache::{Options as MbcacheOptions, Stats as MbcacheStats};
pub use uext4_ondisk::inode::{DeviceNumber, FileType, InodeFlags, Timestamp};
pub use uext4_ondisk::quota::QuotaKind;
pub use uext4_ondisk::{Damage, Geometry, GroupNr, Ino, Lblk, Pblk};
pub use uext4_writeback::throttle::{Class as WriterClass, TunableError, Tunables};
pub use uext4_writeback::{Cancel, DeviceStats, DirtyLimits, Paced, Stats as PageStats, Writer};
pub use xattr::Xattr;
pub use xattr::change::SetMode;
