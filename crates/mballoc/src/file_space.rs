//! What the allocator remembers of one file, and requests for its data.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use uext4_ondisk::{Lblk, Pblk};

use crate::history::History;
use crate::normalize::{Rule, Surroundings, Window};
use crate::preallocation::strategy::Strategy;
use crate::preallocation::{FileParts, Part};
use crate::{Allocator, Error, GroupBitmaps, Hints, Request, Run};

/// Blocks of the longest extent (`EXT_INIT_MAX_LEN`).
const EXTENT_MAX: u32 = 32_768;
/// Free extents of most length, or groups, for each file that grows, below which none lies apart.
const ROOMY: u64 = 8;
/// Where free runs are short, a stream fills those of this part of what the file has, and of so many
/// blocks at least.
const FILLED_PART: u32 = 64;
const FILLED_MIN: u32 = 32;

/// What the allocator remembers of one file: what was preallocated for it, and how it grew. Its owner
/// keeps it as long as the file is in use and gives it back with [`Allocator::discard`]; what is not
/// given back stays taken until the next [`Allocator::discard_all`]. For one allocator only.
///
/// Locks of its own, which no other is held in but a group's.
#[derive(Debug, Default)]
pub struct FileSpace {
    history: Mutex<History>,
    parts: OnceLock<Arc<FileParts>>,
}

/// Blocks wanted for a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRequest {
    /// The file's number: spreads streams over goals.
    pub file: u64,
    /// First block of the file wanted; it and the others are a hole.
    pub lblk: Lblk,
    /// Blocks wanted, at least 1.
    pub len: u32,
    /// Where they should start if the file's neighbours do not say: near the inode.
    pub goal: Pblk,
    /// The mapped block next before `lblk`, if any: its number in the file and where it lies.
    pub left: Option<(Lblk, Pblk)>,
    /// The mapped block next after them, if any.
    pub right: Option<(Lblk, Pblk)>,
    /// Blocks of the file's size, what is dirty included.
    pub size: u64,
    /// They are for `fallocate`: nothing is written to them yet.
    pub unwritten: bool,
    /// Nobody has the file open for writing any more: it will not grow.
    pub closed: bool,
}

impl Allocator {
    /// Takes a run for the start of what is wanted, in memory only, as [`Allocator::take`] does; at
    /// most `request.len` blocks. [`Allocator::mark`] or [`Allocator::untake`] must follow.
    ///
    /// What was preallocated for these blocks is used first. Else more may be taken than is wanted,
    /// as [`crate::Normalize`] says, and kept for the file; or the file is small, and served from what
    /// is kept for such.
    ///
    /// # Errors
    /// As [`Allocator::take`].
    pub fn take_data<B: GroupBitmaps>(
        &self,
        bitmaps: &B,
        space: &FileSpace,
        request: &DataRequest,
    ) -> Result<Run, Error<B::Error>> {
        let request = &request.within_file();
        self.trace_request(request);
        let history = space.note(request);
        let kept = space.parts.get();
        let kept = kept.and_then(|parts| parts.use_at(self, request.lblk, request.len));
        let run = match kept {
            Some(run) => {
                self.trace_prealloc(request, run);
                run
            }
            None => self.take_unkept(bitmaps, space, request, history)?,
        };
        self.trace_answer(request, run);
        Ok(run)
    }

    /// The same for blocks that nothing is kept for.
    fn take_unkept<B: GroupBitmaps>(
        &self,
        bitmaps: &B,
        space: &FileSpace,
        request: &DataRequest,
        history: History,
    ) -> Result<Run, Error<B::Error>> {
        let (group, _) = self.sizes();
        let strategy = Strategy::of(request, self.options(), self.average_free_run());
        let parts = space.parts.get();
        let held = parts.map_or([0..0, 0..0], |parts| parts.beside(request.lblk));
        let around = self.surroundings(space, history, &held);
        let window = match strategy {
            Strategy::File => self.options().normalize.window(request, &around),
            Strategy::Exact | Strategy::Locality => {
                crate::Normalize::EXACT.window(request, &around)
            }
        };
        let skipped = request.lblk.0.saturating_sub(window.lblk.0);
        let need = request.len.min(group).min(window.len - skipped);
        let goal = self.goal_of(request, &window, strategy);
        if strategy == Strategy::Locality {
            if !(window.try_goal && self.packs()) {
                return self.take_small(bitmaps, request, need, goal);
            }
            // It goes on where it ends, if that is still there.
            if let Some(run) = self.take_small_at(need, goal) {
                self.trace_prealloc(request, run);
                return Ok(run);
            }
        }
        let window = Window { goal, ..window };
        let run = self.take_window(bitmaps, space, request, &window, need)?;
        if request.closed && self.packs() {
            self.preallocations().localities.went_on(goal, run);
        }
        Ok(run)
    }

    /// Gives back what is preallocated for a file.
    pub fn discard(&self, space: &FileSpace) {
        if let Some(parts) = space.parts.get() {
            parts.discard(self);
        }
    }

    /// Whether files that will not grow are put side by side.
    fn packs(&self) -> bool {
        self.options().normalize.rule == Rule::Predict
    }

    /// Where a window should lie: beside its neighbours if it has any; closed files go where the
    /// others of this thread go.
    fn goal_of(&self, request: &DataRequest, window: &Window, strategy: Strategy) -> Pblk {
        let is_alone = request.left.is_none() && request.right.is_none();
        let short = self.average_free_run() < self.options().group_prealloc.into();
        if request.closed && is_alone && self.packs() && !short {
            let next = match strategy {
                Strategy::Locality => self.preallocations().localities.next(),
                Strategy::Exact | Strategy::File => self.leave_locality(),
            };
            return next.unwrap_or(window.goal);
        }
        window.goal
    }

    fn surroundings<'a>(
        &self,
        space: &FileSpace,
        history: History,
        held: &'a [std::ops::Range<u64>],
    ) -> Surroundings<'a> {
        let (blocks_per_group, block_size_log2) = self.sizes();
        let is_counted = space.parts.get().is_some_and(|parts| parts.is_registered());
        let files = self.preallocations().files.len() + usize::from(!is_counted);
        Surroundings {
            block_size_log2,
            blocks_per_group,
            stripe: self.options().stripe,
            free: self.free_blocks(),
            blocks: self.groups().blocks_count(),
            writers: u32::try_from(files).unwrap_or(u32::MAX),
            history,
            held,
        }
    }

    /// Takes a window, of which `need` blocks are handed out and the others kept.
    fn take_window<B: GroupBitmaps>(
        &self,
        bitmaps: &B,
        space: &FileSpace,
        request: &DataRequest,
        window: &Window,
        need: u32,
    ) -> Result<Run, Error<B::Error>> {
        let end = u64::from(request.lblk.0) + u64::from(request.len);
        // The last part of a file that nobody can write to is not part of a stream, but near its file.
        let is_last = request.closed && end >= request.size;
        let streams = !is_last && request.size.max(end) > self.options().stream_req.into();
        let stream = (streams && !(request.closed && self.packs())).then_some(request.file);
        let crowded = stream.is_some() && self.is_crowded();
        let hints = Hints {
            data: true,
            // Less than the window goes on from what lies before it, but does not reach what lies behind.
            merge: window.try_goal && request.left.is_some() && self.packs(),
            need,
            // Closed files have a place of their own.
            stream,
            follows: crowded || !self.preallocations().files.has_any(),
            crowded,
            fill: match stream {
                Some(_) if self.packs() => self.fill_of(request, window.len, need),
                _ => 0,
            },
            ino: request.file,
            lblk: request.lblk.0,
        };
        let take = Request {
            goal: window.goal,
            len: window.len,
            min_len: 1,
            next_fit: false,
        };
        if window.len > need {
            // Nothing may be refused because others keep what they do not need: that is asked for
            // without a window.
            match self.take_and_keep(bitmaps, space, request, window, &take, &hints) {
                Ok(Some(run)) => return Ok(run),
                Ok(None) | Err(Error::NoSpace { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let skipped = u64::from(request.lblk.0 - window.lblk.0);
        let exact = Request {
            goal: Pblk(window.goal.0.saturating_add(skipped)),
            len: need,
            ..take
        };
        let run = self.take_with(bitmaps, &exact, &hints)?;
        space.note_answer(need, run.len, &hints);
        Ok(run)
    }

    /// Whether there is less free space than lets each of the files that grow lie far from the others.
    fn is_crowded(&self) -> bool {
        let (group, _) = self.sizes();
        let writers = self.preallocations().files.len() as u64 + 1;
        self.packs() && self.free_blocks() / writers < ROOMY * u64::from(group.max(EXTENT_MAX))
    }

    /// The shortest free run that a stream takes whole before it breaks one that is longer: half of
    /// its window; where free runs are short, a part of what the file has, so that its extents grow
    /// as it does, and their number by the logarithm of its size.
    fn fill_of(&self, request: &DataRequest, window: u32, need: u32) -> u32 {
        if self.average_free_run() < self.options().group_prealloc.into() {
            (request.lblk.0 / FILLED_PART).max(FILLED_MIN).min(need)
        } else {
            need.max(if self.is_crowded() { 0 } else { window / 2 })
        }
    }

    /// Hands out as many blocks as `hints` say are needed, and keeps the others; `None` if nothing may
    /// be kept.
    fn take_and_keep<B: GroupBitmaps>(
        &self,
        bitmaps: &B,
        space: &FileSpace,
        request: &DataRequest,
        window: &Window,
        take: &Request,
        hints: &Hints,
    ) -> Result<Option<Run>, Error<B::Error>> {
        let Some(_flight) = self.preallocations().start() else {
            return Ok(None);
        };
        let need = hints.need;
        let run = self.take_counted(bitmaps, take, hints, need)?;
        space.note_answer(window.len, run.len, hints);
        let all = Part {
            lblk: place(window, request.lblk, run),
            run,
        };
        let skip = request.lblk.0 - all.lblk.0;
        let used = need.min(run.len - skip);
        // Counted was what is needed; less of it may have been found.
        let counted = need.min(run.len);
        if counted > used {
            self.divide(run.start, 0, -i64::from(counted - used));
        }
        let parts = space
            .parts
            .get_or_init(|| self.preallocations().files.new_file(request.file));
        let behind = skip + used;
        for (skip, len) in [(0, skip), (behind, run.len - behind)] {
            let part = all.cut(skip, len);
            if len > 0 && !parts.keep(self, part) {
                self.divide(part.run.start, 1, 0);
                self.release(part.run);
            }
        }
        Ok(Some(all.cut(skip, used).run))
    }
}

/// First block of the file that `run`, taken for a window, is for: one that lets it hold the block
/// wanted. Where the window could not be filled its end is kept, else its start, else it begins with
/// the block wanted (mainline's rule of 2023); what lies at the goal begins where the window does.
fn place(window: &Window, wanted: Lblk, run: Run) -> Lblk {
    let end = window.lblk.0 + window.len;
    let from_end = end - run.len.min(window.len);
    let holds = |start: u32| start <= wanted.0 && wanted.0 - start < run.len;
    if run.start == window.goal && holds(window.lblk.0) {
        window.lblk
    } else if holds(from_end) {
        Lblk(from_end)
    } else if holds(window.lblk.0) {
        window.lblk
    } else {
        wanted
    }
}

impl DataRequest {
    /// The same, cut or moved into the longest file.
    fn within_file(&self) -> Self {
        let lblk = self.lblk.min(Lblk::LAST);
        let most = Lblk::LAST.0 - lblk.0 + 1;
        Self {
            lblk,
            len: self.len.clamp(1, most),
            ..*self
        }
    }
}

impl FileSpace {
    /// Notes what a window got of what it wanted; who was to fill a run that has all that is needed
    /// did not get less than there is.
    fn note_answer(&self, wanted: u32, got: u32, hints: &Hints) {
        let has_filled = hints.fill >= hints.need && (hints.fill..wanted).contains(&got);
        if !has_filled {
            self.history.lock().note_window(wanted, got);
        }
    }

    /// Notes a request, and tells what the file did so far.
    fn note(&self, request: &DataRequest) -> History {
        let left = request.left.map(|(lblk, _)| u64::from(lblk.0) + 1);
        let follows = left == Some(request.lblk.0.into());
        let history = &mut *self.history.lock();
        history.note(request.lblk, request.len, follows);
        *history
    }
}
