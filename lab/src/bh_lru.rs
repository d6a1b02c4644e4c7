//! Claims about the small cache in front of the buffer cache.

mod cost;
mod create_cycle;
mod mdtest;
mod policy;
mod survey;
mod volume;
mod wall;
mod workload;

use crate::claim::Claim;

/// All of them; a new one gets its line here.
pub const CLAIMS: &[&Claim] = &[
    &create_cycle::CLAIM,
    &mdtest::CLAIM,
    &survey::CLAIM,
    &wall::CLAIM,
];
