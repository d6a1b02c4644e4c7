//! Symbolic links and inline data: contents that lie in the inode, or in one block.
//!
//! The target of a symbolic link is as long as `i_size` says and ends with a zero byte where there
//! is room for one; an encrypted one begins with its length. A link that does not lead anywhere
//! cannot be mended: nothing else knows the target.

use uext4_ondisk::inode::{GOOD_OLD_INODE_SIZE, InodeFlags, RawInode};
use uext4_ondisk::num::{index, len64};
use uext4_ondisk::xattr::{
    EXT4_XATTR_MAGIC, INDEX_SYSTEM, INLINE_DATA_NAME, RawXattrEntry, XATTR_ENTRY_LEN, entry_len,
    value_len,
};
use zerocopy::FromBytes;

use super::subject::Subject;
use super::worker::Worker;
use crate::error::Result;
use crate::mapping::{self, Form};
use crate::problem::InodeProblem;

/// Bytes before the target of an encrypted link: its length.
const ENCRYPTED_LEN: usize = 2;

impl Worker<'_, '_> {
    /// Examines the target of a symbolic link whose map ends at logical block `end`.
    pub fn symlink(&mut self, subject: &mut Subject<'_>, form: Form, end: u64) -> Result<()> {
        let size = subject.size();
        let is_right = match form {
            Form::None if subject.has(InodeFlags::INLINE_DATA) => is_inline_target(subject, size),
            Form::None => is_target(&subject.raw.i_block, size, subject.flags()),
            _ if end != 1 => false,
            _ => self.is_block_target(subject, size)?,
        };
        if is_right {
            return Ok(());
        }
        let finding = subject.finding(InodeProblem::Symlink).found(size);
        self.clear(subject, finding)
    }

    fn is_block_target(&mut self, subject: &Subject<'_>, size: u64) -> Result<bool> {
        let map = mapping::read(self.state, subject.ino, &subject.raw)?;
        let Some(first) = map.extents.first().filter(|first| first.lblk.0 == 0) else {
            return Ok(false);
        };
        let mut block = vec![0; self.state.geometry().block_size.len()];
        let overlay = self.state.volume.overlay();
        overlay.read_block(first.pblk, &mut block)?;
        Ok(is_target(&block, size, subject.flags()))
    }
}

/// Whether `bytes` hold a target of this size.
fn is_target(bytes: &[u8], size: u64, flags: InodeFlags) -> bool {
    let room = bytes.len();
    let Some(size) = usize::try_from(size).ok().filter(|&s| s > 0 && s < room) else {
        return false;
    };
    if !flags.contains(InodeFlags::ENCRYPT) {
        return bytes.iter().position(|&byte| byte == 0) == Some(size);
    }
    let [low, high, ..] = *bytes else {
        return false;
    };
    let len = usize::from(u16::from_le_bytes([low, high]));
    // The size may count a zero byte behind.
    len != 0 && (len + ENCRYPTED_LEN == size || len + ENCRYPTED_LEN + 1 == size)
}

/// Whether the inode and its attribute hold a target of this size. Nothing need be behind it.
fn is_inline_target(subject: &Subject<'_>, size: u64) -> bool {
    let value = inline_rest(&subject.raw, subject.bytes);
    let Some((value, size)) = value.zip(usize::try_from(size).ok()) else {
        return false;
    };
    let mut bytes = subject.raw.i_block.iter().chain(value);
    let len = bytes.clone().count();
    size > 0 && bytes.position(|&byte| byte == 0).unwrap_or(len) == size
}

impl Subject<'_> {
    /// Length of the attribute that holds the rest of inline data; `None` if there is no such
    /// attribute.
    pub fn inline_value(&self) -> Option<u64> {
        inline_value(&self.raw, self.bytes)
    }
}

/// Length of the attribute that holds the rest of inline data; `None` if there is no such
/// attribute, or if its value is not there.
pub fn inline_value(raw: &RawInode, bytes: &[u8]) -> Option<u64> {
    inline_rest(raw, bytes).map(|rest| len64(rest.len()))
}

/// The rest of inline data.
fn inline_rest<'i>(raw: &RawInode, bytes: &'i [u8]) -> Option<&'i [u8]> {
    let start = GOOD_OLD_INODE_SIZE + usize::from(raw.i_extra_isize.get());
    let (magic, body) = bytes.get(start..)?.split_first_chunk::<4>()?;
    let mut rest = body;
    if u32::from_le_bytes(*magic) != EXT4_XATTR_MAGIC {
        return None;
    }
    loop {
        let (entry, names) = RawXattrEntry::read_from_prefix(rest).ok()?;
        if rest.first_chunk::<4>()? == &[0; 4] {
            return None;
        }
        let name = names.get(..entry.e_name_len.into())?;
        if entry.e_name_index == INDEX_SYSTEM && name == INLINE_DATA_NAME {
            let size = index(entry.e_value_size.get());
            if entry.e_value_inum.get() != 0 || size == 0 {
                return (size == 0).then_some(&[]);
            }
            let from = usize::from(entry.e_value_offs.get());
            let padded = body.get(..from.checked_add(value_len(size))?)?;
            return padded.get(from..from.checked_add(size)?);
        }
        let len = entry_len(entry.e_name_len.into()).max(XATTR_ENTRY_LEN);
        rest = rest.get(len..)?;
    }
}
