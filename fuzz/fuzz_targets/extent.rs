//! Arbitrary bytes for the exercise `extent`.

#![no_main]

#[path = "../../crates/ondisk/tests/exercise/extent.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));
