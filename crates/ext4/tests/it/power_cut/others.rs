//! The same images recovered by the kernel and by e2fsck give the same tree.

use std::path::Path;

use uext4_blockdev::MemoryDevice;
use uext4_ondisk::features::RoCompat;
use uext4_ondisk::superblock::SuperBlock;
use uext4_testkit::{Mount, can_mount, complaints, e2fsck, said};

use super::judge::{Found, read};

/// Asserts that e2fsck finds nothing wrong in what we recovered, and that e2fsck and the kernel
/// recover the same.
pub fn agree(image: &MemoryDevice, ours: &MemoryDevice, found: &Found) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    std::fs::write(&path, ours.to_bytes()).unwrap();
    check(&path)?;
    std::fs::write(&path, image.to_bytes()).unwrap();
    repair(&path)?;
    check(&path)?;
    compare(&path, &without_xattrs(found), "e2fsck", without_xattrs)?;
    if can_mount() && counts_quotas(&path, ours) {
        std::fs::write(&path, image.to_bytes()).unwrap();
        mount_and_unmount(&path)?;
        check(&path)?;
        compare(&path, found, "the kernel", Found::clone)?;
    }
    Ok(())
}

/// e2fsck 1.47 takes the block of attributes from an inode that it cuts to its size.
fn without_xattrs(found: &Found) -> Found {
    let cut = |fact: &String| fact.split('{').next().unwrap_or_default().to_owned();
    Found {
        facts: found.facts.iter().map(cut).collect(),
        files: found.files.clone(),
    }
}

fn compare(
    path: &Path,
    found: &Found,
    who: &str,
    view: impl Fn(&Found) -> Found,
) -> Result<(), String> {
    let device = uext4_testkit::loaded(path);
    let theirs = read(&device).map_err(|error| format!("after {who}: {error}"))?;
    let theirs = view(&theirs);
    if theirs == *found {
        return Ok(());
    }
    let missing: Vec<_> = theirs.facts.difference(&found.facts).collect();
    let surplus: Vec<_> = found.facts.difference(&theirs.facts).collect();
    let data: Vec<_> = theirs
        .files
        .iter()
        .filter(|(id, bytes)| found.files.get(id) != Some(bytes))
        .map(|(id, bytes)| (id, bytes.len()))
        .collect();
    Err(format!(
        "{who} finds more {missing:#?}, less {surplus:#?}, other data in {data:?}"
    ))
}

fn repair(path: &Path) -> Result<(), String> {
    let output = e2fsck(path, "-fy");
    let passes = output.status.code().is_some_and(|code| code <= 1);
    passes.then_some(()).ok_or_else(|| said(&output))
}

fn check(path: &Path) -> Result<(), String> {
    complaints(path).map_or(Ok(()), Err)
}

/// Whether the kernel mounts what is clean, where quotas are counted: one may be built without
/// them.
fn counts_quotas(path: &Path, ours: &MemoryDevice) -> bool {
    std::fs::write(path, ours.to_bytes()).unwrap();
    let features = superblock_of(path).features();
    let counted = features.ro_compat.contains(RoCompat::QUOTA);
    let mounts = !counted || mount_and_unmount(path).is_ok();
    if !mounts {
        println!("the kernel's recovery skipped: it is built without quotas");
    }
    mounts
}

fn superblock_of(path: &Path) -> SuperBlock {
    SuperBlock::parse(&std::fs::read(path).unwrap()[1024..2048]).unwrap()
}

/// Mounts once for writing, so that the kernel replays the journal and deletes orphans.
fn mount_and_unmount(path: &Path) -> Result<(), String> {
    Mount::attempt(path, "defaults").map(drop)
}
