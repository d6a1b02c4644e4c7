//! Where inodes are named: in directories, and by attributes whose value is an inode.

use uext4_ondisk::dir_entry::DirBlock;
use uext4_ondisk::inode::{FileType, GOOD_OLD_INODE_SIZE, I_BLOCK_LEN, InodeFlags, RawInode};
use uext4_ondisk::mapping::MapState;
use uext4_ondisk::xattr::{
    EXT4_XATTR_MAGIC, INDEX_SYSTEM, INLINE_DATA_NAME, XATTR_BLOCK_HEADER_LEN,
    XATTR_IBODY_HEADER_LEN, XattrPlace, XattrValue, entry_len, parse_entries,
};
use uext4_ondisk::{GroupNr, Ino, Lblk, Pblk};

use crate::Result;
use crate::attribute_blocks::block_of;
use crate::batch::Batch;
use crate::inodes::inodes_of;

/// Offset of `i_block` in an inode.
const I_BLOCK: usize = 40;
/// Offsets of `e_value_offs` and `e_value_inum` in an entry.
const VALUE_OFFS: usize = 2;
const VALUE_INUM: usize = 4;

/// A block of a directory.
#[derive(Clone, Copy, Debug)]
pub struct DirPlace {
    /// In the directory.
    pub lblk: Lblk,
    /// On the device.
    pub block: Pblk,
}

/// What holds the number of an inode.
#[derive(Clone, Copy, Debug)]
pub enum Holder {
    /// A block of a directory.
    Dir(Ino, DirPlace),
    /// An inode.
    Inode(Ino),
    /// A block of extended attributes.
    Attributes(Pblk),
}

/// Four bytes that hold the number of an inode.
#[derive(Clone, Copy, Debug)]
pub struct Reference {
    /// The number.
    pub target: Ino,
    /// In what they are.
    pub holder: Holder,
    /// Bytes from its beginning.
    pub offset: u32,
}

/// Finds all references to inodes past `last`, and sorts them by what they name.
///
/// # Errors
/// Damage of a directory or of attributes, those of the device.
pub fn all_references(batch: &Batch<'_>, last: Ino) -> Result<Vec<Reference>> {
    let mut finder = Finder {
        batch,
        last,
        found: Vec::new(),
        blocks: Vec::new(),
    };
    for group in (0..batch.geometry().groups_count.get()).map(GroupNr) {
        for ino in inodes_of(batch, group)? {
            finder.inode(ino)?;
        }
    }
    // Inodes share them.
    finder.blocks.sort_unstable();
    finder.blocks.dedup();
    for block in std::mem::take(&mut finder.blocks) {
        let bytes = batch.block(block)?;
        let at = XattrPlace::Block(block);
        finder.attributes(
            &bytes,
            XATTR_BLOCK_HEADER_LEN,
            0,
            at,
            Holder::Attributes(block),
        )?;
    }
    finder.found.sort_by_key(|reference| reference.target);
    Ok(finder.found)
}

/// The blocks of a directory, in its order.
///
/// # Errors
/// Damage of its map, those of the device.
pub fn blocks_of_dir(batch: &Batch<'_>, ino: Ino) -> Result<Vec<DirPlace>> {
    let image = &batch.state.image;
    let inode = image.inode(ino)?;
    let mut places = Vec::new();
    if inode.flags.contains(InodeFlags::INLINE_DATA) {
        return Ok(places);
    }
    let blocks = inode.size >> batch.geometry().block_size.log2();
    let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
    let mut next = 0;
    while next < blocks {
        let run = image.map(&inode, Lblk(next), blocks - next)?;
        if run.state == MapState::Written {
            let each = (0..run.len).map(|n| DirPlace {
                lblk: Lblk(next + n),
                block: Pblk(run.pblk.0 + u64::from(n)),
            });
            places.extend(each);
        }
        next += run.len.max(1);
    }
    Ok(places)
}

struct Finder<'a, 'b> {
    batch: &'a Batch<'b>,
    last: Ino,
    found: Vec<Reference>,
    /// Blocks of attributes, some more than once.
    blocks: Vec<Pblk>,
}

impl Finder<'_, '_> {
    fn inode(&mut self, ino: Ino) -> Result<()> {
        let bytes = self.batch.inode(ino)?;
        let raw = RawInode::parse(&bytes, ino)?;
        let is_dir = FileType::from_mode(raw.i_mode.get()) == Some(FileType::Directory);
        let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
        self.blocks.extend(block_of(&raw));
        let extra = usize::from(raw.i_extra_isize.get());
        let body = GOOD_OLD_INODE_SIZE.saturating_add(extra);
        let has_body = bytes.len() > GOOD_OLD_INODE_SIZE
            && bytes.get(body..).and_then(<[u8]>::first_chunk)
                == Some(&EXT4_XATTR_MAGIC.to_le_bytes());
        if has_body {
            let first = body + XATTR_IBODY_HEADER_LEN;
            let region = bytes.get(first..).unwrap_or_default();
            let at = XattrPlace::Inode(ino);
            self.attributes(region, 0, first, at, Holder::Inode(ino))?;
            if is_dir && flags.contains(InodeFlags::INLINE_DATA) {
                self.rest_of_inline(region, first, ino)?;
            }
        }
        if is_dir && flags.contains(InodeFlags::INLINE_DATA) {
            let parent = Ino(u32::from_le_bytes(
                raw.i_block.first_chunk().copied().unwrap_or_default(),
            ));
            self.meet(parent, Holder::Inode(ino), I_BLOCK);
            self.names(
                &raw.i_block[4..I_BLOCK_LEN],
                Holder::Inode(ino),
                I_BLOCK + 4,
            )?;
        } else if is_dir {
            for place in blocks_of_dir(self.batch, ino)? {
                let bytes = self.batch.block(place.block)?;
                self.names(&bytes, Holder::Dir(ino, place), 0)?;
            }
        }
        Ok(())
    }

    fn meet(&mut self, target: Ino, holder: Holder, offset: usize) {
        if target > self.last {
            self.found.push(Reference {
                target,
                holder,
                offset: offset as u32,
            });
        }
    }

    /// The names in bytes that begin at `start` of what holds them.
    fn names(&mut self, bytes: &[u8], holder: Holder, start: usize) -> Result<()> {
        let incompat = self.batch.geometry().features.incompat;
        for entry in DirBlock::new(bytes, None, incompat) {
            let entry = entry?;
            self.meet(entry.ino, holder, start + entry.offset);
        }
        Ok(())
    }

    /// Attributes whose value is an inode. `region` is what their values count from; it begins at
    /// `start` of what holds it.
    fn attributes(
        &mut self,
        region: &[u8],
        first: usize,
        start: usize,
        at: XattrPlace,
        holder: Holder,
    ) -> Result<()> {
        let mut offset = first;
        for entry in parse_entries(region, first, at)? {
            if let XattrValue::Inode { ino, .. } = entry.value {
                self.meet(ino, holder, start + offset + VALUE_INUM);
            }
            offset += entry_len(entry.name.len());
        }
        Ok(())
    }

    /// Names of a directory in its inode that did not fit `i_block`.
    fn rest_of_inline(&mut self, region: &[u8], start: usize, ino: Ino) -> Result<()> {
        let mut offset = 0;
        for entry in parse_entries(region, 0, XattrPlace::Inode(ino))? {
            let is_data = entry.index == INDEX_SYSTEM && entry.name == INLINE_DATA_NAME;
            if let XattrValue::Here(value) = entry.value
                && is_data
                && !value.is_empty()
            {
                let field = region
                    .get(offset + VALUE_OFFS..)
                    .and_then(<[u8]>::first_chunk);
                let from = usize::from(u16::from_le_bytes(field.copied().unwrap_or_default()));
                self.names(value, Holder::Inode(ino), start + from)?;
            }
            offset += entry_len(entry.name.len());
        }
        Ok(())
    }
}
