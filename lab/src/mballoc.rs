//! Claims about the multiblock allocator.

use crate::claim::Claim;

/// All of them; a new one gets its line here.
pub const CLAIMS: &[&Claim] = &[];
