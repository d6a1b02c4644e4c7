//! Growing and shrinking a file system: further groups behind those that are there, or fewer.
//!
//! Both examine the file system first ([`Examination`]), and refuse one that is damaged.
//!
//! # Growing
//!
//! Growing changes little of what exists. The bitmaps, inode tables and copies of the superblock of
//! the new groups lie where nothing reads yet, and are written first. One transaction of the
//! file system's own journal then changes what makes them part of it:
//!
//! ```text
//! old groups                                             │ new groups
//! superblock, descriptors, bitmap of the last group,     │ bitmaps, tables, backups
//! inode 7 and its blocks, backups                        │
//! └───────────── 2. one transaction ────────────────────┘ └────── 1. written ───────┘
//! ```
//! What was written first is durable before the transaction's commit block is written.
//!
//! Whatever cuts it off, the file system has either size and is clean once its journal is replayed,
//! by the kernel, e2fsck or us. A file system without a journal is marked as not cleanly unmounted
//! meanwhile, as by a mount: cut off, it must be checked.
//!
//! # Where descriptors go
//!
//! Each block of descriptors serves 64 or 128 groups (with 4 KiB blocks), and lies behind the
//! superblock and behind each backup. When they need more blocks, in this order:
//!
//! 1. `meta_bg`: they lie in the groups that they describe, so there is always room.
//! 2. `resize_inode`: blocks that were reserved behind the descriptors become descriptors. Inode 7,
//!    which owned them, loses them, and gets those that new backups reserve.
//! 3. Otherwise the file system gets `meta_bg` from here on, as the kernel does it, and inode 7
//!    gives its blocks back. Nothing moves.
//!
//! # What stays
//!
//! Inodes per group and the share of the blocks that are reserved for root. A last group too short
//! for its metadata and 50 blocks is left out, as by resize2fs.
//!
//! # Shrinking
//!
//! Whatever lies past the new end moves first, while the file system keeps its size:
//!
//! 1. *The journal*, by one write of its inode while the log is empty: `log.rs` says how.
//! 2. *Blocks*, inode by inode. Data are copied to free blocks, where nothing refers to them yet;
//!    then one transaction changes the map of the file, the bitmaps and the counts. What was freed
//!    is used again only after that.
//! 3. *Inodes* of groups that go get other numbers. One walk over all directories and attributes
//!    finds what names them; each inode is then one piece of a transaction.
//! 4. *The groups.* One last transaction, as large as that of growing, takes them out; it is
//!    refused if anything but their own bitmaps and tables is in use there.
//!
//! Pieces are gathered until they fill half the log. Cut off between two transactions, the file
//! system has its old size and some of its files lie elsewhere. Cut off in the last transaction, or
//! in that by which the journal gives back its old place, the kernel does not mount it until e2fsck
//! or we have replayed the journal. `docs/durability.md` says how many cuts were tried.
//!
//! The fewest blocks are those that hold everything that is in use besides the metadata of groups,
//! around the metadata that lies there meanwhile. Where extent trees become so much larger that
//! this is not enough, it is tried again with a few more.
//!
//! # While it is mounted
//!
//! One of our mounts grows by the same plan ([`grow_mounted`]). The engine calls it within a
//! commit, while no operation can change anything, and carries it out in the transaction that is
//! being closed: `uext4::device::Growth` is what passes between them. The bitmaps of groups that
//! there are, and their descriptors, are the engine's to change. A growth may change half as many
//! blocks as the log has room for; with more it is refused, and unmounted it can be done.
//!
//! # Several hosts
//!
//! With multiple mount protection, the block for it is claimed before the first change, as by a
//! repair, and given back at the end; the waits take eleven seconds or more. Shrinking leaves that
//! block where it is.
//!
//! Left out: shrinking a mounted file system, `64bit` for more than 2^32 blocks, external journals.
//! Shrinking leaves out lists of bad blocks, inodes that must keep their numbers (`stable_inodes`)
//! where one of them goes, and blocks of attributes whose values are inodes where files share them.
//! The second backup of `sparse_super2` is given up with the group that has it.
//!
//! Units: blocks unless a name says bytes, clusters or groups. Cost: two blocks or fewer for each
//! new group without `flex_bg`, and for each new flex group with it; the transaction has a block
//! for each block of descriptors and bitmap that changes, and one for each that inode 7 owns.
//! Shrinking reads all inodes that are in use, and all directories if one of them goes; it holds 40
//! bytes for each name of such an inode.

mod attribute_blocks;
mod batch;
mod bitmap;
mod changes;
mod claimed;
mod descriptors;
mod error;
mod examination;
mod extents;
mod fewer;
mod grow;
mod indirect;
mod inodes;
mod log;
mod metadata;
mod mounted;
mod move_blocks;
mod quota;
mod references;
mod renumber;
mod resize_inode;
mod shrink;
mod space;
mod state;
mod transaction;

pub use error::Error;
pub use examination::{Examination, must_be_sound};
pub use grow::{Resized, Size, grow};
pub use mounted::grow_mounted;
pub use shrink::{Progress, SmallerSize, shrink};

/// What the functions of this crate return.
pub type Result<T> = std::result::Result<T, Error>;
