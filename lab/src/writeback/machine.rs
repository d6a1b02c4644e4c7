//! A machine in virtual time: processors, writers, flushers and devices as discrete events.
//!
//! The policies are the product's own; what is modelled is what surrounds them. All costs are the
//! design paper's: 1.3 µs of processor a page (copying it in, and again submitting it), 2 µs a
//! context switch, 1 µs each time the lock of the inode lists goes from one processor to another,
//! during which any thread that wants it spins. Nothing depends on the host; the same seed gives
//! the same events.
//!
//! | file | what |
//! |---|---|
//! | [`cpu`] | who runs: a queue of ready actors, slices of 1 ms |
//! | [`device`] | requests: merging, sorted service, a queue of 128 with batching |
//! | [`lists`] | dirty files of a device, the lock round them |
//! | [`flush`] | writing files from the lists, by a flusher or by a writer itself |
//! | [`writer`] | what writers do between two pauses |
//! | [`tally`] | what is counted |

mod cpu;
mod device;
mod flush;
mod lists;
mod tally;
mod writer;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use uext4_lab_policies::writeback::{Hz, Mode};
use uext4_testkit::SplitMix64;
use uext4_writeback::throttle::{Bdi, Domain, PAGE_SIZE, Tunables};

use cpu::Cpus;
use device::Device;
pub use device::Model;
use flush::Flusher;
use lists::Lists;
pub use tally::{Summary, Tally, jain, round};
use writer::Writer;
pub use writer::{Plan, Work};

/// Nanoseconds of virtual time.
pub type Nanos = u64;
pub const MICRO: Nanos = 1_000;
pub const MILLI: Nanos = 1_000_000;
pub const SECOND: Nanos = 1_000_000_000;

/// Processor time a page costs, each time it is handled.
pub const PAGE_COST: Nanos = 1_300;
const SWITCH_COST: Nanos = 2_000;
/// How often dirty pages are looked at for the record.
const SAMPLE: Nanos = 10 * MILLI;

/// What is built.
#[derive(Clone, Debug)]
pub struct Config {
    pub seed: u64,
    pub mode: Mode,
    /// Ticks of the kernels that the designs come from.
    pub hz: Hz,
    /// Most pages of a folio of `mainline`, which is asked once a folio; the others are asked once
    /// a page. 1: as before large folios. A write is never split into smaller ones.
    pub folio: u64,
    pub tunables: Tunables,
    /// Bytes.
    pub dirtyable: u64,
    pub cpus: usize,
    pub devices: Vec<Model>,
}

/// What happens at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// An actor's step on its processor ends.
    Step(u32),
    /// A sleep ends, if it is still that one.
    Wake(u32, u32),
    /// A device finished a request.
    Served(u32),
    /// A device has waited long enough for more requests.
    Unplug(u32),
    /// A writer begins.
    Start(u32),
    /// Dirty pages are looked at.
    Sample,
}

/// What an actor does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// It needs the processor for so long.
    Run(Nanos),
    /// The same for a lock that is spun on: no other gets the processor meanwhile, so that no more
    /// spin than there are processors.
    Spin(Nanos),
    /// It sleeps until then.
    Sleep(Nanos),
    /// The policy makes it sleep until then.
    Pause(Nanos),
    /// It sleeps until it is woken.
    Block,
    /// It is no more.
    Exit,
}

/// The machine.
#[derive(Debug)]
pub struct Machine {
    mode: Mode,
    hz: Hz,
    folio: u64,
    now: Nanos,
    sequence: u64,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    random: SplitMix64,
    cpus: Cpus,
    domain: Arc<Domain>,
    bdis: Vec<Arc<Bdi>>,
    devices: Vec<Device>,
    lists: Vec<Lists>,
    writers: Vec<Writer>,
    flushers: Vec<Flusher>,
    expire: Nanos,
    periodic: Nanos,
    pub tally: Tally,
}

fn at(now: Nanos) -> Duration {
    Duration::from_nanos(now)
}

impl Machine {
    /// A machine with these writers, at time 0.
    pub fn new(config: &Config, plans: &[Plan]) -> Result<Self, String> {
        let refused = |error: uext4_writeback::throttle::TunableError| error.to_string();
        let (mode, tunables) = (config.mode, &config.tunables);
        let domain = mode.domain_at(config.hz, tunables, config.dirtyable, config.cpus);
        let domain = domain.map_err(refused)?;
        let mut machine = Self {
            mode,
            hz: config.hz,
            folio: match mode {
                Mode::Mainline => config.folio.max(1),
                Mode::Vanilla | Mode::Ioless | Mode::IolessFixed | Mode::CellRate => 1,
            },
            now: 0,
            sequence: 0,
            events: BinaryHeap::new(),
            random: SplitMix64::new(config.seed),
            cpus: Cpus::new(config.cpus),
            bdis: Vec::new(),
            devices: config.devices.iter().cloned().map(Device::new).collect(),
            lists: Vec::new(),
            writers: Vec::new(),
            flushers: Vec::new(),
            expire: u64::from(tunables.dirty_expire_centisecs) * 10 * MILLI,
            periodic: u64::from(tunables.dirty_writeback_centisecs).max(1) * 10 * MILLI,
            tally: Tally::new(plans.len()),
            domain,
        };
        for _ in &config.devices {
            machine
                .bdis
                .push(Bdi::new(&machine.domain, tunables).map_err(refused)?);
        }
        for (index, plan) in plans.iter().enumerate() {
            machine.writers.push(Writer::new(plan.clone(), index));
            machine.push(plan.start, Event::Start(index as u32));
        }
        for (device, model) in config.devices.iter().enumerate() {
            machine.lists.push(Lists::new(model.flushers));
            for shard in 0..model.flushers.max(1) {
                machine.flushers.push(Flusher::new(device, shard));
            }
        }
        for id in 0..machine.actors() {
            machine.cpus.register(id);
        }
        let first = machine.writers.len();
        for flusher in 0..machine.flushers.len() {
            machine.sleep((first + flusher) as u32, machine.periodic);
        }
        machine.push(SAMPLE, Event::Sample);
        Ok(machine)
    }

    fn actors(&self) -> usize {
        self.writers.len() + self.flushers.len()
    }

    /// Now.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The limit in pages, and half way from it to where throttling begins.
    pub fn limits(&self) -> (u64, u64) {
        let thresh = self.domain.thresh();
        (thresh, self.domain.freerun().midpoint(thresh))
    }

    /// Pages dirty or under writeback.
    pub fn unwritten(&self) -> u64 {
        self.domain.unwritten()
    }

    fn push(&mut self, when: Nanos, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((when, self.sequence, event)));
    }

    /// Lets time pass until then, or until nothing can happen any more.
    pub fn run_until(&mut self, end: Nanos) {
        while let Some(&Reverse((when, _, event))) = self.events.peek() {
            if when > end {
                break;
            }
            self.events.pop();
            self.now = when;
            self.happen(event);
        }
        self.now = self.now.max(end);
    }

    /// Lets time pass until all writers have ended, at most until then; when the last did.
    pub fn run_to_end(&mut self, end: Nanos) -> Option<Nanos> {
        while self.writers.iter().any(|writer| !writer.has_ended()) && self.now < end {
            let step = (self.now + 100 * MILLI).min(end);
            self.run_until(step);
        }
        self.writers.iter().map(Writer::ended).max().flatten()
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Step(actor) => self.step(actor),
            Event::Wake(actor, sleep) => {
                if self.cpus.is_sleep(actor, sleep) {
                    self.wake(actor);
                }
            }
            Event::Served(device) => self.served(device as usize),
            Event::Unplug(device) => self.serve(device as usize),
            Event::Start(writer) => self.wake(writer),
            Event::Sample => {
                let unwritten = self.unwritten();
                self.tally.sample(unwritten);
                self.push(self.now + SAMPLE, Event::Sample);
            }
        }
    }

    /// An actor has the processor and nothing left to do there: asks it what is next.
    fn step(&mut self, actor: u32) {
        let writers = self.writers.len();
        let index = actor as usize;
        let action = match index < writers {
            true => self.writer_next(index),
            false => self.flusher_next(index - writers),
        };
        match action {
            Action::Run(time) | Action::Spin(time) => {
                match index < writers {
                    true => self.tally.writer_time += time,
                    false => self.tally.flusher_time += time,
                }
                let keeps = self.cpus.keeps(actor, time);
                if keeps || matches!(action, Action::Spin(_)) {
                    self.push(self.now + time, Event::Step(actor));
                } else {
                    self.cpus.preempt(actor, time);
                    self.leave_cpu(actor);
                }
            }
            Action::Sleep(until) => {
                let late = self.random.next_u64() % MILLI;
                self.sleep(actor, until + late);
                self.leave_cpu(actor);
            }
            Action::Pause(until) => {
                let until = self.timer(until);
                self.sleep(actor, until);
                self.leave_cpu(actor);
            }
            Action::Block | Action::Exit => {
                self.cpus.block(actor);
                self.leave_cpu(actor);
            }
        }
    }

    /// When a timer that is set to `until` ends a pause. Those of a kernel end at a tick: until 4.8
    /// at the one it was set to, of which a part was over when it was set; since then at the next.
    /// The product's timers have no ticks.
    fn timer(&mut self, until: Nanos) -> Nanos {
        let tick = self.hz.tick_nanos();
        let ticks = self.now / tick + until.saturating_sub(self.now).div_ceil(tick);
        match self.mode {
            Mode::Vanilla | Mode::Ioless | Mode::IolessFixed => ticks * tick,
            Mode::Mainline => (ticks + 1) * tick,
            Mode::CellRate => until + self.random.next_u64() % MILLI,
        }
    }

    fn sleep(&mut self, actor: u32, until: Nanos) {
        let sleep = self.cpus.sleep(actor);
        self.push(until.max(self.now), Event::Wake(actor, sleep));
    }

    /// Lets an actor go on that sleeps or is blocked.
    fn wake(&mut self, actor: u32) {
        if self.cpus.wake(actor) {
            self.dispatch();
        }
    }

    fn leave_cpu(&mut self, actor: u32) {
        self.cpus.release(actor);
        if !self.dispatch() {
            // To idle, and later back: two switches, as the kernel counts.
            self.tally.switches += 1;
        }
    }

    /// Gives idle processors to a caller that is ready; whether to any thread.
    fn dispatch(&mut self) -> bool {
        let mut any = false;
        while let Some((actor, left)) = self.cpus.next() {
            self.tally.switches += 1;
            let role = match (actor as usize) < self.writers.len() {
                true => &mut self.tally.writer_time,
                false => &mut self.tally.flusher_time,
            };
            *role += SWITCH_COST;
            self.push(self.now + SWITCH_COST + left, Event::Step(actor));
            any = true;
        }
        any
    }

    /// Wakes the flushers of a device that have nothing to do, if it has too much dirty.
    fn kick(&mut self, device: usize) {
        let writers = self.writers.len();
        for index in 0..self.flushers.len() {
            let flusher = &self.flushers[index];
            if flusher.device == device
                && flusher.is_idle()
                && self.bdis[device].over_background(at(self.now))
            {
                self.wake((writers + index) as u32);
            }
        }
    }

    /// Counts again from here.
    pub fn mark(&mut self) {
        self.tally.mark(self.now);
        for device in &mut self.devices {
            device.mark();
        }
    }

    /// What was counted since the mark.
    pub fn summary(&self) -> Summary {
        let requests = self.devices.iter().map(|d| d.counts.requests).sum();
        let seeks = self.devices.iter().map(|d| d.counts.seeks).sum();
        let pages: u64 = self.devices.iter().map(|d| d.counts.pages).sum();
        let busy = self
            .devices
            .iter()
            .map(|d| d.counts.busy)
            .max()
            .unwrap_or(0);
        self.tally
            .summary(self.now, (requests, seeks, pages * PAGE_SIZE, busy))
    }

    /// Pages a device wrote since the mark.
    pub fn written(&self, device: usize) -> u64 {
        self.devices[device].counts.pages
    }

    /// From now on the device answers no request, neither those it has.
    pub fn remove_device(&mut self, device: usize) {
        self.devices[device].remove();
    }

    /// Signals the writers to end, wherever they are.
    pub fn kill(&mut self, writers: impl Iterator<Item = usize>) {
        for writer in writers {
            self.kill_writer(writer);
        }
    }

    /// Writers that have ended.
    pub fn ended_writers(&self) -> usize {
        self.writers
            .iter()
            .filter(|writer| writer.has_ended())
            .count()
    }

    /// What became of a writer.
    pub fn writer(&self, index: usize) -> &Writer {
        &self.writers[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(mode: Mode, seed: u64) -> String {
        let config = Config {
            seed,
            mode,
            hz: Hz::H1000,
            folio: 256,
            tunables: Tunables::default(),
            dirtyable: 256 << 20,
            cpus: 4,
            devices: vec![Model::array(), Model::disk()],
        };
        let plan = |index: usize| Plan {
            device: index % 2,
            start: index as u64 * MILLI,
            ..Plan::copy()
        };
        let plans: Vec<_> = (0..20).map(plan).collect();
        let mut machine = Machine::new(&config, &plans).unwrap();
        machine.run_until(2 * SECOND);
        machine.mark();
        machine.run_until(4 * SECOND);
        format!("{} {:?}", machine.summary().json(), machine.tally.shares())
    }

    #[test]
    fn the_same_seed_gives_the_same_record_byte_for_byte() {
        for mode in Mode::ALL {
            assert_eq!(record(mode, 1), record(mode, 1), "{mode}");
            assert_ne!(record(mode, 1), record(mode, 2), "{mode}");
        }
    }

    #[test]
    fn every_page_is_dirtied_once_and_written_once() {
        for mode in Mode::ALL {
            let config = Config {
                seed: 3,
                mode,
                hz: Hz::H250,
                folio: 256,
                tunables: Tunables::default(),
                dirtyable: 64 << 20,
                cpus: 2,
                devices: vec![Model::disk()],
            };
            let pages = 2000;
            let plan = Plan {
                work: Work::Copy(Some(pages)),
                ..Plan::copy()
            };
            let mut machine = Machine::new(&config, &vec![plan; 5]).unwrap();
            machine.run_to_end(100 * SECOND).unwrap();
            assert_eq!(machine.tally.shares(), [pages; 5]);
            // What is left is written when it is old enough.
            machine.run_until(machine.now() + 60 * SECOND);
            assert_eq!(machine.unwritten(), 0, "{mode}");
            assert_eq!(machine.written(0), 5 * pages, "{mode}");
        }
    }

    fn most_dirty(mode: Mode, folio: u64) -> u64 {
        let config = Config {
            seed: 5,
            mode,
            hz: Hz::H250,
            folio,
            tunables: Tunables::default(),
            dirtyable: 64 << 20,
            cpus: 2,
            devices: vec![Model::held(50_000_000)],
        };
        let mut machine = Machine::new(&config, &vec![Plan::copy(); 20]).unwrap();
        machine.run_until(2 * SECOND);
        machine.summary().dirty_max
    }

    #[test]
    fn mainline_is_asked_once_a_folio_and_others_once_a_page() {
        let (pages, folios) = (
            most_dirty(Mode::Mainline, 1),
            most_dirty(Mode::Mainline, 256),
        );
        assert!(folios > pages + 10 * 256, "{folios} {pages}");
        for mode in [Mode::Vanilla, Mode::Ioless, Mode::CellRate] {
            assert_eq!(most_dirty(mode, 1), most_dirty(mode, 256), "{mode}");
        }
    }

    #[test]
    fn timers_of_kernels_end_at_ticks() {
        let late = [(Mode::Vanilla, 12 * MILLI), (Mode::Mainline, 16 * MILLI)];
        for (mode, ends) in late {
            let config = Config {
                seed: 6,
                mode,
                hz: Hz::H250,
                folio: 1,
                tunables: Tunables::default(),
                dirtyable: 64 << 20,
                cpus: 2,
                devices: vec![Model::disk()],
            };
            let mut machine = Machine::new(&config, &[]).unwrap();
            machine.now = 5 * MILLI;
            // Two ticks, of which the second ends at 12 ms.
            assert_eq!(machine.timer(13 * MILLI), ends, "{mode}");
        }
    }

    #[test]
    fn writers_on_a_removed_device_get_errors() {
        for mode in Mode::ALL {
            let config = Config {
                seed: 4,
                mode,
                hz: Hz::H250,
                folio: 256,
                tunables: Tunables::default(),
                dirtyable: 64 << 20,
                cpus: 2,
                devices: vec![Model::disk()],
            };
            let mut machine = Machine::new(&config, &vec![Plan::copy(); 8]).unwrap();
            machine.run_until(2 * SECOND);
            machine.remove_device(0);
            let ended = machine.run_to_end(60 * SECOND);
            let failed = (0..8).filter(|&w| machine.writer(w).has_failed()).count();
            // A writer that does the I/O itself may wait for room in the queue for ever.
            if mode != Mode::Vanilla {
                // A sleep ends up to two ticks late.
                assert!(
                    ended.is_some_and(|at| at <= 32 * SECOND + 8 * MILLI),
                    "{mode}: {ended:?}"
                );
                assert_eq!(failed, 8, "{mode}");
            }
        }
    }
}
