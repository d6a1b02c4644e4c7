//! The same images recovered by the kernel and by e2fsck give the same tree.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use uext4_blockdev::MemoryDevice;
use uext4_ondisk::features::RoCompat;
use uext4_ondisk::superblock::SuperBlock;

use super::judge::{Found, read};

/// Asserts that e2fsck finds nothing wrong in what we recovered, and that e2fsck and the kernel
/// recover the same.
pub fn agree(image: &MemoryDevice, ours: &MemoryDevice, found: &Found) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    std::fs::write(&path, ours.to_bytes()).unwrap();
    e2fsck(&path, "-fn", 0)?;
    std::fs::write(&path, image.to_bytes()).unwrap();
    e2fsck(&path, "-fy", 1)?;
    e2fsck(&path, "-fn", 0)?;
    compare(&path, &without_xattrs(found), "e2fsck", without_xattrs)?;
    if can_mount() && counts_quotas(&path, ours) {
        std::fs::write(&path, image.to_bytes()).unwrap();
        mount_and_unmount(&path)?;
        e2fsck(&path, "-fn", 0)?;
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
    let device = Arc::new(MemoryDevice::from_bytes(std::fs::read(path).unwrap()));
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

fn e2fsck(path: &Path, how: &str, most: i32) -> Result<(), String> {
    let output = Command::new("e2fsck").arg(how).arg(path).output().unwrap();
    match output.status.code() {
        Some(code) if code <= most => Ok(()),
        _ => Err(format!(
            "e2fsck {how}: {}",
            String::from_utf8_lossy(&output.stdout)
        )),
    }
}

fn can_mount() -> bool {
    rustix::process::geteuid().is_root() && Path::new("/dev/loop-control").exists()
}

/// Whether the kernel mounts what is clean, where quotas are counted: one may be built without them.
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
    let at = tempfile::tempdir().unwrap();
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("{command:?}: {output:?}")),
        }
    };
    run(Command::new("mount")
        .args(["-o", "loop"])
        .arg(path)
        .arg(at.path()))?;
    run(Command::new("umount").arg(at.path()))
}
