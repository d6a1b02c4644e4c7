//! One inode, in both trees.

use uext4_ondisk::Ino;
use uext4_ondisk::inode::{GOOD_OLD_INODE_SIZE, RawInode};

/// An inode of both trees.
pub struct Pair<'a> {
    pub ino: Ino,
    pub was: RawInode,
    pub was_bytes: &'a [u8],
    pub is: RawInode,
    pub is_bytes: &'a [u8],
}

/// The known fields of an inode; without the extra ones, if these cannot be.
pub fn fields(ino: Ino, bytes: &[u8]) -> Option<RawInode> {
    let plain = || RawInode::parse(bytes.get(..GOOD_OLD_INODE_SIZE)?, ino).ok();
    RawInode::parse(bytes, ino).ok().or_else(plain)
}
