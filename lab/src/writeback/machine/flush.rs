//! Writing files from the lists: what flushers do, and writers who must.

use super::device::{Batch, Run};
use super::{Action, MICRO, MILLI, Machine, Nanos, PAGE_COST, at};

/// How long a flusher waits that found only files others are at.
const NO_PROGRESS: Nanos = 10 * MILLI;
/// Processor time of looking whether there is anything to do.
const LOOK: Nanos = MICRO;
/// Processor time of writing a small file's inode, half of it with its data and half afterwards:
/// 86 % of a processor at 22,000 files a second, that of its page taken off.
const INODE_COST: Nanos = 38 * MICRO;

/// A turn at the lists.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Pages of all files to go.
    left: u64,
    /// Pages of a file at once.
    file_pages: u64,
    /// Only files dirty since before.
    older: Nanos,
    shard: usize,
    phase: Phase,
    pub written: u64,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Pick,
    /// At a file, with so many pages of it to go.
    Piece(usize, u64),
    /// Pages of it are ready for the device.
    Submit(usize, u64, u64),
    Done,
}

impl Turn {
    pub fn new(shard: usize, round: u64, file_pages: u64, older: Nanos) -> Self {
        Self {
            left: round,
            file_pages,
            older,
            shard,
            phase: Phase::Pick,
            written: 0,
        }
    }
}

/// What a turn needs next.
pub enum Need {
    Run(Nanos),
    /// At the lock of the lists.
    Spin(Nanos),
    Space,
    Nothing,
}

#[derive(Debug)]
pub struct Flusher {
    pub device: usize,
    shard: u32,
    turn: Option<Turn>,
    pub batch: Batch,
    idle: bool,
}

impl Flusher {
    pub fn new(device: usize, shard: u32) -> Self {
        Self {
            device,
            shard,
            turn: None,
            batch: Batch::default(),
            idle: true,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.idle
    }
}

impl Machine {
    pub(super) fn flusher_next(&mut self, index: usize) -> Action {
        let actor = (self.writers.len() + index) as u32;
        let device = self.flushers[index].device;
        self.flushers[index].idle = false;
        if let Some(mut turn) = self.flushers[index].turn.take() {
            let mut batch = self.flushers[index].batch;
            let need = self.turn_next(actor, device, &mut turn, &mut batch);
            let flusher = &mut self.flushers[index];
            flusher.batch = batch;
            match need {
                Need::Run(time) => {
                    flusher.turn = Some(turn);
                    return Action::Run(time);
                }
                Need::Spin(time) => {
                    flusher.turn = Some(turn);
                    return Action::Spin(time);
                }
                Need::Space => {
                    flusher.turn = Some(turn);
                    return Action::Block;
                }
                Need::Nothing if turn.written == 0 => return Action::Sleep(self.now + NO_PROGRESS),
                Need::Nothing => {}
            }
        }
        let bdi = &self.bdis[device];
        let old = self.now.saturating_sub(self.expire);
        let older = match bdi.over_background(at(self.now)) {
            true => Some(self.now),
            false => self.lists[device]
                .oldest()
                .filter(|since| *since <= old)
                .map(|_| old),
        };
        let Some(older) = older else {
            self.flushers[index].idle = true;
            return Action::Sleep(self.now + self.periodic);
        };
        let chunk = bdi.chunk(at(self.now));
        let shard = self.flushers[index].shard as usize;
        self.flushers[index].turn = Some(Turn::new(shard, chunk.round, chunk.file, older));
        Action::Run(LOOK)
    }

    /// Goes on with a turn until it needs something.
    pub(super) fn turn_next(
        &mut self,
        actor: u32,
        device: usize,
        turn: &mut Turn,
        batch: &mut Batch,
    ) -> Need {
        let cpu = self.cpus.cpu(actor as usize);
        loop {
            match turn.phase {
                Phase::Pick if turn.left == 0 => return Need::Nothing,
                Phase::Done => return Need::Nothing,
                Phase::Pick => {
                    let now = self.now;
                    let look = self.lists[device].pick(turn.shard, cpu, turn.older, now);
                    self.tally.handovers += look.handovers;
                    let mut cost = look.cost;
                    turn.phase = match look.file {
                        Some(file) => {
                            if self.lists[device].get(file).inode_only {
                                cost += INODE_COST / 2;
                            }
                            Phase::Piece(file, turn.file_pages.min(turn.left))
                        }
                        None => Phase::Done,
                    };
                    return Need::Spin(cost);
                }
                Phase::Piece(file, left) => {
                    let dirty = self.lists[device].get(file).dirty;
                    let pages = dirty.min(left).min(self.devices[device].request_pages());
                    if pages > 0 {
                        turn.phase = Phase::Submit(file, left, pages);
                        let small = self.lists[device].get(file).directory.is_some();
                        let inode = if small { INODE_COST / 2 } else { 0 };
                        return Need::Run(pages * PAGE_COST + inode);
                    }
                    let look = self.lists[device].put(file, dirty > 0, cpu, self.now);
                    self.tally.handovers += look.handovers;
                    turn.phase = Phase::Pick;
                    return Need::Spin(look.cost);
                }
                Phase::Submit(file, left, pages) => {
                    let done = self.submit_pages(actor, device, (file, pages), batch);
                    turn.left -= done.min(turn.left);
                    turn.written += done;
                    if done < pages {
                        turn.phase = Phase::Submit(file, left - done, pages - done);
                        return Need::Space;
                    }
                    turn.phase = Phase::Piece(file, left - done);
                }
            }
        }
    }

    fn submit_pages(
        &mut self,
        actor: u32,
        device: usize,
        (file, pages): (usize, u64),
        batch: &mut Batch,
    ) -> u64 {
        let (region, start) = self.lists[device].place(file, pages);
        let run = Run {
            region,
            start,
            pages,
        };
        let done = self.submit(actor, device, run, batch);
        self.bdis[device].writeback_started(done, at(self.now));
        let it = self.lists[device].get_mut(file);
        it.written += done;
        it.dirty -= done;
        done
    }
}
