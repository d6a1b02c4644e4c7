//! The pass over directories: their entries and indexes, and how many names each inode has.

use crate::error::Result;
use crate::state::State;

/// Examines all directories of the list, several in parallel, and counts links.
///
/// # Errors
/// Of the device and of the overlay.
pub fn run(_state: &State<'_>) -> Result<()> {
    Ok(())
}
