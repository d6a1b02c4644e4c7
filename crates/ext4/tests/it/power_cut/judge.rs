//! Recovers what a power cut left, and compares it with what may be there.

use std::collections::BTreeMap;
use std::sync::Arc;

use uext4::quota::QuotaKind;
use uext4::{FileType, Image, Ino, Inode, OpenOptions, Volume};
use uext4_blockdev::{BlockDevice, MemoryDevice, VirtualClock};
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};

use super::model::{Facts, Id, Kind, Node, Oracle, name_fact, node_fact};

/// Names, attributes and data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub facts: Facts,
    pub files: BTreeMap<Id, Vec<u8>>,
}

/// Mounts for writing, which replays the journal and finishes what was begun, and unmounts.
pub fn recover(device: Arc<dyn BlockDevice>) -> Result<(), String> {
    let clock = Arc::new(VirtualClock::new(1_800_000_000));
    let options = OpenOptions::default();
    let fs = Volume::open(device, clock, &options).map_err(|e| format!("mount: {e}"))?;
    fs.close().map_err(|error| format!("unmount: {error}"))
}

/// Asserts that our check calls clean what waits for no more than the next mount. Not if the power
/// went while the superblock was written: a torn one must be repaired.
pub fn waits_for_a_mount(image: &MemoryDevice) -> Result<(), String> {
    let mut superblock = [0; 1024];
    let read = image.read_at(SUPERBLOCK_OFFSET, &mut superblock);
    read.map_err(|error| error.to_string())?;
    if SuperBlock::parse(&superblock).is_err() {
        return Ok(());
    }
    let device: Arc<dyn BlockDevice> = Arc::new(image.snapshot());
    let findings = uext4_fsck::findings(&device);
    let findings = findings.map_err(|error| format!("check before the mount: {error}"))?;
    match findings.is_empty() {
        true => Ok(()),
        false => Err(format!("check before the mount: {findings:#?}")),
    }
}

/// Reads everything, and lets our own check look for what is not as it should be.
pub fn read(image: &Arc<MemoryDevice>) -> Result<Found, String> {
    let device: Arc<dyn BlockDevice> = Arc::clone(image) as _;
    let findings = uext4_fsck::findings(&device).map_err(|error| format!("check: {error}"))?;
    if !findings.is_empty() {
        return Err(format!("check: {findings:#?}"));
    }
    let fs = Image::open(device, &OpenOptions::default()).map_err(|e| e.to_string())?;
    let mut found = Found::default();
    let root = fs.inode(Ino::ROOT).map_err(|e| e.to_string())?;
    read_directory(&fs, &root, 0, &mut found).map_err(|e| e.to_string())?;
    count(&fs)?;
    Ok(found)
}

/// Asserts that quotas count what there is, where anything is counted.
fn count(fs: &Image) -> Result<(), String> {
    for kind in [QuotaKind::User, QuotaKind::Group, QuotaKind::Project] {
        let Ok(stored) = fs.quotas(kind) else {
            continue;
        };
        let mut counted: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for ino in (1..=fs.geometry().inodes_count).map(Ino) {
            if fs.is_hidden(ino) {
                continue;
            }
            let Ok(inode) = fs.inode(ino) else { continue };
            if inode.links == 0 {
                continue;
            }
            let id = match kind {
                QuotaKind::User => inode.uid,
                QuotaKind::Group => inode.gid,
                QuotaKind::Project => inode.projid,
            };
            let used = counted.entry(id).or_default();
            *used = (used.0 + inode.blocks * 512, used.1 + 1);
        }
        let stored = stored
            .iter()
            .map(|quota| (quota.id, (quota.space, quota.inodes)));
        let stored: BTreeMap<_, _> = stored.filter(|(_, used)| *used != (0, 0)).collect();
        if stored != counted {
            return Err(format!(
                "{kind:?}: reported {stored:?}, counted {counted:?}"
            ));
        }
    }
    Ok(())
}

fn read_directory(fs: &Image, dir: &Inode, id: Id, found: &mut Found) -> uext4::Result<()> {
    for entry in fs.read_dir(dir)? {
        let entry = entry?;
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        if name == "lost+found" {
            continue;
        }
        let inode = fs.inode(entry.ino)?;
        let child = inode.uid;
        found.facts.insert(name_fact(id, &name, child));
        let node = node_of(fs, &inode)?;
        found
            .facts
            .insert(node_fact(child, &node, inode.links.into()));
        match node.kind {
            Kind::Dir => read_directory(fs, &inode, child, found)?,
            Kind::File if !found.files.contains_key(&child) => {
                let mut bytes = vec![0; inode.size as usize];
                let len = fs.read_at(&inode, 0, &mut bytes)?;
                bytes.truncate(len);
                found.files.insert(child, bytes);
            }
            _ => {}
        }
    }
    Ok(())
}

fn node_of(fs: &Image, inode: &Inode) -> uext4::Result<Node> {
    let kind = match inode.file_type {
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Symlink(fs.read_link(inode)?),
        _ => Kind::File,
    };
    let xattrs = fs.xattrs(inode)?.into_iter().map(|xattr| {
        let name = String::from_utf8_lossy(&xattr.name).into_owned();
        let byte = xattr.value.first().copied().unwrap_or(0);
        let even = xattr.value.iter().all(|&other| other == byte);
        (name, (xattr.value.len(), if even { byte } else { 0 }))
    });
    Ok(Node {
        kind,
        mode: inode.mode & 0o7777,
        xattrs: xattrs.collect(),
    })
}

/// Asserts that what was found may be there.
pub fn judge(found: &Found, oracle: &Oracle<'_>) -> Result<(), String> {
    oracle.judge_names(&found.facts)?;
    found
        .files
        .iter()
        .try_for_each(|(id, bytes)| oracle.judge_file(*id, bytes))
}
