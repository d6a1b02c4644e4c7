//! What one user, group or project may have and has: counted when blocks and inodes change hands,
//! checked before.
//!
//! ```text
//!  reservation ──▶ claimed      before anything changes; limits refuse here
//!  charge  ──▶ space        blocks and inodes have changed hands, inside a handle: never refused
//!  store   ──▶ quota file   once a commit, what was charged goes into the block it belongs to
//! ```
//! Space is claimed when it is reserved for data that waits to be written, or else when it is
//! charged; limits are about what is claimed. The first charge of a transaction makes the block
//! of the quota file part of it, so that it is counted in the handle's credits; the numbers are
//! put there when the transaction closes.
//!
//! Counters are atomic. A caller that has no limits is counted without any lock; a dquot with
//! limits has a lock of its own, a leaf, so that two who ask for the last block do not both get
//! it. Id 0 is counted and never limited, for the one who has it is the one who may exceed every
//! limit.

mod owners;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use uext4_blockdev::Clock;
use uext4_buffer_cache::Buffer;
use uext4_ondisk::Ino;
use uext4_ondisk::quota::{QUOTA_LIMIT_UNIT, QuotaKind, RawQuotaEntry};
use zerocopy::{FromZeros, IntoBytes};

use crate::base::edit::Edit;
use crate::base::error::{Error, Result};
use crate::base::owner::{Kind, Owner};

pub(crate) use owners::{Owners, Usage};

/// What one user, group or project may have. 0 means: no limit.
///
/// A soft limit may be exceeded until the grace time is over, a hard limit never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    /// Bytes, hard; stored in units of 1,024, rounded up.
    pub space_hard: u64,
    /// Bytes, soft; stored likewise.
    pub space_soft: u64,
    /// Inodes, hard.
    pub inodes_hard: u64,
    /// Inodes, soft.
    pub inodes_soft: u64,
}

/// What one user, group or project has and may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// The id of the user, group or project.
    pub id: u32,
    /// Bytes taken, those included that wait to be written.
    pub space: u64,
    /// Inodes taken. A large attribute value in an inode of its own counts as one.
    pub inodes: u64,
    /// What it may have.
    pub limits: QuotaLimits,
    /// When the grace of the soft limit on space ends, in seconds since 1970; 0 below the limit.
    pub space_grace_end: u64,
    /// The same for inodes.
    pub inodes_grace_end: u64,
}

/// Which of the two that are limited.
#[derive(Clone, Copy)]
enum What {
    Space,
    Inodes,
}

/// What dquots of one mounted file system share.
#[derive(Debug)]
pub(crate) struct Shared {
    clock: Arc<dyn Clock>,
    /// Limits are enforced.
    enforced: bool,
    /// Those the running transaction has changed.
    changed: Mutex<Vec<Arc<Dquot>>>,
}

impl Shared {
    pub(crate) fn new(clock: Arc<dyn Clock>, enforced: bool) -> Self {
        Self {
            clock,
            enforced,
            changed: Mutex::default(),
        }
    }

    /// Puts what was charged since the last commit into the quota files' blocks. New handles
    /// wait.
    pub(crate) fn rule(&self, closing: &impl Edit) {
        for dquot in std::mem::take(&mut *self.changed.lock()) {
            dquot.changed.store(false, Relaxed);
            dquot.store(closing);
        }
    }
}

/// Limits, and when their grace ends (0: not exceeded).
#[derive(Clone, Copy, Debug, Default)]
struct Rules {
    limits: QuotaLimits,
    space_until: u64,
    inodes_until: u64,
}

/// How long a soft limit may be exceeded, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GracePeriods {
    /// On space.
    pub(crate) space: u32,
    /// On inodes.
    pub(crate) inodes: u32,
}

/// Where a dquot is stored.
struct Place {
    buffer: Buffer,
    at: usize,
    file: Owner,
}

/// The count of one user, group or project.
pub(crate) struct Dquot {
    kind: QuotaKind,
    id: u32,
    grace: GracePeriods,
    /// Bytes taken, as stored.
    space: AtomicU64,
    /// Bytes taken or reserved.
    claimed: AtomicU64,
    inodes: AtomicU64,
    /// There are limits to check.
    limited: AtomicBool,
    rules: Mutex<Rules>,
    place: OnceLock<Place>,
    /// Stands in the list of those to be stored.
    changed: AtomicBool,
    shared: Arc<Shared>,
}

impl fmt::Debug for Dquot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.kind, self.id)
    }
}

fn add(to: &AtomicU64, by: u64) -> u64 {
    to.fetch_add(by, Relaxed).saturating_add(by)
}

/// Takes away, but never below 0: what the file said may have been too little.
fn subtract(from: &AtomicU64, by: u64) -> u64 {
    let less = |old: u64| Some(old.saturating_sub(by));
    let before = from.fetch_update(Relaxed, Relaxed, less);
    // Both arms hold what was there before.
    let (Ok(before) | Err(before)) = before;
    before.saturating_sub(by)
}

impl Dquot {
    /// With what the quota file says of it; nothing, if it does not stand there yet.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        kind: QuotaKind,
        id: u32,
        grace: GracePeriods,
        entry: Option<&RawQuotaEntry>,
    ) -> Self {
        let quota = entry.map_or_else(Quota::default, from_entry);
        let dquot = Self {
            kind,
            id,
            grace,
            space: quota.space.into(),
            claimed: quota.space.into(),
            inodes: quota.inodes.into(),
            limited: AtomicBool::new(false),
            rules: Mutex::default(),
            place: OnceLock::new(),
            changed: AtomicBool::new(false),
            shared: Arc::clone(shared),
        };
        *dquot.rules.lock() = Rules {
            limits: quota.limits,
            space_until: quota.space_grace_end,
            inodes_until: quota.inodes_grace_end,
        };
        dquot.note_limited(&quota.limits);
        dquot
    }

    pub(crate) fn kind(&self) -> QuotaKind {
        self.kind
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// What it has and may have.
    pub(crate) fn quota(&self) -> Quota {
        let rules = *self.rules.lock();
        Quota {
            id: self.id,
            space: self.claimed.load(Relaxed),
            inodes: self.inodes.load(Relaxed),
            limits: rules.limits,
            space_grace_end: rules.space_until,
            inodes_grace_end: rules.inodes_until,
        }
    }

    /// Whether it has a place in the quota file.
    pub(crate) fn is_placed(&self) -> bool {
        self.place.get().is_some()
    }

    /// Its place in the file `ino`: an entry in a block, which stays there. Ignored if it has one.
    pub(crate) fn set_place(&self, buffer: Buffer, at: usize, ino: Ino) {
        let file = Owner::new(Kind::Quota, 0, ino, 0);
        _ = self.place.set(Place { buffer, at, file });
    }

    /// The transaction of `edit` stores it.
    fn note_changed(self: &Arc<Self>, edit: &impl Edit) {
        if self.changed.swap(true, Relaxed) {
            return;
        }
        // What has no place is of a file that does not count it: e2fsck will report.
        if let Some(place) = self.place.get() {
            edit.change(&place.buffer, place.file, |_| ());
        }
        self.shared.changed.lock().push(Arc::clone(self));
    }

    fn store(&self, edit: &impl Edit) {
        let Some(place) = self.place.get() else {
            return;
        };
        let entry = self.entry();
        edit.change(&place.buffer, place.file, |bytes| {
            let end = place.at + size_of_val(&entry);
            if let Some(bytes) = bytes.get_mut(place.at..end) {
                bytes.copy_from_slice(entry.as_bytes());
            }
        });
    }

    /// As it is stored.
    pub(crate) fn entry(&self) -> RawQuotaEntry {
        let rules = *self.rules.lock();
        let limits = rules.limits;
        let mut entry = RawQuotaEntry::new_zeroed();
        entry.dqb_id = self.id.into();
        entry.dqb_ihardlimit = limits.inodes_hard.into();
        entry.dqb_isoftlimit = limits.inodes_soft.into();
        entry.dqb_curinodes = self.inodes.load(Relaxed).into();
        entry.dqb_bhardlimit = limits.space_hard.div_ceil(QUOTA_LIMIT_UNIT).into();
        entry.dqb_bsoftlimit = limits.space_soft.div_ceil(QUOTA_LIMIT_UNIT).into();
        entry.dqb_curspace = self.space.load(Relaxed).into();
        entry.dqb_btime = rules.space_until.into();
        entry.dqb_itime = rules.inodes_until.into();
        if entry.as_bytes().iter().all(|&byte| byte == 0) {
            // Else it would be taken for a free entry.
            entry.dqb_itime = 1.into();
        }
        entry
    }

    fn note_limited(&self, limits: &QuotaLimits) {
        let limited = self.id != 0 && *limits != QuotaLimits::default();
        self.limited.store(limited, Relaxed);
    }

    /// Gives it other limits; the grace of those it exceeds begins now.
    pub(crate) fn set_limits(self: &Arc<Self>, edit: &impl Edit, limits: QuotaLimits) {
        let stored = |bytes: u64| {
            bytes
                .div_ceil(QUOTA_LIMIT_UNIT)
                .saturating_mul(QUOTA_LIMIT_UNIT)
        };
        let limits = QuotaLimits {
            space_hard: stored(limits.space_hard),
            space_soft: stored(limits.space_soft),
            ..limits
        };
        {
            let rules = &mut *self.rules.lock();
            rules.limits = limits;
            self.note_limited(&limits);
            self.start_grace(rules, What::Space, self.claimed.load(Relaxed));
            self.start_grace(rules, What::Inodes, self.inodes.load(Relaxed));
        }
        self.note_changed(edit);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.shared.clock.now().0).unwrap_or(0)
    }

    /// Starts or ends the grace of a soft limit, as `used` is above it or not.
    fn start_grace(&self, rules: &mut Rules, what: What, used: u64) {
        let (soft, until, grace) = match what {
            What::Space => (
                rules.limits.space_soft,
                &mut rules.space_until,
                self.grace.space,
            ),
            What::Inodes => (
                rules.limits.inodes_soft,
                &mut rules.inodes_until,
                self.grace.inodes,
            ),
        };
        if soft == 0 || used <= soft {
            *until = 0;
        } else if *until == 0 {
            *until = self.now() + u64::from(grace);
        }
    }

    /// Whether limits stand against `used`.
    fn refuses(&self, rules: &Rules, what: What, used: u64) -> bool {
        let limits = &rules.limits;
        let (hard, soft, until) = match what {
            What::Space => (limits.space_hard, limits.space_soft, rules.space_until),
            What::Inodes => (limits.inodes_hard, limits.inodes_soft, rules.inodes_until),
        };
        let over = |limit: u64| limit != 0 && used > limit;
        over(hard) || over(soft) && until != 0 && self.now() >= until
    }

    /// Adds to what limits are about, if they let it; with `force` in any case.
    fn claim(&self, what: What, by: u64, force: bool) -> Result<()> {
        let counter = match what {
            What::Space => &self.claimed,
            What::Inodes => &self.inodes,
        };
        if by == 0 {
            // Also of a caller that has too much already.
            return Ok(());
        }
        if !self.limited.load(Relaxed) {
            add(counter, by);
            return Ok(());
        }
        let rules = &mut *self.rules.lock();
        let after = counter.load(Relaxed).saturating_add(by);
        if !force && self.shared.enforced && self.refuses(rules, what, after) {
            return Err(Error::QuotaExceeded {
                kind: self.kind,
                id: self.id,
            });
        }
        let after = add(counter, by);
        self.start_grace(rules, what, after);
        Ok(())
    }

    /// Takes that back.
    fn unclaim(&self, what: What, by: u64) {
        let counter = match what {
            What::Space => &self.claimed,
            What::Inodes => &self.inodes,
        };
        if !self.limited.load(Relaxed) {
            subtract(counter, by);
            return;
        }
        let rules = &mut *self.rules.lock();
        let after = subtract(counter, by);
        self.start_grace(rules, what, after);
    }
}

fn from_entry(entry: &RawQuotaEntry) -> Quota {
    let bytes = |limit: u64| limit.saturating_mul(QUOTA_LIMIT_UNIT);
    let mut quota = Quota {
        id: entry.dqb_id.get(),
        space: entry.dqb_curspace.get(),
        inodes: entry.dqb_curinodes.get(),
        limits: QuotaLimits {
            space_hard: bytes(entry.dqb_bhardlimit.get()),
            space_soft: bytes(entry.dqb_bsoftlimit.get()),
            inodes_hard: entry.dqb_ihardlimit.get(),
            inodes_soft: entry.dqb_isoftlimit.get(),
        },
        space_grace_end: entry.dqb_btime.get(),
        inodes_grace_end: entry.dqb_itime.get(),
    };
    if quota.limits.inodes_soft == 0 {
        // Without a limit it only keeps the entry of id 0 from being all zero.
        quota.inodes_grace_end = 0;
    }
    quota
}

/// What a stored entry says.
pub(crate) fn quota_of(entry: &RawQuotaEntry) -> Quota {
    from_entry(entry)
}
