//! What all devices share: memory, limits, sums, and each device's part of what is completed.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use uext4_tunables::{TunableError, set};

use super::proportion::Global;
use super::tunables::NO_SUCH;
use super::{BDI_TUNABLES, DOMAIN_TUNABLES, NewPolicy, Policy, SHIPPED, Tunables};

/// Most processors that are distinguished.
const CPUS_MAX: usize = 64;
/// After which the devices' shares of completions age.
const COMPLETIONS_AGE: Duration = Duration::from_secs(3);

/// The devices that dirty the same memory. All methods may be called from any thread; the only
/// locks are leaves.
#[derive(Debug)]
pub struct Domain {
    new_policy: NewPolicy,
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
    cpus: usize,
    /// What the policies of its devices have in common, one of each type.
    shared: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
}

impl Domain {
    /// A domain with so many bytes of dirtyable memory and so many processors (1 to 64 are
    /// distinguished), whose devices have the shipped policy.
    ///
    /// # Errors
    ///
    /// A tunable is out of range.
    pub fn new(
        tunables: &Tunables,
        dirtyable: u64,
        cpus: usize,
    ) -> Result<Arc<Self>, TunableError> {
        Self::with_policy(SHIPPED, tunables, dirtyable, cpus)
    }

    /// As [`Domain::new`], with another policy.
    ///
    /// # Errors
    ///
    /// A tunable is out of range.
    pub fn with_policy(
        new_policy: NewPolicy,
        tunables: &Tunables,
        dirtyable: u64,
        cpus: usize,
    ) -> Result<Arc<Self>, TunableError> {
        tunables.check()?;
        let pages = dirtyable / super::PAGE_SIZE;
        let (thresh, background) = tunables.limits(pages);
        Ok(Arc::new(Self {
            new_policy,
            tunables: RwLock::new(*tunables),
            dirtyable: AtomicU64::new(pages),
            thresh: AtomicU64::new(thresh),
            background: AtomicU64::new(background),
            dirty: AtomicU64::new(0),
            writeback: AtomicU64::new(0),
            min_ratios: AtomicU64::new(0),
            devices: AtomicU64::new(0),
            completions: Global::new(COMPLETIONS_AGE),
            cpus: cpus.clamp(1, CPUS_MAX),
            shared: Mutex::default(),
        }))
    }

    /// The policy of one more device.
    pub(super) fn new_policy(&self) -> Box<dyn Policy> {
        (self.new_policy)(self)
    }

    /// What the policies of its devices have in common: `make` is called for the first of them that
    /// asks for this type, under a leaf lock.
    pub fn shared<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut shared = self.shared.lock();
        let known = shared
            .iter()
            .find_map(|any| Arc::clone(any).downcast().ok());
        known.unwrap_or_else(|| {
            let made = Arc::new(make());
            shared.push(Arc::<T>::clone(&made));
            made
        })
    }

    /// Processors that are distinguished, 1 to 64.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.cpus
    }

    /// The tunables as they are now.
    #[must_use]
    pub fn tunables(&self) -> Tunables {
        *self.tunables.read()
    }

    /// Changes one of [`DOMAIN_TUNABLES`] by its name, and no other that another thread sets at the
    /// same time.
    ///
    /// # Errors
    ///
    /// An unknown name, a value out of range, or a tunable of devices, which would have no effect.
    /// Nothing has changed then.
    pub fn set_tunable(&self, name: &str, value: &str) -> Result<(), TunableError> {
        let option = format!("{name}={value}");
        let mut held = self.tunables.write();
        if set(DOMAIN_TUNABLES, &mut *held, &option)? {
            self.derive(&held);
            return Ok(());
        }
        let is_of_device = BDI_TUNABLES.iter().any(|tunable| tunable.name == name);
        let why = match is_of_device {
            true => "must be set when the device is opened",
            false => NO_SUCH,
        };
        Err(TunableError::new(&option, why))
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
    }

    /// Pages that could be dirty.
    #[must_use]
    pub fn dirtyable(&self) -> u64 {
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
        // The two are stored one after the other; another thread may look between.
        self.background.load(Relaxed).min(self.thresh())
    }

    /// Half way between the limits: below it no writer is throttled.
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
}
