//! What the engine leaves, as the examination sees it, and damage that both must bound.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use uext4::{Creation, FollowLast, Image, NewInode, OpenOptions, Volume};
use uext4_blockdev::{BlockDevice, MemoryDevice, SystemClock};
use uext4_testkit::debugfs_write;

use crate::mke2fs::mke2fs;
use crate::tree::open;

#[test]
fn inodes_that_wait_for_their_deletion_are_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    for flags in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "orphan_file"]] {
        let _ = std::fs::remove_file(&image);
        mke2fs(&image, flags, None, "64M");
        let device = uext4_testkit::loaded(&image);
        let options = OpenOptions::default();
        let fs = Volume::open(device.clone(), Arc::new(SystemClock), &options).unwrap();
        let root = fs.root().unwrap();
        let creation = Creation {
            mode: 0o755,
            ..Creation::default()
        };
        let parent = root.create(b"p", NewInode::Directory, &creation).unwrap();
        let removed = parent.create(b"d", NewInode::Directory, &creation).unwrap();
        let file = parent.create(b"f", NewInode::File, &creation).unwrap();
        file.write_at(0, &[7; 50_000]).unwrap();
        let unnamed = parent.create_unnamed(NewInode::File, &creation).unwrap();
        parent.rmdir(b"d").unwrap();
        parent.unlink(b"f").unwrap();
        fs.sync().unwrap();
        // As the medium is after a crash.
        let crashed: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(device.to_bytes()));
        drop((removed, file, unnamed));
        let examined = uext4_fsck::examine(&crashed, &Default::default(), &()).unwrap();
        assert!(examined.is_clean, "{flags:?}: {:?}", examined.findings);
        assert_eq!(examined.summary.orphans, 3, "{flags:?}");
    }
}

#[test]
fn a_table_that_names_itself_does_not_make_a_small_image_endless() {
    let dir = tempfile::tempdir().unwrap();
    let (source, image) = (dir.path().join("source"), dir.path().join("image"));
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("file"), [7; 1024]).unwrap();
    mke2fs(&image, &["-t", "ext2", "-b", "1024"], Some(&source), "4M");
    let file = |fs: &Image| fs.resolve(b"file", FollowLast::No).unwrap();
    let fs = open(&image);
    let block = fs.map(&file(&fs), uext4_ondisk::Lblk(0), 1).unwrap().pblk.0;
    let table = (block as u32).to_le_bytes().repeat(256);
    let raw = std::fs::File::options().write(true).open(&image).unwrap();
    raw.write_all_at(&table, block * 1024).unwrap();
    let point = format!("sif file block[TIND] {block}");
    debugfs_write(&image, [point.as_str(), "sif file size 17000000000"]);
    let fs = open(&image);
    let ranges: Vec<_> = fs.data_ranges(&file(&fs)).unwrap().collect();
    assert!(ranges.last().unwrap().is_err());
    assert!(ranges.len() < 5000);
    let device: Arc<dyn BlockDevice> = uext4_testkit::loaded(&image);
    let found = uext4_fsck::findings(&device);
    assert!(
        found.as_ref().is_ok_and(|found| !found.is_empty()),
        "{found:?}"
    );
}
