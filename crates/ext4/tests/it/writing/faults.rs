//! Devices that fail: for every request of a workload, what happens when that one fails, alone or
//! with all after it. Nothing panics, what was made durable before is there, and once the journal
//! could not be written nothing changes any more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use uext4::data::Fallocate;
use uext4::xattr::SetMode;
use uext4::{Creation, Error, NewInode, OpenInode, OpenOptions, RenameMode, SetAttributes, Volume};
use uext4_blockdev::{MemoryDevice, VirtualClock};
use uext4_ondisk::features::Incompat;
use uext4_ondisk::superblock::{STATE_ERROR, SuperBlock};
use uext4_testkit::{Fault, Op, SimDevice, SimOptions, SplitMix64};
use uext4_testkit::{e2fsck, said};

use super::device::{file, judge, made, mount, steps};

const CREATION: Creation = Creation {
    mode: 0o700,
    umask: 0,
    uid: 0,
    gid: 0,
};

/// What must be there: the contents of a file that was made durable, until it is touched again.
type Durable = BTreeMap<String, Vec<u8>>;

/// A workload that goes on whatever fails.
struct Workload {
    fs: Volume,
    root: OpenInode,
    random: SplitMix64,
    durable: Durable,
    /// Something was refused because nothing may be written any more.
    is_read_only: bool,
}

impl Workload {
    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    /// Notes what a change said.
    fn did<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(value) => {
                assert!(!self.is_read_only, "a change after it was read-only");
                Some(value)
            }
            Err(error) => {
                self.is_read_only |= matches!(error, Error::ReadOnly | Error::Aborted { .. });
                None
            }
        }
    }

    fn run(&mut self, count: u64) {
        for _ in 0..count {
            self.step();
        }
    }

    fn step(&mut self) {
        let name = format!("f{}", self.below(6));
        let raw = name.as_bytes();
        let root = self.root.clone();
        let what = self.below(12);
        if what > 2 {
            // From here on it may be as it was or as it becomes.
            self.durable.remove(&name);
        }
        if what == 9 {
            let made = root.create(raw, NewInode::Directory, &CREATION);
            self.did(made);
            let gone = root.rmdir(raw);
            self.did(gone);
            return;
        }
        let Ok(file) = root.lookup(raw) else {
            self.durable.remove(&name);
            let made = root.create(raw, NewInode::File, &CREATION);
            self.did(made);
            return;
        };
        match what {
            0..=2 => {
                let mut bytes = vec![0; file.inode().size as usize];
                let whole = file.read_at(0, &mut bytes).is_ok();
                if file.fsync().is_ok() && whole {
                    self.durable.insert(name, bytes);
                }
            }
            3 => drop(root.unlink(raw)),
            4 => {
                let other = format!("f{}", self.below(6));
                self.durable.remove(&other);
                let moved = root.rename(raw, &root, other.as_bytes(), RenameMode::Replace);
                // To itself is no change.
                if other != name {
                    self.did(moved);
                }
            }
            5 => {
                let size = self.below(40_000);
                let change = SetAttributes {
                    size: Some(size),
                    ..SetAttributes::default()
                };
                drop(file.set_attributes(&change));
            }
            6 => drop(file.fallocate(Fallocate::PunchHole, self.below(20_000), 9000)),
            7 => {
                let value = vec![1; self.below(900) as usize];
                drop(file.set_xattr(b"user.a", Some(&value), SetMode::Any));
            }
            8 => drop(self.fs.sync()),
            _ => {
                let (at, len) = (self.below(20_000), 1 + self.below(20_000));
                let data: Vec<u8> = (0..len).map(|i| (i * 3 + at) as u8).collect();
                drop(file.write_at(at, &data));
            }
        }
    }
}

/// Runs the workload with a fault; what must be there, unless it could not even be mounted.
fn run(device: &Arc<SimDevice>, seed: u64) -> Option<Durable> {
    let mut options = OpenOptions::default();
    options.memory_max = 64 << 12;
    options.pages_max = 64 << 12;
    let clock = Arc::new(VirtualClock::new(1_700_000_000));
    let fs = Volume::open(device.clone(), clock, &options).ok()?;
    let root = fs.root().ok()?;
    let mut work = Workload {
        fs,
        root,
        random: SplitMix64::new(seed),
        durable: Durable::new(),
        is_read_only: false,
    };
    work.run(60);
    let durable = std::mem::take(&mut work.durable);
    if seed.is_multiple_of(2) {
        let fs = work.fs.clone();
        drop(work);
        drop(fs.close());
    } else {
        // As a process that is killed leaves it; what is dropped is closed.
        std::mem::forget(work);
    }
    Some(durable)
}

/// Where errors were noted, what e2fsck makes of the device: it finds no other error.
fn without_noted_errors(device: &MemoryDevice, what: &str) -> MemoryDevice {
    let bytes = device.to_bytes();
    let superblock = SuperBlock::parse(&bytes[1024..2048]).unwrap();
    if superblock.s_state.get() & STATE_ERROR == 0 {
        return MemoryDevice::from_bytes(bytes);
    }
    // Where the log is still to be replayed, what lies in place is not all there is.
    if !superblock.features().incompat.contains(Incompat::RECOVER) {
        judge(device, what);
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    // 1: orphans were deleted, or counts set, where it was left as after a power cut.
    let checked = e2fsck(file.path(), "-p");
    let passes = checked.status.code().is_some_and(|code| code <= 1);
    assert!(passes, "{what}: {}", said(&checked));
    MemoryDevice::from_bytes(std::fs::read(file.path()).unwrap())
}

/// What is on the device now can be mounted, and holds what was made durable.
fn check(device: &MemoryDevice, durable: &Durable, what: &str) {
    let device = Arc::new(without_noted_errors(device, what));
    let fs = mount(device.clone());
    let root = fs.root().unwrap();
    for (name, bytes) in durable {
        let file = root
            .lookup(name.as_bytes())
            .unwrap_or_else(|error| panic!("{what}: {name}: {error:?}"));
        let mut found = vec![0; bytes.len() + 1];
        let len = file.read_at(0, &mut found).unwrap();
        assert!(
            len == bytes.len() && found[..len] == *bytes,
            "{what}: {name} is not as it was made durable"
        );
    }
    drop(root);
    fs.close().unwrap();
    drop(fs);
    judge(&device, what);
}

fn every(flags: &str, op: Op, seed: u64) {
    let image = made(flags, 4096);
    let fresh = || Arc::new(SimDevice::new(&image, SimOptions::default()));
    let device = fresh();
    run(&device, seed).unwrap();
    let stats = device.stats();
    let count = match op {
        Op::Read => stats.reads,
        Op::Write => stats.writes,
        Op::Flush => stats.flushes,
        Op::Discard => stats.discards,
    };
    assert!(count > 5, "{op:?}: {count}");
    let stride = (count / steps(40, 4000)).max(1);
    for skip in (0..count).step_by(stride as usize) {
        for times in [1, u64::MAX] {
            let device = fresh();
            device.inject(Fault::new(op).after(skip).times(times));
            let durable = run(&device, seed);
            device.clear_faults();
            let what = format!("{flags}: {op:?} {skip} of {count}, {times} times");
            if let Some(durable) = durable {
                check(&device.durable(), &durable, &what);
                check(&device.power_cut(skip), &durable, &what);
            }
        }
    }
}

#[test]
fn reads_that_fail() {
    every("-t ext4", Op::Read, 1);
    every("-t ext4 -b 1024 -O orphan_file", Op::Read, 2);
}

#[test]
fn writes_that_fail() {
    every("-t ext4", Op::Write, 3);
    every("-t ext3 -b 1024", Op::Write, 4);
}

#[test]
fn flushes_that_fail() {
    every("-t ext4", Op::Flush, 5);
    every("-t ext3 -b 1024", Op::Flush, 6);
}

/// A flush that failed is reported to a caller that syncs, any thread that met it: the device may
/// report it only once.
#[test]
fn a_flush_that_failed_elsewhere_is_reported_to_sync() {
    for by_mmp in [false, true] {
        let flags = if by_mmp { "-t ext4 -O mmp" } else { "-t ext4" };
        let image = made(flags, 8192);
        let device = Arc::new(SimDevice::new(&image, SimOptions::default()));
        let clock = Arc::new(VirtualClock::new(1_700_000_000));
        let options = OpenOptions::default();
        let fs = Volume::open(device.clone(), clock.clone(), &options).unwrap();
        let file = file(&fs, "file");
        file.write_at(0, &[1; 4096]).unwrap();
        fs.sync().unwrap();
        // Written over in place: no commit is needed for it.
        file.write_at(0, &[2; 4096]).unwrap();
        file.fsync().unwrap();
        file.write_at(0, &[3; 4096]).unwrap();
        device.inject(Fault::new(Op::Flush).times(1));
        let failed = match by_mmp {
            true => {
                clock.advance(Duration::from_secs(6));
                fs.tick().unwrap_err()
            }
            false => fs.trim(0..u64::MAX, 0).unwrap_err(),
        };
        assert!(!matches!(failed, Error::Unsupported { .. }), "{failed}");
        device.clear_faults();
        assert!(file.fdatasync().is_err(), "{flags}");
    }
}
