//! What is kept for small files, a list a thread (the kernel's locality groups, one a processor).
//!
//! A small file is handed exactly what it needs from the shortest part that has it, the nearest among
//! equals. More is taken [`crate::Options::group_prealloc`] blocks at a time. The predictor's policy
//! takes it right behind the last and joins the two, so that nothing is left over between files; the
//! others take it where the request says, and forget the shortest parts when there are too many.

use std::thread;

use parking_lot::Mutex;
use uext4_ondisk::Pblk;

use crate::leases::thread_number;
use crate::normalize::Rule;
use crate::{Allocator, Error, GroupBitmaps, Hints, Request, Run};

/// Parts of one list before it is trimmed, and after.
const PARTS_MAX: usize = 8;
const PARTS_TRIMMED: usize = 5;
/// Lists at most.
const LISTS_MAX: usize = 64;

/// The lists.
#[derive(Debug)]
pub(crate) struct Localities(Box<[Mutex<Locality>]>);

/// One list. Lock: a group's may be taken in it.
#[derive(Debug, Default)]
pub(crate) struct Locality {
    parts: Vec<Run>,
    /// Behind the last run that was taken for it.
    next: Option<Pblk>,
}

impl Default for Localities {
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self(
            (0..cores.min(LISTS_MAX))
                .map(|_| Mutex::default())
                .collect(),
        )
    }
}

impl Localities {
    /// That of this thread.
    fn mine(&self) -> &Mutex<Locality> {
        // There is one list at least.
        &self.0[(thread_number() % self.0.len() as u64) as usize]
    }

    /// Where the next small file of this thread would go if nothing is kept.
    pub(crate) fn next(&self) -> Option<Pblk> {
        self.mine().lock().next
    }

    /// A run was taken for files like those of this thread.
    pub(crate) fn went_on(&self, run: Run) {
        self.mine().lock().next = Some(run.end());
    }

    pub(crate) fn runs(&self) -> Vec<Run> {
        let lists = self.0.iter();
        lists.flat_map(|list| list.lock().parts.clone()).collect()
    }

    /// Gives everything back. Tells how many blocks that were.
    pub(crate) fn discard(&self, allocator: &Allocator) -> u64 {
        let discard = |list: &Mutex<Locality>| {
            let mut list = list.lock();
            allocator.give_back(&std::mem::take(&mut list.parts))
        };
        self.0.iter().map(discard).sum()
    }
}

impl Locality {
    /// The shortest part that has `len` blocks, by order; the nearest to the goal among those.
    fn best(&self, len: u32, goal: Pblk) -> Option<usize> {
        let parts = self.parts.iter().enumerate();
        parts
            .filter(|(_, part)| part.len >= len)
            .min_by_key(|(_, part)| (part.len.ilog2(), part.start.0.abs_diff(goal.0)))
            .map(|(at, _)| at)
    }

    /// Hands out the first `len` blocks of the best part.
    fn hand_out(&mut self, allocator: &Allocator, len: u32, goal: Pblk) -> Option<Run> {
        let at = self.best(len, goal)?;
        Some(self.cut(allocator, at, len))
    }

    /// The first `len` blocks of a part that has them.
    fn cut(&mut self, allocator: &Allocator, at: usize, len: u32) -> Run {
        let part = &mut self.parts[at];
        let run = Run { len, ..*part };
        part.start.0 += u64::from(len);
        part.len -= len;
        let is_left = part.len > 0;
        if !is_left {
            self.parts.swap_remove(at);
        }
        allocator.divide(run.start, is_left.into(), len.into());
        allocator.preallocations().used(len);
        run
    }

    /// Keeps a run that holds a mark, joined with the part it continues if there is one. What is too
    /// much is given back.
    fn keep(&mut self, allocator: &Allocator, run: Run) {
        allocator.note_kept(run.len);
        self.next = Some(run.end());
        let before = self
            .parts
            .iter_mut()
            .find(|part| part.end() == run.start && allocator.in_one_group(part.start, run.start));
        if let Some(before) = before {
            before.len += run.len;
            allocator.divide(run.start, -1, 0);
            return;
        }
        self.parts.push(run);
        if self.parts.len() > PARTS_MAX {
            self.parts.sort_unstable_by_key(|part| part.len);
            let too_many = self.parts.len() - PARTS_TRIMMED;
            let runs: Vec<Run> = self.parts.drain(..too_many).collect();
            allocator.give_back(&runs);
        }
    }
}

impl Allocator {
    /// Serves a small file near `goal`; `len` is at most a group.
    pub(crate) fn take_small<B: GroupBitmaps>(
        &self,
        bitmaps: &B,
        (len, goal): (u32, Pblk),
    ) -> Result<Run, Error<B::Error>> {
        let list = self.preallocations().localities.mine();
        if let Some(run) = list.lock().hand_out(self, len, goal) {
            return Ok(run);
        }
        match self.take_more(bitmaps, (len, goal)) {
            Ok(Some(run)) => return Ok(run),
            Ok(None) | Err(Error::NoSpace { .. }) => {}
            Err(error) => return Err(error),
        }
        // What is kept for others is given back before this is refused.
        let exact = Request {
            goal,
            len,
            min_len: 1,
            next_fit: false,
        };
        self.take_with(bitmaps, &exact, &needing(len))
    }

    /// Serves a small file that has all blocks up to `goal`, if a part begins there; up to `len` blocks.
    pub(crate) fn take_small_at(&self, len: u32, goal: Pblk) -> Option<Run> {
        let mut list = self.preallocations().localities.mine().lock();
        let at = list.parts.iter().position(|part| part.start == goal)?;
        let len = len.min(list.parts[at].len);
        Some(list.cut(self, at, len))
    }

    /// Takes more than is needed, and keeps the rest; `None` if nothing may be kept.
    fn take_more<B: GroupBitmaps>(
        &self,
        bitmaps: &B,
        (len, goal): (u32, Pblk),
    ) -> Result<Option<Run>, Error<B::Error>> {
        let all = self.preallocations();
        let Some(_flight) = all.start() else {
            return Ok(None);
        };
        let list = all.localities.mine();
        let most = self.locality_len().max(len);
        let goes_on = self.options().normalize.rule == Rule::Predict;
        let mut goal = goal;
        let end = self.end_of(&list.lock());
        if goes_on && let Some((next, tail)) = end {
            goal = next;
            let least = len.saturating_sub(tail).max(1);
            let near = Request {
                goal: next,
                len: most,
                min_len: least,
                next_fit: false,
            };
            if let Some(run) = self.take_near(bitmaps, &near, 0)? {
                let mut list = list.lock();
                list.keep(self, run);
                let answer = list.hand_out(self, len, next);
                if answer.is_some() {
                    return Ok(answer);
                }
            }
        }
        let window = Request {
            goal,
            len: most,
            min_len: 1,
            next_fit: false,
        };
        let taken = self.take_counted(bitmaps, &window, &needing(len), len)?;
        let (used, rest) = taken.split(len);
        let mut list = list.lock();
        list.next = Some(taken.end());
        if let Some(rest) = rest {
            self.divide(rest.start, 1, 0);
            list.keep(self, rest);
        }
        Ok(Some(used))
    }

    /// Where a list goes on, and how much is kept right before that place.
    fn end_of(&self, list: &Locality) -> Option<(Pblk, u32)> {
        let next = list.next?;
        let joins = |part: &&Run| part.end() == next && self.in_one_group(part.start, next);
        let tail = list.parts.iter().find(joins);
        Some((next, tail.map_or(0, |part| part.len)))
    }

    /// Blocks taken for small files at once.
    fn locality_len(&self) -> u32 {
        let (group, _) = self.sizes();
        let options = self.options();
        let len = options.group_prealloc.max(1);
        len.checked_next_multiple_of(options.stripe.max(1))
            .filter(|len| *len <= group)
            .unwrap_or(len.min(group))
    }
}

/// For data, of which so many blocks are needed.
fn needing(len: u32) -> Hints {
    Hints {
        data: true,
        need: len,
        ..Hints::default()
    }
}
