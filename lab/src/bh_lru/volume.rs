//! A file system in memory for the workloads, made once and copied for each policy.

use std::sync::Arc;

use uext4::tuning::Policies;
use uext4::xattr::SetMode;
use uext4::{Creation, NewInode, OpenInode, OpenOptions, Volume};
use uext4_blockdev::{MemoryDevice, VirtualClock};
use uext4_lab_policies::bh_lru::Lrus;
use uext4_mkfs::BlockSizeWish;
use uext4_ondisk::BlockSize;

use crate::experiment::Failure;

/// Every file system is made at this moment.
const TIME: i64 = 1_700_000_000;
/// Entries of the ACL that files inherit: 2 KiB, more than fits an inode.
const ACL_ENTRIES: u32 = 248;
const BLOCK_BYTES: u32 = 4096;
pub const LABEL: &[u8] = b"system_u:object_r:unlabeled_t:s0\0";

/// What the file system is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Files to have room for.
    pub files: u64,
    /// Directories that the workload uses.
    pub directories: u64,
    /// Files in each of them before.
    pub prefill: u64,
    /// The directories give their files a large ACL.
    pub acl: bool,
    /// Users and groups are counted.
    pub quota: bool,
}

pub fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Run(error.to_string())
}

/// The owner of the files: not the one whom no quota counts.
pub const BY: Creation = Creation {
    mode: 0o644,
    umask: 0,
    uid: 1000,
    gid: 1000,
};

/// The name of a directory of the workload.
pub fn directory(number: u64) -> Vec<u8> {
    format!("d{number}").into_bytes()
}

/// Makes one, with its directories and the files that are there before.
///
/// # Errors
/// [`Failure::Run`] for what cannot be made.
pub fn make(shape: &Shape) -> Result<MemoryDevice, Failure> {
    let inodes = shape.files + shape.directories * (shape.prefill + 2) + 1024;
    // An inode of 256 bytes, its names, its part of bitmaps, and a journal.
    let bytes = (inodes * 512 + (192 << 20)).next_multiple_of(1 << 20);
    let device = MemoryDevice::new(bytes);
    let mut wishes = uext4_mkfs::Options::new([7; 16], [9; 16], TIME as u32);
    wishes.block_size = BlockSize::from_bytes(BLOCK_BYTES).map(BlockSizeWish::Exactly);
    wishes.inodes = Some(inodes);
    wishes.assume_zeroed = true;
    if shape.quota {
        wishes.features = uext4_mkfs::parse_features("quota").map_err(failed)?;
    }
    let layout = uext4_mkfs::layout(&wishes, bytes).map_err(failed)?;
    uext4_mkfs::format(&layout, &device).map_err(failed)?;
    let device = Arc::new(device);
    let fs = open(Arc::clone(&device), None)?;
    let by = Creation { mode: 0o755, ..BY };
    for number in 0..shape.directories {
        let root = fs.root().map_err(failed)?;
        let name = directory(number);
        let dir = root
            .create(&name, NewInode::Directory, &by)
            .map_err(failed)?;
        prepare(&dir, shape)?;
        fill(&fs, &dir, shape.prefill)?;
    }
    fs.close().map_err(failed)?;
    drop(fs);
    Ok(device.snapshot())
}

/// Opens one with these LRUs in front of its metadata; `None`: those of the product.
///
/// # Errors
/// [`Failure::Run`] as the engine says.
pub fn open(device: Arc<MemoryDevice>, lrus: Option<Arc<Lrus>>) -> Result<Volume, Failure> {
    let mut options = OpenOptions::default();
    options.memory = Some(2 << 30);
    options.policies = Policies {
        bh_lru: lrus.map(|lrus| lrus as _),
        ..Policies::default()
    };
    let clock = Arc::new(VirtualClock::new(TIME));
    Volume::open(device, clock, &options).map_err(failed)
}

fn prepare(dir: &OpenInode, shape: &Shape) -> Result<(), Failure> {
    let set = |name: &[u8], value: &[u8]| dir.set_xattr(name, Some(value), SetMode::Any);
    set(b"security.selinux", LABEL).map_err(failed)?;
    if shape.acl {
        set(b"system.posix_acl_default", &large_acl()).map_err(failed)?;
    }
    Ok(())
}

/// Reads the label of a directory and gives it to a new file in it.
///
/// # Errors
/// [`Failure::Run`] as the engine says.
pub fn label(dir: &OpenInode, file: &OpenInode) -> Result<(), Failure> {
    let label = dir.xattr(b"security.selinux").map_err(failed)?;
    file.set_xattr(b"security.selinux", Some(&label), SetMode::Any)
        .map_err(failed)
}

fn fill(fs: &Volume, dir: &OpenInode, files: u64) -> Result<(), Failure> {
    for number in 0..files {
        let name = format!("file.prefill.{number}");
        dir.create(name.as_bytes(), NewInode::File, &BY)
            .map_err(failed)?;
        if number % 10_000 == 0 {
            fs.sync().map_err(failed)?;
        }
    }
    Ok(())
}

/// An ACL as system calls carry it: version 2, then tag, permissions and id of each entry.
pub fn large_acl() -> Vec<u8> {
    const NO_USER: u32 = u32::MAX;
    let named = (0..ACL_ENTRIES).map(|id| (0x02, 2000 + id));
    let mut entries = vec![(0x01, NO_USER)];
    entries.extend(named);
    entries.extend([(0x04, NO_USER), (0x10, NO_USER), (0x20, NO_USER)]);
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, id) in entries {
        bytes.extend_from_slice(&u16::to_le_bytes(tag));
        bytes.extend_from_slice(&6u16.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_get_what_the_shape_says() {
        let shape = Shape {
            files: 10,
            directories: 2,
            prefill: 3,
            acl: true,
            quota: true,
        };
        let device = Arc::new(make(&shape).unwrap());
        let fs = open(device, None).unwrap();
        let root = fs.root().unwrap();
        let dir = root.lookup(&directory(1)).unwrap();
        let file = dir.create(b"x", NewInode::File, &BY).unwrap();
        label(&dir, &file).unwrap();
        assert!(file.xattr(b"system.posix_acl_access").unwrap().len() > 1900);
        assert_eq!(file.xattr(b"security.selinux").unwrap(), LABEL);
        let used = fs.quota(uext4::quota::QuotaKind::User, 1000).unwrap();
        assert_eq!(used.inodes, 2 * (3 + 1) + 1);
    }
}
