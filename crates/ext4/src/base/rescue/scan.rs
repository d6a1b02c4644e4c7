//! Looks for file systems anywhere on a device, at every multiple of 512 bytes: of a disk whose
//! partition table is lost, or of the dump of a device's memory.
//!
//! A superblock says of which group it is the copy, and so where its file system begins. A journal
//! and a file that is an image hold superblocks, too: one of the same UUID that lies inside of
//! another file system is not shown, and of each is said whether a root directory is where it leads
//! to. The device is read once, in large pieces, but for its holes.

use uext4_blockdev::BlockDevice;
use uext4_ondisk::group_desc::GroupDesc;
use uext4_ondisk::inode::{FileType, RawInode};
use uext4_ondisk::superblock::{EXT4_SUPER_MAGIC, SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{Geometry, GroupNr, Ino};

use crate::base::error::Result;

/// File systems begin at multiples of this many bytes.
const STEP: usize = 512;
/// Bytes that are read at once.
const PIECE: usize = 4 << 20;
/// Bytes of a superblock.
const LEN: usize = size_of::<SuperBlock>();
/// Superblocks that are remembered; further ones are counted as left out.
const FOUND_MAX: usize = 1 << 16;

/// A file system that was found.
#[derive(Clone, Debug)]
pub struct FoundFs {
    /// Its first byte on the device.
    pub offset: u64,
    /// The superblock that was found: the primary one, if it is there.
    pub superblock: SuperBlock,
    /// Its shape.
    pub geometry: Geometry,
    /// The group that the superblock is of: 0 for the primary one, else that of a backup.
    pub group: GroupNr,
    /// Backups that say the same place.
    pub backups: u32,
    /// Whether a root directory is where the superblock leads to.
    pub has_root: bool,
}

/// What a search has found.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// The file systems, in the order of their places.
    pub found: Vec<FoundFs>,
    /// Bytes that could not be read.
    pub unreadable: u64,
    /// Superblocks that were left out because there are too many.
    pub left_out: u64,
}

/// Searches a whole device; `met` is called with the byte that was come to, and may end it.
///
/// # Errors
/// Of `met`, and of the device where it is asked for holes. Bytes that cannot be read are counted.
pub fn scan(device: &dyn BlockDevice, met: &mut dyn FnMut(u64) -> Result<()>) -> Result<Scan> {
    let mut scan = Scan::default();
    let mut all = Vec::new();
    // The last superblock of a piece may end behind it.
    let mut buf = vec![0; PIECE + LEN];
    let mut at = 0;
    while let Some(data) = device.next_data(at)? {
        at = at.max(data.start / STEP as u64 * STEP as u64);
        while at < data.end {
            met(at)?;
            let there = device.len().saturating_sub(at).min(buf.len() as u64) as usize;
            let (part, rest) = buf.split_at_mut(there);
            rest.fill(0);
            let piece = (data.end - at).min(PIECE as u64);
            match device.read_at(at, part) {
                Ok(()) => search(&buf, at, piece, &mut all, &mut scan.left_out),
                Err(_) => scan.unreadable += piece,
            }
            at = at
                .saturating_add(PIECE as u64)
                .min(data.end.next_multiple_of(STEP as u64));
        }
    }
    scan.found = distinct(all);
    for found in &mut scan.found {
        found.has_root = found.root_is_there(device);
    }
    Ok(scan)
}

/// The file system that begins at one of these bytes, the first that is there.
pub fn first_at(device: &dyn BlockDevice, places: &[u64]) -> Option<u64> {
    places.iter().copied().find(|&place| {
        let mut bytes = [0; LEN];
        let at = place.saturating_add(SUPERBLOCK_OFFSET);
        let read = device.read_at(at, &mut bytes);
        read.is_ok() && candidate(&bytes, at).is_some_and(|found| found.offset == place)
    })
}

/// Adds the superblocks that begin in the first `piece` bytes of `buf`, which was read at `at`.
fn search(buf: &[u8], at: u64, piece: u64, all: &mut Vec<FoundFs>, left_out: &mut u64) {
    let starts = (0..piece as usize).step_by(STEP);
    for start in starts {
        let Some(bytes) = buf.get(start..start + LEN) else {
            return;
        };
        if let Some(found) = candidate(bytes, at + start as u64) {
            match all.len() < FOUND_MAX {
                true => all.push(found),
                false => *left_out += 1,
            }
        }
    }
}

/// The file system of a superblock that was read at byte `at`.
fn candidate(bytes: &[u8], at: u64) -> Option<FoundFs> {
    const MAGIC: usize = std::mem::offset_of!(SuperBlock, s_magic);
    if bytes.get(MAGIC..MAGIC + 2)? != EXT4_SUPER_MAGIC.to_le_bytes() {
        return None;
    }
    let superblock = SuperBlock::parse(bytes).ok()?;
    let geometry = Geometry::new(&superblock).ok()?;
    let group = GroupNr(superblock.s_block_group_nr.get().into());
    if group.0 >= geometry.groups_count.get() {
        return None;
    }
    let within = match group.0 {
        0 => SUPERBLOCK_OFFSET,
        _ => geometry
            .block_size
            .byte_offset(geometry.group_start(group))?,
    };
    Some(FoundFs {
        offset: at.checked_sub(within)?,
        superblock,
        geometry,
        group,
        backups: u32::from(group.0 > 0),
        has_root: false,
    })
}

/// Each file system once, by its primary superblock if there is one; without copies inside of it.
fn distinct(mut all: Vec<FoundFs>) -> Vec<FoundFs> {
    all.sort_by_key(|found| (found.offset, found.superblock.s_uuid, found.group));
    let mut each: Vec<FoundFs> = Vec::new();
    for found in all {
        match each.last_mut() {
            Some(last) if last.is_same(&found) => last.backups += found.backups,
            _ => each.push(found),
        }
    }
    let mut kept: Vec<FoundFs> = Vec::new();
    for found in each {
        // Ascending: what it may lie in comes first.
        let is_inside = |other: &FoundFs| other.holds_copy(&found);
        if !kept.iter().rev().take(64).any(is_inside) {
            kept.push(found);
        }
    }
    kept
}

impl FoundFs {
    /// The byte behind its last one.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.geometry.len_bytes())
    }

    fn is_same(&self, other: &Self) -> bool {
        self.offset == other.offset && self.superblock.s_uuid == other.superblock.s_uuid
    }

    /// Whether the other is a copy of this one's superblock, as a journal holds it.
    fn holds_copy(&self, other: &Self) -> bool {
        self.superblock.s_uuid == other.superblock.s_uuid
            && self.offset < other.offset
            && other.offset < self.end()
    }

    /// Whether the first descriptor leads to an inode table with a root directory.
    fn root_is_there(&self, device: &dyn BlockDevice) -> bool {
        self.root_mode(device).and_then(FileType::from_mode) == Some(FileType::Directory)
    }

    fn root_mode(&self, device: &dyn BlockDevice) -> Option<u16> {
        let geometry = &self.geometry;
        let size = geometry.block_size;
        let descriptors = u64::from(geometry.first_data_block).checked_add(1)?;
        let mut bytes = vec![0; geometry.desc_size.into()];
        let at = descriptors.checked_mul(size.bytes().into())?;
        device
            .read_at(self.offset.checked_add(at)?, &mut bytes)
            .ok()?;
        let table = size.byte_offset(GroupDesc::parse(&bytes).inode_table)?;
        let mut bytes = vec![0; geometry.inode_size.into()];
        let at = table.checked_add(u64::from(Ino::ROOT.0 - 1) * u64::from(geometry.inode_size))?;
        device
            .read_at(self.offset.checked_add(at)?, &mut bytes)
            .ok()?;
        let inode = RawInode::parse(&bytes, Ino::ROOT).ok()?;
        Some(inode.i_mode.get())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::path::{Path, PathBuf};

    use uext4_blockdev::{Access, FileDevice, MemoryDevice};
    use uext4_testkit::{has_tool, run, scratch};

    use super::*;

    const MIB: u64 = 1 << 20;

    /// Makes a file system of so many MiB at byte `at`.
    fn make(image: &Path, at: u64, mib: u64, uuid: u8) {
        let [a, b] = [
            format!("{uuid:02x}").repeat(4),
            format!("{uuid:02x}").repeat(2),
        ];
        let uuid = format!("{a}-{b}-{b}-{b}-{a}{b}");
        let (offset, size) = (format!("offset={at}"), format!("{mib}M"));
        let options = ["-q", "-F", "-t", "ext4", "-E", &offset, "-U", &uuid];
        run(
            "mke2fs",
            options.into_iter().chain([image.to_str().unwrap(), &size]),
        );
    }

    fn scanned(device: &dyn BlockDevice) -> Vec<(u64, u8, u32, bool)> {
        let found = scan(device, &mut |_| Ok(())).unwrap().found;
        let line = |f: &FoundFs| (f.offset, f.superblock.s_uuid[0], f.group.0, f.has_root);
        found.iter().map(line).collect()
    }

    fn image(dir: &Path, len: u64) -> (PathBuf, File) {
        let path = dir.join("image");
        let file = File::create_new(&path).unwrap();
        file.set_len(len).unwrap();
        let file = File::options()
            .read(true)
            .write(true)
            .open(&path)
            .map(|open| (open, file));
        (path, file.unwrap().0)
    }

    #[test]
    fn file_systems_are_found_at_every_sector_and_by_their_backups() {
        if !has_tool("mke2fs") {
            return;
        }
        let dir = scratch();
        let (path, file) = image(dir.path(), 200 * MIB);
        let third = 64 * MIB - 1536;
        make(&path, 777_216, 20, 1);
        make(&path, 40 * MIB + 512, 16, 2);
        make(&path, third, 64, 3);
        // As in a journal, or in a file.
        let mut copy = [0; LEN];
        file.read_exact_at(&mut copy, 777_216 + 1024).unwrap();
        file.write_all_at(&copy, 777_216 + 9 * MIB).unwrap();
        let device = FileDevice::open(&path, Access::ReadOnly).unwrap();
        let expected = [
            (777_216, 1, 0, true),
            (40 * MIB + 512, 2, 0, true),
            (third, 3, 0, true),
        ];
        assert_eq!(scanned(&device), expected);
        assert_eq!(first_at(&device, &[0, 512, 777_216]), Some(777_216));
        assert_eq!(first_at(&device, &[0, 512, u64::MAX]), None);

        // The head of the last one is lost: the first backup stands for it.
        file.write_all_at(&[0; 8192], third).unwrap();
        let by_backup = scanned(&device)[2];
        assert_eq!((by_backup.0, by_backup.1), (third, 3));
        assert!(by_backup.2 > 0 && !by_backup.3);
    }

    #[test]
    fn what_only_looks_like_a_superblock_is_none() {
        let device = MemoryDevice::new(4 * MIB);
        let mut bytes = vec![0x53; 1 << 20];
        bytes
            .iter_mut()
            .skip(1)
            .step_by(2)
            .for_each(|byte| *byte = 0xEF);
        device.write_at(0, &bytes).unwrap();
        assert_eq!(scanned(&device), []);
        assert_eq!(scanned(&MemoryDevice::new(0)), []);
        assert_eq!(scanned(&MemoryDevice::new(700)), []);
    }

    #[test]
    fn one_that_begins_before_the_device_is_none() {
        if !has_tool("mke2fs") {
            return;
        }
        let dir = scratch();
        let (path, file) = image(dir.path(), 64 * MIB);
        make(&path, 0, 32, 7);
        let mut copy = [0; LEN];
        file.read_exact_at(&mut copy, 1024).unwrap();
        let other = MemoryDevice::new(MIB);
        other.write_at(512, &copy).unwrap();
        assert_eq!(scanned(&other), []);
    }
}
