//! The resize inode: it owns the blocks reserved behind every copy of the descriptors.
//!
//! ```text
//! inode 7 ─▶ double indirect block ─▶ reserved primary block i ─▶ the same block of each backup
//! ```
//! All of it follows from the shape of the file system but the number of the double indirect
//! block. If that cannot be, the inode is cleared, and [`recreate`] makes a new one when all
//! owners of blocks are known.

use uext4_ondisk::features::Compat;
use uext4_ondisk::indirect::{Reach, number_at, numbers, put_numbers};
use uext4_ondisk::inode::{FileType, I_BLOCK_LEN, InodeFlags, NDIR_BLOCKS, RawInode, S_IFREG};
use uext4_ondisk::num::{hi32, index, len64, lo16, lo32};
use uext4_ondisk::{Geometry, Ino, Pblk};

use crate::error::{Error, Result};
use crate::finding::{Finding, Place};
use crate::inode_map::Kind;
use crate::problem::SuperblockProblem;
use crate::report::{Cause, Findings};
use crate::state::State;
use crate::volume::{Volume, is_clear};

/// Where the double indirect block's number is in `i_block`.
const DOUBLE: usize = NDIR_BLOCKS + 1;

/// Checks the inode, and mends it in the overlay as far as it needs no new block.
///
/// # Errors
/// Of the device and of the overlay.
pub fn run(volume: &Volume, findings: &Findings<'_>) -> Result<()> {
    let place = || Place::inode(Ino::RESIZE);
    let bytes = volume.read_inode(Ino::RESIZE)?.unwrap_or_default();
    let inode = RawInode::parse(&bytes, Ino::RESIZE).ok();
    let has = volume.superblock().features().compat;
    if !has.contains(Compat::RESIZE_INODE) {
        let in_use = inode.is_none_or(|inode| inode.i_block != [0; I_BLOCK_LEN]);
        if !in_use || bytes.is_empty() {
            return Ok(());
        }
        let cause = findings.report(Finding::new(SuperblockProblem::ResizeInodeInUse, place()));
        return volume.update_inode(Ino::RESIZE, cause, |bytes| bytes.fill(0));
    }
    let geometry = volume.geometry();
    let double = inode.map(|inode| number_at(&inode.i_block, DOUBLE));
    let double = double.map_or(Pblk(0), |double| Pblk(double.into()));
    let is_clear = is_clear(&bytes);
    if geometry.reserved_gdt_blocks == 0 && double.0 == 0 || is_clear {
        return Ok(());
    }
    if !can_be_double(volume, double)? {
        let cause = findings.report(Finding::new(SuperblockProblem::ResizeInode, place()));
        return volume.update_inode(Ino::RESIZE, cause, |bytes| bytes.fill(0));
    }
    let is_file = inode.is_some_and(|inode| {
        let kind = FileType::from_mode(inode.i_mode.get());
        let flags = InodeFlags::from_bits_retain(inode.i_flags.get());
        let extents = flags.intersects(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA);
        kind == Some(FileType::Regular) && inode.i_links_count.get() != 0 && !extents
    });
    let most = Reach::new(geometry.block_size).blocks_max();
    let is_right = |inode: RawInode| {
        let mut slots = [0; I_BLOCK_LEN];
        put_numbers(&mut slots, DOUBLE, [lo32(double.0)]);
        let sectors =
            u64::from(inode.i_blocks_high.get()) << 32 | u64::from(inode.i_blocks_lo.get());
        let size = u64::from(inode.i_size_high.get()) << 32 | u64::from(inode.i_size_lo.get());
        inode.i_block == slots
            && sectors == self::sectors(geometry)
            && (blocks_reached(geometry)..=most).contains(&(size >> geometry.block_size.log2()))
    };
    if is_file && inode.is_some_and(is_right) && maps_reserved(volume, double)? {
        return Ok(());
    }
    let cause = findings.report(Finding::new(SuperblockProblem::ResizeInode, place()));
    write(volume, double, 0, cause)
}

/// Makes the inode anew if it is clear and the file system is to have one. Call it once, after the
/// pass over inodes. Where there is no room, the feature is cleared; the reserved blocks stay
/// reserved until the next round.
///
/// # Errors
/// Of the device and of the overlay.
pub fn recreate(state: &State<'_>) -> Result<()> {
    let volume = &state.volume;
    let has = volume.superblock().features().compat;
    let bytes = volume.read_inode(Ino::RESIZE)?.unwrap_or_default();
    let is_clear = is_clear(&bytes);
    if !has.contains(Compat::RESIZE_INODE) || !is_clear {
        return Ok(());
    }
    let finding = Finding::new(SuperblockProblem::ResizeInode, Place::inode(Ino::RESIZE));
    let cause = state.report(finding);
    let block = state.allocate(
        state.geometry().group_start(uext4_ondisk::GroupNr(0)),
        1,
        "inode 7",
    );
    match block {
        Ok(block) if block.0 <= u32::MAX.into() => {
            write(volume, block, state.options.now, cause)?;
            state.inodes.set(Ino::RESIZE, Kind::Reserved, false, 1);
            Ok(())
        }
        Ok(_) | Err(Error::NoSpace { .. }) => volume.update_superblock(cause, |superblock| {
            let mut features = superblock.features();
            features.compat.remove(Compat::RESIZE_INODE);
            superblock.set_features(features);
        }),
        Err(error) => Err(error),
    }
}

/// Whether a block can be the double indirect one: no copy of superblock and descriptors has it,
/// and it holds most of the right numbers, so that it is no other file's.
fn can_be_double(volume: &Volume, block: Pblk) -> Result<bool> {
    let geometry = volume.geometry();
    let group = geometry.group_of(block);
    let in_head = group.is_some_and(|(group, at)| at < geometry.group_base_blocks(group));
    if !geometry.contains(block, 1) || group.is_none() || in_head {
        return Ok(false);
    }
    let mut found = vec![0; geometry.block_size.len()];
    let mut right = found.clone();
    volume.overlay().read_block(block, &mut found)?;
    double_block(geometry, &mut right);
    if geometry.reserved_gdt_blocks == 0 {
        // No number shows that it is the inode's: it must hold none, as it is written over.
        return Ok(found.iter().all(|&byte| byte == 0));
    }
    let of_both = numbers(&found).iter().zip(numbers(&right));
    let wanted = || of_both.clone().filter(|(_, right)| right.get() != 0);
    let same = wanted().filter(|(found, right)| found == right).count();
    Ok(same.saturating_mul(2) >= wanted().count())
}

/// The reserved primary blocks with their slots in the double indirect block.
fn reserved(geometry: &Geometry) -> impl Iterator<Item = (usize, Pblk)> {
    let per_block = geometry.block_size.bytes() / 4;
    let first = geometry.superblock_block().0.saturating_add(1);
    let old = geometry.gdt_blocks();
    let count = u32::from(geometry.reserved_gdt_blocks);
    (old..old.saturating_add(count)).map(move |at| {
        let block = first.saturating_add(at.into());
        (index(at % per_block), Pblk(block))
    })
}

/// How many numbers a reserved primary block holds.
fn copies_of_each(geometry: &Geometry) -> u64 {
    let per_block = u64::from(geometry.block_size.bytes() / 4);
    (geometry.backup_groups().count() as u64).min(per_block)
}

/// The numbers in a reserved primary block: the same block of each backup.
fn copies(geometry: &Geometry, block: Pblk) -> impl Iterator<Item = u32> + '_ {
    let per_group = u64::from(geometry.blocks_per_group.get());
    let room = index(geometry.block_size.bytes() / 4);
    let groups = geometry.backup_groups().take(room);
    groups.map(move |group| {
        let distance = u64::from(group.0).saturating_mul(per_group);
        lo32(block.0.saturating_add(distance))
    })
}

/// Whether the double indirect block and the reserved primary blocks hold the numbers that they
/// must hold, and no other.
fn maps_reserved(volume: &Volume, double: Pblk) -> Result<bool> {
    let geometry = volume.geometry();
    let mut found = vec![0; geometry.block_size.len()];
    let mut right = found.clone();
    volume.overlay().read_block(double, &mut found)?;
    double_block(geometry, &mut right);
    if found != right {
        return Ok(false);
    }
    for (_, block) in reserved(geometry) {
        volume.overlay().read_block(block, &mut found)?;
        primary_block(geometry, block, &mut right);
        if found != right {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Logical blocks up to the last one that the inode maps: none without backups.
fn blocks_reached(geometry: &Geometry) -> u64 {
    let per_block = u64::from(geometry.block_size.bytes() / 4);
    let slot = reserved(geometry).map(|(slot, _)| len64(slot)).max();
    let copies = copies_of_each(geometry);
    let before = Reach::new(geometry.block_size).first(2);
    match slot {
        Some(slot) if copies > 0 => before + slot * per_block + copies,
        _ => 0,
    }
}

/// Fills the double indirect block.
fn double_block(geometry: &Geometry, bytes: &mut [u8]) {
    bytes.fill(0);
    for (slot, block) in reserved(geometry) {
        put_numbers(bytes, slot, [lo32(block.0)]);
    }
}

/// Fills a reserved primary block.
fn primary_block(geometry: &Geometry, block: Pblk, bytes: &mut [u8]) {
    bytes.fill(0);
    put_numbers(bytes, 0, copies(geometry, block));
}

/// Sectors of 512 bytes that the inode owns: the reserved blocks of all copies, and one.
fn sectors(geometry: &Geometry) -> u64 {
    let copies = copies_of_each(geometry).saturating_add(1);
    let tables = u64::from(geometry.reserved_gdt_blocks);
    let blocks = tables.saturating_mul(copies).saturating_add(1);
    blocks << (geometry.block_size.log2() - 9) << geometry.cluster_bits
}

fn write(volume: &Volume, double: Pblk, now: u32, cause: Cause) -> Result<()> {
    let geometry = volume.geometry();
    let overlay = volume.overlay();
    overlay.update(double, cause, |bytes| double_block(geometry, bytes))?;
    for (_, block) in reserved(geometry) {
        overlay.update(block, cause, |bytes| primary_block(geometry, block, bytes))?;
    }
    let sectors = sectors(geometry);
    let size = Reach::new(geometry.block_size).first(3) << geometry.block_size.log2();
    volume.update_inode(Ino::RESIZE, cause, |bytes| {
        let old = RawInode::parse(bytes, Ino::RESIZE).ok();
        let mut inode = RawInode::zeroed();
        inode.i_mode = (S_IFREG | 0o600).into();
        inode.i_links_count = 1.into();
        inode.i_size_lo = lo32(size).into();
        inode.i_size_high = hi32(size).into();
        inode.i_blocks_lo = lo32(sectors).into();
        inode.i_blocks_high = lo16(hi32(sectors)).into();
        let times = old.map_or([now.into(); 3], |old| {
            [old.i_atime, old.i_ctime, old.i_mtime]
        });
        [inode.i_atime, inode.i_ctime, inode.i_mtime] = times;
        put_numbers(&mut inode.i_block, DOUBLE, [lo32(double.0)]);
        bytes.fill(0);
        inode.store(bytes);
    })
}

#[cfg(test)]
mod tests {
    use uext4_testkit::{has_tool, run};

    use crate::tests::TestImage;

    fn image() -> TestImage {
        TestImage::new("-t ext4 -b 1024 -g 1024 -E resize=4096M", "16M")
    }

    #[test]
    fn a_file_system_that_grew_has_what_it_must_have() {
        if !has_tool("resize2fs") {
            return;
        }
        for size in ["24M", "64M", "600M"] {
            let image = image();
            run(
                "resize2fs",
                ["-f".as_ref(), image.path().as_os_str(), size.as_ref()],
            );
            assert_eq!(image.found(), [""; 0], "{size}");
        }
    }

    #[test]
    fn an_inode_that_is_gone_is_made_anew() {
        for request in [
            "clri <7>",
            "sif <7> mode 0",
            "sif <7> block[DIND] 0",
            "sif <7> blocks 2",
            "sif <7> size 12",
        ] {
            let image = image();
            image.debugfs(&[request]);
            let found = image.repair();
            assert!(found.contains(&"resize-inode"), "{request}: {found:?}");
        }
    }

    #[test]
    fn without_reserved_blocks_the_block_of_a_file_is_not_taken_either() {
        let image = TestImage::new("-t ext4 -b 1024", "16M");
        image.file("f", &[b'z'; 1024]);
        let mut at = None;
        image.change(|bytes| at = bytes.windows(1024).position(|block| block == [b'z'; 1024]));
        let at = at.unwrap();
        let block = format!("sif <7> block[DIND] {}", at / 1024);
        image.debugfs(&["ssv reserved_gdt_blocks 0", &block]);
        image.repair();
        image.change(|bytes| assert_eq!(bytes[at..][..1024], [b'z'; 1024]));
    }

    #[test]
    fn a_block_of_a_file_is_not_taken_for_the_inodes() {
        let image = image();
        image.file("f", &[b'z'; 1024]);
        let mut at = None;
        image.change(|bytes| at = bytes.windows(1024).position(|block| block == [b'z'; 1024]));
        let at = at.unwrap();
        image.debugfs(&[&format!("sif <7> block[DIND] {}", at / 1024)]);
        let found = image.repair();
        assert!(found.contains(&"resize-inode"), "{found:?}");
        image.change(|bytes| assert_eq!(bytes[at..][..1024], [b'z'; 1024]));
    }
}
