//! Scripts: see `crates/cli/tests/exercise/script.rs`.

#![no_main]

#[path = "../../crates/cli/tests/exercise/script.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    assert!(exercise::exercise(data), "this kernel has no Landlock");
});
