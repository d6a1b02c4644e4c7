//! Inodes: read from their table, in memory, and stored.
//!
//! This file has the inode in host form, as it was when it was read. `icache` holds those in use,
//! `dentry` the names that led to them, `store` writes their bytes, `attr` is what statx(2) and
//! chattr(1) show, `dquot` is who pays for one, `delayed_tables` reserves indirect blocks, and
//! `inline` is data within the inode. Left out: where data is (`map`), attributes (`xattr`).

pub(crate) mod attr;
pub(crate) mod delayed_tables;
pub(crate) mod dentry;
pub(crate) mod dquot;
pub(crate) mod icache;
pub(crate) mod inline;
pub(crate) mod store;

use std::mem::offset_of;
use std::ops::Deref;
use std::sync::Arc;

use uext4_ondisk::extent::{ExtentNode, empty_extent_root};
use uext4_ondisk::features::{Incompat, RoCompat};
use uext4_ondisk::inode::{
    DeviceNumber, FileType, GOOD_OLD_INODE_SIZE, I_BLOCK_LEN, InodeFlags, RawInode, Timestamp,
    inode_checksum, stored_checksum, update_checksum,
};
use uext4_ondisk::xattr::EXT4_XATTR_MAGIC;
use uext4_ondisk::{Damage, Ino, Lblk, Pblk};

use crate::base::disk::Disk;
use crate::base::error::{Error, Result};
use crate::base::mapping::Mapping;
use crate::base::owner::{Kind, tag};
use crate::inode::dquot::Owners;

/// Looks up where blocks of an inode lie, as [`crate::map::map_blocks`] does. The files of quotas
/// and orphans take it as an argument: maps are changed through journal handles, and these know
/// quotas and orphans, so neither may import the maps.
pub(crate) type MapBlocks = fn(&Disk, &Inode, Lblk, u32) -> Result<Mapping>;

/// Most links an inode counts.
pub(crate) const LINKS_MAX: u16 = 65_000;

/// An inode number with its generation, which distinguishes two inodes that had the number one
/// after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InodeId {
    /// The number.
    pub(crate) ino: Ino,
    /// The generation, `i_generation`.
    pub(crate) generation: u32,
}

/// An inode as it was when it was read. Cheap to clone; pins nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Its number.
    pub ino: Ino,
    /// `i_mode`: type bits and permissions.
    pub mode: u16,
    /// What the type bits say.
    pub file_type: FileType,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes of data; the target's length for a symlink.
    pub size: u64,
    /// Hard links; 1 for a directory with more subdirectories than the field counts.
    pub links: u16,
    /// Space taken, in units of 512 bytes.
    pub blocks: u64,
    /// Flags as lsattr shows them, and internal ones.
    pub flags: InodeFlags,
    /// Generation, for NFS and checksums.
    pub generation: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation, where the inode has room for it.
    pub crtime: Option<Timestamp>,
    /// `i_dtime`: time of deletion, or the next inode of the orphan list.
    pub dtime: u32,
    /// Project, 0 without the feature.
    pub projid: u32,
    /// Which device, for device nodes.
    pub rdev: Option<DeviceNumber>,
    /// Block of extended attributes, if there is one.
    pub xattr_block: Option<Pblk>,
    pub(crate) i_block: [u8; I_BLOCK_LEN],
    /// The size as it is stored, where what was written last has not reached the device yet.
    pub(crate) disk_size: Option<u64>,
    /// Byte offset of the attributes' magic in the inode, where it stands there.
    pub(crate) xattr_offset: Option<u16>,
    /// The owners that pay for it, if usage is counted.
    pub(crate) owners: Option<Box<Owners>>,
}

impl Inode {
    /// Whether all flags of `flags` are set.
    pub fn has(&self, flags: InodeFlags) -> bool {
        self.flags.contains(flags)
    }

    /// Its number and generation.
    pub(crate) fn id(&self) -> InodeId {
        InodeId {
            ino: self.ino,
            generation: self.generation,
        }
    }

    /// Whether there is a place of extended attributes.
    pub(crate) fn has_attributes(&self) -> bool {
        self.xattr_block.is_some() || self.xattr_offset.is_some()
    }

    /// Whether nothing but times of access and change is not as in `other`.
    pub(crate) fn differs_in_times_only(&self, other: &Self) -> bool {
        let timed = Self {
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            ..other.clone()
        };
        timed == *self
    }

    /// Lets limits not count for what it gets from now on, or lets them; says what was before.
    pub(crate) fn set_quota_free(&mut self, free: bool) -> bool {
        let owners = self.owners.as_deref_mut();
        owners.is_some_and(|owners| std::mem::replace(&mut owners.free, free))
    }

    /// Whether the target of this symlink lies in `i_block`.
    pub(crate) fn is_fast_symlink(&self, disk: &Disk) -> bool {
        let cluster = disk.geometry().block_size.bytes() << disk.geometry().cluster_bits;
        let xattr_blocks = self.xattr_block.map_or(0, |_| u64::from(cluster) / 512);
        self.file_type == FileType::Symlink
            && self.size < I_BLOCK_LEN as u64
            && !self.has(InodeFlags::INLINE_DATA)
            && (!self.has(InodeFlags::EXTENTS) || self.blocks <= xattr_blocks)
    }
}

/// The bytes of one inode, within the block they were read from.
#[derive(Clone, Debug)]
pub(crate) struct InodeBytes {
    block: Arc<[u8]>,
    at: usize,
    len: usize,
}

impl Deref for InodeBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // OK to index: `inode_bytes` made sure that the range lies in the block.
        &self.block[self.at..self.at + self.len]
    }
}

/// Block of the inode table that holds an inode, and the byte where it begins there.
pub(crate) fn inode_place(disk: &Disk, ino: Ino) -> Result<(Pblk, usize)> {
    let geometry = disk.geometry();
    let (group, index) = geometry
        .inode_group(ino)
        .ok_or(Error::Corrupt(Damage::InodeNumber {
            what: "look-up",
            ino,
            inodes_count: geometry.inodes_count,
        }))?;
    let table = disk.inode_table(group)?;
    let table_blocks = u64::from(geometry.itable_blocks());
    if !geometry.may_place(group, table, table_blocks) {
        return Err(Error::Corrupt(Damage::DescLocation {
            group,
            what: "inode table",
            block: table,
        }));
    }
    let offset = u64::from(index) * u64::from(geometry.inode_size);
    let block = Pblk(table.0 + (offset >> geometry.block_size.log2()));
    disk.read_itable_ahead(block, table, Pblk(table.0 + table_blocks));
    Ok((block, offset as usize & (disk.block_len() - 1)))
}

/// Reads the `inode_size` bytes of an inode, as fast commits leave them; nothing is verified.
pub(crate) fn inode_bytes(disk: &Disk, ino: Ino) -> Result<InodeBytes> {
    let (block, at) = inode_place(disk, ino)?;
    let buffer = disk.bread("inode table", block, tag(Kind::InodeTable), |_| Ok(()))?;
    let len = usize::from(disk.geometry().inode_size);
    let block = buffer.data();
    // Cannot be: inode sizes are powers of two up to the block size. Checked for `Deref`.
    if block.len() < at + len {
        let damage = Damage::truncated("inode", at + len, block.len());
        return Err(Error::Corrupt(damage));
    }
    let bytes = InodeBytes { block, at, len };
    let changed = disk.fast_commit().and_then(|all| all.changed(ino));
    match changed.and_then(|c| Some((c.raw.as_deref()?, c.parent.is_some()))) {
        None => Ok(bytes),
        Some((raw, is_new)) => Ok(InodeBytes {
            block: fast_committed(disk, ino, &bytes, raw, is_new)?.into(),
            at: 0,
            len,
        }),
    }
}

/// The bytes of an inode after a fast commit that recorded its first bytes as `raw`.
///
/// `i_block` stays as it was where it is a map, of which the commit reports the changes one by
/// one; a new inode starts with an empty one.
fn fast_committed(
    disk: &Disk,
    ino: Ino,
    before: &[u8],
    raw: &[u8],
    is_new: bool,
) -> Result<Vec<u8>> {
    let head = RawInode::parse(raw.get(..GOOD_OLD_INODE_SIZE).unwrap_or_default(), ino)?;
    let mut bytes = if is_new {
        vec![0; before.len()]
    } else {
        before.to_vec()
    };
    let flags = InodeFlags::from_bits_retain(head.i_flags.get());
    let is_file = FileType::from_mode(head.i_mode.get()) == Some(FileType::Regular);
    let mut i_block = head.i_block;
    if flags.contains(InodeFlags::EXTENTS) {
        let old = RawInode::parse(before.get(..GOOD_OLD_INODE_SIZE).unwrap_or_default(), ino)?;
        i_block = old.i_block;
        if is_new || ExtentNode::parse(&i_block, None, None).is_err() {
            i_block = empty_extent_root();
        }
    } else if is_file && !flags.contains(InodeFlags::INLINE_DATA) {
        let old = RawInode::parse(before.get(..GOOD_OLD_INODE_SIZE).unwrap_or_default(), ino)?;
        // The blocks of block numbers that were recorded are not notified of, and may not be
        // there.
        i_block = if is_new {
            [0; I_BLOCK_LEN]
        } else {
            old.i_block
        };
    }
    let len = raw.len().min(bytes.len());
    bytes[..len].copy_from_slice(&raw[..len]);
    let at = offset_of!(RawInode, i_block);
    // OK to index: a recorded inode has at least 128 bytes, as `Record` makes sure.
    bytes[at..at + I_BLOCK_LEN].copy_from_slice(&i_block);
    if let Some(seed) = disk.geometry().csum_seed {
        update_checksum(&mut bytes, seed, ino, head.i_generation.get());
    }
    Ok(bytes)
}

/// Reads an inode that is in use.
pub(crate) fn iget(disk: &Disk, ino: Ino) -> Result<Inode> {
    let bytes = inode_bytes(disk, ino)?;
    let raw = RawInode::parse(&bytes, ino)?;
    if raw.i_mode.get() == 0 && raw.i_links_count.get() == 0 && ino != Ino::BAD_BLOCKS {
        let why = "i_mode and i_links_count are 0";
        return Err(Error::Corrupt(Damage::UnusedInode { ino, why }));
    }
    verify_checksum(disk, ino, &bytes, raw.i_generation.get())?;
    let mut inode = from_raw(disk, ino, &raw)?;
    inode.xattr_offset = xattr_offset(&bytes, raw.i_extra_isize.get());
    Ok(inode)
}

fn verify_checksum(disk: &Disk, ino: Ino, bytes: &[u8], generation: u32) -> Result<()> {
    let Some(seed) = disk.geometry().csum_seed else {
        return Ok(());
    };
    let stored = stored_checksum(bytes);
    let computed = inode_checksum(bytes, seed, ino, generation);
    if stored == computed {
        return Ok(());
    }
    Err(Error::Corrupt(Damage::InodeChecksum {
        ino,
        stored,
        computed,
    }))
}

/// Where the magic of the attributes in the inode stands, if it does.
fn xattr_offset(bytes: &[u8], extra_isize: u16) -> Option<u16> {
    let at = GOOD_OLD_INODE_SIZE + usize::from(extra_isize);
    let magic = bytes.get(at..at + 4)?;
    let set = bytes.len() > GOOD_OLD_INODE_SIZE
        && magic == uext4_ondisk::checksum::le32(EXT4_XATTR_MAGIC);
    set.then_some(at as u16)
}

fn from_raw(disk: &Disk, ino: Ino, raw: &RawInode) -> Result<Inode> {
    let mode = raw.i_mode.get();
    let file_type = match FileType::from_mode(mode) {
        Some(file_type) => file_type,
        None if ino == Ino::BAD_BLOCKS => FileType::Regular,
        None if mode == 0 => {
            let why = "i_mode is 0";
            return Err(Error::Corrupt(Damage::UnusedInode { ino, why }));
        }
        None => {
            return Err(Error::Corrupt(Damage::InodeField {
                ino,
                field: "i_mode",
                value: mode.into(),
                why: "no known file type",
            }));
        }
    };
    let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
    let is_device = matches!(file_type, FileType::CharDevice | FileType::BlockDevice);
    let has_project = disk
        .geometry()
        .features
        .ro_compat
        .contains(RoCompat::PROJECT);
    let xattr_block = wide(raw.i_file_acl_lo.get(), raw.i_file_acl_high.get().into());
    let crtime_end = offset_of!(RawInode, i_crtime) + 4;
    let time = |base: u32, extra: u32| Timestamp::decode(base, Some(extra));
    Ok(Inode {
        ino,
        mode,
        file_type,
        uid: u32::from(raw.i_uid_high.get()) << 16 | u32::from(raw.i_uid.get()),
        gid: u32::from(raw.i_gid_high.get()) << 16 | u32::from(raw.i_gid.get()),
        size: size(disk, raw, file_type),
        links: raw.i_links_count.get(),
        blocks: blocks(disk, raw, flags),
        flags,
        generation: raw.i_generation.get(),
        atime: time(raw.i_atime.get(), raw.i_atime_extra.get()),
        mtime: time(raw.i_mtime.get(), raw.i_mtime_extra.get()),
        ctime: time(raw.i_ctime.get(), raw.i_ctime_extra.get()),
        crtime: raw
            .has_field_to(crtime_end)
            .then(|| time(raw.i_crtime.get(), raw.i_crtime_extra.get())),
        dtime: raw.i_dtime.get(),
        projid: if has_project { raw.i_projid.get() } else { 0 },
        rdev: is_device.then(|| DeviceNumber::decode(&raw.i_block)),
        xattr_block: (xattr_block != 0).then_some(Pblk(xattr_block)),
        i_block: raw.i_block,
        disk_size: None,
        xattr_offset: None,
        owners: None,
    })
}

fn wide(lo: u32, hi: u32) -> u64 {
    u64::from(hi) << 32 | u64::from(lo)
}

/// The high half counts for regular files, and for directories with `large_dir`.
fn size(disk: &Disk, raw: &RawInode, file_type: FileType) -> u64 {
    let large_dir = disk
        .geometry()
        .features
        .incompat
        .contains(Incompat::LARGEDIR);
    let high = match file_type {
        FileType::Regular => raw.i_size_high.get(),
        FileType::Directory if large_dir => raw.i_size_high.get(),
        _ => 0,
    };
    wide(raw.i_size_lo.get(), high)
}

/// Space taken in 512-byte units: with `huge_file` 48 bits, and in blocks where the flag says so.
fn blocks(disk: &Disk, raw: &RawInode, flags: InodeFlags) -> u64 {
    if !disk
        .geometry()
        .features
        .ro_compat
        .contains(RoCompat::HUGE_FILE)
    {
        return raw.i_blocks_lo.get().into();
    }
    let blocks = wide(raw.i_blocks_lo.get(), raw.i_blocks_high.get().into());
    if flags.contains(InodeFlags::HUGE_FILE) {
        // 48 bits shifted by at most 7.
        blocks << (disk.geometry().block_size.log2() - 9)
    } else {
        blocks
    }
}
