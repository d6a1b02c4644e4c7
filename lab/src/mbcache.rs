//! Claims about the cache of shared attribute blocks.

mod cost;
mod counting;
mod engine;
mod full_blocks;
mod memory;
mod model;
mod plan;
mod policy;
mod threads;
mod xattr_bench;

use crate::claim::Claim;

pub use policy::indexes;

/// All of them; a new one gets its line here.
pub const CLAIMS: &[&Claim] = &[
    &xattr_bench::CLAIM,
    &full_blocks::CLAIM,
    &memory::CLAIM,
    &engine::CLAIM,
    &threads::CLAIM,
];
