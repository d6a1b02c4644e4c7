//! ext2, ext3 and ext4 in user space, in safe Rust: the engine.
//!
//! Goals, in this order: never lose or corrupt data; speed; ease of use. No image, however
//! damaged, can make it panic, hang or allocate an amount of memory chosen by the image. Damage
//! is reported as an [`Error`] that names the structure and the values.
//!
//! # Reading
//!
//! ```no_run
//! use uext4::{Image, OpenOptions};
//!
//! # fn main() -> uext4::Result<()> {
//! let image = Image::from_path("disk.img", &OpenOptions::default())?;
//! println!("{}", String::from_utf8_lossy(&image.read("/etc/hostname")?));
//! for found in image.walk("/etc")? {
//!     let found = found?;
//!     println!("{:8} {}", found.inode.ino, String::from_utf8_lossy(&found.path));
//! }
//! # Ok(())
//! # }
//! ```
//! An [`Image`] is a handle: clones share one state and may be used from many threads. An
//! [`Inode`] is a copy of what was read. File data is read directly from the device to the
//! caller; metadata is read through a cache of bounded size, and its checksum is verified once,
//! when it is loaded. A journal that was not replayed is replayed in memory; the image does not
//! change.
//!
//! # Writing
//!
//! ```no_run
//! use uext4::{OpenOptions, Volume};
//!
//! # fn main() -> uext4::Result<()> {
//! let volume = Volume::from_path("disk.img", &OpenOptions::default())?;
//! volume.write("/etc/motd", "hello\n")?;
//! volume.sync()?;
//! volume.close()?;
//! # Ok(())
//! # }
//! ```
//! A [`Volume`] is an [`Image`] that can be written; it dereferences to one. Opening it claims
//! the device: a second [`Volume::open`] of the same image, in this process or another, fails
//! until the first is closed. A [`Volume`] that is dropped without [`Volume::close`] is closed by
//! its last clone, or by the last [`OpenInode`] if one lives longer: data is written as far as
//! possible, and errors are logged with `tracing`. A thread that panics writes nothing more: the
//! image is then in the same state as after a power cut. Background threads commit every 5
//! seconds ([`OpenOptions::background`]).
//!
//! An [`OpenInode`] is in use as long as it lives: an unlinked one retains its data until then.
//! Every call is atomic in memory, so that other threads see all of its effects or none, and
//! durable once an `fsync` or [`Volume::sync`] after it has returned, or a later commit (every 5
//! s). The same operations by path are methods of [`Volume`]. Checking permissions is the
//! caller's responsibility, as in a file server; flags, limits and file types are checked here,
//! in the kernel's order.
//!

mod alloc;
mod api;
mod base;
pub mod bulk;
mod dir;
mod file;
mod inode;
mod journal;
mod map;
mod mount;
mod names;
mod orphan;
pub mod quota;
mod replay;
#[cfg(test)]
mod testing;
pub mod xattr;

pub use api::dir::Dir;
pub use api::file::{File, ImageFile};
pub use api::image::Image;
pub use api::open_inode::OpenInode;
pub use api::read_dir::ReadDir;
pub use api::volume::Volume;
pub use api::walk::{Walk, WalkEntry};
pub use api::{data, device, format, stats, tuning};
pub use base::caller::Caller;
pub use base::error::{Error, RemoteError, Result};
pub use base::fast_commit::ReplaySummary;
pub use base::invalid::Invalid;
pub use base::rescue;
pub use bulk::NewInode;
pub use dir::DirEntry;
pub use dir::namei::{FollowLast, path_below};
pub use dir::readdir::Listed;
pub use file::setattr::{SetAttributes, SetTime};
pub use inode::Inode;
pub use mount::open_options::OpenOptions;
pub use mount::statfs::Statfs;
pub use names::create::Creation;
pub use names::rename::RenameMode;
pub use uext4_ondisk::inode::{FileType, InodeFlags, Timestamp};
pub use uext4_ondisk::{Damage, Ino};
