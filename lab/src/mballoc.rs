//! Claims about the multiblock allocator.

mod bitmaps;
mod check;
mod disk;
mod extents;
mod file;
mod free_space;
mod measure;
mod placement;
mod policy;
mod steps;
mod tree;
mod volume;
mod workload;

use crate::claim::Claim;

/// All of them; a new one gets its line here.
pub const CLAIMS: &[&Claim] = &[&steps::CLAIM];
