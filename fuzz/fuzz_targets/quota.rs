//! Arbitrary bytes for the exercise `quota`.

#![no_main]

#[path = "../../crates/ondisk/tests/exercise/quota.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));
