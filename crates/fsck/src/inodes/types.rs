//! Inodes whose type cannot be theirs: what they hold says what they were.
//!
//! One bit makes a file a socket or nothing at all, and a directory a device. Neither has blocks,
//! so that whatever leads to some is what is left of a file; of its checksum nothing follows but
//! that something is wrong. This comes before the fields are examined: they would be by the wrong
//! type, and cleared.

use uext4_ondisk::Ino;
use uext4_ondisk::inode::{
    FileType, GOOD_OLD_INODE_SIZE, I_BLOCK_LEN, InodeFlags, RawInode, S_IFDIR, S_IFREG,
};
use uext4_ondisk::num::lo16;
use uext4_ondisk::xattr::{
    EXT4_XATTR_MAGIC, INDEX_SYSTEM, INLINE_DATA_NAME, RawXattrEntry, XATTR_ENTRY_LEN, entry_len,
};
use zerocopy::{FromBytes, IntoBytes};

use super::fields::is_whole_root;
use super::subject::Subject;
use super::symlink::is_target;
use super::worker::Worker;
use crate::error::Result;
use crate::mapping;
use crate::problem::InodeProblem;

/// Most bytes of inline data that lie in `i_block` alone.
const INLINE_MAX: u64 = 60;

impl Worker<'_, '_> {
    /// Gives an inode in use that is neither a file, a directory nor a symbolic link the type that
    /// it had, if it holds what only that type does; the root, whatever it is.
    pub fn lost_type(&self, subject: &mut Subject<'_>) -> Result<()> {
        let ino = subject.ino;
        let is_in_use = subject.raw.i_links_count.get() != 0;
        match subject.file_type() {
            Some(FileType::Directory) => return Ok(()),
            _ if ino == Ino::ROOT && is_in_use => return self.lost_directory(subject),
            Some(FileType::Regular | FileType::Symlink) => return Ok(()),
            _ if !is_in_use => return Ok(()),
            _ => {}
        }
        if ino.0 < self.state.geometry().first_ino || self.common.system.is_named(ino) {
            return Ok(());
        }
        self.lost_directory(subject)?;
        if subject.file_type() != Some(FileType::Directory) && self.holds_file(subject)? {
            self.make_regular(subject)?;
        }
        Ok(())
    }

    /// A directory whose mode was damaged begins with its own name, and no file of another type
    /// without contents does.
    pub fn lost_directory(&self, subject: &mut Subject<'_>) -> Result<()> {
        let last = self.state.geometry().inodes_count;
        // What damaged the mode may have damaged flags and size: a root says that it has extents.
        let has_extents = is_whole_root(&subject.raw.i_block);
        if subject.has(InodeFlags::INLINE_DATA) && !has_extents {
            return match is_inline_directory(&subject.raw.i_block, last) {
                true => self.make_directory(subject),
                false => Ok(()),
            };
        }
        if subject.size() < self.state.geometry().block_size.bytes().into() && !has_extents {
            return Ok(());
        }
        let mut raw = subject.raw;
        let permissions = raw.i_mode.get() & 0o7777;
        raw.i_mode = (S_IFDIR | permissions).into();
        if has_extents {
            let flags = subject.flags().difference(InodeFlags::INLINE_DATA) | InodeFlags::EXTENTS;
            raw.i_flags = flags.bits().into();
        }
        let map = mapping::read(self.state, subject.ino, &raw)?;
        let Some(first) = map.extents.first().filter(|first| first.lblk.0 == 0) else {
            return Ok(());
        };
        let mut block = vec![0; self.state.geometry().block_size.len()];
        let overlay = self.state.volume.overlay();
        overlay.read_block(first.pblk, &mut block)?;
        if !begins_directory(&block, subject.ino) {
            return Ok(());
        }
        if has_extents && subject.has(InodeFlags::INLINE_DATA) {
            self.clear_flags(subject, InodeProblem::InlineFlag, InodeFlags::INLINE_DATA)?;
        }
        self.make_directory(subject)
    }

    fn make_directory(&self, subject: &mut Subject<'_>) -> Result<()> {
        let mode = subject.raw.i_mode.get();
        let right = S_IFDIR | mode & 0o7777;
        let finding = subject.finding(InodeProblem::Directory).found(mode);
        self.mend(subject, finding, |raw| raw.i_mode = right.into())?;
        Ok(())
    }

    /// Makes an inode a regular file.
    pub fn make_regular(&self, subject: &mut Subject<'_>) -> Result<()> {
        let mode = subject.raw.i_mode.get();
        let right = S_IFREG | mode & 0o7777;
        let finding = subject.finding(InodeProblem::Regular).found(mode);
        self.mend(subject, finding, |raw| raw.i_mode = right.into())?;
        Ok(())
    }

    /// Whether an inode holds what only regular files do, whatever its type.
    pub fn holds_file(&self, subject: &Subject<'_>) -> Result<bool> {
        let has_size = subject.size() != 0;
        if is_whole_root(&subject.raw.i_block) {
            return Ok(has_size || subject.has(InodeFlags::EXTENTS));
        }
        if subject.has(InodeFlags::INLINE_DATA) && subject.inline_value().is_some() {
            return Ok(has_size);
        }
        self.holds_numbers(subject)
    }

    /// Whether `i_block` leads to as many blocks as the inode says it has, by their numbers.
    fn holds_numbers(&self, subject: &Subject<'_>) -> Result<bool> {
        let geometry = self.state.geometry();
        let lower = InodeFlags::EXTENTS.union(InodeFlags::HUGE_FILE);
        let attributes = u64::from(subject.xattr_block().0 != 0);
        let found = u64::from(subject.raw.i_blocks_lo.get());
        let is_possible =
            subject.size() != 0 && found > mapping::blocks_field(geometry, attributes, false);
        if !is_possible || geometry.cluster_bits != 0 || subject.flags().intersects(lower) {
            return Ok(false);
        }
        let mut raw = subject.raw;
        raw.i_mode = (S_IFREG | raw.i_mode.get() & 0o7777).into();
        raw.i_flags = (raw.i_flags.get() & !InodeFlags::INLINE_DATA.bits()).into();
        let map = mapping::read(self.state, subject.ino, &raw)?;
        let data: u64 = map.extents.iter().map(|extent| u64::from(extent.len)).sum();
        let blocks = data + map.nodes.len() as u64 + attributes;
        Ok(data != 0 && found == mapping::blocks_field(geometry, blocks, false))
    }

    /// Mends an inode with the flag INLINE_DATA and without the attribute that must go with it, if
    /// its contents are there: in blocks, or in `i_block` alone.
    pub fn mend_without_attribute(
        &self,
        subject: &mut Subject<'_>,
        file_type: FileType,
    ) -> Result<bool> {
        let size = subject.size();
        if self.holds_numbers(subject)?
            || file_type == FileType::Symlink
                && is_target(&subject.raw.i_block, size, subject.flags())
        {
            self.clear_flags(subject, InodeProblem::InlineFlag, InodeFlags::INLINE_DATA)?;
            return Ok(true);
        }
        if file_type != FileType::Regular || !(1..=INLINE_MAX).contains(&size) {
            return Ok(false);
        }
        let Some(new) = with_attribute(&subject.raw, subject.bytes) else {
            return Ok(false);
        };
        let finding = subject.finding(InodeProblem::InlineAttribute);
        let cause = self.state.report(finding.found(size));
        let from = attributes_start(&subject.raw);
        let update = |bytes: &mut [u8]| {
            if let Some(place) = bytes.get_mut(from..) {
                place.copy_from_slice(&new);
            }
        };
        self.state.volume.update_inode(subject.ino, cause, update)?;
        Ok(true)
    }
}

/// Where attributes begin in an inode.
fn attributes_start(raw: &RawInode) -> usize {
    GOOD_OLD_INODE_SIZE + usize::from(raw.i_extra_isize.get())
}

/// The attributes of an inode with one more: that of inline data, without a value. `None` if there
/// is no room for it.
fn with_attribute(raw: &RawInode, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut new = bytes.get(attributes_start(raw)..)?.to_vec();
    let (magic, body) = new.split_first_chunk_mut::<4>()?;
    if raw.i_extra_isize.get() == 0 || *magic != EXT4_XATTR_MAGIC.to_le_bytes() {
        body.fill(0);
    }
    *magic = EXT4_XATTR_MAGIC.to_le_bytes();
    let mut at = 0;
    let mut end = body.len();
    while *body.get(at..)?.first_chunk::<4>()? != [0; 4] {
        let (entry, _) = RawXattrEntry::read_from_prefix(body.get(at..)?).ok()?;
        if entry.e_value_inum.get() == 0 && entry.e_value_size.get() != 0 {
            end = end.min(usize::from(entry.e_value_offs.get()));
        }
        at += entry_len(entry.e_name_len.into()).max(XATTR_ENTRY_LEN);
    }
    let len = entry_len(INLINE_DATA_NAME.len());
    // The list ends with four zero bytes.
    let place = body.get_mut(at..end)?.get_mut(..len.checked_add(4)?)?;
    place.fill(0);
    let mut entry = RawXattrEntry::read_from_prefix(place).ok()?.0;
    entry.e_name_len = u8::try_from(INLINE_DATA_NAME.len()).ok()?;
    entry.e_name_index = INDEX_SYSTEM;
    entry.write_to_prefix(place).ok()?;
    place
        .get_mut(XATTR_ENTRY_LEN..)?
        .get_mut(..INLINE_DATA_NAME.len())?
        .copy_from_slice(INLINE_DATA_NAME);
    Some(new)
}

/// Whether `i_block` holds the first part of a directory that lies in its inode: the number of the
/// parent, then records to its end. Inode numbers end with `last`.
fn is_inline_directory(i_block: &[u8; I_BLOCK_LEN], last: u32) -> bool {
    let number = |at: usize| {
        let bytes = i_block.get(at..)?.first_chunk::<4>()?;
        Some(u32::from_le_bytes(*bytes))
    };
    let can_be = |ino: u32| (Ino::ROOT.0..=last).contains(&ino);
    if !number(0).is_some_and(can_be) {
        return false;
    }
    let mut at = 4;
    while at < I_BLOCK_LEN {
        let Some((ino, lengths)) = number(at).zip(number(at + 4)) else {
            return false;
        };
        let len = usize::from(lo16(lengths));
        let name_len = usize::from(lengths.to_le_bytes()[2]);
        let name = i_block.get(at + 8..at + 8 + name_len);
        let is_name = |name: &[u8]| !name.is_empty() && !name.contains(&0) && !name.contains(&b'/');
        let fits = len >= 8 && len.is_multiple_of(4) && at + len <= I_BLOCK_LEN;
        let is_right = ino == 0 || can_be(ino) && name_len + 8 <= len && name.is_some_and(is_name);
        if !fits || !is_right {
            return false;
        }
        at += len;
    }
    true
}

/// Whether a block begins with "." of this inode and "..".
fn begins_directory(block: &[u8], ino: Ino) -> bool {
    // Inode, length of the record, length of the name, type, name; then the next record.
    let dot = block.get(..4) == Some(&ino.0.to_le_bytes()) && block.get(4..6) == Some(&[12, 0]);
    let name = |at: usize| block.get(at).copied();
    dot && name(6) == Some(1) && block.get(8..9) == Some(b".") && block.get(20..22) == Some(b"..")
}
