//! The leader: reads requests on the CPU of their caller, and decides whether that helps.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use rustix::thread::gettid;

use super::outbox::{LEN_MAX, PLACES, Reply};
use super::{Near, Reason};
use crate::abi::{InHeader, opcode};
use crate::scheduling::{self, Class};
use crate::transport::trials::Trials;

/// Each so many bytes of a request or reply count as one case for [`Reason::Bulk`]: another CPU
/// copies them meanwhile.
const BULK: u32 = 16 << 10;
/// One request counts for no more cases: a large file among many small ones is no reason.
const BULK_CASES: u32 = 5;
/// Requests that did not find their caller here before it is asked where the caller is.
const PATIENCE_MIN: u32 = 3;
const PATIENCE_MAX: u32 = 256;

/// A measure that grows with each case against it, and falls by one with each request without.
#[derive(Debug)]
struct Doubt {
    level: u32,
    each: u32,
    most: u32,
}

impl Doubt {
    fn new(each: u32, most: u32) -> Self {
        let level = 0;
        Self { level, each, most }
    }

    /// Whether it is too much, after a request that is so many cases of it.
    fn grows(&mut self, cases: u32) -> bool {
        self.level = match cases {
            0 => self.level.saturating_sub(1),
            _ => self.level.saturating_add(cases.saturating_mul(self.each)),
        };
        self.level > self.most
    }
}

/// What a request shows when it comes.
#[derive(Clone, Copy, Debug)]
struct Sign {
    /// The reply to one of another caller has not been taken to be written.
    overlaps: bool,
    /// The last reply found its caller on this CPU, and has not been left since.
    stayed: bool,
    /// Bytes that it moves.
    bytes: u32,
}

/// What follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Stay,
    /// It is to be asked where the caller is.
    Follow,
    Leave(Reason),
}

/// What requests have shown since the leader began.
#[derive(Debug)]
struct Judge {
    overlapping: Doubt,
    bulk: Doubt,
    moving: Doubt,
    /// Requests one after the other whose caller was not here.
    missed: u32,
    patience: u32,
}

impl Judge {
    fn new() -> Self {
        Self {
            // In the long run one in four, 16 KiB a request, and one in 16.
            overlapping: Doubt::new(4, 16),
            bulk: Doubt::new(1, 15),
            moving: Doubt::new(16, 128),
            missed: 0,
            patience: PATIENCE_MIN,
        }
    }

    fn see(&mut self, sign: Sign) -> Step {
        self.missed = match sign.stayed {
            true => 0,
            false => self.missed + 1,
        };
        if self.overlapping.grows(sign.overlaps.into()) {
            Step::Leave(Reason::Overlapping)
        } else if self.bulk.grows((sign.bytes / BULK).min(BULK_CASES)) {
            Step::Leave(Reason::Bulk)
        } else if self.moving.grows(0) {
            Step::Leave(Reason::Unsteady)
        } else if self.missed >= self.patience {
            Step::Follow
        } else {
            Step::Stay
        }
    }

    /// It was asked where the caller is: elsewhere, or here all the time, as one that waits for
    /// other things between its requests.
    fn asked(&mut self, is_elsewhere: bool) {
        self.missed = 0;
        self.patience = match is_elsewhere {
            true => PATIENCE_MIN,
            false => (self.patience * 2).min(PATIENCE_MAX),
        };
        if is_elsewhere {
            self.moving.grows(1);
        }
    }
}

/// The thread that reads requests whether a single stream is served or not.
#[derive(Debug)]
pub struct Leader {
    near: Arc<Near>,
    /// The CPU that it was put on; `None`: all threads read.
    cpu: Option<usize>,
    judge: Judge,
    trials: Trials,
    /// Replies in the outbox, and others, which are its alone.
    replies: [Arc<Reply>; PLACES + 1],
    /// The number of the last reply that was put into the outbox.
    last: u64,
    /// Bytes of the largest request and reply since it was judged.
    bytes: u32,
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.near.end();
    }
}

impl Leader {
    /// Of a mount. The thread that gets it reads requests until the mount is gone.
    pub fn new(near: Arc<Near>) -> Self {
        Self {
            near,
            cpu: None,
            judge: Judge::new(),
            trials: Trials::new(),
            replies: Default::default(),
            last: 0,
            bytes: 0,
        }
    }

    /// A request came, and is served next.
    pub fn begin(&mut self, header: &InHeader) {
        self.count_turn();
        self.bytes = self.bytes.max(header.len);
        match self.cpu {
            Some(_) if !self.near.is_on.load(SeqCst) => self.left(),
            Some(_) => self.judge(header.pid),
            None => self.consider(header.pid),
        }
        if self.cpu.is_some()
            && self.near.guard_sleeps.load(SeqCst)
            && let Some((guard, _)) = self.near.guard.get()
        {
            guard.unpark();
        }
    }

    /// The request is served.
    pub fn end(&self) {
        self.count_turn();
    }

    fn count_turn(&self) {
        // No other thread writes it.
        let turns = self.near.turns.load(Relaxed);
        self.near.turns.store(turns.wrapping_add(1), SeqCst);
    }

    /// Answers the request of this header.
    pub fn answer(&mut self, header: InHeader, reply: &[u8]) {
        // OK to truncate: it is compared with much less.
        self.bytes = self.bytes.max(reply.len().min(u32::MAX as usize) as u32);
        let near = &*self.near;
        // That of a RELEASE wakes no thread.
        let wakes = !matches!(header.opcode, opcode::RELEASE | opcode::RELEASEDIR);
        let is_left = self.cpu.is_some() && wakes && reply.len() <= LEN_MAX;
        let mut free = self.replies.iter_mut().filter(|_| is_left);
        let free = free.find(|reply| Arc::strong_count(reply) == 1);
        let is_put = free.is_some_and(|free| {
            let number = self.last + 1;
            let Some(unshared) = Arc::get_mut(free) else {
                return false;
            };
            unshared.set(reply, number, header.pid);
            self.last = number;
            near.outbox.put(Arc::clone(free))
        });
        if !is_put {
            near.device.write(reply);
            return;
        }
        // Looked at after the reply was put there: who ends this takes what is there afterwards.
        match near.is_on.load(SeqCst) {
            true => _ = near.answerer.get().map(|(answerer, _)| answerer.unpark()),
            false => near.outbox.write(&near.device, || {}),
        }
    }

    /// The kernel's write-back, FORGET, RELEASE and callers of other pid namespaces have the number
    /// 0.
    fn judge(&mut self, caller: u32) {
        let near = Arc::clone(&self.near);
        let overlaps = near
            .outbox
            .has(|reply| !reply.is_taken() && reply.caller != 0);
        near.outbox.write(&near.device, || {});
        if caller == 0 {
            return;
        }
        let last = self.last;
        let sign = Sign {
            overlaps,
            stayed: near
                .outbox
                .has(|reply| reply.number == last && reply.is_taken()),
            bytes: std::mem::take(&mut self.bytes),
        };
        if sign.stayed {
            let stayed = &near.counters.stayed;
            stayed.store(stayed.load(Relaxed) + 1, Relaxed);
        }
        match self.judge.see(sign) {
            Step::Stay => {}
            Step::Leave(reason) => self.leave(reason),
            Step::Follow => {
                let before = self.cpu;
                match scheduling::cpu_of(caller) {
                    // It has ended, as that of readahead may have.
                    None => self.judge.asked(false),
                    Some(cpu) if self.follow(cpu) => self.judge.asked(self.cpu != before),
                    Some(_) => self.leave(Reason::Unsteady),
                }
            }
        }
    }

    /// Begins where it is time to try, and where all this thread has seen of late are small
    /// requests of one caller.
    fn consider(&mut self, caller: u32) {
        let bytes = std::mem::take(&mut self.bytes);
        if caller != 0 && self.trials.see(caller, bytes < BULK) {
            self.enter(caller);
        }
    }

    fn enter(&mut self, caller: u32) {
        self.trials.begin();
        self.judge = Judge::new();
        _ = self.near.leader.set(gettid());
        self.near.note_home();
        let cpu = scheduling::cpu_of(caller);
        if !cpu.is_some_and(|cpu| self.follow(cpu)) {
            self.near.spread();
            return self.left();
        }
        // Else it interrupts a caller that does not wait for it, as that of a RELEASE.
        scheduling::enter(Class::Batch);
        self.near.counters.entered.fetch_add(1, Relaxed);
        self.near.is_on.store(true, SeqCst);
    }

    /// Goes to a CPU; false where that is not possible.
    fn follow(&mut self, cpu: usize) -> bool {
        if self.cpu == Some(cpu) {
            return true;
        }
        self.cpu = Some(cpu);
        self.near.counters.followed.fetch_add(1, Relaxed);
        self.near.place(cpu)
    }

    fn leave(&mut self, reason: Reason) {
        self.near.leave(Some(reason));
        self.left();
    }

    /// It is over. The guard may have ended it while this thread went to another CPU.
    fn left(&mut self) {
        self.cpu = None;
        self.near.spread();
        if !self.near.was_quiet.swap(false, SeqCst) {
            self.trials.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use rustix::thread::sched_getaffinity;

    use super::*;
    use crate::transport::dev::Device;

    const GOOD: Sign = Sign {
        overlaps: false,
        stayed: true,
        bytes: 100,
    };

    /// After how many of these something follows that is no stay.
    fn first(judge: &mut Judge, sign: Sign) -> Option<(u32, Step)> {
        let steps = (1..=1000).map(|number| (number, judge.see(sign)));
        steps.into_iter().find(|(_, step)| *step != Step::Stay)
    }

    #[test]
    fn a_single_stream_stays() {
        assert_eq!(first(&mut Judge::new(), GOOD), None);
        // As do those of which one in five overlaps.
        let mut judge = Judge::new();
        for number in 0..1000 {
            let overlaps = number % 5 == 0;
            assert_eq!(judge.see(Sign { overlaps, ..GOOD }), Step::Stay, "{number}");
        }
    }

    #[test]
    fn two_streams_and_bulk_are_left() {
        let overlaps = Sign {
            overlaps: true,
            ..GOOD
        };
        let left = (5, Step::Leave(Reason::Overlapping));
        assert_eq!(first(&mut Judge::new(), overlaps), Some(left));
        let bulk = |bytes| first(&mut Judge::new(), Sign { bytes, ..GOOD });
        assert_eq!(bulk(1 << 20), Some((4, Step::Leave(Reason::Bulk))));
        assert_eq!(bulk(32 << 10), Some((8, Step::Leave(Reason::Bulk))));
        assert_eq!(bulk(10 << 10), None);
    }

    /// Without another thread: what the leader leaves, none takes.
    #[test]
    fn replies_that_are_not_taken_are_written_and_are_signs_of_two_callers() {
        let (ours, kernel) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::NONBLOCK,
            None,
        )
        .unwrap();
        let device = Arc::new(Device::new(ours));
        let near = Arc::new(Near::new(&device, sched_getaffinity(None).unwrap()));
        let mut leader = Leader::new(Arc::clone(&near));
        leader.cpu = Some(0);
        near.is_on.store(true, SeqCst);
        let mut rounds = 0;
        let read = || rustix::io::read(&kernel, &mut [0; 64]).is_ok();
        while near.is_on.load(SeqCst) {
            rounds += 1;
            let header = InHeader {
                pid: rounds,
                opcode: opcode::GETATTR,
                ..InHeader::default()
            };
            leader.begin(&header);
            // The reply to the one before is written now, at the latest.
            assert_eq!(read(), rounds > 1, "{rounds}");
            leader.answer(header, &[7; 32]);
            leader.end();
        }
        // One without an earlier one, and five; the reply to the last is written at once.
        assert_eq!(rounds, 6);
        assert_eq!(near.counts().left[Reason::Overlapping as usize], 1);
        assert!(leader.cpu.is_none() && read() && !read());
    }

    #[test]
    fn a_caller_that_is_elsewhere_is_followed_and_one_that_never_stays_is_left() {
        let missed = Sign {
            stayed: false,
            ..GOOD
        };
        let mut judge = Judge::new();
        let mut moves = 0;
        let reason = loop {
            match first(&mut judge, missed) {
                Some((PATIENCE_MIN, Step::Follow)) => judge.asked(true),
                Some((_, Step::Leave(reason))) => break reason,
                other => panic!("{other:?}"),
            }
            moves += 1;
        };
        assert_eq!(reason, Reason::Unsteady);
        assert!((5..20).contains(&moves), "{moves}");
        // One that is here, and waits for other things, is asked for less and less often.
        let mut judge = Judge::new();
        for patience in [3, 6, 12, 24, 48, 96, 192, 256, 256] {
            assert_eq!(first(&mut judge, missed), Some((patience, Step::Follow)));
            judge.asked(false);
        }
        judge.asked(true);
        assert_eq!(judge.patience, PATIENCE_MIN);
    }
}
