//! What is kept for small files, a list a thread (the kernel's locality groups, one a processor).
//!
//! A small file is handed exactly what it needs from the shortest part that has it, the nearest among
//! equals. More is taken [`crate::Options::group_prealloc`] blocks at a time. The predictor's policy
//! takes it right behind the last and joins the two, so that nothing is left over between files: what
//! is too short for one file at the end of a free run is kept for a smaller one, and a large file that
//! comes between is given what is kept right before the end ([`Allocator::leave_locality`]); the
//! others take it where the request says, and forget the shortest parts when there are too many.

use std::thread;

use parking_lot::Mutex;
use uext4_ondisk::Pblk;

use crate::leases::thread_number;
use crate::normalize::Rule;
use crate::{Allocator, DataRequest, Error, GroupBitmaps, Hints, Request, Run};

/// Parts of one list before it is trimmed, and after.
const PARTS_MAX: usize = 32;
const PARTS_TRIMMED: usize = 24;
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

    /// A run was taken at `goal`, or elsewhere, for files like those of this thread: these go on
    /// behind it, unless they have a place that was too short for it.
    pub(crate) fn went_on(&self, goal: Pblk, run: Run) {
        let next = &mut self.mine().lock().next;
        if run.start == goal || next.is_none() {
            *next = Some(run.end());
        }
    }

    pub(crate) fn runs(&self) -> Vec<Run> {
        let lists = self.0.iter();
        lists.flat_map(|list| list.lock().parts.clone()).collect()
    }

    /// Gives everything back. Tells how many blocks that were.
    pub(crate) fn discard(&self, allocator: &Allocator) -> u64 {
        let discard = |list: &Mutex<Locality>| {
            let mut list = list.lock();
            let runs = std::mem::take(&mut list.parts);
            let blocks = allocator.give_back(&runs);
            drop(list);
            allocator.trace_release_group(&runs);
            blocks
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
    /// much is given back, and answered.
    fn keep(&mut self, allocator: &Allocator, run: Run) -> Vec<Run> {
        allocator.note_kept(run.len);
        self.next = Some(run.end());
        let before = self
            .parts
            .iter_mut()
            .find(|part| part.end() == run.start && allocator.in_one_group(part.start, run.start));
        if let Some(before) = before {
            before.len += run.len;
            allocator.divide(run.start, -1, 0);
            return Vec::new();
        }
        self.parts.push(run);
        if self.parts.len() <= PARTS_MAX {
            return Vec::new();
        }
        self.parts.sort_unstable_by_key(|part| part.len);
        let too_many = self.parts.len() - PARTS_TRIMMED;
        let runs: Vec<Run> = self.parts.drain(..too_many).collect();
        allocator.give_back(&runs);
        runs
    }
}

impl Allocator {
    /// Serves a small file near `goal`; `len` is at most a group.
    pub(crate) fn take_small<B: GroupBitmaps>(
        &self,
        bitmaps: &B,
        request: &DataRequest,
        len: u32,
        goal: Pblk,
    ) -> Result<Run, Error<B::Error>> {
        let list = self.preallocations().localities.mine();
        let kept = list.lock().hand_out(self, len, goal);
        if let Some(run) = kept {
            self.trace_prealloc(request, run);
            return Ok(run);
        }
        match self.take_more(bitmaps, request, len, goal) {
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
        self.take_with(bitmaps, &exact, &needing(request, len))
    }

    /// Serves a small file that has all blocks up to `goal`, if a part begins there; up to `len` blocks.
    pub(crate) fn take_small_at(&self, len: u32, goal: Pblk) -> Option<Run> {
        let mut list = self.preallocations().localities.mine().lock();
        let at = list.parts.iter().position(|part| part.start == goal)?;
        let len = len.min(list.parts[at].len);
        Some(list.cut(self, at, len))
    }

    /// Where a file that is not small goes, to lie beside the small ones of this thread: what is kept
    /// for these right before the place where they go on is given back, so that nothing is left over
    /// between them and it.
    pub(crate) fn leave_locality(&self) -> Option<Pblk> {
        let mut list = self.preallocations().localities.mine().lock();
        let next = list.next?;
        let mut place = next;
        while let Some(at) = list.parts.iter().position(|part| part.end() == place) {
            let part = list.parts.swap_remove(at);
            place = part.start;
            self.give_back(&[part]);
        }
        list.next = Some(place);
        Some(place)
    }

    /// Takes more than is needed, and keeps the rest; `None` if nothing may be kept.
    fn take_more<B: GroupBitmaps>(
        &self,
        bitmaps: &B,
        request: &DataRequest,
        len: u32,
        goal: Pblk,
    ) -> Result<Option<Run>, Error<B::Error>> {
        let all = self.preallocations();
        let Some(_flight) = all.start() else {
            return Ok(None);
        };
        let list = all.localities.mine();
        let most = self.locality_len().max(len);
        let goes_on = self.options().normalize.rule == Rule::Predict;
        let mut goal = goal;
        let end = list.lock().next;
        if goes_on && let Some(next) = end {
            goal = next;
            // What is too short for this file is kept for one that is smaller.
            let near = Request {
                goal: next,
                len: most,
                min_len: 1,
                next_fit: false,
            };
            if let Some(run) = self.take_near(bitmaps, &near, 0)? {
                let mut list = list.lock();
                let given_back = list.keep(self, run);
                let answer = list.hand_out(self, len, next);
                drop(list);
                self.trace_new_group_pa(request.file, run);
                self.trace_release_group(&given_back);
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
        let taken = self.take_counted(bitmaps, &window, &needing(request, len), len)?;
        let (used, rest) = taken.split(len);
        let mut list = list.lock();
        list.next = Some(taken.end());
        if let Some(rest) = rest {
            self.divide(rest.start, 1, 0);
            let given_back = list.keep(self, rest);
            drop(list);
            self.trace_new_group_pa(request.file, rest);
            self.trace_release_group(&given_back);
        }
        Ok(Some(used))
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
fn needing(request: &DataRequest, len: u32) -> Hints {
    Hints {
        ino: request.file,
        lblk: request.lblk.0,
        data: true,
        need: len,
        ..Hints::default()
    }
}
