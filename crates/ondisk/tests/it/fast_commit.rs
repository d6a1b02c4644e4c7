//! Fast commits of the running kernel, against debugfs' account of them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use uext4_ondisk::Ino;
use uext4_ondisk::fast_commit::{Dentry, Record, committed_records};
use uext4_ondisk::journal::JournalSuperblock;
use uext4_testkit::{can_mount, debugfs_script};

use crate::image::Image;
use crate::kernel;

fn change(root: &Path) {
    for name in ["f1", "f2", "f3"] {
        fs::write(root.join(name), name).unwrap();
        File::open(root.join(name)).unwrap().sync_all().unwrap();
    }
    let file = File::options().write(true).open(root.join("f1")).unwrap();
    for i in 0..8 {
        file.write_all_at(&[1; 5000], i * 20_000).unwrap();
    }
    file.set_len(90_000).unwrap();
    fs::create_dir(root.join("dir")).unwrap();
    fs::hard_link(root.join("f2"), root.join("dir/link")).unwrap();
    fs::rename(root.join("f3"), root.join("dir/größe")).unwrap();
    file.sync_all().unwrap();
}

/// As `debugfs -R "logdump -a"` prints a record.
fn as_debugfs(record: &Record<'_>) -> String {
    let dentry = |tag: &str, d: &Dentry<'_>| {
        let name = String::from_utf8_lossy(d.name);
        format!(
            "tag {tag}, parent {}, ino {}, name \"{name}\"",
            d.parent, d.ino
        )
    };
    match record {
        Record::AddRange { ino, extent } => format!(
            "tag ADD_RANGE, inode {ino}, lblk {}, pblk {}, len {}",
            extent.lblk, extent.pblk, extent.len
        ),
        // It prints these as signed.
        Record::DelRange { ino, lblk, len } => format!(
            "tag DEL_RANGE, inode {ino}, lblk {}, len {}",
            lblk.0 as i32, *len as i32
        ),
        Record::Create(d) => dentry("CREAT_DENTRY", d),
        Record::Link(d) => dentry("ADD_ENTRY", d),
        Record::Unlink(d) => dentry("DEL_ENTRY", d),
        Record::Inode { ino, .. } => format!("tag INODE, inode {ino}"),
        Record::Pad | Record::Tail { .. } | Record::Head { .. } => String::new(),
    }
}

#[test]
fn same_as_debugfs() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let options = "-t ext4 -b 1024 -O fast_commit";
    let path = kernel::lost_image(dir.path(), options, "defaults", change);
    let image = Image::open(&path);
    let data = image.blocks(Ino(image.sb.s_journal_inum.get())).data;
    let block = |at: u32| image.block(data[at as usize].1);
    let journal = JournalSuperblock::parse(block(0)).unwrap();
    let area: Vec<_> = journal.fast_commit_area().map(block).collect();
    // Mounting committed one transaction; the fast commits build on the next.
    let tid = journal.s_sequence.get() + 1;
    let ours = committed_records(area, tid, image.geometry.inode_size).unwrap();
    let ours: Vec<_> = ours.iter().map(as_debugfs).collect();

    let script = format!("open {}\nlogdump -a\n", path.display());
    let text = debugfs_script(script, None);
    let text = String::from_utf8(text).unwrap();
    let (_, theirs) = text.split_once("Fast Commit Area").unwrap();
    let theirs: Vec<_> = theirs
        .lines()
        .filter(|line| line.starts_with("tag "))
        .filter(|line| {
            !["HEAD", "TAIL", "PAD"]
                .iter()
                .any(|tag| line[4..].starts_with(tag))
        })
        .collect();
    assert!(theirs.len() > 10, "{text}");
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(theirs) {
        // Some versions print a byte too many after a name.
        assert!(
            theirs.starts_with(ours.trim_end_matches('"')),
            "{ours}\n{theirs}"
        );
    }
}
