//! Changes to whole images: see `crates/ext4/tests/it/exercise_changes.rs`.
#![no_main]

#[path = "../../crates/ext4/tests/it/exercise.rs"]
mod exercise;
#[path = "../../crates/ext4/tests/it/exercise_changes.rs"]
mod exercise_changes;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise_changes::exercise_bytes(bytes));
