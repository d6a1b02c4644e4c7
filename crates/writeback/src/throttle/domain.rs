//! What all devices share: memory, limits, sums, and each device's part of what is completed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::RwLock;

use super::credits::Credits;
use super::proportion::{Aging, Global};
use super::{Mode, TunableError, Tunables};

/// Most processors that are told apart.
const CPUS_MAX: usize = 64;

/// What one processor counts for the guards of the policies.
#[derive(Debug, Default)]
pub(super) struct CpuCounters {
    /// Pages dirtied here since a check was last forced.
    pub(super) dirtied: AtomicU64,
    /// Pages of tasks that ended before they paid for them.
    pub(super) leaked: AtomicU64,
}

/// Completions after which the devices' shares age under this limit: 2.6.36 did after 2^(1 + log2 of
/// the limit); the proposal eight times as often; today time does it.
fn completions_of(mode: Mode, thresh: u64) -> u64 {
    match mode {
        Mode::Ioless | Mode::IolessFixed => ((1 << thresh.ilog2()) / 4).max(1),
        Mode::Vanilla | Mode::Mainline | Mode::CellRate => dirties_of(thresh),
    }
}

/// Pages dirtied after which the tasks' shares age.
fn dirties_of(thresh: u64) -> u64 {
    2 << thresh.ilog2()
}

/// The devices that dirty the same memory. All methods may be called from any thread; the only
/// locks are leaves.
#[derive(Debug)]
pub struct Domain {
    mode: Mode,
    tunables: RwLock<Tunables>,
    /// Pages that could be dirty: free ones and those of files.
    dirtyable: AtomicU64,
    thresh: AtomicU64,
    background: AtomicU64,
    pub(super) dirty: AtomicU64,
    pub(super) writeback: AtomicU64,
    /// Sum of the live devices' `min_ratio`, in percent.
    pub(super) min_ratios: AtomicU64,
    /// How many devices live.
    pub(super) devices: AtomicU64,
    /// Completions by device.
    pub(super) completions: Global,
    /// Pages dirtied by task.
    pub(super) dirties: Global,
    pub(super) cpus: Vec<CpuCounters>,
    pub(super) credits: Credits,
    /// The limit as it follows memory, and when it was last moved (nanoseconds).
    pub(super) dirty_limit: AtomicU64,
    pub(super) limit_moved: AtomicU64,
}

impl Domain {
    /// A domain whose devices use this policy, with so many bytes of dirtyable memory and so many
    /// processors (1 to 64 are told apart).
    ///
    /// # Errors
    ///
    /// A tunable is out of range.
    pub fn new(
        mode: Mode,
        tunables: &Tunables,
        dirtyable: u64,
        cpus: usize,
    ) -> Result<Arc<Self>, TunableError> {
        tunables.check()?;
        let pages = dirtyable / super::PAGE_SIZE;
        let (thresh, background) = tunables.limits(pages);
        let cpus = cpus.clamp(1, CPUS_MAX);
        let completions = match mode {
            Mode::Vanilla | Mode::Ioless | Mode::IolessFixed => {
                Aging::Events(completions_of(mode, thresh))
            }
            Mode::Mainline | Mode::CellRate => Aging::Time(Duration::from_secs(3)),
        };
        Ok(Arc::new(Self {
            mode,
            tunables: RwLock::new(*tunables),
            dirtyable: AtomicU64::new(pages),
            thresh: AtomicU64::new(thresh),
            background: AtomicU64::new(background),
            dirty: AtomicU64::new(0),
            writeback: AtomicU64::new(0),
            min_ratios: AtomicU64::new(0),
            devices: AtomicU64::new(0),
            completions: Global::new(completions),
            dirties: Global::new(Aging::Events(dirties_of(thresh))),
            cpus: (0..cpus).map(|_| CpuCounters::default()).collect(),
            credits: Credits::new(cpus),
            dirty_limit: AtomicU64::new(thresh),
            limit_moved: AtomicU64::new(0),
        }))
    }

    /// The policy of its devices.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The tunables as they are now.
    #[must_use]
    pub fn tunables(&self) -> Tunables {
        *self.tunables.read()
    }

    /// Changes a limit or a time by its name, and no other that another thread sets at the same time.
    /// What belongs to a device (ratios, flushers, strictness) only counts for devices made afterwards.
    ///
    /// # Errors
    ///
    /// An unknown name, no number, or one out of range; [`TunableError::OfDevice`] where a device's
    /// is meant, which would have no effect. Nothing has changed then.
    pub fn set_tunable(&self, name: &str, value: &str) -> Result<(), TunableError> {
        let mut held = self.tunables.write();
        let mut tunables = *held;
        tunables.set(name, value)?;
        if Tunables::is_of_device(name) {
            let name = name.to_owned();
            return Err(TunableError::OfDevice { name });
        }
        *held = tunables;
        self.derive(&held);
        Ok(())
    }

    /// Sets how many bytes of memory could be dirty from now on.
    pub fn set_dirtyable(&self, bytes: u64) {
        let held = self.tunables.write();
        self.dirtyable.store(bytes / super::PAGE_SIZE, Relaxed);
        self.derive(&held);
    }

    /// Under the lock of the tunables, so that the limits are those of one moment.
    fn derive(&self, tunables: &Tunables) {
        let limits = tunables.limits(self.dirtyable.load(Relaxed));
        self.thresh.store(limits.0, Relaxed);
        self.background.store(limits.1, Relaxed);
        let length = completions_of(self.mode, limits.0);
        self.completions.set_length(length);
        self.dirties.set_length(dirties_of(limits.0));
    }

    /// Pages that could be dirty.
    pub(super) fn dirtyable(&self) -> u64 {
        self.dirtyable.load(Relaxed)
    }

    /// `DirtyThresh`: pages dirty or under writeback above which writers wait.
    #[must_use]
    pub fn thresh(&self) -> u64 {
        self.thresh.load(Relaxed)
    }

    /// `BackgroundThresh`: dirty pages above which flushers write whatever its age; always below
    /// [`Domain::thresh`].
    #[must_use]
    pub fn background(&self) -> u64 {
        // The two are stored one after the other; somebody may look between.
        self.background.load(Relaxed).min(self.thresh())
    }

    /// Half way between the limits: below it nobody is throttled.
    #[must_use]
    pub fn freerun(&self) -> u64 {
        self.thresh().midpoint(self.background())
    }

    /// `nr_dirty`: pages dirty and not under writeback.
    #[must_use]
    pub fn nr_dirty(&self) -> u64 {
        self.dirty.load(Relaxed)
    }

    /// `nr_writeback`: pages under writeback.
    #[must_use]
    pub fn nr_writeback(&self) -> u64 {
        self.writeback.load(Relaxed)
    }

    /// Pages dirty or under writeback: what the limits are about.
    #[must_use]
    pub fn unwritten(&self) -> u64 {
        self.nr_dirty().saturating_add(self.nr_writeback())
    }

    pub(super) fn cpu(&self, cpu: usize) -> &CpuCounters {
        // `cpus` is never empty.
        &self.cpus[cpu % self.cpus.len()]
    }
}
