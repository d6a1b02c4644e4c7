//! Writers, a flusher and a shortage of memory around one subsystem, on a virtual clock.
//!
//! Writers dirty a page at a time, which makes its block delayed. The flusher writes back the file
//! that has been dirty for longest, up to a chunk of it, and then has it queue again; what it takes
//! lands on the device in extents of random length. Writers are held to the pace of the device once
//! dirty pages are half-way between the background limit and the limit. The shrinker is asked for a
//! batch at every tick of the clock, and for more as long as there is more to drop than the cap.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use uext4_extent_status::{BATCH, Extent, ExtentStatusCache, Scan, Status, Tree};
use uext4_lab_policies::extent_status::Policy;
use uext4_ondisk::{Lblk, Pblk};

use super::policy;
use super::tally::Run;
use uext4_testkit::SplitMix64;

/// Nanoseconds of a write into memory.
const WRITE: u64 = 2_000;
/// Nanoseconds the device needs for a block of 4 KiB: 100 MB/s, and a seek of 8 ms every 512
/// blocks.
const DEVICE: u64 = 40_960 + 8_000_000 / 512;
/// Dirty pages, of a hundred of memory: the flusher starts, writers are slowed down.
const BACKGROUND: usize = 60;
const SLOWED: usize = 70;
/// Calls of one shortage: where nothing can be dropped any more, one must give up.
const CALLS: usize = 4096;

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub files: usize,
    /// Pages of the page cache.
    pub memory: usize,
    /// Pages of one file that the flusher takes at a time.
    pub chunk: usize,
    /// Mean length of the extents that files get, in blocks.
    pub run: u64,
    /// More droppable extents than these are a shortage.
    pub cap: usize,
    /// Nanoseconds between calls that are made in any case.
    pub tick: u64,
    /// Nanoseconds between two readings of the moving average.
    pub sample: u64,
}

#[derive(Debug)]
struct File {
    tree: Tree,
    /// Dirty blocks, in the order in which they were written.
    dirty: VecDeque<u32>,
}

/// A running simulation.
#[derive(Debug)]
pub struct Machine {
    plan: Plan,
    room: Arc<ExtentStatusCache>,
    clock: Arc<AtomicU64>,
    files: Vec<File>,
    /// Dirty files, the one that is flushed next at the front.
    queue: VecDeque<usize>,
    dirty: usize,
    /// When the device is done with what it was given.
    free_at: u64,
    next_tick: u64,
    next_sample: u64,
    next_place: u64,
    random: SplitMix64,
    /// Whether the shrinker is called, and its calls noted.
    is_short: bool,
    calls: Vec<Scan>,
    /// The kernel's moving average of steps, and what it was at every reading.
    average: Option<f64>,
    averages: Vec<f64>,
}

impl Machine {
    pub fn new(plan: Plan, policy: Policy, seed: u64) -> Self {
        let clock = Arc::new(AtomicU64::new(1));
        let room = policy::room(policy, false, &clock);
        let file = |_| File {
            tree: Tree::new(&room),
            dirty: VecDeque::new(),
        };
        Self {
            plan,
            files: (0..plan.files).map(file).collect(),
            room,
            clock,
            queue: VecDeque::new(),
            dirty: 0,
            free_at: 0,
            next_tick: 0,
            next_sample: 0,
            next_place: 0,
            random: SplitMix64::new(seed),
            is_short: false,
            calls: Vec::new(),
            average: None,
            averages: Vec::new(),
        }
    }

    /// From now on memory is short.
    pub fn run_short(&mut self) {
        self.is_short = true;
        let now = self.now();
        (self.next_tick, self.next_sample) = (now + self.plan.tick, now + self.plan.sample);
    }

    pub fn random(&mut self) -> &mut SplitMix64 {
        &mut self.random
    }

    fn now(&self) -> u64 {
        self.clock.load(Relaxed)
    }

    /// Says whether writers are held to the pace of the device.
    pub fn is_slowed(&self) -> bool {
        self.dirty * 100 >= self.plan.memory * SLOWED
    }

    /// One page of a file is written, a block that the file does not have yet; then whatever else
    /// is due happens.
    pub fn write(&mut self, file: usize, lblk: u32) {
        let took = if self.is_slowed() { DEVICE } else { WRITE };
        let now = self.clock.fetch_add(took, Relaxed) + took;
        let into = &mut self.files[file];
        if into.tree.lookup(Lblk(lblk)).is_none() {
            into.tree.insert(Extent {
                lblk: Lblk(lblk),
                len: 1,
                pblk: Pblk(0),
                status: Status::Delayed,
            });
            if into.dirty.is_empty() {
                self.queue.push_back(file);
            }
            into.dirty.push_back(lblk);
            self.dirty += 1;
        }
        if self.dirty * 100 > self.plan.memory * BACKGROUND && now >= self.free_at {
            self.flush();
        }
        if self.is_short {
            self.shrink();
        }
    }

    /// Writes back a chunk of the file whose turn it is.
    fn flush(&mut self) {
        let Some(number) = self.queue.pop_front() else {
            return;
        };
        let file = &mut self.files[number];
        let chunk = file.dirty.len().min(self.plan.chunk);
        let mut blocks: Vec<u32> = file.dirty.drain(..chunk).collect();
        if !file.dirty.is_empty() {
            self.queue.push_back(number);
        }
        blocks.sort_unstable();
        let adjoin = |left: &u32, right: &u32| left + 1 == *right;
        for run in blocks.chunk_by(adjoin) {
            let mut rest = run;
            while let Some(first) = rest.first() {
                let most = 1 + self.random.below(2 * self.plan.run - 1) as usize;
                let len = rest.len().min(most);
                // Never adjacent to the one before, so that they are two extents under any rule.
                self.next_place += len as u64 + 1;
                self.files[number].tree.insert(Extent {
                    lblk: Lblk(*first),
                    len: len as u32,
                    pblk: Pblk(self.next_place),
                    status: Status::Written,
                });
                rest = &rest[len..];
            }
        }
        self.dirty -= chunk;
        self.free_at = self.now() + chunk as u64 * DEVICE;
    }

    /// Calls the shrinker as often as it is time to.
    fn shrink(&mut self) {
        let now = self.now();
        while self.next_tick <= now {
            self.next_tick += self.plan.tick;
            self.call();
        }
        if self.room.count() > self.plan.cap {
            let enough = self.plan.cap / 100 * 99;
            for _ in 0..CALLS {
                self.call();
                if self.room.count() <= enough {
                    break;
                }
            }
        }
        while self.next_sample <= now {
            self.next_sample += self.plan.sample;
            self.averages.extend(self.average);
        }
    }

    /// What the shrinker did.
    pub fn finish(self) -> Run {
        let stats = self.room.stats();
        Run {
            calls: self.calls,
            averages: self.averages,
            extents: stats.es_stats_all_cnt,
            reclaimable: stats.es_stats_shk_cnt,
        }
    }

    fn call(&mut self) {
        if self.room.count() == 0 {
            return;
        }
        let scan = self.room.scan_recorded(BATCH);
        let steps = scan.steps() as f64;
        self.average = Some(match self.average {
            Some(old) => (3.0 * old + steps) / 4.0,
            None => steps,
        });
        self.calls.push(scan);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan {
        files: 10,
        memory: 1000,
        chunk: 16,
        run: 4,
        cap: 50,
        tick: 10_000_000,
        sample: 100_000_000,
    };

    #[test]
    fn the_same_seed_makes_the_same_calls() {
        for policy in Policy::ALL {
            let run = |seed| {
                let mut machine = Machine::new(PLAN, policy, seed);
                machine.run_short();
                for at in 0..5000 {
                    machine.write(at % 10, (at / 10) as u32);
                }
                assert!(machine.dirty <= 1000 && !machine.calls.is_empty());
                machine.calls
            };
            assert_eq!(run(1), run(1));
            assert_ne!(run(1), run(2));
        }
    }

    #[test]
    fn dirty_blocks_are_delayed_blocks() {
        let mut machine = Machine::new(PLAN, Policy::LeafQueue, 1);
        machine.run_short();
        for at in 0..5000 {
            machine.write(at % 10, (at / 10) as u32);
            let delayed: u64 = machine.files.iter().map(|f| f.tree.delayed_blocks()).sum();
            assert_eq!(delayed, machine.dirty as u64);
        }
        assert!(machine.room.count() <= 50);
    }
}
