//! The memory of an examination, known from the shape of the file system before it begins.
//!
//! Tables that grow with what is in use are made for the groups in use only. What a group costs
//! that nothing is in is what this counts: a sparse image of a few blocks can say that it has
//! hundreds of millions of groups.

use std::sync::OnceLock;

use uext4_ondisk::Geometry;
use uext4_ondisk::group_desc::GroupDesc;

use crate::error::{Error, Result};
use crate::options::Options;

/// Sets of clusters that exist at the same time, with those of what was taken out of them.
const SETS: usize = 2 * 5;
/// Bytes for each group: its descriptor, twice while it is copied, and its places in the tables.
const GROUP: usize =
    2 * size_of::<GroupDesc>() + (SETS + 1) * size_of::<OnceLock<Box<[u64]>>>() + size_of::<u64>();

/// Bytes that are needed at least.
pub fn needed(geometry: &Geometry) -> u64 {
    u64::from(geometry.groups_count.get()).saturating_mul(GROUP as u64)
}

/// Refuses what needs more than is allowed.
///
/// # Errors
/// [`Error::Memory`].
pub fn check(geometry: &Geometry, options: &Options) -> Result<()> {
    let (need, limit) = (needed(geometry), options.memory);
    match need > limit {
        true => Err(Error::Memory { need, limit }),
        false => Ok(()),
    }
}
