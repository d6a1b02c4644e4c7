//! Every on-disk structure of ext2, ext3, ext4 and jbd2, and nothing else: no I/O, no allocation
//! policy, no caches.
//!
//! One file a structure. Each declares the raw layout once, with the format's own field names and
//! little-endian (in [`journal`]: big-endian) field types, asserts its size and offsets at
//! compile time, and next to it gives a host form in plain words. Whatever number is read from an
//! image is validated here or by [`Geometry`] before any other crate sees it; what is wrong comes
//! back as a [`Damage`] with the numbers that show it.
//!
//! Only this crate knows an offset, and only it makes the bytes of nodes, directories and
//! attributes: [`pack`] says where.

#![cfg_attr(
    not(test),
    warn(clippy::as_conversions, clippy::arithmetic_side_effects)
)]

pub mod acl;
pub mod checksum;
pub mod dir_block;
pub mod dir_entry;
pub mod encryption;
pub mod extent;
pub mod fast_commit;
pub mod features;
pub mod group_desc;
pub mod hash;
pub mod htree;
pub mod indirect;
pub mod inode;
pub mod journal;
pub mod mapping;
pub mod mmp;
pub mod num;
pub mod orphan;
pub mod pack;
pub mod quota;
pub mod repair_log;
pub mod superblock;
pub mod xattr;

mod damage;
mod geometry;
mod units;

pub use damage::Damage;
pub use geometry::{Geometry, has_sparse_backup};
pub use units::{BlockSize, GroupNr, Ino, Lblk, Pblk};
