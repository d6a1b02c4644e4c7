//! The guard: sees that no request waits longer than it would without an answerer.

use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use super::{Near, Reason};

/// How often it looks while there are requests.
const TICK: Duration = Duration::from_millis(1);
/// After so many ticks without a request it sleeps, until the leader wakes it.
const QUIET: u32 = 16;
/// Ticks that the leader may be at one request: it is reported to be at it by the first.
const BUSY: u32 = 2;

/// What it sees.
#[derive(Clone, Copy, Debug)]
struct Seen {
    is_on: bool,
    /// Twice the requests of the leader, and one more while it is at one.
    turns: u64,
    /// A reply is there to be written.
    has_reply: bool,
    /// Replies that were taken.
    taken: u64,
}

/// What it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Look,
    Sleep,
    Leave(Reason),
}

/// What it has seen.
#[derive(Debug, Default)]
struct Watch {
    turns: u64,
    /// Replies that were taken when one was there; `None` if none was.
    waiting: Option<u64>,
    busy: u32,
    quiet: u32,
}

impl Watch {
    fn look(&mut self, seen: Seen) -> Step {
        let is_same = seen.turns == self.turns;
        let waiting = seen.has_reply.then_some(seen.taken);
        let has_waited = waiting.is_some() && waiting == self.waiting;
        let is_at_one = is_same && seen.turns % 2 == 1;
        self.turns = seen.turns;
        self.waiting = waiting;
        self.busy = if is_at_one { self.busy + 1 } else { 0 };
        self.quiet = if is_same { self.quiet + 1 } else { 0 };
        match seen.is_on {
            false => Step::Sleep,
            true if has_waited => Step::Leave(Reason::Waiting),
            true if self.busy >= BUSY => Step::Leave(Reason::Busy),
            true if self.quiet >= QUIET && waiting.is_none() && !is_at_one => Step::Sleep,
            true => Step::Look,
        }
    }
}

/// Runs until the mount is gone.
pub(super) fn run(near: &Near) {
    let mut watch = Watch::default();
    while !near.is_over.load(SeqCst) {
        let seen = Seen {
            is_on: near.is_on.load(SeqCst),
            turns: near.turns.load(SeqCst),
            has_reply: !near.outbox.is_empty(),
            taken: near.outbox.taken(),
        };
        match watch.look(seen) {
            Step::Look => thread::park_timeout(TICK),
            Step::Leave(reason) => near.leave(reason),
            Step::Sleep => {
                near.guard_sleeps.store(true, SeqCst);
                // The leader counts its turn, and begins, before it looks whether the guard sleeps.
                let is_quiet = match (seen.is_on, near.is_on.load(SeqCst)) {
                    (_, false) => true,
                    (false, true) => false,
                    (true, true) => near.turns.load(SeqCst) == seen.turns,
                };
                if is_quiet && !near.is_over.load(SeqCst) {
                    thread::park();
                }
                near.guard_sleeps.store(false, SeqCst);
                watch = Watch::default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET_ONE: Seen = Seen {
        is_on: true,
        turns: 8,
        has_reply: false,
        taken: 4,
    };

    #[test]
    fn a_reply_waits_for_one_tick_at_most() {
        let mut watch = Watch::default();
        let seen = Seen {
            has_reply: true,
            ..QUIET_ONE
        };
        assert_eq!(watch.look(seen), Step::Look);
        assert_eq!(watch.look(seen), Step::Leave(Reason::Waiting));
        // One that was taken, and another.
        let mut watch = Watch::default();
        assert_eq!(watch.look(seen), Step::Look);
        assert_eq!(watch.look(Seen { taken: 5, ..seen }), Step::Look);
    }

    #[test]
    fn a_long_request_frees_the_others() {
        let mut watch = Watch::default();
        let seen = Seen {
            turns: 9,
            ..QUIET_ONE
        };
        assert_eq!(watch.look(seen), Step::Look);
        assert_eq!(watch.look(seen), Step::Look);
        assert_eq!(watch.look(seen), Step::Leave(Reason::Busy));
        // Another one each time.
        let mut watch = Watch::default();
        for turns in (9..99).step_by(2) {
            assert_eq!(watch.look(Seen { turns, ..seen }), Step::Look);
        }
    }

    #[test]
    fn without_requests_it_sleeps() {
        let mut watch = Watch::default();
        let steps: Vec<Step> = (0..=QUIET).map(|_| watch.look(QUIET_ONE)).collect();
        let (last, before) = steps.split_last().unwrap();
        assert!(before.iter().all(|step| *step == Step::Look));
        assert_eq!(*last, Step::Sleep);
        let is_off = Seen {
            is_on: false,
            ..QUIET_ONE
        };
        assert_eq!(Watch::default().look(is_off), Step::Sleep);
    }
}
