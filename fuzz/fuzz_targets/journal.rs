//! Arbitrary bytes for the exercise `journal`.

#![no_main]

#[path = "../../crates/ondisk/tests/exercise/journal.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));
