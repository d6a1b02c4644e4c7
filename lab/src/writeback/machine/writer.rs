//! Writers: what they write, when they think, and how they obey the policy.

use uext4_writeback::throttle::{Class, Task, Verdict};

use super::device::Batch;
use super::flush::{Need, Turn};
use super::{Action, Machine, Nanos, PAGE_COST, at};

/// Pages of one write of a copy: 1 MiB, as `dd bs=1M`.
const COPY_PAGES: u64 = 256;

/// What a writer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// As fast as it may, so many pages or for ever.
    Copy(Option<u64>),
    /// So many pages, then thinking so long.
    Think(u64, Nanos),
    /// So many pages at each multiple of so long after its start, or at once if that has passed.
    Paced(u64, Nanos),
    /// So many files, a page each, with so much processor time for making one.
    Files(u64, Nanos),
}

/// One writer.
#[derive(Clone, Debug)]
pub struct Plan {
    pub device: usize,
    pub work: Work,
    pub class: Class,
    pub start: Nanos,
    /// When it ends, whatever is left.
    pub stop: Option<Nanos>,
}

impl Plan {
    /// A copy to the first device.
    pub fn copy() -> Self {
        Self {
            device: 0,
            work: Work::Copy(None),
            class: Class::Normal,
            start: 0,
            stop: None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Between two writes.
    Next,
    /// In a write.
    Admit,
    /// Copying so many pages in.
    Copying(u64),
    /// After a pause.
    Resumed,
    /// Writing itself.
    Writing(Turn),
    Ended,
}

#[derive(Debug)]
pub struct Writer {
    plan: Plan,
    task: Task,
    file: usize,
    state: State,
    /// Pages of the write that goes on.
    left: u64,
    /// Pages written ever, and writes begun.
    pages: u64,
    writes: u64,
    pub batch: Batch,
    /// Since when it has waited for its next page.
    waits_since: Option<Nanos>,
    killed: bool,
    ended: Option<Nanos>,
    failed: bool,
    /// Nanoseconds it was paused.
    pub paused: Nanos,
}

impl Writer {
    pub fn new(plan: Plan, index: usize) -> Self {
        Self {
            task: Task::new(plan.class, index),
            plan,
            file: usize::MAX,
            state: State::Next,
            left: 0,
            pages: 0,
            writes: 0,
            batch: Batch::default(),
            waits_since: None,
            killed: false,
            ended: None,
            failed: false,
            paused: 0,
        }
    }

    pub fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// When it ended.
    pub fn ended(&self) -> Option<Nanos> {
        self.ended
    }

    /// Whether a write of it failed.
    pub fn has_failed(&self) -> bool {
        self.failed
    }
}

impl Machine {
    pub(super) fn writer_next(&mut self, index: usize) -> Action {
        loop {
            let writer = &self.writers[index];
            if writer.killed && !matches!(writer.state, State::Writing(_) | State::Ended) {
                return self.end_writer(index);
            }
            let next = match writer.state {
                State::Next => self.begin_write(index),
                State::Admit => self.admit(index),
                State::Copying(pages) => self.copied(index, pages),
                State::Resumed => {
                    let device = writer.plan.device;
                    self.waited(index);
                    let task = &mut self.writers[index].task;
                    let verdict = self.bdis[device].resumed(task, 0, at(self.now));
                    self.obey(index, verdict)
                }
                State::Writing(turn) => self.write_itself(index, turn),
                State::Ended => Some(Action::Exit),
            };
            if let Some(action) = next {
                return action;
            }
        }
    }

    fn end_writer(&mut self, index: usize) -> Action {
        let now = self.now;
        let writer = &mut self.writers[index];
        self.bdis[writer.plan.device].exited(&mut writer.task, at(now));
        writer.state = State::Ended;
        writer.ended = Some(now);
        Action::Exit
    }

    fn begin_write(&mut self, index: usize) -> Option<Action> {
        let now = self.now;
        let writer = &mut self.writers[index];
        let first = writer.file == usize::MAX;
        let lists = &mut self.lists[writer.plan.device];
        let mut enlisting = 0;
        if let Work::Files(..) = writer.plan.work {
            writer.file = lists.create(index);
            let look = lists.enlist(writer.file, self.cpus.cpu(index), now);
            self.tally.handovers += look.handovers;
            enlisting = look.cost;
        } else if first {
            writer.file = lists.file(index);
        }
        if writer.plan.stop.is_some_and(|stop| now >= stop) {
            return Some(self.end_writer(index));
        }
        let (pages, wait, cost) = match writer.plan.work {
            Work::Copy(total) => {
                let left = total.map_or(u64::MAX, |total| total - writer.pages.min(total));
                (COPY_PAGES.min(left), 0, 0)
            }
            Work::Think(pages, _) if first => (pages, 0, 0),
            Work::Think(pages, time) => (pages, time, 0),
            Work::Paced(pages, every) => {
                let due = writer.plan.start + writer.writes * every;
                (pages, due.saturating_sub(now), 0)
            }
            Work::Files(count, cost) => (u64::from(writer.writes < count), 0, cost + enlisting),
        };
        if pages == 0 {
            return Some(self.end_writer(index));
        }
        writer.left = pages;
        writer.writes += 1;
        writer.state = State::Admit;
        match (wait, cost) {
            (0, 0) => None,
            (0, cost) => Some(Action::Spin(cost)),
            (wait, _) => Some(Action::Sleep(now + wait)),
        }
    }

    fn admit(&mut self, index: usize) -> Option<Action> {
        self.waited(index);
        let now = at(self.now);
        let cpu = self.cpus.cpu(index);
        let writer = &mut self.writers[index];
        if writer.left == 0 {
            writer.state = State::Next;
            return None;
        }
        writer.task.set_cpu(cpu);
        let bdi = &self.bdis[writer.plan.device];
        let pages = bdi.allowance(&writer.task, now);
        let pages = pages.next_multiple_of(self.folio).min(writer.left);
        match bdi.admit(&mut writer.task, pages, now) {
            Verdict::Go => {
                writer.state = State::Copying(pages);
                Some(Action::Run(pages * PAGE_COST))
            }
            Verdict::Failed => Some(self.fail(index)),
            Verdict::Pause(time) | Verdict::Await { at_most: time } => {
                Some(self.pause(index, time))
            }
            Verdict::Write { .. } => None,
        }
    }

    fn copied(&mut self, index: usize, pages: u64) -> Option<Action> {
        let writer = &mut self.writers[index];
        let device = writer.plan.device;
        writer.left -= pages;
        writer.pages += pages;
        self.lists[device].dirty(writer.file, pages, self.now);
        let task = &mut writer.task;
        let verdict = self.bdis[device].dirtied(task, pages, at(self.now));
        self.tally.dirtied(index, pages, self.domain.unwritten());
        self.kick(device);
        self.obey(index, verdict)
    }

    fn obey(&mut self, index: usize, verdict: Verdict) -> Option<Action> {
        let writer = &mut self.writers[index];
        match verdict {
            Verdict::Go => {
                writer.state = State::Admit;
                None
            }
            Verdict::Pause(time) | Verdict::Await { at_most: time } => {
                writer.state = State::Resumed;
                Some(self.pause(index, time))
            }
            Verdict::Write { pages } => {
                let shard = 0;
                writer.state = State::Writing(Turn::new(shard, pages, pages, self.now));
                None
            }
            Verdict::Failed => Some(self.fail(index)),
        }
    }

    fn pause(&mut self, index: usize, time: std::time::Duration) -> Action {
        let time = time.as_nanos() as Nanos;
        self.tally.pause(time);
        let writer = &mut self.writers[index];
        writer.waits_since = Some(self.now);
        Action::Pause(self.now + time)
    }

    /// A pause is over, if there was one.
    fn waited(&mut self, index: usize) {
        let writer = &mut self.writers[index];
        if let Some(since) = writer.waits_since.take() {
            writer.paused += self.now - since;
            self.tally.wakes += 1;
        }
    }

    fn fail(&mut self, index: usize) -> Action {
        self.writers[index].failed = true;
        self.end_writer(index)
    }

    fn write_itself(&mut self, index: usize, mut turn: Turn) -> Option<Action> {
        let device = self.writers[index].plan.device;
        let mut batch = self.writers[index].batch;
        let need = self.turn_next(index as u32, device, &mut turn, &mut batch);
        let writer = &mut self.writers[index];
        writer.batch = batch;
        writer.state = State::Writing(turn);
        match need {
            Need::Run(time) => Some(Action::Run(time)),
            Need::Spin(time) => Some(Action::Spin(time)),
            Need::Space => Some(Action::Block),
            Need::Nothing if writer.killed => Some(self.end_writer(index)),
            Need::Nothing => {
                let task = &mut writer.task;
                let verdict = self.bdis[device].resumed(task, turn.written, at(self.now));
                self.obey(index, verdict)
            }
        }
    }

    /// Signals one writer to end; at once where it only sleeps.
    pub(super) fn kill_writer(&mut self, index: usize) {
        let writer = &mut self.writers[index];
        if writer.has_ended() {
            return;
        }
        writer.killed = true;
        if !matches!(writer.state, State::Writing(_)) {
            self.wake(index as u32);
        }
    }
}
