//! Numbers and structures of the format, as they appear in signatures.
//!
//! [`Lblk`] counts blocks from the beginning of a file, [`Pblk`] from the beginning of the file
//! system. [`Geometry`] is the validated geometry of a file system; [`SuperBlock`] and
//! [`GroupDesc`] are structures as stored on the device, with the kernel's names for their
//! fields.

pub use crate::inode::attr::VISIBLE as VISIBLE_FLAGS;
pub use uext4_ondisk::group_desc::GroupDesc;
pub use uext4_ondisk::inode::DeviceNumber;
pub use uext4_ondisk::superblock::SuperBlock;
pub use uext4_ondisk::{BlockSize, Geometry, GroupNr, Lblk, Pblk};
