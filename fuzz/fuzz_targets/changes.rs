//! Changes to whole images: see `crates/ext4/tests/it/exercise_changes.rs`.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/ext4/tests/it/exercise.rs"]
mod exercise;
#[path = "../../crates/ext4/tests/it/exercise_changes.rs"]
mod exercise_changes;

fuzz_target!(|bytes: &[u8]| {
    static IMAGES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    let images = IMAGES.get_or_init(|| {
        (0..exercise::SEEDS.len())
            .map(exercise::seed_image)
            .collect()
    });
    exercise_changes::exercise_bytes(images, bytes);
});
