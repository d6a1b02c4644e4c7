//! Claims about dirty pages and the throttling of those who make them.

mod array;
mod disk;
mod kernel;
mod machine;
mod mount;
mod real;
mod realtime;
mod removal;
mod small_files;
mod small_memory;
mod staggered;
mod steps;
mod thinking;
mod threads;
mod throttled;
mod trial;
mod two_devices;

use crate::experiment::Experiment;

/// All of them; a new one gets its line here.
pub const EXPERIMENTS: &[&Experiment] = &[
    &array::EXPERIMENT,
    &disk::EXPERIMENT,
    &small_files::EXPERIMENT,
    &staggered::EXPERIMENT,
    &thinking::EXPERIMENT,
    &realtime::EXPERIMENT,
    &two_devices::EXPERIMENT,
    &small_memory::EXPERIMENT,
    &steps::EXPERIMENT,
    &removal::EXPERIMENT,
    &threads::EXPERIMENT,
    &kernel::EXPERIMENT,
    &mount::EXPERIMENT,
    &throttled::EXPERIMENT,
];
