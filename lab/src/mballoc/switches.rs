//! The switches of normalisation one by one, as the thread asked for.

use crate::claim::{Claim, Measure, Printed};
use crate::mballoc::{policy, steps};

/// The claim.
pub const CLAIM: Claim = Claim {
    name: "mballoc-switches",
    title: "which of the changes to normalisation does what",
    source: "Czerner and Dilger, [RFC][PATCH 0/1] ext4: Fix ext4_mb_normalize_request, linux-ext4, June 2014",
    analysis: "The seven steps with one switch of the table changed at a time, then with one of the \
               proposal's taken back. Nothing is gated: the thread has no figures for them.",
    figures: &[Printed {
        what: "Dilger",
        printed: "it makes sense to separate out some of the changes into different patches and test \
                  them independently",
    }],
    policies: &[
        "table+linear",
        "table+nounwritten+linear",
        "table+logical+linear",
        "table+cap=group+linear",
        "table+adapt+linear",
        "table+rule=pow2+linear",
        "pow2+linear",
        "pow2+nological+linear",
        "pow2+cap=table+linear",
        "pow2+adapt+linear",
        "exact+linear",
    ],
    accepts: policy::accepts,
    parameters: &[steps::TREE, steps::BLOCK, steps::CHUNK],
    gates: &[],
    measure: Measure::Counted,
    run: steps::run,
};
