//! Records of fast commits: see `crates/ext4/tests/it/exercise_fast_commit.rs`.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/ext4/tests/it/exercise.rs"]
mod exercise;
#[path = "../../crates/ext4/tests/it/exercise_fast_commit.rs"]
mod exercise_fast_commit;
#[path = "../../crates/ext4/tests/it/left.rs"]
mod left;
#[path = "../../crates/ext4/tests/it/log_place.rs"]
mod log_place;
#[path = "../../crates/ext4/tests/it/made.rs"]
mod made;

fuzz_target!(|bytes: &[u8]| {
    static LEFT: OnceLock<left::Left> = OnceLock::new();
    let left = LEFT.get_or_init(exercise_fast_commit::seed);
    exercise_fast_commit::exercise_fast_commit(left, bytes);
});
