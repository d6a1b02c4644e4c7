//! Examination and plan of whole images: see `crates/fsck/tests/exercise/examination.rs`. The
//! first byte chooses the image, the rest are patches.

#![no_main]

#[path = "../../crates/fsck/tests/exercise/examination.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));
