//! Arbitrary bytes for the exercise `xattr`.

#![no_main]

#[path = "../../crates/ondisk/tests/exercise/xattr.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));
