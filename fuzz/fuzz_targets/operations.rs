//! Frames of operations: see `crates/remote/tests/exercise/operations.rs`.

#![no_main]

#[path = "../../crates/remote/tests/exercise/operations.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    exercise::exercise(data.split(|byte| *byte == 0xFF));
});
