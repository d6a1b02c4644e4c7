//! Which policy a cache has: their names, and what each must be able to do.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::cache::Created;
use crate::entry::{Entry, Key};
use crate::stats::Counter;

/// A policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Exclusive and shared handles, one list, one queue of who waits.
    Mb1,
    /// No handles; a touch makes an entry the next to go, as it was posted.
    Mbcache2,
    /// No handles; a touch makes an entry the last to go.
    Mbcache2TouchFixed,
    /// Marks of use and of room, a worker, and waiting for who has found what is to go.
    Mainline,
    /// One block for each content, users reserved by compare-and-swap.
    #[default]
    OneDonor,
}

const NAMES: [(&str, Policy); 5] = [
    ("mb1", Policy::Mb1),
    ("mbcache2", Policy::Mbcache2),
    ("mbcache2-touch-fixed", Policy::Mbcache2TouchFixed),
    ("mainline", Policy::Mainline),
    ("one-donor", Policy::OneDonor),
];

impl Policy {
    /// All policies.
    pub const ALL: [Self; NAMES.len()] = [
        Self::Mb1,
        Self::Mbcache2,
        Self::Mbcache2TouchFixed,
        Self::Mainline,
        Self::OneDonor,
    ];

    /// Bytes of an entry where this policy comes from, on 64 bits; ours: what it takes here.
    pub fn entry_bytes(self) -> usize {
        match self {
            Self::Mb1 => 13 * 8,
            Self::Mbcache2 | Self::Mbcache2TouchFixed | Self::Mainline => 7 * 8,
            Self::OneDonor => crate::one_donor::ENTRY_BYTES,
        }
    }
}

/// A word that is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{word}' is no policy: one of mb1, mbcache2, mbcache2-touch-fixed, mainline, one-donor")]
pub struct UnknownPolicy {
    word: String,
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let found = NAMES.iter().find(|(name, _)| *name == word);
        found.map(|n| n.1).ok_or_else(|| UnknownPolicy {
            word: word.chars().take(64).collect(),
        })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|n| n.1 == *self).map_or("", |n| n.0);
        f.pad(name)
    }
}

/// What a policy does. Entries that [`find`](Self::find) returns are *found* until one of `put`, `take`
/// and `find` for the next one ends that. Called with no lock of the cache held.
pub(crate) trait Mechanism: fmt::Debug + Send + Sync {
    /// Entries now.
    fn len(&self) -> usize;

    /// Entries from which on some must go; 0: no such number.
    fn max(&self) -> usize;

    /// About what an entry takes here, in bytes.
    fn entry_bytes(&self) -> usize;

    /// Bytes taken whatever the number of entries.
    fn fixed_bytes(&self) -> usize;

    /// Whether [`Key::content`] counts.
    fn needs_content(&self) -> bool {
        false
    }

    /// The hash of the content under which a thing came in last, if that is known; asked by its only user,
    /// or under the lock of its count. It is in under no other.
    fn content_of(&self, value: u64) -> Option<u64> {
        let _ = value;
        None
    }

    /// An entry of this key that has room; after `after`, which is still found when this returns.
    fn find(&self, key: Key, after: Option<&Arc<Entry>>) -> Option<Arc<Entry>>;

    /// Ends that an entry is found.
    fn put(&self, entry: &Arc<Entry>);

    /// A found entry's thing has now `users`; ends that it is found. `false`: it is not in the cache any
    /// more and its thing must not get a user.
    fn take(&self, entry: &Arc<Entry>, users: u32) -> bool;

    /// A found entry's thing has as many users as it may.
    fn is_full(&self, entry: &Arc<Entry>) {
        let _ = entry;
    }

    /// Whether what was read, not made, is to come in.
    fn admits(&self, value: u64) -> bool {
        let _ = value;
        true
    }

    fn create(&self, key: Key, value: u64, users: u32) -> Created;

    /// Keeps others from finding an entry, until `remove` or `let_go`. May sleep.
    fn hold(&self, key: Key, value: u64) -> Option<Arc<Entry>> {
        let _ = (key, value);
        None
    }

    /// Ends `hold`.
    fn let_go(&self, held: &Arc<Entry>) {
        let _ = held;
    }

    /// Nobody has found this pair and nobody will; ends `hold`. Or the entry that somebody has found,
    /// to be given to `wait_unused`.
    fn remove(&self, key: Key, value: u64, held: Option<&Arc<Entry>>) -> Result<(), Arc<Entry>>;

    /// The pair's thing was full and has one user less: now `users`, at least one.
    fn left(&self, key: Key, value: u64, users: u32) {
        let _ = (key, value, users);
    }

    /// Waits until an entry that `remove` returned is not found any more.
    fn wait_unused(&self, entry: &Arc<Entry>) {
        let _ = entry;
    }

    /// Looks at up to `nr` entries and drops what may go; `why` counts them. Answers how many went.
    fn scan(&self, nr: usize, why: Counter) -> usize;

    /// Does what the worker is to do; answers how many entries went.
    fn work(&self) -> usize {
        0
    }

    /// Whether the worker has something to do.
    fn is_work_due(&self) -> bool {
        false
    }
}
