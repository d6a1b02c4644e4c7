//! Threads that write, punch, truncate and write back side by side in little memory: no delayed
//! extent is lost, none is counted twice, and what is known of a file never contradicts its map.
//!
//! Whole blocks are written, so what waits to be written is known from outside: the blocks with
//! data less those that the map has. When no thread works, the quota of their owner must be
//! exactly what the inodes have and that; when all is synced, what may still be reserved must be
//! what it is after the next mount; and e2fsck counts blocks and quotas once more.

use std::sync::Arc;
use std::time::Duration;

use uext4::data::{Fallocate, MapState};
use uext4::quota::QuotaKind;
use uext4::{Creation, Error, NewInode, OpenInode, OpenOptions, SetAttributes, Volume};
use uext4_blockdev::{MemoryDevice, VirtualClock};
use uext4_ondisk::Lblk;
use uext4_testkit::SplitMix64;

use super::device::{judge, made, steps};
use super::known_blocks::apart;

const WORKERS: usize = 4;
/// Blocks of a file that are one worker's: of the shared file each has so many, one after another.
const LANE: usize = 200;
const BLOCK: usize = 4096;
const ROUNDS: u64 = 3;
const OWNER: u32 = 1000;
const CREATION: Creation = Creation {
    mode: 0o600,
    umask: 0,
    uid: OWNER,
    gid: OWNER,
};

/// What must be in the blocks of a lane: nothing, or a byte over and over, which may be 0.
type Lane = Vec<Option<u8>>;

struct Bench {
    fs: Volume,
    clock: Arc<VirtualClock>,
    /// One for each worker, and the shared one.
    files: Vec<OpenInode>,
}

/// One thread, and what it left in its own file and in its lane of the shared one.
struct Worker {
    number: usize,
    random: SplitMix64,
    lanes: [Lane; 2],
}

fn open(device: Arc<MemoryDevice>, clock: &Arc<VirtualClock>) -> Volume {
    let mut options = OpenOptions::default();
    options.memory = Some(3 << 20);
    // Extents that do not merge are many, so that there is something to drop.
    options.policies = apart();
    Volume::open(device, Arc::<VirtualClock>::clone(clock), &options).unwrap()
}

fn resize(file: &OpenInode, blocks: usize) {
    let attributes = SetAttributes {
        size: Some((blocks * BLOCK) as u64),
        ..SetAttributes::default()
    };
    file.set_attributes(&attributes).unwrap();
}

impl Worker {
    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound as u64) as usize
    }

    fn step(&mut self, bench: &Bench) {
        let which = self.below(2);
        let first = which * self.number * LANE;
        let file = &bench.files[if which == 0 { self.number } else { WORKERS }];
        let from = self.below(LANE);
        let len = 1 + self.below((LANE - from).min(12));
        let (offset, bytes) = (((first + from) * BLOCK) as u64, (len * BLOCK) as u64);
        match self.below(20) {
            0..9 => {
                let fill = 1 + self.below(255) as u8;
                let data = vec![fill; len * BLOCK];
                assert_eq!(file.write_at(offset, &data).unwrap(), data.len());
                self.fill(which, from..from + len, Some(fill));
            }
            9..12 => {
                let hole = Fallocate::PunchHole;
                file.fallocate(hole, offset, bytes).unwrap();
                let end = self.lanes[which].len();
                self.fill(which, from.min(end)..(from + len).min(end), None);
            }
            // A caller that has the last lane of the shared file may move its end.
            12 | 13 if which == 0 || self.number == WORKERS - 1 => {
                resize(file, first + from);
                self.lanes[which].resize(from, None);
            }
            14 => {
                let range = Fallocate::ZeroRange { keep_size: false };
                file.fallocate(range, offset, bytes).unwrap();
                self.fill(which, from..from + len, Some(0));
            }
            _ => self.others(bench),
        }
    }

    fn fill(&mut self, which: usize, blocks: std::ops::Range<usize>, what: Option<u8>) {
        let lane = &mut self.lanes[which];
        lane.resize(lane.len().max(blocks.end), None);
        lane[blocks].fill(what);
    }

    /// What may be done to any user's file at any time.
    fn others(&mut self, bench: &Bench) {
        let file = &bench.files[self.below(WORKERS + 1)];
        match self.below(8) {
            0 => file.fsync().unwrap(),
            1 => file.fdatasync().unwrap(),
            2 => file.clear_extent_cache(),
            3 => file.precache_extents().unwrap(),
            4 => {
                let mut page = [0; 3 * BLOCK];
                let at = self.below(LANE) * BLOCK;
                file.read_at(at as u64, &mut page).unwrap();
            }
            5 => {
                bench.clock.advance(Duration::from_secs(2));
                bench.fs.tick().unwrap();
            }
            _ => assert_eq!(file.check_extent_cache().unwrap(), None),
        }
    }
}

impl Bench {
    /// Blocks that the map of a file has.
    fn mapped(&self, file: &OpenInode) -> usize {
        let inode = file.inode();
        let (mut next, end) = (0, (LANE * WORKERS) as u32);
        let mut mapped = 0;
        while next < end {
            let here = self.fs.map(&inode, Lblk(next), end - next).unwrap();
            let len = here.len.min(end - next);
            mapped += if here.state == MapState::Hole { 0 } else { len };
            next += len;
        }
        mapped as usize
    }

    /// Asserts, when no thread works, that all that waits to be written is counted, once. Returns
    /// how much.
    fn count(&self, workers: &[Worker], what: &str) -> usize {
        let lanes = workers.iter().flat_map(|worker| &worker.lanes);
        let blocks: usize = lanes.map(|lane| lane.iter().flatten().count()).sum();
        let mapped: usize = self.files.iter().map(|file| self.mapped(file)).sum();
        let waiting = blocks.checked_sub(mapped).expect(what);
        let taken: u64 = self
            .files
            .iter()
            .map(|file| file.inode().blocks * 512)
            .sum();
        let quota = self.fs.quota(QuotaKind::User, OWNER).unwrap();
        assert_eq!(quota.space, taken + (waiting * BLOCK) as u64, "{what}");
        for file in &self.files {
            assert_eq!(file.check_extent_cache().unwrap(), None, "{what}");
        }
        waiting
    }

    fn compare(&self, workers: &[Worker], what: &str) {
        for worker in workers {
            let own = (&self.files[worker.number], 0, &worker.lanes[0]);
            let first = worker.number * LANE;
            let shared = (&self.files[WORKERS], first, &worker.lanes[1]);
            for (file, first, lane) in [own, shared] {
                for (at, expected) in lane.iter().enumerate() {
                    let mut block = [0xAA; BLOCK];
                    let offset = ((first + at) * BLOCK) as u64;
                    assert_eq!(file.read_at(offset, &mut block).unwrap(), BLOCK, "{what}");
                    let expected = [expected.unwrap_or(0); BLOCK];
                    assert!(block == expected, "{what}: block {at} of {}", worker.number);
                }
            }
        }
    }

    /// Blocks that may still be reserved, as a request reports that is far too large.
    fn reservable(&self) -> u64 {
        let root = self.fs.root().unwrap();
        let file = root.create_unnamed(NewInode::File, &CREATION).unwrap();
        let all = self.fs.geometry().blocks_count;
        let keep = Fallocate::Allocate { keep_size: true };
        match file.fallocate(keep, 0, 2 * all * BLOCK as u64) {
            Err(Error::NoSpace { free, .. }) => free,
            other => panic!("{other:?} for twice the device"),
        }
    }
}

fn run(seed: u64) {
    let what = format!("seed {seed}");
    let device = made("-t ext4 -b 4096 -O quota", 65_536);
    let clock = Arc::new(VirtualClock::new(1_700_000_000));
    let fs = open(device.clone(), &clock);
    let root = fs.root().unwrap();
    let files = (0..=WORKERS).map(|number| {
        let name = format!("f{number}");
        let file = root.create(name.as_bytes(), NewInode::File, &CREATION);
        file.unwrap()
    });
    let mut bench = Bench {
        files: files.collect(),
        fs,
        clock,
    };
    resize(&bench.files[WORKERS], (WORKERS - 1) * LANE);
    let mut workers: Vec<Worker> = (0..WORKERS)
        .map(|number| Worker {
            number,
            random: SplitMix64::new(seed * 100 + number as u64),
            lanes: [Lane::new(), Lane::new()],
        })
        .collect();
    let count = steps(150, 5000);
    for _ in 0..ROUNDS {
        std::thread::scope(|scope| {
            for worker in &mut workers {
                let bench = &bench;
                scope.spawn(move || (0..count).for_each(|_| worker.step(bench)));
            }
        });
        bench.count(&workers, &what);
    }
    // Of what was just written some waits.
    workers[0].fill(0, 0..LANE, Some(7));
    bench.files[0].write_at(0, &[7; LANE * BLOCK]).unwrap();
    assert!(bench.count(&workers, &what) > 0, "{what}");
    bench.compare(&workers, &what);
    bench.fs.sync().unwrap();
    assert_eq!(bench.count(&workers, &what), 0, "{what}");
    bench.files.clear();
    drop(root);
    bench.fs.sync().unwrap();
    let reservable = bench.reservable();
    bench.fs.close().unwrap();
    judge(&device, &what);
    bench.fs = open(device, &bench.clock);
    assert_eq!(bench.reservable(), reservable, "{what}");
    let root = bench.fs.root().unwrap();
    let again = (0..=WORKERS).map(|number| root.lookup(format!("f{number}").as_bytes()).unwrap());
    bench.files = again.collect();
    assert_eq!(bench.count(&workers, &what), 0, "{what}");
    bench.compare(&workers, &what);
}

#[test]
fn none_is_lost_or_counted_twice_whatever_threads_do() {
    for seed in 0..steps(4, 40) {
        run(seed);
    }
}
