//! Claims about the small cache in front of the buffer cache.

mod cost;
mod create_cycle;
mod kernel;
mod mdtest;
mod policy;
mod sequence;
mod survey;
pub mod volume;
mod wall;
mod workload;

use crate::experiment::Experiment;

/// All of them; a new one gets its line here.
pub const EXPERIMENTS: &[&Experiment] = &[
    &create_cycle::EXPERIMENT,
    &mdtest::EXPERIMENT,
    &survey::EXPERIMENT,
    &wall::EXPERIMENT,
    &kernel::EXPERIMENT,
];
