//! What several caches share: how much may be dirty.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::throttle::{Domain, NewPolicy, TunableError, Tunables};
use crate::waiters::Waiters;

/// A cache whose flushers can be woken.
pub(crate) trait Member: Send + Sync {
    fn wake_flushers(&self);
    /// All of them look how long they may sleep.
    fn interval_changed(&self);
}

/// Limits of dirty data that several caches keep together, each of its own device, so that a slow
/// device next to a fast one leaves it its part. The memory that could be dirty is that of all of
/// them.
///
/// May be used from any thread; its locks are leaves.
pub struct DirtyLimits {
    domain: Arc<Domain>,
    pub(crate) waiters: Waiters,
    dirtyable: AtomicU64,
    next: AtomicU64,
    members: Mutex<Vec<Weak<dyn Member>>>,
}

impl std::fmt::Debug for DirtyLimits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirtyLimits")
            .field("domain", &self.domain)
            .finish_non_exhaustive()
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl DirtyLimits {
    /// Limits for caches to come.
    ///
    /// # Errors
    ///
    /// A tunable is out of range.
    pub fn new(tunables: &Tunables) -> Result<Arc<Self>, TunableError> {
        Ok(Self::of(Domain::new(tunables, 0, cpus())?))
    }

    /// As [`DirtyLimits::new`], by another policy than the shipped one.
    ///
    /// # Errors
    ///
    /// A tunable is out of range.
    pub fn with_policy(
        new_policy: NewPolicy,
        tunables: &Tunables,
    ) -> Result<Arc<Self>, TunableError> {
        let domain = Domain::with_policy(new_policy, tunables, 0, cpus())?;
        Ok(Self::of(domain))
    }

    fn of(domain: Arc<Domain>) -> Arc<Self> {
        Arc::new(Self {
            domain,
            waiters: Waiters::default(),
            dirtyable: AtomicU64::new(0),
            next: AtomicU64::new(0),
            members: Mutex::default(),
        })
    }

    /// The limits and what is dirty, over all caches.
    #[must_use]
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Numbers a cache that joins.
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    pub(crate) fn join(&self, member: Weak<dyn Member>) {
        let mut members = self.members.lock();
        members.retain(|member| member.strong_count() > 0);
        members.push(member);
    }

    /// Memory of a cache changes from `old` to `new` bytes.
    pub(crate) fn set_dirtyable(&self, old: u64, new: u64) {
        let change = |bytes: u64| Some(bytes.saturating_sub(old).saturating_add(new));
        // The closure always says what to store.
        let _ = self.dirtyable.fetch_update(Relaxed, Relaxed, change);
        self.domain.set_dirtyable(self.dirtyable.load(Relaxed));
    }

    /// Wakes the flushers of all caches: what others have dirty may be in another thread's way.
    pub(crate) fn wake_flushers(&self) {
        for member in self.members() {
            member.wake_flushers();
        }
    }

    /// The interval at which flushers look is another.
    pub(crate) fn intervals_changed(&self) {
        for member in self.members() {
            member.interval_changed();
        }
    }

    /// Not to be called on under the lock: one of them may be dropped by this.
    fn members(&self) -> Vec<Arc<dyn Member>> {
        let members = self.members.lock();
        members.iter().filter_map(Weak::upgrade).collect()
    }
}
