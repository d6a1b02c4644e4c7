//! Reporting how far a build is.

use std::cell::Cell;
use std::time::Duration;

use uext4_blockdev::{Clock, SystemClock};

use crate::error::Error;

/// What a build is busy with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Reading names and attributes of the source.
    Listing,
    /// Counting blocks and laying out the file system.
    Sizing,
    /// Writing the empty file system.
    Formatting,
    /// Writing entries and contents.
    Writing,
    /// Making the hash tree, if there is to be one.
    Hashing,
    /// Waiting until all of it is durable, or copied to its stream.
    Syncing,
}

/// How much has been done, or is to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Entries of the source.
    pub entries: u64,
    /// Bytes of contents, without holes.
    pub bytes: u64,
}

/// Receives progress. Called often, by the thread that builds; must return at once.
pub trait Progress {
    /// A phase begins; how much it will do, where that is known.
    fn begin(&self, phase: Phase, total: Option<Amount>);
    /// How much of the phase has been done.
    fn update(&self, done: Amount);
    /// True if the build is to stop: it ends with [`Error::Cancelled`], soon.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// No progress is wanted.
impl Progress for () {
    fn begin(&self, _: Phase, _: Option<Amount>) {}
    fn update(&self, _: Amount) {}
}

/// Entries or bytes between two updates.
const UPDATE_ENTRIES: u64 = 256;
const UPDATE_BYTES: u64 = 4 << 20;

/// Counts, and reports now and then.
pub struct Counter<'a> {
    progress: &'a dyn Progress,
    done: Cell<Amount>,
    reported: Cell<Amount>,
}

impl<'a> Counter<'a> {
    /// Begins a phase.
    pub fn begin(progress: &'a dyn Progress, phase: Phase, total: Option<Amount>) -> Self {
        progress.begin(phase, total);
        Self {
            progress,
            done: Cell::default(),
            reported: Cell::default(),
        }
    }

    /// One more entry.
    pub fn entry(&self) {
        let mut done = self.done.get();
        done.entries += 1;
        self.count(done);
    }

    /// So many more bytes.
    pub fn bytes(&self, bytes: u64) {
        let mut done = self.done.get();
        done.bytes = done.bytes.saturating_add(bytes);
        self.count(done);
    }

    fn count(&self, done: Amount) {
        self.done.set(done);
        let reported = self.reported.get();
        let entries = done.entries - reported.entries;
        if entries >= UPDATE_ENTRIES || done.bytes - reported.bytes >= UPDATE_BYTES {
            self.report();
        }
    }

    /// Looks whether the caller wants to go on.
    ///
    /// # Errors
    /// [`Error::Cancelled`].
    pub fn check(&self) -> Result<(), Error> {
        match self.progress.is_cancelled() {
            true => Err(Error::Cancelled),
            false => Ok(()),
        }
    }

    /// Returns how much has been done, and returns it.
    pub fn report(&self) -> Amount {
        let done = self.done.get();
        self.reported.set(done);
        self.progress.update(done);
        done
    }
}

/// Reports the phases, and how long each took.
pub struct Timing<'a> {
    progress: &'a dyn Progress,
    clock: SystemClock,
    phase: Option<(Phase, Duration)>,
    elapsed: Vec<(Phase, Duration)>,
}

impl<'a> Timing<'a> {
    /// Nothing has begun.
    pub fn new(progress: &'a dyn Progress) -> Self {
        Self {
            progress,
            clock: SystemClock,
            phase: None,
            elapsed: Vec::new(),
        }
    }

    /// Ends the phase before, if there is one, and begins another.
    pub fn begin(&mut self, phase: Phase, total: Option<Amount>) -> Counter<'a> {
        let now = self.clock.monotonic();
        self.close(now);
        self.phase = Some((phase, now));
        Counter::begin(self.progress, phase, total)
    }

    fn close(&mut self, now: Duration) {
        if let Some((phase, begun)) = self.phase.take() {
            self.elapsed.push((phase, now.saturating_sub(begun)));
        }
    }

    /// Ends the last phase; returns all of them.
    pub fn end(mut self) -> Vec<(Phase, Duration)> {
        self.close(self.clock.monotonic());
        self.elapsed
    }
}
