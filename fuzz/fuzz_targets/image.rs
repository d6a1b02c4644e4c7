//! Whole images: see `crates/ext4/tests/it/exercise.rs`. The first byte chooses the seed image,
//! the rest are patches.
#![no_main]

#[path = "../../crates/ext4/tests/it/exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::exercise_bytes(bytes));
