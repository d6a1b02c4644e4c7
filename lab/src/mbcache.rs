//! Claims about the cache of shared attribute blocks.

mod cost;
mod counting;
mod engine;
mod full_blocks;
mod kernel;
mod memory;
mod model;
mod plan;
mod policy;
mod threads;
mod xattr_bench;

use crate::experiment::Experiment;

pub use policy::indexes;

/// All of them; a new one gets its line here.
pub const EXPERIMENTS: &[&Experiment] = &[
    &xattr_bench::EXPERIMENT,
    &full_blocks::EXPERIMENT,
    &memory::EXPERIMENT,
    &engine::EXPERIMENT,
    &threads::EXPERIMENT,
    &kernel::EXPERIMENT,
];
