//! Extended attributes of new inodes: written, and shared where they are equal.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};

use uext4_mballoc::Run;
use uext4_ondisk::features::Compat;
use uext4_ondisk::inode::{FileType, InodeFlags, RawInode, S_IFREG, Timestamp};
use uext4_ondisk::xattr::{
    XATTR_BLOCK_HEADER_LEN, XATTR_IBODY_HEADER_LEN, XATTR_REFCOUNT_MAX, XattrEntry, XattrPlace,
    XattrValue, ea_inode_hash, pack_block, pack_body, parse_entries, put_block_header,
    verify_block,
};
use uext4_ondisk::{GroupNr, Ino, Pblk};

use super::quota::Share;
use super::sectors::add_sectors;
use super::{Attributes, Creator, attributes, itable};
use crate::alloc::ialloc::Parent;
use crate::base::edit::Direct;
use crate::base::error::{Error, Result};
use crate::inode::{iget, inode_bytes};
use crate::xattr::layout::Attribute;
use crate::xattr::read_block;

/// Attributes that were written and may be shared. All of them are retained, because the space
/// calculation assumes that all equal ones are shared: some 40 bytes per block, and every value
/// that is stored in a separate inode.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    /// For the hash of a block's entries: the last block with these entries, and its number of
    /// users.
    blocks: HashMap<u64, (Pblk, u32)>,
    /// Inodes of values that are stored separately, and their number of users.
    values: HashMap<Box<[u8]>, (Ino, u32)>,
}

/// A hash of the entries of a block, to find equal blocks.
pub(super) fn digest(entries: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(entries);
    hasher.finish()
}

impl Creator {
    /// Writes the attributes of a new inode of `group`, whose other fields are set. Returns the
    /// tail: the bytes that follow the known fields of the inode.
    pub(super) fn store_xattrs(
        &mut self,
        raw: &mut RawInode,
        group: GroupNr,
        attributes: &Attributes,
    ) -> Result<Vec<u8>> {
        if attributes.xattrs.is_empty() {
            return Ok(Vec::new());
        }
        let shape = self.xattr_shape;
        let file_type = FileType::from_mode(raw.i_mode.get()).unwrap_or(FileType::Regular);
        let placed = shape.place(file_type, &attributes.xattrs)?;
        let geometry = self.sbi.geometry().clone();
        let per_block = u64::from(geometry.block_size.bytes() / 512);
        let mut blocks = 0;
        let mut tail = Vec::new();
        if !placed.body.is_empty() {
            tail.resize(XATTR_IBODY_HEADER_LEN + shape.body_room, 0);
            let inos = self.store_values(&placed.body, group, attributes)?;
            let entries = self.entries(&placed.body, &inos, false);
            pack_body(&mut tail, &entries)?;
        }
        if !placed.block.is_empty() {
            let at = match self.share_block(&placed.block)? {
                Some(at) => at,
                None => self.store_block(&placed.block, group, attributes)?,
            };
            raw.i_file_acl_lo = (at.0 as u32).into();
            raw.i_file_acl_high = ((at.0 >> 32) as u16).into();
            blocks += 1;
        }
        // Every user of a separate value is charged for all of it.
        let apart = placed.body.iter().chain(&placed.block).filter(|a| a.apart);
        for attribute in apart {
            blocks += geometry.block_size.blocks_for(attribute.value.len() as u64);
        }
        add_sectors(raw, &geometry, blocks * per_block)?;
        let mut features = self.superblock.features();
        features.compat |= Compat::EXT_ATTR;
        self.superblock.set_features(features);
        Ok(tail)
    }

    /// Returns the inodes of separate values, which are created or get one more user.
    fn store_values(
        &mut self,
        list: &[Attribute<'_>],
        group: GroupNr,
        owner: &Attributes,
    ) -> Result<Vec<Ino>> {
        let apart = list.iter().filter(|a| a.apart);
        apart
            .map(|a| self.store_value(&a.value, group, owner))
            .collect()
    }

    /// Returns the inodes of separate values, if all of them exist already.
    fn known_values(&self, list: &[Attribute<'_>]) -> Option<Vec<Ino>> {
        let known = |attribute: &Attribute<'_>| {
            let known = self.sharing.values.get(attribute.value.as_ref());
            known.map(|&(ino, _)| ino)
        };
        list.iter().filter(|a| a.apart).map(known).collect()
    }

    /// The entries of attributes; `inos` are the inodes of separate values. Entries of a block
    /// have hashes.
    fn entries<'a>(
        &self,
        list: &'a [Attribute<'_>],
        inos: &[Ino],
        hashed: bool,
    ) -> Vec<XattrEntry<'a>> {
        let mut inos = inos.iter();
        let entry = |attribute: &'a Attribute<'_>| {
            let (index, name, value) = (attribute.index, attribute.name, attribute.value.as_ref());
            if attribute.apart {
                let hash = ea_inode_hash(self.superblock.seed(), value);
                let ino = inos.next().copied().unwrap_or_default();
                return XattrEntry::in_inode(index, name, ino, value.len() as u32, hash);
            }
            match hashed {
                true => XattrEntry::here(index, name, value),
                false => XattrEntry {
                    index,
                    name,
                    value: XattrValue::Here(value),
                    hash: 0,
                },
            }
        };
        list.iter().map(entry).collect()
    }

    /// A block with these attributes except its header, and the hash for the header.
    fn block_of(&self, list: &[Attribute<'_>], inos: &[Ino]) -> Result<(Vec<u8>, u32)> {
        let entries = self.entries(list, inos, true);
        let mut block = vec![0; self.sbi.block_len()];
        let hash = pack_block(&mut block, &entries)?;
        Ok((block, hash))
    }

    /// Adds a user to a block with equal attributes, if there is one.
    fn share_block(&mut self, list: &[Attribute<'_>]) -> Result<Option<Pblk>> {
        let Some(inos) = self.known_values(list) else {
            return Ok(None);
        };
        let (mut block, hash) = self.block_of(list, &inos)?;
        let body = XATTR_BLOCK_HEADER_LEN..;
        let Some((at, users)) = self.sharing.blocks.get_mut(&digest(&block[body.clone()])) else {
            return Ok(None);
        };
        let old = read_block(&self.sbi, *at)?;
        if *users >= XATTR_REFCOUNT_MAX || old.get(body.clone()) != block.get(body) {
            return Ok(None);
        }
        *users += 1;
        put_block_header(&mut block, *at, *users, hash, self.sbi.geometry().csum_seed);
        let buffer = self.sbi.cache().getblk_zeroed(*at);
        buffer.modify(|bytes| bytes.copy_from_slice(&block));
        Ok(Some(*at))
    }

    /// Writes an xattr block.
    fn store_block(
        &mut self,
        list: &[Attribute<'_>],
        group: GroupNr,
        owner: &Attributes,
    ) -> Result<Pblk> {
        let inos = self.store_values(list, group, owner)?;
        let (mut block, hash) = self.block_of(list, &inos)?;
        let key = digest(&block[XATTR_BLOCK_HEADER_LEN..]);
        let at = self.space.take_one(&self.sbi, &self.groups)?;
        put_block_header(&mut block, at, 1, hash, self.sbi.geometry().csum_seed);
        let buffer = self.sbi.cache().getblk_zeroed(at);
        buffer.modify(|bytes| bytes.copy_from_slice(&block));
        self.sharing.blocks.insert(key, (at, 1));
        Ok(at)
    }

    /// Writes a value into a separate inode, or adds a user to an equal one.
    fn store_value(&mut self, value: &[u8], group: GroupNr, owner: &Attributes) -> Result<Ino> {
        if let Some((ino, users)) = self.sharing.values.get_mut(value)
            && *users < u32::MAX
        {
            *users += 1;
            let (ino, users) = (*ino, *users);
            itable::update(&self.sbi, ino, None, |raw| {
                raw.i_version = users.into();
                Ok(())
            })?;
            return Ok(ino);
        }
        let hash = ea_inode_hash(self.superblock.seed(), value);
        let place = Parent {
            group,
            is_top: false,
            last_group: None,
        };
        let new = self
            .groups
            .take_inode(&self.sbi, &Direct(&self.sbi), place, None)?;
        let mut raw = RawInode::zeroed();
        raw.i_mode = (S_IFREG | 0o600).into();
        raw.i_links_count = 1.into();
        raw.i_size_lo = (value.len() as u32).into();
        self.map_small(&mut raw, new.ino, value)?;
        let attributes = Attributes {
            mode: 0o600,
            uid: owner.uid,
            gid: owner.gid,
            // According to the format, the hash of the value.
            atime: Timestamp {
                sec: hash.into(),
                nsec: 0,
            },
            ..Attributes::default()
        };
        let inode_size = self.sbi.geometry().inode_size;
        attributes::store(&mut raw, FileType::Regular, &attributes, inode_size)?;
        // In inodes too small for more than 31 bits of time, the field can still store the hash.
        raw.i_atime = hash.into();
        raw.i_flags = (raw.i_flags.get() | InodeFlags::EA_INODE.bits()).into();
        // According to the format, the number of users: its high half replaces the time of
        // change.
        raw.i_version = 1.into();
        itable::write_new(&self.sbi, new, &raw, &[])?;
        self.sharing.values.insert(value.into(), (new.ino, 1));
        Ok(new.ino)
    }

    /// Replaces all attributes of an existing inode.
    pub(super) fn replace_attributes(&mut self, ino: Ino, new: &Attributes) -> Result<()> {
        let geometry = self.sbi.geometry().clone();
        let old = iget(&self.sbi, ino)?;
        let per_block = u64::from(geometry.block_size.bytes() / 512);
        let had_block = self.drop_xattrs(ino, old.xattr_block)?;
        let (group, _) = geometry.inode_group(ino).ok_or(Error::NotFound)?;
        // The new block, if any, is counted separately, because the inode is not available here.
        let mut fields = RawInode::zeroed();
        fields.i_mode = old.mode.into();
        let tail = self.store_xattrs(&mut fields, group, new)?;
        let apart = self.values_apart(old.file_type, new)?;
        let (before, after) = itable::update(&self.sbi, ino, Some(&tail), |raw| {
            // Values in separate inodes are not replaced.
            let before = Share::of(raw, &geometry, 0);
            attributes::store(raw, old.file_type, new, geometry.inode_size)?;
            raw.i_file_acl_lo = fields.i_file_acl_lo;
            raw.i_file_acl_high = fields.i_file_acl_high;
            let had = if had_block { per_block } else { 0 };
            let now = u64::from(fields.i_blocks_lo.get());
            let sectors = old.blocks.saturating_sub(had);
            (raw.i_blocks_lo, raw.i_blocks_high) = (0.into(), 0.into());
            add_sectors(raw, &geometry, sectors + now)?;
            Ok((before, Share::of(raw, &geometry, apart)))
        })?;
        self.usage.change(Some(before), after);
        Ok(())
    }

    /// Releases an inode's attributes; returns whether it had an xattr block.
    fn drop_xattrs(&mut self, ino: Ino, block: Option<Pblk>) -> Result<bool> {
        let apart = |entries: Vec<XattrEntry<'_>>| {
            entries
                .iter()
                .any(|entry| matches!(entry.value, XattrValue::Inode { .. }))
        };
        let unsupported = || Error::Unsupported {
            what: "replacing extended attributes in inodes of their own".to_owned(),
        };
        if let Some(at) = iget(&self.sbi, ino)?.xattr_offset {
            let bytes = inode_bytes(&self.sbi, ino)?;
            let region = bytes.get(usize::from(at) + XATTR_IBODY_HEADER_LEN..);
            if apart(parse_entries(
                region.unwrap_or_default(),
                0,
                XattrPlace::Inode(ino),
            )?) {
                return Err(unsupported());
            }
        }
        let Some(at) = block else {
            return Ok(false);
        };
        let data = read_block(&self.sbi, at)?;
        let place = XattrPlace::Block(at);
        if apart(parse_entries(&data, XATTR_BLOCK_HEADER_LEN, place)?) {
            return Err(unsupported());
        }
        let seed = self.sbi.geometry().csum_seed;
        let header = verify_block(&data, at, seed)?;
        let key = digest(data.get(XATTR_BLOCK_HEADER_LEN..).unwrap_or_default());
        let users = header.h_refcount.get().saturating_sub(1);
        if users == 0 {
            self.sharing.blocks.remove(&key);
            self.sbi.cache().forget(at);
            self.space
                .give_back(&self.sbi, &self.groups, &[Run { start: at, len: 1 }])?;
            return Ok(true);
        }
        if let Some((shared, count)) = self.sharing.blocks.get_mut(&key)
            && *shared == at
        {
            *count = users;
        }
        let mut bytes = data.to_vec();
        put_block_header(&mut bytes, at, users, header.h_hash.get(), seed);
        let buffer = self.sbi.cache().getblk_zeroed(at);
        buffer.modify(|block| block.copy_from_slice(&bytes));
        Ok(true)
    }
}
