//! Claims about the cache of extents and its shrinkers.

mod fragmented;
mod hits;
mod jobs;
mod lookups;
mod machine;
mod many_files;
mod policy;
mod shares;
mod tally;
mod volume;

use crate::claim::Claim;

/// All of them; a new one gets its line here.
pub const CLAIMS: &[&Claim] = &[
    &fragmented::CLAIM,
    &many_files::CLAIM,
    &hits::CLAIM,
    &lookups::CLAIM,
];
