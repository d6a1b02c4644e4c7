//! Inodes from host form into their table.

use uext4_ondisk::Pblk;
use uext4_ondisk::features::RoCompat;
use uext4_ondisk::inode::{GOOD_OLD_INODE_SIZE, InodeFlags, RawInode, Timestamp, update_checksum};

use crate::base::disk::Disk;
use crate::base::edit::Edit;
use crate::base::error::{Error, Result};
use crate::base::owner::{Kind, Owner, tag};
use crate::inode::{Inode, InodeId, inode_place};

/// Changes the bytes of an inode in its table, `inode_size` of them, and sums them anew.
///
/// Fails with damage of the place, errors of `f` (it must then have changed nothing), device
/// errors.
pub(crate) fn change_bytes<R>(
    disk: &Disk,
    edit: &impl Edit,
    id: InodeId,
    f: impl FnOnce(&mut [u8]) -> Result<R>,
) -> Result<R> {
    let (block, at) = inode_place(disk, id.ino)?;
    let buffer = disk.bread("inode table", block, tag(Kind::InodeTable), |_| Ok(()))?;
    let len = usize::from(disk.geometry().inode_size);
    edit.change(&buffer, Owner::of(Kind::InodeTable), |bytes| {
        // OK to index: inode sizes are powers of two up to the block size.
        let bytes = &mut bytes[at..at + len];
        let result = f(bytes)?;
        if let Some(seed) = disk.geometry().csum_seed {
            update_checksum(bytes, seed, id.ino, id.generation);
        }
        Ok(result)
    })
}

/// Writes an inode's fields to its table. Attributes behind them stay as they are, and so does
/// `i_dtime`, which belongs to the orphans.
pub(crate) fn store(edit: &impl Edit, disk: &Disk, inode: &Inode) -> Result<()> {
    change_bytes(disk, edit, inode.id(), |bytes| {
        let mut raw = RawInode::parse(bytes, inode.ino)?;
        encode(disk, inode, &mut raw)?;
        raw.store(bytes);
        Ok(())
    })
}

/// As [`store`], and with it the time of deletion.
pub(crate) fn store_deleted(
    edit: &impl Edit,
    disk: &Disk,
    inode: &Inode,
    dtime: u32,
) -> Result<()> {
    change_bytes(disk, edit, inode.id(), |bytes| {
        let mut raw = RawInode::parse(bytes, inode.ino)?;
        encode(disk, inode, &mut raw)?;
        raw.i_dtime = dtime.into();
        raw.store(bytes);
        Ok(())
    })
}

/// Writes a new inode over whatever stands in its place. `extra_isize`: how much it has beyond 128
/// bytes, where inodes are larger.
pub(crate) fn store_new(
    edit: &impl Edit,
    disk: &Disk,
    inode: &Inode,
    extra_isize: u16,
) -> Result<()> {
    change_bytes(disk, edit, inode.id(), |bytes| {
        let mut raw = RawInode::zeroed();
        if bytes.len() > GOOD_OLD_INODE_SIZE {
            raw.i_extra_isize = extra_isize.into();
        }
        encode(disk, inode, &mut raw)?;
        bytes.fill(0);
        raw.store(bytes);
        Ok(())
    })
}

fn low(number: u32) -> u16 {
    // The other half goes elsewhere.
    number as u16
}

fn encode(disk: &Disk, inode: &Inode, raw: &mut RawInode) -> Result<()> {
    raw.i_mode = inode.mode.into();
    raw.i_uid = low(inode.uid).into();
    raw.i_uid_high = low(inode.uid >> 16).into();
    raw.i_gid = low(inode.gid).into();
    raw.i_gid_high = low(inode.gid >> 16).into();
    let size = inode.disk_size.unwrap_or(inode.size);
    raw.i_size_lo = (size as u32).into();
    raw.i_size_high = ((size >> 32) as u32).into();
    raw.i_links_count = inode.links.into();
    raw.i_generation = inode.generation.into();
    raw.i_block = inode.i_block;
    let acl = inode.xattr_block.unwrap_or(Pblk(0)).0;
    raw.i_file_acl_lo = (acl as u32).into();
    raw.i_file_acl_high = ((acl >> 32) as u16).into();
    raw.i_projid = inode.projid.into();
    encode_times(inode, raw);
    encode_blocks(disk, inode, raw)
}

fn encode_times(inode: &Inode, raw: &mut RawInode) {
    // Without room for the extra field a time is cut to 32 bits; the field itself is then not
    // stored.
    let long = raw.i_extra_isize.get() >= 24;
    let put = |time: Timestamp| match time.encode() {
        (base, extra) if long => (base.into(), extra.into()),
        _ => (time.encode_short().into(), 0.into()),
    };
    (raw.i_atime, raw.i_atime_extra) = put(inode.atime);
    (raw.i_mtime, raw.i_mtime_extra) = put(inode.mtime);
    (raw.i_ctime, raw.i_ctime_extra) = put(inode.ctime);
    if let Some(crtime) = inode.crtime {
        (raw.i_crtime, raw.i_crtime_extra) = put(crtime);
    }
}

/// 32 bits of 512-byte units, 48 with `huge_file`, and then in blocks where that is not enough.
fn encode_blocks(disk: &Disk, inode: &Inode, raw: &mut RawInode) -> Result<()> {
    let geometry = disk.geometry();
    let huge = geometry.features.ro_compat.contains(RoCompat::HUGE_FILE);
    let mut flags = inode.flags.difference(InodeFlags::HUGE_FILE);
    let mut blocks = inode.blocks;
    let limit = if huge { 1u64 << 48 } else { 1 << 32 };
    if huge && blocks >= limit {
        flags |= InodeFlags::HUGE_FILE;
        blocks >>= geometry.block_size.log2() - 9;
    }
    if blocks >= limit {
        return Err(Error::FileTooBig);
    }
    raw.i_flags = flags.bits().into();
    raw.i_blocks_lo = (blocks as u32).into();
    raw.i_blocks_high = ((blocks >> 32) as u16).into();
    Ok(())
}
