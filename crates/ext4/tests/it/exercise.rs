//! Everything a reader can ask of an image, whatever the image: used by the test of hostile images
//! and by the fuzzer.

use std::collections::HashSet;
use std::sync::Arc;

use uext4::{FileType, Filesystem, FollowLast, GroupNr, Ino, Lblk, OpenOptions};
use uext4_blockdev::BlockDevice;

/// Inodes visited, and names taken of one directory, at most: so that a run ends soon.
const INODES_MAX: usize = 2_000;
const NAMES_MAX: usize = 5_000;

/// Opens the image and goes through all of it. What it finds does not matter, that it ends does.
pub fn exercise(device: Arc<dyn BlockDevice>) {
    let options = OpenOptions {
        memory_max: 1 << 20,
        ..OpenOptions::default()
    };
    let Ok(fs) = Filesystem::open(device, &options) else {
        return;
    };
    for group in (0..fs.geometry().groups_count.get()).take(64) {
        let _ = fs.group_desc(GroupNr(group));
    }
    let mut seen = HashSet::from([Ino::ROOT]);
    let mut todo = vec![Ino::ROOT];
    // Those that no name leads to, too.
    todo.extend((1..=16).map(Ino));
    while let Some(ino) = todo.pop() {
        for next in visit(&fs, ino) {
            if seen.len() < INODES_MAX && seen.insert(next) {
                todo.push(next);
            }
        }
    }
    let _ = fs.resolve(b"/d/../d/link/./file", FollowLast::Yes);
    let _ = fs.check(&mut |issue| assert!(!issue.to_string().is_empty()));
}

/// Asks everything of one inode; the inodes its names lead to.
fn visit(fs: &Filesystem, ino: Ino) -> Vec<Ino> {
    let Ok(inode) = fs.inode(ino) else {
        return Vec::new();
    };
    let _ = fs.xattrs(&inode);
    let _ = fs.read_link(&inode);
    for lblk in [0, 1, 11, 12, 300, 70_000, u32::MAX - 1] {
        let _ = fs.map(&inode, Lblk(lblk), 1000);
    }
    if inode.file_type == FileType::Regular {
        if let Ok(ranges) = fs.data_ranges(&inode) {
            let _ = ranges.take(1000).count();
        }
        let mut buf = [0; 10_000];
        for offset in [
            0,
            5_000,
            1 << 20,
            inode.size.saturating_sub(100),
            u64::MAX - 3,
        ] {
            let _ = fs.read_at(&inode, offset, &mut buf);
        }
    }
    let Ok(entries) = fs.read_dir(&inode) else {
        return Vec::new();
    };
    let mut inodes = Vec::new();
    for entry in entries.take(NAMES_MAX).filter_map(Result::ok) {
        if inodes.len() < 50 {
            let _ = fs.lookup(&inode, &entry.name);
        }
        inodes.push(entry.ino);
    }
    inodes
}
