//! Data within the inode: small files and directories of file systems with `inline_data`.
//!
//! The first 60 bytes are in `i_block`, the rest in the attribute `system.data`, which is there
//! even if it is empty: without it the kernel does not take the data for inline. Other attributes
//! are placed first, and the data has what they leave of the inode's body. What does not fit there
//! gets blocks.

use std::ops::Range;

use uext4_ondisk::features::Incompat;
use uext4_ondisk::inode::{FileType, I_BLOCK_LEN, InodeFlags};
use uext4_ondisk::pack::directory::{DirShape, InlinePlan};
use uext4_ondisk::xattr::{
    INDEX_SYSTEM, INLINE_DATA_NAME, XATTR_IBODY_HEADER_LEN, XattrEntry, XattrPlace, XattrValue,
    entry_len, pack_body, parse_entries, value_len,
};
use uext4_ondisk::{Geometry, Ino};

use super::directory::Directory;
use super::{Creator, FileContent, itable};
use crate::base::error::{Error, Result};
use crate::base::invalid::Invalid;
use crate::inode::{iget, inode_bytes};
use crate::xattr::layout::XattrShape;

/// What an inode can hold of its own data: computed by [`super::Footprint::inline`]. The default
/// is nothing, as without `inline_data`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InlineSpace {
    /// Bytes that `system.data` can hold; `None` if nothing is stored inline.
    room: Option<usize>,
}

impl InlineSpace {
    /// In an inode whose body holds attributes of `entries` bytes.
    pub(super) fn new(geometry: &Geometry, shape: &XattrShape, entries: usize) -> Self {
        let incompat = geometry.features.incompat;
        let room = incompat
            .contains(Incompat::INLINE_DATA)
            .then(|| shape.inline_room(entries));
        Self {
            room: room.flatten(),
        }
    }

    /// Whether a file of so many bytes is stored within its inode. An empty one is not: it has no
    /// blocks anyway.
    pub(super) fn holds_file(self, size: u64) -> bool {
        let fits = |room: usize| size <= (I_BLOCK_LEN + room) as u64;
        size > 0 && self.room.is_some_and(fits)
    }

    /// Plans a directory within its inode; `None` if it does not fit.
    pub(super) fn plan<'a>(
        self,
        shape: &DirShape,
        count: u32,
        name: impl Fn(u32) -> &'a [u8],
    ) -> Result<Option<InlinePlan>> {
        match self.room {
            Some(room) => Ok(shape.plan_inline(count, name, room)?),
            None => Ok(None),
        }
    }
}

/// The body of an inode: its attributes, and the space that they leave.
struct Body {
    /// What lies behind the known fields.
    bytes: Vec<u8>,
    space: InlineSpace,
}

impl Body {
    fn entries(&self, ino: Ino) -> Result<Vec<XattrEntry<'_>>> {
        let list = self.bytes.get(XATTR_IBODY_HEADER_LEN..).unwrap_or_default();
        match self.bytes.first_chunk() {
            Some([0, 0, 0, 0]) | None => Ok(Vec::new()),
            Some(_) => Ok(parse_entries(list, 0, XattrPlace::Inode(ino))?),
        }
    }
}

fn len_of(entry: &XattrEntry<'_>) -> usize {
    let value = match entry.value {
        XattrValue::Here(value) => value_len(value.len()),
        XattrValue::Inode { .. } => 0,
    };
    entry_len(entry.name.len()) + value
}

impl Creator {
    fn has_inline_data(&self) -> bool {
        let incompat = self.sbi.geometry().features.incompat;
        incompat.contains(Incompat::INLINE_DATA)
    }

    /// The body of an inode that was created here.
    fn body(&self, ino: Ino) -> Result<Body> {
        let len = XATTR_IBODY_HEADER_LEN + self.xattr_shape.body_room;
        let bytes = inode_bytes(&self.sbi, ino)?;
        let tail = bytes.len().checked_sub(len).and_then(|at| bytes.get(at..));
        let mut body = Body {
            bytes: tail.unwrap_or_default().to_vec(),
            space: InlineSpace::default(),
        };
        let taken = body.entries(ino)?.iter().map(len_of).sum();
        body.space = InlineSpace::new(self.sbi.geometry(), &self.xattr_shape, taken);
        Ok(body)
    }

    /// Stores data of an inode within it, of `size` bytes: `i_block`, and the value of
    /// `system.data`.
    fn store_inline(
        &self,
        ino: Ino,
        body: &Body,
        i_block: [u8; I_BLOCK_LEN],
        value: &[u8],
        size: u32,
    ) -> Result<()> {
        let mut entries = vec![XattrEntry {
            index: INDEX_SYSTEM,
            name: INLINE_DATA_NAME,
            value: XattrValue::Here(value),
            hash: 0,
        }];
        entries.extend(body.entries(ino)?);
        let mut tail = vec![0; body.bytes.len()];
        pack_body(&mut tail, &entries)?;
        itable::update(&self.sbi, ino, Some(&tail), |raw| {
            let mut flags = InodeFlags::from_bits_retain(raw.i_flags.get());
            flags.remove(InodeFlags::EXTENTS);
            flags.insert(InodeFlags::INLINE_DATA);
            raw.i_flags = flags.bits().into();
            raw.i_size_lo = size.into();
            raw.i_block = i_block;
            Ok(())
        })
    }

    /// Writes the data of a file within its inode if it fits there; returns whether it did.
    pub(super) fn write_inline(
        &mut self,
        ino: Ino,
        size: u64,
        data: &[Range<u64>],
        source: &mut dyn FileContent,
    ) -> Result<bool> {
        let most = I_BLOCK_LEN + self.xattr_shape.body_room;
        if !self.has_inline_data() || size > most as u64 {
            return Ok(false);
        }
        let inode = iget(&self.sbi, ino)?;
        if inode.file_type != FileType::Regular || inode.size != 0 {
            return Err(Error::Invalid(Invalid::NotEmptyFile(ino)));
        }
        let body = self.body(ino)?;
        if !body.space.holds_file(size) {
            return Ok(false);
        }
        let len = size as usize;
        let mut bytes = vec![0; len.max(I_BLOCK_LEN)];
        for range in data {
            // OK to index: the ranges lie within the size.
            let part = &mut bytes[range.start as usize..range.end as usize];
            let (offset, result) = (range.start, source.read_exact_at(range.start, part));
            result.map_err(|source| Error::Content { offset, source })?;
        }
        let (first, value) = bytes.split_at(I_BLOCK_LEN);
        let mut i_block = [0; I_BLOCK_LEN];
        i_block.copy_from_slice(first);
        self.store_inline(ino, &body, i_block, value, size as u32)?;
        Ok(true)
    }

    /// Writes a directory within its inode if it fits there; returns whether it did. Directories
    /// that were there before have blocks, as mkfs makes them.
    pub(super) fn write_inline_directory(&mut self, directory: &Directory) -> Result<bool> {
        if !self.has_inline_data() || !directory.old_blocks.is_empty() {
            return Ok(false);
        }
        let body = self.body(directory.ino)?;
        let count = directory.len() as u32;
        let name = |i: u32| directory.name(i).name;
        let Some(plan) = body.space.plan(&self.dir_shape, count, name)? else {
            return Ok(false);
        };
        let name = |i: u32| directory.name(i);
        let (i_block, value) = plan.pack(&self.dir_shape, directory.parent, name);
        let size = (I_BLOCK_LEN + value.len()) as u32;
        self.store_inline(directory.ino, &body, i_block, &value, size)?;
        Ok(true)
    }
}
