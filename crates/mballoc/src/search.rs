//! In which groups a run is looked for.

use std::fmt;
use std::str::FromStr;

/// A policy of the search; see each one's file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Search {
    /// Vanilla 3.15: four criteria, each over all groups one after the other.
    Linear,
    /// Linux since 2023: five criteria with indexes of groups by order.
    Criteria,
    /// The exact longest run of each group, in sets of groups; bounded work.
    #[default]
    LargestRun,
}

impl Search {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Linear, Self::Criteria, Self::LargestRun];

    fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Criteria => "criteria",
            Self::LargestRun => "largest-run",
        }
    }
}

impl fmt::Display for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// There is no search policy of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no search policy {0:?}: linear, criteria or largest-run")]
pub struct UnknownSearch(pub String);

impl FromStr for Search {
    type Err = UnknownSearch;

    fn from_str(name: &str) -> Result<Self, UnknownSearch> {
        Self::ALL
            .into_iter()
            .find(|search| search.name() == name)
            .ok_or_else(|| UnknownSearch(name.to_owned()))
    }
}

/// What else is known of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// For data of a file rather than for metadata: these keep out of the first group of a flex
    /// group in the cheap criterion.
    pub data: bool,
    /// The goal continues what is mapped already: whatever is free there will do, from
    /// [`crate::Request::min_len`] up (`EXT4_MB_HINT_MERGE`).
    pub merge: bool,
    /// Blocks needed before the request was normalised; 0: [`crate::Request::min_len`].
    pub need: u32,
    /// Number of a file that grows as a stream: if the goal is taken, the search starts where
    /// streams go on ([`crate::Allocator::stream_goal`]), and that is moved on.
    pub stream: Option<u64>,
}
