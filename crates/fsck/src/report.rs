//! Where findings go.
//!
//! Threads report in any order; at the end of each pass the findings are sorted by place and only
//! then shown, so that one image gives one list, whatever the number of threads.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use uext4_ondisk::GroupNr;

use crate::emptied::Emptied;
use crate::finding::Finding;
use crate::problem::{JournalProblem, Loss, Problem, QuotaProblem, Severity};

/// The number of a finding: the cause of a change. Numbers are given in any order while a pass
/// runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cause(pub u32);

/// The passes of an examination, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pass {
    /// Superblock, descriptors, journal.
    Super,
    /// Inodes and the blocks that they own.
    Inodes,
    /// Blocks that have more than one owner.
    Shared,
    /// The entries of directories.
    Directories,
    /// Whether each directory hangs from the root.
    Connected,
    /// Link counts and references.
    Links,
    /// Bitmaps, counts and quotas.
    Bitmaps,
}

impl Pass {
    /// Where the pass usually begins and ends, in hundredths of the time of a round.
    pub const fn share(self) -> Range<u64> {
        match self {
            Self::Super => 0..2,
            Self::Inodes => 2..45,
            Self::Shared => 45..50,
            Self::Directories => 50..80,
            Self::Connected => 80..82,
            Self::Links => 82..88,
            Self::Bitmaps => 88..100,
        }
    }

    /// For a progress line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Super => "superblock and journal",
            Self::Inodes => "inodes",
            Self::Shared => "shared blocks",
            Self::Directories => "directories",
            Self::Connected => "connections",
            Self::Links => "link counts",
            Self::Bitmaps => "bitmaps",
        }
    }
}

/// How far a pass has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The pass.
    pub pass: Pass,
    /// Units done: groups or directories.
    pub done: u64,
    /// Units of the whole pass.
    pub total: u64,
}

/// Who follows an examination. Calls come from one thread at a time where nothing else is said.
pub trait Observer: Sync {
    /// A finding, after its pass, in order.
    fn finding(&self, finding: &Finding);
    /// Every finding when it is reported, also those that are only counted. From any thread, in any
    /// order.
    fn reported(&self, _finding: &Finding) {}
    /// How many bytes of memory the examination will take, about. Called in each round, when the
    /// descriptors are known and before anything else is read.
    fn memory(&self, _bytes: u64) {}
    /// How far it has come. From any thread, a few hundred times for each pass.
    fn progress(&self, _progress: Progress) {}
    /// Whether to stop.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// For callers that only want the outcome.
impl Observer for () {
    fn finding(&self, _: &Finding) {}
}

/// Collects the findings of a run.
pub struct Findings<'a> {
    observer: &'a dyn Observer,
    /// Most findings that are kept and shown; the rest is counted.
    max: usize,
    next: AtomicU32,
    count: AtomicU64,
    notes: AtomicU64,
    /// Inodes that were deleted or cut in this round, because they waited for it.
    orphans: AtomicU64,
    /// Whether fast commits were found. They do not say what they change in quotas.
    fast_commits: AtomicBool,
    /// Whether the superblock said that it was not unmounted, and has a journal to be replayed.
    in_use: AtomicBool,
    not_safe: AtomicBool,
    may_lose: AtomicBool,
    left_fast_commits: AtomicBool,
    emptied: Mutex<Emptied>,
    open: Mutex<Vec<(Cause, Finding)>>,
    kept: Mutex<Vec<(Cause, Finding)>>,
}

impl<'a> Findings<'a> {
    /// None so far; at most `max` are kept.
    pub fn new(observer: &'a dyn Observer, max: usize) -> Self {
        Self {
            observer,
            max,
            next: AtomicU32::new(0),
            count: AtomicU64::new(0),
            notes: AtomicU64::new(0),
            orphans: AtomicU64::new(0),
            fast_commits: AtomicBool::new(false),
            in_use: AtomicBool::new(false),
            not_safe: AtomicBool::new(false),
            may_lose: AtomicBool::new(false),
            left_fast_commits: AtomicBool::new(false),
            emptied: Mutex::default(),
            open: Mutex::default(),
            kept: Mutex::default(),
        }
    }

    /// Takes a finding (of an orphan with the clusters that it held) and returns what the changes
    /// of its remedy name as their cause.
    pub fn report(&self, finding: Finding) -> Cause {
        if finding.problem == JournalProblem::Orphan.into() {
            self.orphans.fetch_add(1, Ordering::Relaxed);
        }
        if finding.problem == JournalProblem::FastCommits.into() {
            self.fast_commits.store(true, Ordering::Relaxed);
        }
        // What the next mount would take back is no damage.
        let follows = match finding.problem {
            Problem::Quota(QuotaProblem::Usage) => self.fast_commits.load(Ordering::Relaxed),
            Problem::Journal(JournalProblem::OrphanFilePresent) => {
                self.in_use.load(Ordering::Relaxed)
            }
            _ => false,
        };
        match finding.problem.info().severity {
            Severity::Note => self.notes.fetch_add(1, Ordering::Relaxed),
            _ if follows => self.notes.fetch_add(1, Ordering::Relaxed),
            _ => self.count.fetch_add(1, Ordering::Relaxed),
        };
        self.observer.reported(&finding);
        if finding.problem.info().severity == Severity::Damage {
            self.not_safe.store(true, Ordering::Relaxed);
        }
        if matches!(
            finding.problem.info().loss,
            Loss::Name | Loss::Data | Loss::File
        ) {
            self.may_lose.store(true, Ordering::Relaxed);
        }
        let cause = Cause(self.next.fetch_add(1, Ordering::Relaxed));
        let mut open = self.open.lock();
        if open.len() < self.max {
            open.push((cause, finding));
        }
        cause
    }

    /// Shows the findings of the pass that has ended, in order.
    pub fn finish_pass(&self) {
        let mut open = std::mem::take(&mut *self.open.lock());
        open.sort_unstable_by(|(_, a), (_, b)| a.cmp(b));
        open.truncate(self.max.saturating_sub(self.kept.lock().len()));
        for (_, finding) in &open {
            self.observer.finding(finding);
        }
        self.kept.lock().append(&mut open);
    }

    /// Shows how far a pass has come.
    ///
    /// # Errors
    /// [`crate::Error::Cancelled`] if it is to stop.
    pub fn progress(&self, progress: Progress) -> crate::Result<()> {
        self.observer.progress(progress);
        if self.observer.is_cancelled() {
            return Err(crate::Error::Cancelled);
        }
        Ok(())
    }

    /// Who follows.
    pub fn observer(&self) -> &dyn Observer {
        self.observer
    }

    /// Says to the observer how many bytes of memory a round will take, about.
    pub fn state_memory(&self, bytes: u64) {
        self.observer.memory(bytes);
    }

    /// How many inodes were deleted or cut in this round, because they waited for it.
    pub fn orphans(&self) -> u64 {
        self.orphans.load(Ordering::Relaxed)
    }

    /// The next round begins: it has the orphans and fast commits that are left, none.
    pub fn begin_round(&self) {
        self.fast_commits.store(false, Ordering::Relaxed);
        self.in_use.store(false, Ordering::Relaxed);
        self.orphans.store(0, Ordering::Relaxed);
    }

    /// How many notes were reported, kept or not.
    pub fn notes(&self) -> u64 {
        self.notes.load(Ordering::Relaxed)
    }

    /// How many were reported that are more than a note, kept or not.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether a remedy may lose files, names or contents.
    pub fn may_lose(&self) -> bool {
        self.may_lose.load(Ordering::Relaxed)
    }

    /// The superblock says that the file system was not unmounted.
    pub fn was_in_use(&self) {
        self.in_use.store(true, Ordering::Relaxed);
    }

    /// Notes that they could not be replayed.
    pub fn leave_fast_commits(&self) {
        self.left_fast_commits.store(true, Ordering::Relaxed);
    }

    /// Whether they could not be replayed.
    pub fn has_left_fast_commits(&self) -> bool {
        self.left_fast_commits.load(Ordering::Relaxed)
    }

    /// Notes that the inode table of a group was made anew, empty.
    pub fn empty_table(&self, group: GroupNr) {
        self.emptied.lock().tables.insert(group);
    }

    /// Notes that the root directory was.
    pub fn empty_root(&self) {
        self.emptied.lock().root = true;
    }

    /// Notes that the log of the journal was emptied, although it had to be replayed.
    pub fn empty_log(&self) {
        self.emptied.lock().log = true;
    }

    /// Notes that so many blocks of the log were not replayed.
    pub fn leave_out(&self, blocks: u64) {
        self.emptied.lock().left_out += blocks;
    }

    /// What was made anew, empty.
    pub fn emptied(&self) -> Emptied {
        self.emptied.lock().clone()
    }

    /// Whether a human should read the plan.
    pub fn has_damage(&self) -> bool {
        self.not_safe.load(Ordering::Relaxed)
    }

    /// The findings that were kept, in order, with their causes.
    pub fn into_kept(self) -> Vec<(Cause, Finding)> {
        self.finish_pass();
        self.kept.into_inner()
    }
}
