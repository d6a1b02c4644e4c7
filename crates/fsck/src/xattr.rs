//! Extended attributes: within inodes, in blocks, and in inodes of their own.
//!
//! ```text
//! inode ─ body: entries, values      each region is a list of entries that grows upward and
//!       ─ i_file_acl ─▶ block        values that grow downward; they must not meet
//!                        └ e_value_inum ─▶ inode with the value (`ea_inode`)
//! ```
//!
//! # During the pass over inodes
//!
//! [`check`] looks at what one inode says. A block may be shared by many inodes: the first one
//! that refers to it claims its cluster and examines its contents, the others only count. The
//! thread that examines a block holds the lock of the block's stripe, so that no other thread
//! counts on a block that turns out to be unusable.
//!
//! An attribute that cannot be read is dropped alone, and named; all others are packed anew. A
//! block whose header is not one is no attribute block at all, and its number is cleared. What
//! the kernel would refuse to read as a whole (a name with a zero byte, a value outside the
//! region) is a finding, because all attributes of the inode are out of reach.
//!
//! # At the end
//!
//! [`references`] compares the counts of references, and reads the values that lie in inodes of
//! their own. A value that has changed gets the hash of what it is now; in the next round the
//! hash of the attribute no longer agrees, and the attribute is dropped: its owner wrote
//! something else.

mod block;
mod body;
mod ea_inode;
mod entries;
mod references;
mod wrong;

use uext4_ondisk::inode::{InodeFlags, RawInode};
use uext4_ondisk::xattr::{NAME_PREFIXES, XattrEntry};
use uext4_ondisk::{Ino, Pblk};

use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::problem::XattrProblem;
use crate::state::State;
use crate::xattr_blocks::ValueUse;

pub use block::{copy, drop_reference, of_inode, set_of_inode};
pub use references::references;

/// What the attributes of an inode say about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Xattrs {
    /// The block that `i_file_acl` names, if it can be used. It counts as one cluster of
    /// `i_blocks`.
    pub block: Option<Pblk>,
    /// Whether there is an encryption context that can be one.
    has_context: bool,
    /// Whether the inode was marked as encrypted, and is not any more: it has no context.
    pub lost_encryption: bool,
    /// What values in inodes of their own add to the use of the inode's owner: their clusters
    /// count in `i_blocks` too.
    pub values: ValueUse,
}

/// Whose attributes are examined.
#[derive(Clone, Copy, Debug)]
struct Owner {
    ino: Ino,
    generation: u32,
    is_encrypted: bool,
}

/// Examines the attributes of an inode in use, and mends them: `bytes` are the inode's as they are
/// in the overlay, and `raw` its fields. Claims the cluster of its block, and counts what it
/// refers to. The caller's copies are old afterwards if there was a finding.
///
/// # Errors
/// Of the device and of the overlay.
pub fn check(state: &State<'_>, ino: Ino, raw: &RawInode, bytes: &[u8]) -> Result<Xattrs> {
    let owner = Owner {
        ino,
        generation: raw.i_generation.get(),
        is_encrypted: raw.i_flags.get() & InodeFlags::ENCRYPT.bits() != 0,
    };
    let mut xattrs = Xattrs::default();
    body::check(state, owner, raw, bytes, &mut xattrs)?;
    block::check(state, owner, raw, &mut xattrs)?;
    if owner.is_encrypted && !xattrs.has_context {
        let finding = Finding::new(XattrProblem::ContextMissing, Place::inode(ino));
        let cause = state.report(finding);
        state.volume.update_raw_inode(ino, cause, |raw| {
            raw.i_flags = (raw.i_flags.get() & !InodeFlags::ENCRYPT.bits()).into();
        })?;
        xattrs.lost_encryption = true;
    }
    Ok(xattrs)
}

/// Whether an inode has an encryption context, before its attributes are examined. A block that
/// holds something else has none.
///
/// # Errors
/// Of the device and of the overlay.
pub fn has_context(state: &State<'_>, raw: &RawInode, bytes: &[u8]) -> Result<bool> {
    let within = body::region(raw, bytes).is_some_and(entries::has_context);
    Ok(within || block::has_context(state, raw)?)
}

/// The full name of an attribute for a finding; one of an unknown kind begins with its number.
fn full_name(index: u8, suffix: &[u8]) -> Vec<u8> {
    let known = NAME_PREFIXES.iter().find(|(i, _)| *i == index);
    match (index, known) {
        (_, Some((_, prefix))) => [prefix.as_bytes(), suffix].concat(),
        (7, None) => [b"system.", suffix].concat(),
        (9, None) => [b"encryption.", suffix].concat(),
        (_, None) => [format!("{index}:").as_bytes(), suffix].concat(),
    }
}

/// The order in which the kernel keeps attributes in a block.
fn order<'a>(entry: &XattrEntry<'a>) -> (u8, usize, &'a [u8]) {
    (entry.index, entry.name.len(), entry.name)
}

#[cfg(test)]
mod tests;
