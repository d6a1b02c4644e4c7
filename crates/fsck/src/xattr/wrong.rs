//! A finding about one entry, before its place is known.

use crate::problem::XattrProblem;

/// Why an entry cannot be kept.
pub struct Wrong {
    pub problem: XattrProblem,
    pub found: Option<u64>,
    pub right: Option<u64>,
}

impl Wrong {
    pub fn new(problem: XattrProblem, found: impl Into<u64>) -> Self {
        Self {
            problem,
            found: Some(found.into()),
            right: None,
        }
    }
}
