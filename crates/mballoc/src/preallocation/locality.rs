//! What is preallocated for small files, a list a thread (the kernel's locality groups, one a
//! processor).
//!
//! A small file is handed exactly what it needs from the shortest part that has it, the nearest
//! among equals. More is taken [`Options::group_prealloc`](crate::Options::group_prealloc) blocks
//! at a time, right behind the last, and joined with that, so that nothing is left over between
//! files: what is too short for one file at the end of a free run is preallocated for a smaller
//! one, and a large file that comes between is given what is preallocated right before the end
//! ([`Preallocations::leave_locality`]). A plan with [`SmallFiles::Apart`] has it taken where the
//! request says. When there are too many parts, the shortest are given back.

use std::thread;

use parking_lot::Mutex;
use uext4_ondisk::Pblk;

use super::Preallocations;
use crate::free_space::FreeSpace;
use crate::groups::Answer;
use crate::normalize::SmallFiles;
use crate::request::DataRequest;
use crate::search::Hints;
use crate::{Error, GroupBitmaps, Request, Run, trace};

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
        &self.0[(uext4_support::thread_number() % self.0.len() as u64) as usize]
    }

    /// Where the next small file of this thread would go if nothing is preallocated.
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

    pub(super) fn runs(&self) -> Vec<Run> {
        let lists = self.0.iter();
        lists.flat_map(|list| list.lock().parts.clone()).collect()
    }

    /// Gives everything back. Returns how many blocks that were.
    pub(super) fn discard(&self, space: &FreeSpace, all: &Preallocations) -> u64 {
        let discard = |list: &Mutex<Locality>| {
            let mut list = list.lock();
            let runs = std::mem::take(&mut list.parts);
            let blocks = all.give_back(space, &runs);
            drop(list);
            trace::release_group(&space.groups, &runs);
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
    fn hand_out(
        &mut self,
        space: &FreeSpace,
        all: &Preallocations,
        len: u32,
        goal: Pblk,
    ) -> Option<Run> {
        let at = self.best(len, goal)?;
        Some(self.cut(space, all, at, len))
    }

    /// The first `len` blocks of a part that has them.
    fn cut(&mut self, space: &FreeSpace, all: &Preallocations, at: usize, len: u32) -> Run {
        let part = &mut self.parts[at];
        let run = Run { len, ..*part };
        part.start.0 += u64::from(len);
        part.len -= len;
        let is_left = part.len > 0;
        if !is_left {
            self.parts.swap_remove(at);
        }
        space.divide(run.start, is_left.into(), len.into());
        all.used(len);
        run
    }

    /// Keeps a run that holds a mark, joined with the part it continues if there is one. What is
    /// too much is given back, and returned.
    fn keep(&mut self, space: &FreeSpace, all: &Preallocations, run: Run) -> Vec<Run> {
        all.note_preallocated(space, run.len);
        self.next = Some(run.end());
        let before = self
            .parts
            .iter_mut()
            .find(|part| part.end() == run.start && space.in_one_group(part.start, run.start));
        if let Some(before) = before {
            before.len += run.len;
            space.divide(run.start, -1, 0);
            return Vec::new();
        }
        self.parts.push(run);
        if self.parts.len() <= PARTS_MAX {
            return Vec::new();
        }
        self.parts.sort_unstable_by_key(|part| part.len);
        let too_many = self.parts.len() - PARTS_TRIMMED;
        let runs: Vec<Run> = self.parts.drain(..too_many).collect();
        all.give_back(space, &runs);
        runs
    }
}

impl Preallocations {
    /// Serves `len` blocks, at most a group, for a small file near `goal`; `None` if nothing may
    /// be preallocated now, or nothing is free.
    pub(crate) fn take_small<B: GroupBitmaps>(
        &self,
        space: &FreeSpace,
        bitmaps: &B,
        wanted: &Small<'_>,
    ) -> Answer<Option<Run>, B> {
        let list = self.localities.mine();
        let kept = list.lock().hand_out(space, self, wanted.len, wanted.goal);
        if let Some(run) = kept {
            trace::prealloc(&space.groups, wanted.request, run);
            return Ok(Some(run));
        }
        match self.take_more(space, bitmaps, wanted) {
            Err(Error::NoSpace { .. }) => Ok(None),
            answer => answer,
        }
    }

    /// Serves a small file that has all blocks up to `goal`, if a part begins there; up to `len`
    /// blocks.
    pub(crate) fn take_small_at(&self, space: &FreeSpace, len: u32, goal: Pblk) -> Option<Run> {
        let mut list = self.localities.mine().lock();
        let at = list.parts.iter().position(|part| part.start == goal)?;
        let len = len.min(list.parts[at].len);
        Some(list.cut(space, self, at, len))
    }

    /// Where a file that is not small goes, to lie next to the small ones of this thread: what is
    /// preallocated for these right before the place where they go on is given back, so that
    /// nothing is left over between them and it.
    pub(crate) fn leave_locality(&self, space: &FreeSpace) -> Option<Pblk> {
        let mut list = self.localities.mine().lock();
        let next = list.next?;
        let mut place = next;
        while let Some(at) = list.parts.iter().position(|part| part.end() == place) {
            let part = list.parts.swap_remove(at);
            place = part.start;
            self.give_back(space, &[part]);
        }
        list.next = Some(place);
        Some(place)
    }

    /// Takes more than is needed, and keeps the rest; `None` if nothing may be preallocated.
    fn take_more<B: GroupBitmaps>(
        &self,
        space: &FreeSpace,
        bitmaps: &B,
        wanted: &Small<'_>,
    ) -> Answer<Option<Run>, B> {
        let Some(_flight) = self.start() else {
            return Ok(None);
        };
        let (request, len) = (wanted.request, wanted.len);
        let list = self.localities.mine();
        let mut window = Request {
            goal: wanted.goal,
            len: locality_len(space).max(len),
            min_len: 1,
            next_fit: false,
        };
        let end = list.lock().next;
        if wanted.how == SmallFiles::Joined
            && let Some(next) = end
        {
            window.goal = next;
            // What is too short for this file is preallocated for one that is smaller.
            if let Some(run) = space.take_near(bitmaps, &window, 0) {
                let mut list = list.lock();
                let given_back = list.keep(space, self, run);
                let answer = list.hand_out(space, self, len, next);
                drop(list);
                trace::new_group_pa(&space.groups, request.file, run);
                trace::release_group(&space.groups, &given_back);
                if answer.is_some() {
                    return Ok(answer);
                }
            }
        }
        let taken = space.take(bitmaps, &window, &wanted.hints(), len)?;
        let (used, rest) = taken.split(len);
        let mut list = list.lock();
        list.next = Some(taken.end());
        if let Some(rest) = rest {
            space.divide(rest.start, 1, 0);
            let given_back = list.keep(space, self, rest);
            drop(list);
            trace::new_group_pa(&space.groups, request.file, rest);
            trace::release_group(&space.groups, &given_back);
        }
        Ok(Some(used))
    }
}

/// Blocks taken for small files at once.
fn locality_len(space: &FreeSpace) -> u32 {
    let group = space.blocks_per_group();
    let len = space.options.group_prealloc.max(1);
    len.checked_next_multiple_of(space.options.stripe.max(1))
        .filter(|len| *len <= group)
        .unwrap_or(len.min(group))
}

/// What a small file wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Small<'a> {
    pub(crate) request: &'a DataRequest,
    /// Blocks that are needed, at most a group.
    pub(crate) len: u32,
    pub(crate) goal: Pblk,
    pub(crate) how: SmallFiles,
}

impl Small<'_> {
    /// For data, of which so many blocks are needed.
    pub(crate) fn hints(&self) -> Hints {
        Hints {
            ino: self.request.file,
            lblk: self.request.lblk.0,
            data: true,
            need: self.len,
            ..Hints::default()
        }
    }
}
