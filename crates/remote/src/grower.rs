//! Making an open file system larger: a crate above does it, which the serving process has.

use uext4::Volume;

use crate::refusal::Refusal;
use crate::wire::{Grown, Growth};

/// Makes a file system larger while it is in use.
pub trait Grower: Send + Sync {
    /// Does it, and makes it durable.
    ///
    /// # Errors
    /// Why it has its old size.
    fn grow(&self, fs: &Volume, growth: Growth) -> Result<Grown, Refusal>;
}
