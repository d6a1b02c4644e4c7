//! The switches of normalisation one by one, as the thread asked for.

use crate::experiment::{Experiment, Measure};
use crate::mballoc::{policy, steps};

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "mballoc-switches",
    accepts: policy::accepts,
    parameters: &[steps::TREE, steps::BLOCK, steps::CHUNK],
    has_subjects: false,
    measure: Measure::Counted,
    run: steps::run_seed,
};
