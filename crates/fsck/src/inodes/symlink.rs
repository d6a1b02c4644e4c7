//! Symbolic links and inline data: contents that lie in the inode, or in one block.
//!
//! The target of a symbolic link is as long as `i_size` says and ends with a zero byte where there
//! is room for one; an encrypted one begins with its length. A link that does not lead anywhere
//! cannot be mended: nothing else knows the target.

use uext4_ondisk::inode::{FileType, GOOD_OLD_INODE_SIZE, I_BLOCK_LEN, InodeFlags, RawInode};
use uext4_ondisk::num::{index, len64, lo32};
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
use crate::xattr;

/// The shortest target in a block. The kernel reads a shorter one, too, but never writes it there;
/// e2fsprogs look for it in the inode.
const IN_BLOCK_MIN: u64 = I_BLOCK_LEN as u64;
/// Bytes of what `i_blocks` counts.
const SECTOR: u32 = 512;
/// Bytes before the target of an encrypted link: its length.
const ENCRYPTED_LEN: usize = 2;

impl Worker<'_, '_> {
    /// Stores the length of a target in `i_block` whose length says that it is in a block, though
    /// the inode has none. Before the map is read: what is there are no numbers.
    pub fn fast_symlink(&self, subject: &mut Subject<'_>) -> Result<()> {
        let stored = InodeFlags::EXTENTS.union(InodeFlags::INLINE_DATA);
        let raw = &subject.raw;
        let has_blocks = raw.i_blocks_lo.get() != 0 && subject.xattr_block().0 == 0;
        if mapping::is_fast_symlink(raw) || has_blocks || subject.flags().intersects(stored) {
            return Ok(());
        }
        match right_size(&raw.i_block, subject.flags()) {
            Some(right) => self.set_target_size(subject, right),
            None => Ok(()),
        }
    }

    fn set_target_size(&self, subject: &mut Subject<'_>, right: u64) -> Result<()> {
        let finding = subject.finding(InodeProblem::SymlinkSize);
        let finding = finding.found(subject.size()).right(right);
        self.mend(subject, finding, |raw| {
            raw.i_size_lo = lo32(right).into();
            raw.i_size_high = 0.into();
        })?;
        Ok(())
    }

    /// Examines the target of a symbolic link whose map ends at logical block `end`. What holds a
    /// file instead is a regular one afterwards: links have all permissions.
    pub fn symlink(&mut self, subject: &mut Subject<'_>, form: Form, end: u64) -> Result<()> {
        if form == Form::None
            && subject.has(InodeFlags::INLINE_DATA)
            && self.short_inline(subject)?
        {
            return Ok(());
        }
        let size = subject.size();
        let block = match form {
            Form::None => None,
            _ => self.first_block(subject)?,
        };
        let place = Place {
            form,
            block: block.as_deref(),
            end,
        };
        if subject.has(InodeFlags::ENCRYPT) && !place.fits(subject, subject.flags()) {
            self.plain_target(subject, place)?;
        }
        let is_right = place.fits(subject, subject.flags());
        if is_right {
            return Ok(());
        }
        let is_link = subject.raw.i_mode.get() & 0o7777 == 0o777 && end <= 1;
        if !is_link && self.holds_file(subject)? {
            return self.make_regular(subject);
        }
        if let (Form::Extents | Form::Numbers, Some(block), 1) = (form, &block, end)
            && let Some(target) = short_target(block, size, subject.flags())
        {
            return self.move_target(subject, target);
        }
        let right = match (form, &block) {
            (Form::None, _) if subject.has(InodeFlags::INLINE_DATA) => inline_size(subject),
            (Form::None, _) => right_size(&subject.raw.i_block, subject.flags()),
            (_, Some(block)) if end == 1 => {
                right_size(block, subject.flags()).filter(|&size| size >= IN_BLOCK_MIN)
            }
            _ => None,
        };
        match right {
            Some(right) => self.set_target_size(subject, right),
            None => {
                let finding = subject.finding(InodeProblem::Symlink).found(size);
                self.clear(subject, finding)
            }
        }
    }

    /// Clears the flag ENCRYPT of a link whose target is plain: it says how the target is read. One
    /// that has an encryption context was encrypted, whatever its bytes look like.
    fn plain_target(&self, subject: &mut Subject<'_>, place: Place<'_>) -> Result<()> {
        let plain = subject.flags().difference(InodeFlags::ENCRYPT);
        let fits = place.fits(subject, plain);
        match fits && !xattr::has_context(self.state, &subject.raw, subject.bytes)? {
            true => self.clear_flags(subject, InodeProblem::SymlinkPlain, InodeFlags::ENCRYPT),
            false => Ok(()),
        }
    }

    /// Examines a link with inline data that is short: the kernel never makes one, because the
    /// target has room in the inode without, and gives links all permissions. So without those it
    /// was a directory or a file. Whether nothing more is to be examined.
    fn short_inline(&self, subject: &mut Subject<'_>) -> Result<bool> {
        let size = subject.size();
        if size > IN_BLOCK_MIN {
            return Ok(false);
        }
        if subject.raw.i_mode.get() & 0o7777 != 0o777 {
            self.lost_directory(subject)?;
            if subject.file_type() == Some(FileType::Directory) {
                return Ok(true);
            }
            if self.holds_file(subject)? {
                self.make_regular(subject)?;
                return Ok(true);
            }
        }
        // e2fsck does not count the block of attributes of a link with inline data.
        let is_short =
            size < IN_BLOCK_MIN && is_target(&subject.raw.i_block, size, subject.flags());
        if is_short && subject.xattr_block().0 != 0 {
            self.clear_flags(subject, InodeProblem::InlineFlag, InodeFlags::INLINE_DATA)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Moves a target from its block into the inode, where e2fsprogs look for one of this length.
    fn move_target(&mut self, subject: &mut Subject<'_>, target: &[u8]) -> Result<()> {
        // Given back when all have claimed theirs: another thread may see it as its own.
        self.found.released.push((subject.ino, subject.raw));
        let geometry = self.state.geometry();
        let cluster = geometry.block_size.bytes() << geometry.cluster_bits;
        let sectors = cluster / SECTOR;
        let size = u32::try_from(target.len()).unwrap_or(0);
        let finding = subject.finding(InodeProblem::SymlinkInBlock).found(size);
        self.mend(subject, finding, |raw| {
            raw.i_block.fill(0);
            raw.i_block[..target.len()].copy_from_slice(target);
            raw.i_flags = (raw.i_flags.get() & !InodeFlags::EXTENTS.bits()).into();
            raw.i_blocks_lo = raw.i_blocks_lo.get().saturating_sub(sectors).into();
            raw.i_size_lo = size.into();
            raw.i_size_high = 0.into();
        })?;
        Ok(())
    }

    /// The contents of logical block 0.
    fn first_block(&mut self, subject: &Subject<'_>) -> Result<Option<Vec<u8>>> {
        let map = mapping::read(self.state, subject.ino, &subject.raw)?;
        let Some(first) = map.extents.first().filter(|first| first.lblk.0 == 0) else {
            return Ok(None);
        };
        let mut block = vec![0; self.state.geometry().block_size.len()];
        let overlay = self.state.volume.overlay();
        overlay.read_block(first.pblk, &mut block)?;
        Ok(Some(block))
    }
}

/// Where a target is.
#[derive(Clone, Copy)]
struct Place<'b> {
    form: Form,
    /// The contents of logical block 0, if the link has a map.
    block: Option<&'b [u8]>,
    /// The logical block behind the last one.
    end: u64,
}

impl Place<'_> {
    /// Whether there is a target of the link's size, read as these flags say.
    fn fits(self, subject: &Subject<'_>, flags: InodeFlags) -> bool {
        let size = subject.size();
        match (self.form, self.block) {
            (Form::None, _) if flags.contains(InodeFlags::INLINE_DATA) => {
                is_inline_target(subject, size)
            }
            (Form::None, _) => is_target(&subject.raw.i_block, size, flags),
            (_, Some(block)) if self.end == 1 => {
                size >= IN_BLOCK_MIN && is_target(block, size, flags)
            }
            _ => false,
        }
    }
}

/// The target in a block that would have its place in the inode.
fn short_target(block: &[u8], size: u64, flags: InodeFlags) -> Option<&[u8]> {
    let len = match is_target(block, size, flags) {
        true => size,
        false => right_size(block, flags)?,
    };
    let len = usize::try_from(len).ok().filter(|&len| len < I_BLOCK_LEN)?;
    block.get(..len)
}

/// Whether `bytes` hold a target of this size.
pub fn is_target(bytes: &[u8], size: u64, flags: InodeFlags) -> bool {
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

/// The size of the target that `bytes` hold for certain: nothing but zeroes are behind it.
fn right_size(bytes: &[u8], flags: InodeFlags) -> Option<u64> {
    let (low, high) = (*bytes.first()?, *bytes.get(1)?);
    let len = match flags.contains(InodeFlags::ENCRYPT) {
        true if [low, high] == [0; 2] => return None,
        true => usize::from(u16::from_le_bytes([low, high])).checked_add(ENCRYPTED_LEN)?,
        false => bytes.iter().position(|&byte| byte == 0)?,
    };
    let behind = bytes.get(len..).filter(|behind| !behind.is_empty())?;
    (len > 0 && behind.iter().all(|&byte| byte == 0)).then_some(len64(len))
}

/// The size of the target that fills the inode and its attribute.
fn inline_size(subject: &Subject<'_>) -> Option<u64> {
    let value = inline_rest(&subject.raw, subject.bytes)?;
    let bytes = subject.raw.i_block.iter().chain(value);
    let is_whole = bytes.clone().all(|&byte| byte != 0);
    is_whole.then_some(len64(bytes.count()))
}

/// Whether the inode and its attribute hold a target of this size. Nothing need be behind it.
fn is_inline_target(subject: &Subject<'_>, size: u64) -> bool {
    let value = inline_rest(&subject.raw, subject.bytes);
    let Some((value, size)) = value.zip(usize::try_from(size).ok()) else {
        return false;
    };
    let mut bytes = subject.raw.i_block.iter().chain(value);
    let len = bytes.clone().count();
    // One that fills the attribute ends there, whatever it holds.
    size > 0 && (len == size || bytes.position(|&byte| byte == 0).unwrap_or(len) == size)
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

/// Inline data, with what lies behind their end.
pub fn inline_contents(raw: &RawInode, bytes: &[u8]) -> Vec<u8> {
    let rest = inline_rest(raw, bytes).unwrap_or_default();
    [&raw.i_block, rest].concat()
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
