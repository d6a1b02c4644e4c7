//! Tar archives: see `crates/image/tests/exercise/tar.rs`.

#![no_main]

#[path = "../../crates/image/tests/exercise/tar.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));
