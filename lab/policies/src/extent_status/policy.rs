//! Names of shrinkers, and what all of them have to set.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use uext4_extent_status::{LeafQueue, LeafQueueOptions, Shrinker};

use super::list::Order;
use super::{Listed, clock};

/// What is dropped when memory is short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Trees by last use, sorted under the list's lock; walks over delayed extents.
    Vanilla,
    /// As `vanilla`, but each tree lists what may be dropped.
    Lru,
    /// Trees in turn, from where the last scan stopped; each lists what may be dropped.
    RoundRobin,
    /// Trees in turn, each from where it was left; the budget counts what is looked at.
    Mainline,
    /// The shipped design: leaves in sharded queues that resist scans.
    #[default]
    LeafQueue,
    /// Leaves as in `leaf-queue`, in sharded clocks.
    Clock,
}

/// What a design is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Neighbours of one kind become one extent.
    pub merge: bool,
    /// Shards of the designs that have them, as in [`LeafQueueOptions::shards`].
    pub shards: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            merge: true,
            shards: 0,
        }
    }
}

impl Options {
    pub(crate) fn leaves(self) -> LeafQueueOptions {
        LeafQueueOptions {
            shards: self.shards,
            merge: self.merge,
            ..LeafQueueOptions::default()
        }
    }
}

impl Policy {
    /// Every policy there is, the oldest first.
    pub const ALL: [Self; 6] = [
        Self::Vanilla,
        Self::Lru,
        Self::RoundRobin,
        Self::Mainline,
        Self::LeafQueue,
        Self::Clock,
    ];

    /// The name, as the lab spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vanilla => "vanilla",
            Self::Lru => "lru",
            Self::RoundRobin => "round-robin",
            Self::Mainline => "mainline",
            Self::LeafQueue => "leaf-queue",
            Self::Clock => "clock",
        }
    }

    /// True if it drops whole leaves; else it drops extents of listed trees.
    pub const fn drops_leaves(self) -> bool {
        matches!(self, Self::LeafQueue | Self::Clock)
    }

    /// An object of the design, for one file system.
    pub fn shrinker(self, options: Options) -> Arc<dyn Shrinker> {
        let order = match self {
            Self::Vanilla => Order::Vanilla,
            Self::Lru => Order::Lru,
            Self::RoundRobin => Order::RoundRobin,
            Self::Mainline => Order::Mainline,
            Self::LeafQueue => return Arc::new(LeafQueue::new(options.leaves())),
            Self::Clock => return Arc::new(clock::queues(options)),
        };
        Arc::new(Listed::new(order, options.merge))
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Not the name of a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy {0:?}: use vanilla, lru, round-robin, mainline, leaf-queue or clock")]
pub struct PolicyError(pub String);

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let found = Self::ALL.into_iter().find(|policy| policy.name() == text);
        found.ok_or_else(|| PolicyError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for policy in Policy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        let error = "newest".parse::<Policy>().unwrap_err().to_string();
        assert!(error.contains("\"newest\": use vanilla"), "{error}");
    }
}
