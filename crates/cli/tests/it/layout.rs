//! Where a mount puts the files of programs, counted by e2freefrag.

use std::fs;
use std::path::Path;

use crate::host::{has_tool, run, text, uext4_ok};
use crate::mounted::{Mount, can_mount};

/// A tree of many files of which most are small.
fn fill(dir: &Path) {
    for number in 0..600_usize {
        let sub = dir.join(format!("d{}", number / 20));
        fs::create_dir_all(&sub).unwrap();
        let len = 300 + number * 7919 % 40_000;
        fs::write(sub.join(format!("f{number}")), vec![number as u8; len]).unwrap();
    }
}

/// Runs of free blocks in an image.
fn free_runs(image: &Path) -> u64 {
    let printed = String::from_utf8(run("e2freefrag", &[text(image)])).unwrap();
    let (_, histogram) = printed.split_once("HISTOGRAM").unwrap();
    let counts = histogram.lines().filter_map(|line| {
        let (_, counts) = line.split_once(" :  ")?;
        counts.split_whitespace().next()?.parse::<u64>().ok()
    });
    counts.sum()
}

/// A file that its last writer has closed keeps no space for itself, though the kernel knows it:
/// what is copied into a mount lies as what `put` writes.
#[test]
fn copies_into_a_mount_leave_free_space_in_one_piece() {
    if !can_mount() || !has_tool("e2freefrag") {
        return;
    }
    let mount = Mount::new(&["-t", "ext4"], 512);
    let tree = mount.scratch.path().join("tree");
    fill(&tree);
    for copy in ["one", "two", "three"] {
        run("cp", &["-a", text(&tree), text(&mount.dir().join(copy))]);
        run("sync", &["-f", text(&mount.dir())]);
        // What is about to be unmounted is written by then, and the kernel still knows all of it.
        uext4_ok(&["ls", text(&mount.dir())]);
    }
    let mount = mount.judged();
    let put = mount.scratch.path().join("put");
    crate::host::mke2fs(&put, &["-t", "ext4"], 512);
    for copy in ["/one", "/two", "/three"] {
        uext4_ok(&["put", text(&put), text(&tree), copy]);
    }
    let (mounted, put) = (free_runs(&mount.image()), free_runs(&put));
    assert!(
        put > 0 && mounted <= 2 * put,
        "{mounted} free runs, {put} by put"
    );
}
