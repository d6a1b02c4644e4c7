//! Arbitrary bytes for the exercise `superblock`.

#![no_main]

#[path = "../../crates/ondisk/tests/exercise/superblock.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));
