//! The guard: writes a reply that has waited for one to two milliseconds, and ends serving a single
//! stream near its caller where that does not work, or where there is none.

use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use super::outbox::PLACES;
use super::{Near, Reason};

/// How often it looks while there are requests.
const TICK: Duration = Duration::from_millis(1);
/// Looks without a request after which it ends.
const QUIET: u32 = 16;
/// Looks at which the leader is at the same request, after the first: two to three milliseconds.
const BUSY: u32 = 2;

/// What it sees.
#[derive(Clone, Copy, Debug)]
struct Seen {
    is_on: bool,
    /// Twice the requests of the leader, and one more while it is at one.
    turns: u64,
    /// The numbers of the replies that are there, or 0.
    replies: [u64; PLACES],
}

/// What it does, after it has written what waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Look,
    Sleep,
    Leave(Option<Reason>),
}

/// What it has seen.
#[derive(Debug, Default)]
struct Watch {
    turns: u64,
    replies: [u64; PLACES],
    /// Those that the kernel has got, though the thread that wrote them has not let go of them: the
    /// caller has taken the CPU from it.
    sent: [u64; PLACES],
    busy: u32,
    quiet: u32,
}

impl Watch {
    /// What is to be done; `is_late` writes a reply that has waited, and says whether the kernel
    /// had not got it before.
    fn look(&mut self, seen: Seen, mut is_late: impl FnMut(u64) -> bool) -> Step {
        let is_same = seen.turns == self.turns;
        self.turns = seen.turns;
        let is_at_one = is_same && seen.turns % 2 == 1;
        self.busy = if is_at_one { self.busy + 1 } else { 0 };
        self.quiet = if is_same { self.quiet + 1 } else { 0 };
        let (mut has_late, mut is_any) = (false, false);
        let before = std::mem::replace(&mut self.replies, seen.replies);
        for ((now, before), sent) in seen.replies.iter().zip(before).zip(&mut self.sent) {
            if *now == 0 || now == sent {
                continue;
            }
            is_any = true;
            if *now == before {
                has_late |= is_late(*now);
                *sent = *now;
            }
        }
        match seen.is_on {
            true if has_late => Step::Leave(Some(Reason::Waiting)),
            true if self.busy >= BUSY => Step::Leave(Some(Reason::Busy)),
            true if self.quiet >= QUIET && !is_any && !is_at_one => Step::Leave(None),
            false if !is_any => Step::Sleep,
            true | false => Step::Look,
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
            replies: near.outbox.numbers(),
        };
        let is_late = |number| near.outbox.write_late(number, &near.device);
        match watch.look(seen, is_late) {
            Step::Look => thread::sleep(TICK),
            Step::Leave(reason) => near.leave(reason),
            Step::Sleep => {
                near.guard_sleeps.store(true, SeqCst);
                // The leader begins before it looks whether the guard sleeps.
                if !near.is_on.load(SeqCst) && !near.is_over.load(SeqCst) {
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

    const GOOD: Seen = Seen {
        is_on: true,
        turns: 8,
        replies: [0; PLACES],
    };

    /// The steps of so many looks at the same, and the replies that were written.
    fn looks(count: usize, seen: Seen, is_late: bool) -> (Vec<Step>, Vec<u64>) {
        let (mut watch, mut written) = (Watch::default(), Vec::new());
        let mut write = |number| {
            written.push(number);
            is_late
        };
        let steps = (0..count).map(|_| watch.look(seen, &mut write)).collect();
        (steps, written)
    }

    #[test]
    fn a_reply_waits_for_one_tick_at_most() {
        let seen = Seen {
            replies: [0, 7, 0],
            ..GOOD
        };
        let late = Step::Leave(Some(Reason::Waiting));
        assert_eq!(looks(2, seen, true), (vec![Step::Look, late], vec![7]));
        // One that was sent is written once more, not each time.
        let (steps, written) = looks(8, seen, false);
        assert_eq!((steps, written), (vec![Step::Look; 8], vec![7]));
        // Another one each time.
        let mut watch = Watch::default();
        for number in 1..100 {
            let replies = [number, 0, 0];
            let step = watch.look(Seen { replies, ..GOOD }, |_| panic!("written"));
            assert_eq!(step, Step::Look);
            watch.quiet = 0;
        }
        // Also once it is off.
        let is_off = Seen {
            is_on: false,
            ..seen
        };
        let (steps, written) = looks(3, is_off, true);
        assert_eq!(steps, [Step::Look, Step::Look, Step::Sleep]);
        assert_eq!(written, [7]);
    }

    #[test]
    fn a_long_request_frees_the_others() {
        let seen = Seen { turns: 9, ..GOOD };
        let busy = Step::Leave(Some(Reason::Busy));
        assert_eq!(looks(3, seen, true).0, [Step::Look, Step::Look, busy]);
        // Another one each time.
        let mut watch = Watch::default();
        for turns in (9..99).step_by(2) {
            assert_eq!(watch.look(Seen { turns, ..seen }, |_| true), Step::Look);
        }
    }

    #[test]
    fn without_requests_it_ends_and_the_guard_sleeps() {
        let (steps, _) = looks(QUIET as usize + 1, GOOD, true);
        let (last, before) = steps.split_last().unwrap();
        assert!(before.iter().all(|step| *step == Step::Look));
        assert_eq!(*last, Step::Leave(None));
        let is_off = Seen {
            is_on: false,
            ..GOOD
        };
        assert_eq!(looks(1, is_off, true).0, [Step::Sleep]);
    }
}
