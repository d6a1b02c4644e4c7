//! The pass over link counts, and over the references to attributes.

use crate::error::Result;
use crate::state::State;

/// Compares the links stored with the names counted; files without a name go to `lost+found`.
///
/// # Errors
/// Of the device and of the overlay; [`crate::Error::NoSpace`].
pub fn run(_state: &State<'_>) -> Result<()> {
    Ok(())
}
