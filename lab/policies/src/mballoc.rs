//! Designs of the multiblock allocator's two decisions.
//!
//! How much is taken for a file beyond its need ([`Normalize`](uext4_mballoc::Normalize)):
//!
//! | design | a window is |
//! |---|---|
//! | `exact` | what is asked for |
//! | `table` | one row of a table by the file's size: Linux 3.15 to today (`table`) |
//! | `pow2` | up to the next power of two of the file's end: the patch of 2014 (`pow2`) |
//! | `pow2-stripe` | the same, then whole stripes, as its author read the question |
//! | `stripe` | whole stripes by the file's size, as its reviewer read it (`stripe`) |
//! | `predict` | the product's |
//!
//! All but the last are made of switches, which can be set one by one ([`Switches`]).
//!
//! In which groups a run is looked for ([`Search`](uext4_mballoc::Search)):
//!
//! | design | which groups | in a group |
//! |---|---|---|
//! | `linear` | all, one after the other, by four criteria: Linux 3.15 | the best of the first so many runs |
//! | `criteria` | by indexes of the order of the largest chunk and of the average run; five criteria: Linux since 2023 | the same |
//! | `largest-run` | the product's | |
//!
//! A pair is spelled as both joined by a `+`: `table+linear` is Linux 3.15, `table+criteria`
//! today's kernel. With `linear` small files that are closed get what they need and no more, as
//! before 2022.
//!
//! What differs from the kernel: the tree of the longest run of each group stays under any
//! search, because the allocator has it. See `linear` and `criteria` for the rest.

mod criteria;
mod kernel;
mod linear;
mod normalize;
mod orders;
mod pow2;
mod scan;
mod spelling;
mod stripe;
mod table;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use uext4_mballoc::{NewSearch, Policies};

pub use kernel::{KernelSearch, KernelStats, Tunables};
pub use normalize::{BySize, Cap, ClosedFiles, Rule, StripeRule, Switches};
pub use spelling::ParseSwitchesError;

use kernel::{Kernel, KernelCounters};

/// The product's designs by name.
const PREDICT: &str = "predict";
const LARGEST_RUN: &str = "largest-run";
const LINEAR: &str = "linear";
const CRITERIA: &str = "criteria";

/// A pair of designs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Design {
    /// How much is taken; `None`: as the product does.
    pub normalize: Option<Switches>,
    /// Where it is looked for; `None`: as the product does.
    pub search: Option<KernelSearch>,
}

/// The designs of one allocator as objects, and what they count.
#[derive(Clone, Debug)]
pub struct Made {
    /// For the allocator or the engine.
    pub policies: Policies,
    counters: Arc<KernelCounters>,
}

impl Design {
    /// Every search with the product's normalisation, the product's search included.
    pub const SEARCHES: [Self; 3] = [
        Self::new(None, Some(KernelSearch::Linear)),
        Self::new(None, Some(KernelSearch::Criteria)),
        Self::new(None, None),
    ];

    /// A pair.
    pub const fn new(normalize: Option<Switches>, search: Option<KernelSearch>) -> Self {
        Self { normalize, search }
    }

    /// Makes the objects; `tunables` are those of the kernel's searches.
    pub fn make(self, tunables: Tunables) -> Made {
        let counters = Arc::new(KernelCounters::default());
        let closed = match self.search {
            Some(KernelSearch::Linear) => ClosedFiles::Exact,
            _ => ClosedFiles::WithSmall,
        };
        let normalize = self.normalize.map(|switches| BySize { switches, closed });
        let search = self.search.map(|which| {
            let counters = Arc::clone(&counters);
            NewSearch::new(move |layout| {
                let counters = Arc::clone(&counters);
                Box::new(Kernel::new(which, tunables, counters, layout))
            })
        });
        Made {
            policies: Policies {
                normalize: normalize.map(|normalize| Arc::new(normalize) as _),
                search,
            },
            counters,
        }
    }
}

impl Made {
    /// What the kernel's searches have counted so far.
    pub fn stats(&self) -> KernelStats {
        self.counters.snapshot()
    }
}

impl FromStr for Design {
    type Err = ParseSwitchesError;

    /// Reads `table+linear`, `pow2+cap=table+criteria`; without a search it is the linear one.
    fn from_str(text: &str) -> Result<Self, ParseSwitchesError> {
        let split = text.rsplit_once('+');
        let (normalize, search) = match split {
            Some((before, LARGEST_RUN)) => (before, None),
            Some((before, CRITERIA)) => (before, Some(KernelSearch::Criteria)),
            Some((before, LINEAR)) => (before, Some(KernelSearch::Linear)),
            _ => (text, Some(KernelSearch::Linear)),
        };
        let normalize = match normalize {
            PREDICT => None,
            switches => Some(switches.parse()?),
        };
        Ok(Self { normalize, search })
    }
}

impl fmt::Display for Design {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.normalize {
            None => f.write_str(PREDICT)?,
            Some(switches) => write!(f, "{switches}")?,
        }
        let search = match self.search {
            None => LARGEST_RUN,
            Some(KernelSearch::Linear) => LINEAR,
            Some(KernelSearch::Criteria) => CRITERIA,
        };
        write!(f, "+{search}")
    }
}

#[cfg(test)]
mod tests;
