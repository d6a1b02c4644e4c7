//! What the allocator remembers of one file, and how requests for its data are served.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use uext4_ondisk::{Lblk, Pblk};

use crate::allocator::Allocator;
use crate::groups::Answer;
use crate::history::{Before, History};
use crate::normalize::{Plan, SmallFiles, Surroundings, Window};
use crate::preallocation::{FileParts, Part, PreallocationStats, Small};
use crate::request::DataRequest;
use crate::search::Hints;
use crate::{Error, GroupBitmaps, Request, Run, trace};

/// What the allocator remembers of one file: what was preallocated for it, and how it grew. Its
/// owner keeps it as long as the file is in use and gives it back with [`Allocator::discard`];
/// what is not given back stays taken until the next [`Allocator::discard_all`]. For one
/// allocator only.
///
/// Locks of its own, which no other is held in but a group's.
#[derive(Debug, Default)]
pub struct FileSpace {
    history: Mutex<History>,
    parts: OnceLock<Arc<FileParts>>,
}

impl Allocator {
    /// Takes a run for the start of what is wanted, in memory only, as [`Allocator::take`] does; at
    /// most `request.len` blocks. [`Allocator::mark`] or [`Allocator::cancel`] must follow.
    ///
    /// What was preallocated for these blocks is used first. Else more may be taken than is
    /// wanted, as [`crate::Normalize`] says, and preallocated for the file; or the file is small,
    /// and served from what is preallocated for such.
    ///
    /// # Errors
    /// As [`Allocator::take`].
    pub fn take_data<B: GroupBitmaps>(
        &self,
        bitmaps: &B,
        space: &FileSpace,
        request: &DataRequest,
    ) -> Answer<Run, B> {
        let request = &request.within_file();
        trace::request(self.groups(), request);
        let history = space.note(request);
        let kept = space.parts.get().and_then(|parts| {
            parts.use_at(
                self.space(),
                self.preallocations(),
                request.lblk,
                request.len,
            )
        });
        let run = match kept {
            Some(run) => {
                trace::prealloc(self.groups(), request, run);
                run
            }
            None => self.take_unkept(bitmaps, space, request, history)?,
        };
        trace::answer(self.groups(), request, run);
        Ok(run)
    }

    /// The same for blocks that nothing is preallocated for.
    fn take_unkept<B: GroupBitmaps>(
        &self,
        bitmaps: &B,
        space: &FileSpace,
        request: &DataRequest,
        history: History,
    ) -> Answer<Run, B> {
        let parts = space.parts.get();
        let held = parts.map_or([0..0, 0..0], |parts| parts.around(request.lblk));
        let plan = self.plan(request, &self.surroundings(space, history, &held));
        let goal = self.goal_of(&plan);
        if let Some(how) = plan.small {
            let small = Small {
                request,
                len: plan.window.need(request),
                goal,
                how,
            };
            if !(plan.window.try_goal() && how == SmallFiles::Joined) {
                return self.take_small(bitmaps, &small);
            }
            // It goes on where it ends, if that is still there.
            let all = self.preallocations();
            if let Some(run) = all.take_small_at(self.space(), small.len, goal) {
                trace::prealloc(self.groups(), request, run);
                return Ok(run);
            }
        }
        let plan = Plan {
            window: plan.window.at(goal),
            ..plan
        };
        let run = self.take_window(bitmaps, space, request, &plan)?;
        if plan.leads_closed {
            self.preallocations().localities.went_on(goal, run);
        }
        Ok(run)
    }

    /// Serves a small file.
    fn take_small<B: GroupBitmaps>(&self, bitmaps: &B, small: &Small<'_>) -> Answer<Run, B> {
        let all = self.preallocations();
        if let Some(run) = all.take_small(self.space(), bitmaps, small)? {
            return Ok(run);
        }
        // What is preallocated for others is given back before this is refused.
        let exact = Request {
            goal: small.goal,
            len: small.len,
            min_len: 1,
            next_fit: false,
        };
        self.take_with(bitmaps, &exact, &small.hints())
    }

    /// Gives back what is preallocated for a file.
    pub fn discard(&self, space: &FileSpace) {
        if let Some(parts) = space.parts.get() {
            parts.discard(self.space(), self.preallocations());
        }
    }

    /// How much is preallocated for files now.
    pub fn preallocation_stats(&self) -> PreallocationStats {
        self.preallocations().stats()
    }

    /// What is preallocated for files now, in no order; each run in one group.
    pub fn preallocated(&self) -> Vec<Run> {
        self.preallocations().runs()
    }

    /// Gives back all that is preallocated, for every file. Returns how many blocks that were.
    pub fn discard_all(&self) -> u64 {
        self.preallocations().discard_for(self.space(), 0)
    }

    /// Where a window should lie: next to its neighbours if it has any; closed files go where the
    /// others of this thread go.
    fn goal_of(&self, plan: &Plan) -> Pblk {
        let all = self.preallocations();
        let next = match plan.small {
            _ if !plan.next_to_closed => None,
            Some(_) => all.localities.next(),
            None => all.leave_locality(self.space()),
        };
        next.unwrap_or(plan.window.goal())
    }

    fn surroundings<'a>(
        &self,
        space: &FileSpace,
        history: History,
        held: &'a [Range<u64>],
    ) -> Surroundings<'a> {
        let is_counted = space.parts.get().is_some_and(|parts| parts.is_registered());
        let files = self.preallocations().files.len();
        let writers = files + usize::from(!is_counted);
        let options = self.options();
        Surroundings {
            block_size_log2: self.space().block_size_log2,
            blocks_per_group: self.space().blocks_per_group(),
            stripe: options.stripe,
            stream_req: options.stream_req,
            group_prealloc: options.group_prealloc,
            free: self.free_blocks(),
            blocks: self.groups().blocks_count(),
            average_run: self.space().average_free_run(),
            files: u32::try_from(files).unwrap_or(u32::MAX),
            writers: u32::try_from(writers).unwrap_or(u32::MAX),
            history,
            held,
        }
    }

    /// Takes a window, of which what is needed is handed out and the rest preallocated.
    fn take_window<B: GroupBitmaps>(
        &self,
        bitmaps: &B,
        space: &FileSpace,
        request: &DataRequest,
        plan: &Plan,
    ) -> Answer<Run, B> {
        let window = &plan.window;
        let need = window.need(request);
        let hints = Hints {
            data: true,
            merge: plan.merge,
            need,
            stream: plan.stream.map(|_| request.file),
            follows: plan.stream.is_some_and(|stream| stream.follows),
            crowded: plan.stream.is_some_and(|stream| stream.crowded),
            fill: plan.stream.map_or(0, |stream| stream.fill),
            ino: request.file,
            lblk: request.lblk.0,
        };
        if window.blocks() > need {
            // Nothing may be refused because others keep what they do not need: that is asked for
            // without a window.
            match self.take_and_keep(bitmaps, space, request, window, &hints) {
                Ok(Some(run)) => return Ok(run),
                Ok(None) | Err(Error::NoSpace { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let exact = Request {
            goal: Pblk(
                window
                    .goal()
                    .0
                    .saturating_add(window.skipped(request).into()),
            ),
            len: need,
            min_len: 1,
            next_fit: false,
        };
        let run = self.take_with(bitmaps, &exact, &hints)?;
        space.note_answer(need, run.len, &hints);
        Ok(run)
    }

    /// Hands out as many blocks as `hints` say are needed, and keeps the others; `None` if
    /// nothing may be preallocated.
    fn take_and_keep<B: GroupBitmaps>(
        &self,
        bitmaps: &B,
        space: &FileSpace,
        request: &DataRequest,
        window: &Window,
        hints: &Hints,
    ) -> Answer<Option<Run>, B> {
        let (free, all) = (self.space(), self.preallocations());
        let Some(_flight) = all.start() else {
            return Ok(None);
        };
        let need = hints.need;
        let whole = Request {
            goal: window.goal(),
            len: window.blocks(),
            min_len: 1,
            next_fit: false,
        };
        let run = free.take(bitmaps, &whole, hints, need)?;
        space.note_answer(window.blocks(), run.len, hints);
        let part = Part {
            lblk: place(window, request.lblk, run),
            run,
        };
        let skip = request.lblk.0 - part.lblk.0;
        let used = need.min(run.len - skip);
        // Counted was what is needed; less of it may have been found.
        let counted = need.min(run.len);
        if counted > used {
            free.divide(run.start, 0, -i64::from(counted - used));
        }
        let parts = space.parts.get_or_init(|| all.files.new_file(request.file));
        let before = part.cut(0, skip);
        let behind = part.cut(skip + used, run.len - skip - used);
        for rest in [before, behind] {
            if rest.run.len > 0 && !parts.keep(free, all, rest) {
                free.divide(rest.run.start, 1, 0);
                free.release(rest.run);
            }
        }
        Ok(Some(part.cut(skip, used).run))
    }
}

/// First block of the file that `run`, taken for a window, is for: one that lets it hold the
/// block wanted. Where the window could not be filled its end is preallocated, else its start,
/// else it begins with the block wanted (mainline's rule of 2023); what lies at the goal begins
/// where the window does.
fn place(window: &Window, wanted: Lblk, run: Run) -> Lblk {
    let first = window.lblk();
    let from_end = first.0 + window.blocks() - run.len.min(window.blocks());
    let holds = |start: u32| start <= wanted.0 && wanted.0 - start < run.len;
    if run.start == window.goal() && holds(first.0) {
        first
    } else if holds(from_end) {
        Lblk(from_end)
    } else if holds(first.0) {
        first
    } else {
        wanted
    }
}

impl FileSpace {
    /// Notes what a window got of what it wanted; one that was to fill a run that has all that is
    /// needed did not get less than there is.
    fn note_answer(&self, wanted: u32, got: u32, hints: &Hints) {
        let has_filled = hints.fill >= hints.need && (hints.fill..wanted).contains(&got);
        if !has_filled {
            self.history.lock().note_window(wanted, got);
        }
    }

    /// Notes a request, and returns what the file did so far.
    fn note(&self, request: &DataRequest) -> History {
        let left = request.left.map(|(lblk, _)| u64::from(lblk.0) + 1);
        let before = match left == Some(request.lblk.0.into()) {
            true => Before::Mapped,
            false => Before::Hole,
        };
        let history = &mut *self.history.lock();
        history.note(request.lblk, request.len, before);
        *history
    }
}
