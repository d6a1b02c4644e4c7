//! Files that are replaced without fsync: whatever a cut leaves after a commit, the name shows the
//! old contents or the new ones, and never less.

use std::sync::Arc;
use std::time::Duration;

use uext4::{Creation, Image, NewInode, OpenOptions, RenameMode, SetAttributes, Volume};
use uext4_blockdev::{BlockDevice, VirtualClock};

use super::judge::{read, recover};
use super::recorder::{Cuts, Recorder};
use crate::writing::device::made;

static OLD: [u8; 50_000] = [b'o'; 50_000];
static NEW: [u8; 30_000] = [b'n'; 30_000];

/// How a file gets its new contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Rename,
    Exchange,
    /// The names the other way round.
    ExchangeBack,
    Cut,
    /// Others look at the file while it is being written.
    CutAndSeen,
}

fn replace(fs: &Volume, way: Way) {
    let root = fs.root().unwrap();
    if matches!(way, Way::Cut | Way::CutAndSeen) {
        let file = root.lookup(b"file").unwrap();
        let cut = SetAttributes {
            size: Some(0),
            ..SetAttributes::default()
        };
        file.set_attributes(&cut).unwrap();
        let (first, second) = NEW.split_at(NEW.len() / 2);
        file.write_at(0, first).unwrap();
        if way == Way::CutAndSeen {
            drop(root.lookup(b"file").unwrap());
            drop(file.clone());
        }
        file.write_at(first.len() as u64, second).unwrap();
        return;
    }
    let file = root
        .create(b"new", NewInode::File, &Creation::default())
        .unwrap();
    file.write_at(0, &NEW).unwrap();
    drop(file);
    let mode = match way {
        Way::Rename => RenameMode::Replace,
        _ => RenameMode::Exchange,
    };
    match way {
        Way::ExchangeBack => root.rename(b"file", &root, b"new", mode).unwrap(),
        _ => root.rename(b"new", &root, b"file", mode).unwrap(),
    }
    if mode == RenameMode::Exchange {
        root.unlink(b"new").unwrap();
    }
}

/// What the file shows after a cut at each change that follows the replacement, one entry for each
/// different contents.
fn shown(flags: &str, options: &str, way: Way) -> Vec<Vec<u8>> {
    let device = Arc::new(Recorder::new(&made(flags, 16_384)));
    let clock = Arc::new(VirtualClock::new(1_700_000_000));
    let mut all = OpenOptions::default();
    all.options(options).unwrap();
    let fs = Volume::open(device.clone(), Arc::clone(&clock) as _, &all).unwrap();
    let root = fs.root().unwrap();
    let file = root
        .create(b"file", NewInode::File, &Creation::default())
        .unwrap();
    file.write_at(0, &OLD).unwrap();
    drop((file, root));
    fs.sync().unwrap();
    device.take_events();
    let mut cuts = Cuts::new(&device.image());
    replace(&fs, way);
    // The commit is due, and what is dirty is not.
    clock.advance(Duration::from_secs(6));
    fs.tick().unwrap();
    let mut found = Vec::new();
    for (at, (_, event)) in device.take_events().iter().enumerate() {
        cuts.push(event);
        let seeds = (0..6).map(|seed| cuts.some(at as u64 * 6 + seed));
        for image in seeds.chain([cuts.all()]) {
            let image = Arc::new(image);
            recover(Arc::clone(&image) as Arc<dyn BlockDevice>).unwrap();
            let files = read(&image).unwrap().files;
            let fs = Image::open(image, &OpenOptions::default()).unwrap();
            let inode = fs.resolve(b"/file", uext4::FollowLast::No).unwrap();
            let mut bytes = vec![0; inode.size as usize];
            fs.read_at(&inode, 0, &mut bytes).unwrap();
            assert!(!files.is_empty());
            if !found.contains(&bytes) {
                found.push(bytes);
            }
        }
    }
    found
}

#[test]
fn a_replaced_file_shows_its_old_or_its_new_contents_after_a_power_cut() {
    for flags in ["-t ext4 -b 1024 -J size=1", "-t ext3 -b 4096 -J size=4"] {
        for way in [
            Way::Rename,
            Way::Exchange,
            Way::ExchangeBack,
            Way::Cut,
            Way::CutAndSeen,
        ] {
            for contents in shown(flags, "", way) {
                let len = contents.len();
                let is_whole = contents == OLD || contents == NEW;
                assert!(is_whole, "{flags}, {way:?}: {len} bytes are left");
            }
        }
    }
}

#[test]
fn noauto_da_alloc_leaves_replaced_files_empty_until_their_data_are_written() {
    for way in [Way::Rename, Way::Cut] {
        let all = shown("-t ext4 -b 1024 -J size=1", "noauto_da_alloc", way);
        assert!(all.contains(&Vec::new()), "{way:?}");
    }
}
