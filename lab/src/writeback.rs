//! Claims about dirty pages and the throttling of those who make them.

use crate::claim::Claim;

/// All of them; a new one gets its line here.
pub const CLAIMS: &[&Claim] = &[];
