//! The whole engine on each index: attributes are those that were set, and every block and value
//! counts exactly the inodes that have it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;

use uext4::tuning::Policies;
use uext4::xattr::SetMode;
use uext4::{Creation, NewInode, OpenInode, OpenOptions, Volume};
use uext4_blockdev::{BlockDevice, MemoryDevice, VirtualClock};
use uext4_lab_policies::mbcache::{Options, Policy};
use uext4_mkfs::{BlockSizeWish, parse_features};
use uext4_ondisk::BlockSize;
use uext4_testkit::SplitMix64;

const TIME: i64 = 1_700_000_000;
const FILES: u64 = 24;
/// Bytes of values: of blocks, and of inodes of their own.
const LENS: [usize; 4] = [300, 700, 2000, 9000];

fn made(bytes: u64) -> MemoryDevice {
    let device = MemoryDevice::new(bytes);
    let mut wishes = uext4_mkfs::Options::new([7; 16], [9; 16], TIME as u32);
    wishes.block_size = BlockSize::from_bytes(4096).map(BlockSizeWish::Exactly);
    wishes.features = parse_features("ea_inode").unwrap();
    wishes.inodes = Some(3000);
    wishes.assume_zeroed = true;
    let layout = uext4_mkfs::layout(&wishes, bytes).unwrap();
    uext4_mkfs::format(&layout, &device).unwrap();
    device
}

fn mount(device: &Arc<MemoryDevice>, policy: Policy, max_entries: u32) -> Volume {
    let index = |users_max| {
        let options = Options {
            policy,
            max_entries,
            users_max,
            ..Options::default()
        };
        options.index().map(|index| index as _)
    };
    let mut options = OpenOptions::default();
    options.policies = Policies {
        xattr_blocks: index(1024),
        xattr_values: index(u32::MAX),
        ..Policies::default()
    };
    let clock = Arc::new(VirtualClock::new(TIME));
    Volume::open(Arc::clone(device) as _, clock, &options).unwrap()
}

/// Every cross reference, among them the users of blocks and values.
fn check(device: &Arc<MemoryDevice>, policy: Policy) {
    let device: Arc<dyn BlockDevice> = Arc::<MemoryDevice>::clone(device);
    assert_eq!(uext4_fsck::findings(&device).unwrap(), [], "{policy}");
}

fn create(fs: &Volume, name: &str) -> OpenInode {
    let root = fs.root().unwrap();
    root.create(name.as_bytes(), NewInode::File, &Creation::default())
        .unwrap()
}

fn value(number: u64) -> Vec<u8> {
    let len = LENS[number as usize % LENS.len()];
    vec![b'a' + number as u8; len]
}

/// Sets values at random, or none; returns what each file has at last.
fn play(files: &[OpenInode], steps: u64, seed: u64) -> Vec<Option<Vec<u8>>> {
    let mut random = SplitMix64::new(seed);
    let mut model = vec![None; files.len()];
    for _ in 0..steps {
        let at = random.below(files.len() as u64) as usize;
        let new = (random.below(6) > 0).then(|| value(random.below(8)));
        files[at]
            .set_xattr(b"user.a", new.as_deref(), SetMode::Any)
            .unwrap();
        model[at] = new;
        let at = random.below(files.len() as u64) as usize;
        let found = files[at].xattr(b"user.a").ok();
        assert_eq!(found, model[at]);
    }
    model
}

#[test]
fn attributes_are_read_back() {
    for policy in Policy::ALL {
        for max_entries in [16, 0] {
            let device = Arc::new(made(64 << 20));
            let fs = mount(&device, policy, max_entries);
            let files: Vec<_> = (0..FILES).map(|n| create(&fs, &format!("f{n}"))).collect();
            let model = play(&files, 600, u64::from(max_entries) + 1);
            drop(files);
            fs.close().unwrap();
            check(&device, policy);
            let fs = mount(&device, policy, max_entries);
            for (number, expected) in model.iter().enumerate() {
                let file = fs.root().unwrap().lookup(format!("f{number}").as_bytes());
                let found = file.unwrap().xattr(b"user.a").ok();
                assert_eq!(found, *expected, "{policy}");
            }
            fs.close().unwrap();
        }
    }
}

#[test]
fn threads_share_and_part_again() {
    for policy in Policy::ALL {
        let device = Arc::new(made(64 << 20));
        let fs = mount(&device, policy, 16);
        thread::scope(|scope| {
            for thread in 0..4 {
                let fs = fs.clone();
                scope.spawn(move || {
                    let name = |n| format!("{thread}-{n}");
                    let files: Vec<_> = (0..FILES).map(|n| create(&fs, &name(n))).collect();
                    play(&files, 400, thread);
                });
            }
        });
        let blocks = fs.stats().xattr_blocks.unwrap();
        assert!(blocks.reuse_ok > 0, "{policy}");
        fs.close().unwrap();
        check(&device, policy);
    }
}

/// Equal blocks of earlier mounts are merged where one is freed.
#[test]
fn blocks_are_merged() {
    let image = Arc::new(made(64 << 20));
    let groups = [1023, 3, 3];
    let name = |group: usize, i: usize| format!("{group}-{i}");
    for (group, files) in groups.into_iter().enumerate() {
        // An empty index finds no block of another mount.
        let fs = mount(&image, Policy::Mainline, 0);
        for i in 0..files {
            let file = create(&fs, &name(group, i));
            file.set_xattr(b"user.a", Some(&[7; 2000]), SetMode::Any)
                .unwrap();
        }
        fs.close().unwrap();
    }
    for policy in Policy::ALL {
        let device = Arc::new(image.snapshot());
        let fs = mount(&device, policy, 0);
        let (mut moved, mut blocks) = (0, BTreeSet::new());
        let all = groups.into_iter().enumerate();
        let all = all.flat_map(|(group, files)| (0..files).map(move |i| name(group, i)));
        let root = fs.root().unwrap();
        let files: Vec<_> = all.map(|n| root.lookup(n.as_bytes()).unwrap()).collect();
        for file in &files {
            moved += usize::from(file.share_xattrs().unwrap());
        }
        blocks.extend(files.iter().map(|file| file.inode().xattr_block.unwrap()));
        assert_eq!((moved, blocks.len()), (3, 2), "{policy}");
        drop((files, root));
        fs.close().unwrap();
        check(&device, policy);
    }
}
