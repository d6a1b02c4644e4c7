//! Claims about dirty pages and the throttling of those who make them.

mod array;
mod disk;
mod machine;
mod realtime;
mod removal;
mod small_files;
mod small_memory;
mod staggered;
mod steps;
mod thinking;
mod threads;
mod trial;
mod two_devices;

use crate::claim::Claim;

/// All of them; a new one gets its line here.
pub const CLAIMS: &[&Claim] = &[
    &array::CLAIM,
    &disk::CLAIM,
    &small_files::CLAIM,
    &staggered::CLAIM,
    &thinking::CLAIM,
    &realtime::CLAIM,
    &two_devices::CLAIM,
    &small_memory::CLAIM,
    &steps::CLAIM,
    &removal::CLAIM,
    &threads::CLAIM,
];
