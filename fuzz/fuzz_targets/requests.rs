//! Requests of FUSE: see `crates/fuse/tests/exercise/requests.rs`.

#![no_main]

#[path = "../../crates/fuse/tests/exercise/requests.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));
