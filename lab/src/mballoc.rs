//! Claims about the multiblock allocator.

mod aged;
mod bitmaps;
mod check;
mod comparison;
mod contention;
mod disk;
mod extents;
mod file;
mod format;
mod free_space;
mod image;
mod kernel;
mod linux_build;
mod measure;
mod model;
mod placement;
mod policy;
mod seeds;
mod small_steps;
mod steps;
mod stripe;
mod switches;
mod tree;
mod volume;
mod workload;

use crate::experiment::Experiment;

/// All of them; a new one gets its line here.
pub const EXPERIMENTS: &[&Experiment] = &[
    &steps::EXPERIMENT,
    &switches::EXPERIMENT,
    &stripe::EXPERIMENT,
    &aged::EXPERIMENT,
    &contention::EXPERIMENT,
    &linux_build::EXPERIMENT,
    &kernel::EXPERIMENT,
];
