//! Multiple mount protection: of two hosts one writes.

use std::sync::Arc;
use std::time::Duration;

use uext4::{Creation, Error, Image, NewInode, OpenOptions, Volume};
use uext4_blockdev::{Clock, MemoryDevice, VirtualClock};
use uext4_ondisk::Pblk;
use uext4_ondisk::mmp::{MMP_LEN, MmpBlock, MmpState};

use super::device::{judge, made};
use uext4_testkit::{Mount, can_mount};

const FLAGS: &str = "-t ext4 -O mmp";

fn open(device: &Arc<MemoryDevice>, clock: Arc<dyn Clock>) -> uext4::Result<Volume> {
    Volume::open(device.clone(), clock, &OpenOptions::default())
}

fn clock() -> Arc<VirtualClock> {
    Arc::new(VirtualClock::new(1_700_000_000))
}

fn block(device: &MemoryDevice) -> MmpBlock {
    let fs = Image::open(Arc::new(device.snapshot()), &OpenOptions::default()).unwrap();
    let place = Pblk(fs.superblock().s_mmp_block.get());
    let offset = fs.geometry().block_size.byte_offset(place).unwrap();
    let mut bytes = [0; MMP_LEN];
    fs.device().read_at(offset, &mut bytes).unwrap();
    MmpBlock::parse(&bytes, place, fs.geometry().csum_seed).unwrap()
}

/// A clock of one host; while it sleeps another host goes on.
#[derive(Debug)]
struct OtherHost {
    own: Arc<VirtualClock>,
    other: Volume,
    clock: Arc<VirtualClock>,
}

impl Clock for OtherHost {
    fn is_virtual(&self) -> bool {
        true
    }

    fn now(&self) -> (i64, u32) {
        self.own.now()
    }

    fn monotonic(&self) -> Duration {
        self.own.monotonic()
    }

    fn sleep(&self, duration: Duration) {
        self.own.sleep(duration);
        for _ in 0..duration.as_secs() {
            self.clock.sleep(Duration::from_secs(1));
            self.other.tick().unwrap();
        }
    }
}

#[test]
fn a_second_host_is_refused() {
    let device = made(FLAGS, 16_384);
    let clock = clock();
    let fs = open(&device, clock.clone()).unwrap();
    assert!(clock.monotonic() >= Duration::from_secs(11));
    assert_eq!(block(&device).state(), Some(MmpState::Mounted));
    let other_host = OtherHost {
        own: Arc::new(VirtualClock::new(1_700_000_000)),
        other: fs.clone(),
        clock: clock.clone(),
    };
    let second = open(&device, Arc::new(other_host)).map(drop);
    assert!(matches!(second, Err(Error::InUse { .. })), "{second:?}");
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    assert!(second.unwrap_err().to_string().contains(&name));
    let root = fs.root().unwrap();
    root.create(b"a", NewInode::File, &Creation::default())
        .unwrap();
    drop(root);
    fs.close().unwrap();
    assert_eq!(block(&device).state(), Some(MmpState::Clean));
    judge(&device, "after a second host tried");
}

#[test]
fn a_dead_host_is_waited_for_and_noticed() {
    let device = made(FLAGS, 16_384);
    let clock = clock();
    let first = open(&device, clock.clone()).unwrap();
    let other = Arc::new(VirtualClock::new(1_700_000_100));
    let second = open(&device, other.clone()).unwrap();
    assert!(other.monotonic() >= Duration::from_secs(22));
    // The first was only asleep: it must not write any more.
    clock.sleep(Duration::from_secs(60));
    assert!(matches!(first.tick(), Err(Error::InUse { .. })));
    let made = first
        .root()
        .unwrap()
        .create(b"a", NewInode::File, &Creation::default());
    assert!(matches!(made, Err(Error::Aborted { .. })), "{made:?}");
    assert!(first.sync().is_err());
    second.close().unwrap();
    drop((first, second));
    judge(&device, "after a host died");
}

#[test]
fn the_kernel_agrees() {
    if !can_mount() {
        return;
    }
    let device = made(FLAGS, 16_384);
    let fs = open(&device, clock()).unwrap();
    fs.close().unwrap();
    let image = uext4_testkit::stored(&device);
    let mount = Mount::new(image.path(), "rw");
    std::fs::write(mount.path().join("theirs"), "x").unwrap();
    let during = MemoryDevice::from_bytes(std::fs::read(image.path()).unwrap());
    assert_eq!(block(&during).state(), Some(MmpState::Mounted));
    drop(mount);
    let after = uext4_testkit::loaded(image.path());
    assert_eq!(block(&after).state(), Some(MmpState::Clean));
    let fs = open(&after, clock()).unwrap();
    fs.root().unwrap().lookup(b"theirs").unwrap();
    fs.close().unwrap();
    judge(&after, "used by both");
}
