//! Whole images: see `crates/ext4/tests/it/exercise.rs`. The first byte chooses the seed image, the rest
//! are patches.
#![no_main]

use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use uext4_blockdev::MemoryDevice;

#[path = "../../crates/ext4/tests/it/exercise.rs"]
mod exercise;

fuzz_target!(|bytes: &[u8]| {
    static IMAGES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    let images = IMAGES.get_or_init(|| {
        (0..exercise::SEEDS.len())
            .map(exercise::seed_image)
            .collect()
    });
    let Some((seed, patches)) = bytes.split_first() else {
        return;
    };
    let mut image = images[usize::from(*seed) % images.len()].clone();
    exercise::patch(&mut image, patches);
    exercise::exercise(Arc::new(MemoryDevice::from_bytes(image)));
});
