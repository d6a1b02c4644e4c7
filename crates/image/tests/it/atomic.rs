//! A file that is put whole: whenever the power goes, its name shows the old file or the new one.

use std::sync::Arc;

use uext4::device::{BlockDevice, MemoryDevice};
use uext4::{OpenOptions, SetAttributes, Volume};
use uext4_image::{Attributes, PutOptions, put};
use uext4_remote::{Node, Tree};
use uext4_testkit::images::{assert_device_clean, formatted};
use uext4_testkit::{SimDevice, SimOptions, has_tool};

const OWNER: u32 = 7;

fn open(device: &Arc<SimDevice>) -> uext4::Result<Volume> {
    let shared: Arc<dyn BlockDevice> = Arc::clone(device) as _;
    Volume::open(shared, Arc::clone(device.clock()), &OpenOptions::default())
}

/// Puts a file under a new name and over an old one, until the power goes.
fn replaced(start: &MemoryDevice, source: &std::path::Path, cut: Option<u64>) -> Arc<SimDevice> {
    // A superblock is written whole or not at all.
    let options = SimOptions {
        sector_size: 1024,
        ..SimOptions::default()
    };
    let device = Arc::new(SimDevice::new(start, options));
    if let Some(cut) = cut {
        device.cut_at_write(cut);
    }
    let run = || -> Result<(), Box<dyn std::error::Error>> {
        let fs = open(&device)?;
        let tree = Tree::Local(fs.clone());
        let root = Node::Local(fs.root()?);
        let mut options = PutOptions {
            whole: true,
            ..PutOptions::default()
        };
        for (name, attributes) in [
            (&b"new"[..], Attributes::OfSource),
            (b"file", Attributes::OfReplaced),
        ] {
            options.attributes = attributes;
            put(&tree, source, &root, Some(name), &options, &(), &mut |_| {})?;
        }
        drop(root);
        Ok(fs.close()?)
    };
    assert_eq!(run().is_ok(), cut.is_none());
    device
}

#[test]
fn a_power_cut_leaves_the_old_file_or_the_new_one() {
    if !has_tool("mke2fs") {
        println!("skipped: no e2fsprogs");
        return;
    }
    let old = vec![b'o'; 40_000];
    let new = vec![b'n'; 70_000];
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::write(&source, &new).unwrap();
    let empty = formatted("-t ext4 -b 1024 -J size=1", 8192);
    let device = Arc::new(SimDevice::new(&empty, SimOptions::default()));
    let fs = open(&device).unwrap();
    fs.write("/file", &old).unwrap();
    let file = fs.open_path("/file", uext4::FollowLast::No).unwrap();
    let owner = SetAttributes {
        uid: Some(OWNER),
        ..SetAttributes::default()
    };
    file.set_attributes(&owner).unwrap();
    drop(file);
    fs.close().unwrap();
    drop(fs);
    let start = device.contents();
    let changes = replaced(&start, &source, None).stats().changes();
    let mut found = [0, 0, 0];
    for cut in 0..changes {
        let device = replaced(&start, &source, Some(cut));
        for seed in 0..3 {
            let cut_off = device.power_cut(seed);
            let after = Arc::new(SimDevice::new(&cut_off, SimOptions::default()));
            let fs = open(&after).unwrap();
            let file = fs.read("/file").unwrap();
            assert!(file == old || file == new, "cut {cut}, seed {seed}");
            assert_eq!(fs.metadata("/file").unwrap().uid, OWNER);
            let is_there = fs.exists("/new").unwrap();
            assert!(!is_there || fs.read("/new").unwrap() == new);
            assert!(file == old || is_there);
            found[usize::from(is_there) + usize::from(file == new)] += 1;
            // The root directory, lost+found, the file, and the new one.
            let inodes = fs.walk("/").unwrap().count();
            assert_eq!(inodes, 3 + usize::from(is_there), "cut {cut}, seed {seed}");
            fs.close().unwrap();
            if seed == 0 {
                assert_device_clean(&after.contents());
            }
        }
    }
    assert!(found.iter().all(|&count| count > 0), "{found:?}");
}
