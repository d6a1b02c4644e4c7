//! Arbitrary bytes for the exercise `directory`.

#![no_main]

#[path = "../../crates/ondisk/tests/exercise/directory.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));
