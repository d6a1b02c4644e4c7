//! Claims about the cache of extents and its shrinkers.

mod fragmented;
mod hits;
mod jobs;
mod kernel;
mod lookups;
mod machine;
mod many_files;
mod policy;
mod replay;
mod shares;
mod steps;
mod tally;
mod volume;

use crate::experiment::Experiment;

/// All of them; a new one gets its line here.
pub const EXPERIMENTS: &[&Experiment] = &[
    &fragmented::EXPERIMENT,
    &many_files::EXPERIMENT,
    &hits::EXPERIMENT,
    &lookups::EXPERIMENT,
    &kernel::EXPERIMENT,
];
