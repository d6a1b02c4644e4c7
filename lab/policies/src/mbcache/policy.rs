//! Names of the designs, and what they are made with.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::mainline::{Mainline, Worker};
use super::mb1::Mb1;
use super::mbcache2::{Mbcache2, Touch};
use super::{ENTRIES_MAX, Measured};

/// A design.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// `mb1`: exclusive and shared handles, one list, one queue of waiting threads.
    Mb1,
    /// `mbcache2`: no handles; a touch makes an entry the next to go, as it was posted.
    Mbcache2,
    /// `mbcache2-touch-fixed`: no handles; a touch makes an entry the last to go.
    Mbcache2TouchFixed,
    /// `mainline`: marks of use and of room, a worker, and waiting until a thing is not found.
    Mainline,
    /// `one-donor`: the product's.
    #[default]
    OneDonor,
}

impl Policy {
    /// Every design there is.
    pub const ALL: [Self; 5] = [
        Self::Mb1,
        Self::Mbcache2,
        Self::Mbcache2TouchFixed,
        Self::Mainline,
        Self::OneDonor,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Mb1 => "mb1",
            Self::Mbcache2 => "mbcache2",
            Self::Mbcache2TouchFixed => "mbcache2-touch-fixed",
            Self::Mainline => "mainline",
            Self::OneDonor => "one-donor",
        }
    }

    /// Bytes of an entry in the kernel that had this design, on 64 bits.
    pub fn kernel_entry_bytes(self) -> Option<usize> {
        match self {
            Self::Mb1 => Some(13 * 8),
            Self::Mbcache2 | Self::Mbcache2TouchFixed | Self::Mainline => Some(7 * 8),
            Self::OneDonor => None,
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no policy: one of mb1, mbcache2, mbcache2-touch-fixed, mainline, one-donor")]
pub struct UnknownPolicy(String);

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(word: &str) -> Result<Self, UnknownPolicy> {
        let found = Self::ALL.into_iter().find(|policy| policy.name() == word);
        found.ok_or_else(|| UnknownPolicy(word.to_owned()))
    }
}

/// What an index is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The design.
    pub policy: Policy,
    /// log₂ of the number of hash chains, 1 to 20; `one-donor` has none.
    pub bucket_bits: u32,
    /// Most entries; 0: 16 a chain for `mb1` and `mainline`, 2²² for `mbcache2`.
    pub max_entries: u32,
    /// Most users of one thing.
    pub users_max: u32,
    /// When the worker of `mainline` runs.
    pub worker: Worker,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            bucket_bits: 10,
            max_entries: 0,
            users_max: 1024,
            worker: Worker::InCreate,
        }
    }
}

impl Options {
    /// An empty index for one cache; `None`: that of the product.
    pub fn index(&self) -> Option<Arc<dyn Measured>> {
        match self.policy {
            Policy::Mb1 => Some(Arc::new(Mb1::new(self))),
            Policy::Mbcache2 => Some(Arc::new(Mbcache2::new(self, Touch::AsPosted))),
            Policy::Mbcache2TouchFixed => Some(Arc::new(Mbcache2::new(self, Touch::Fixed))),
            Policy::Mainline => Some(Arc::new(Mainline::new(self))),
            Policy::OneDonor => None,
        }
    }

    /// log₂ of the number of chains, within its range.
    pub(super) fn chain_bits(&self) -> u32 {
        self.bucket_bits.clamp(1, 20)
    }

    /// Most entries, where each chain stands for 16.
    pub(super) fn max_by_chains(&self) -> usize {
        match self.max_entries {
            0 => (16 << self.chain_bits()).min(ENTRIES_MAX),
            max => max as usize,
        }
    }
}
