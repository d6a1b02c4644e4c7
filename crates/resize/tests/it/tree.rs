//! A file system in use all over, and what it holds.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use uext4::data::Fallocate;
use uext4::tuning::Background;
use uext4::xattr::SetMode;
use uext4::{Creation, FileType, FollowLast, Image, NewInode, OpenOptions, Volume};
use uext4_blockdev::{BlockDevice, Clock, SystemClock};

/// Directories with files, of which the first ones are deleted then: what is left lies far from
/// the beginning.
pub fn fill(device: &Arc<dyn BlockDevice>, dirs: u32, file_len: usize) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let mut options = OpenOptions::default();
    options.background = Background::None;
    let volume = Volume::open(Arc::clone(device), clock, &options).unwrap();
    let dir = Creation::directory();
    for nr in 0..dirs {
        let top = format!("/d{nr}");
        volume.create_dir(&top, &dir).unwrap();
        for file in 0..6 {
            let path = format!("{top}/f{file}");
            let len = file_len * (file + 1) / 3 + 13 * file;
            volume
                .write(&path, vec![(nr + file as u32) as u8; len])
                .unwrap();
        }
        // Extents that do not fit the inode.
        for part in 0..24_u64 {
            for name in ["a", "b"] {
                let path = format!("{top}/{name}");
                if part == 0 {
                    volume.write(&path, b"x").unwrap();
                }
                let file = volume.open_path(&path, FollowLast::Yes).unwrap();
                file.write_at(part * 8192, &[part as u8 + 1; 4000]).unwrap();
                file.fsync().unwrap();
            }
        }
        let long = vec![nr as u8 % 7; 700];
        for name in ["a", "f1", "f2"] {
            let file = volume.open_path(format!("{top}/{name}"), FollowLast::Yes);
            let set = file
                .unwrap()
                .set_xattr(b"user.long", Some(&long), SetMode::Any);
            set.unwrap();
        }
        // Larger than a block: only with ea_inode.
        let large = vec![nr as u8; 6000];
        let file = volume.open_path(format!("{top}/f3"), FollowLast::Yes);
        _ = file
            .unwrap()
            .set_xattr(b"user.large", Some(&large), SetMode::Any);
        volume
            .link(format!("{top}/f1"), format!("{top}/linked"))
            .unwrap();
        volume
            .link(format!("{top}/f0"), format!("/from{nr}"))
            .unwrap();
        let target = "t".repeat(50 + nr as usize % 40);
        let kind = NewInode::Symlink(target.as_bytes());
        volume
            .create(format!("{top}/link"), kind, &Creation::file())
            .unwrap();
        volume.create_dir(format!("{top}/below"), &dir).unwrap();
        volume
            .create_dir(format!("{top}/below/deep"), &dir)
            .unwrap();
        let file = volume
            .open_path(format!("{top}/f5"), FollowLast::Yes)
            .unwrap();
        // Not all kinds of files can have it.
        _ = file.fallocate(Fallocate::Allocate { keep_size: true }, 1 << 20, 100 << 10);
    }
    delete_first(&volume, dirs);
    volume.close().unwrap();
}

/// A directory with many names; and most of the first directories go.
fn delete_first(volume: &Volume, dirs: u32) {
    let last = format!("/d{}", dirs - 1);
    for nr in 0..400 {
        volume
            .write(format!("{last}/name-of-some-length-{nr}"), b"n")
            .unwrap();
    }
    for nr in 0..dirs * 2 / 3 {
        if nr % 9 != 0 {
            volume.remove_all(format!("/d{nr}")).unwrap();
        }
    }
}

/// What a file system holds, by path; numbers of inodes and blocks aside.
pub fn contents(device: &Arc<dyn BlockDevice>) -> BTreeMap<String, String> {
    let mut options = OpenOptions::default();
    options.background = Background::None;
    let image = Image::open(Arc::clone(device), &options).unwrap();
    let mut first_names = BTreeMap::new();
    let mut all = BTreeMap::new();
    for entry in image.walk("/").unwrap() {
        let entry = entry.unwrap();
        let path = String::from_utf8(entry.path).unwrap();
        let inode = entry.inode;
        let first = first_names.entry(inode.ino).or_insert_with(|| path.clone());
        let mut data = DefaultHasher::new();
        match inode.file_type {
            FileType::Regular => {
                let mut bytes = vec![0; inode.size as usize];
                image.read_at(&inode, 0, &mut bytes).unwrap();
                bytes.hash(&mut data);
            }
            FileType::Symlink => image.read_link(&inode).unwrap().hash(&mut data),
            _ => {}
        }
        let xattrs: Vec<_> = image.xattrs(&inode).unwrap();
        let text = format!(
            "{first} {:?} {:o} {} {} {:x} {xattrs:?}",
            inode.file_type,
            inode.mode,
            inode.links,
            inode.size,
            data.finish()
        );
        all.insert(path, text);
    }
    all
}
