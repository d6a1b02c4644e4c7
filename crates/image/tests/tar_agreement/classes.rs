//! The named disagreements.

use std::collections::BTreeMap;

use crate::generator::Case;
use crate::readers::Reader;
use crate::tree::Outcome;

/// How two readers disagree about an archive.
pub struct Disagreement<'a> {
    pub case: &'a Case,
    pub reader: Reader,
    pub ours: &'a Outcome,
    pub theirs: &'a Outcome,
    /// What differs if both accept.
    pub differences: BTreeMap<&'static str, String>,
}

impl Disagreement<'_> {
    /// A line for a failure.
    pub fn text(&self) -> String {
        let short = |text: &str| text.lines().collect::<Vec<_>>().join(" | ");
        match (self.ours, self.theirs) {
            (Outcome::Refused(ours), Outcome::Accepted { remarks, .. }) => {
                format!("refused by us ({ours}), accepted ({})", short(remarks))
            }
            (Outcome::Accepted { .. }, Outcome::Refused(theirs)) => {
                format!("accepted by us, refused ({})", short(theirs))
            }
            _ => format!("trees differ: {:?}", self.differences),
        }
    }
}
