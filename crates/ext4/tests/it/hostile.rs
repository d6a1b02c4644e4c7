//! Damaged images of every kind neither panic nor hang the engine.
//!
//! Small images of the real mke2fs are changed at random, most of all where metadata is, and then
//! read from end to end. The fuzzer does the same with more patience.

use std::path::Path;
use std::sync::Arc;

use uext4_blockdev::{MemoryDevice, SplitMix64};

use crate::exercise::{SEEDS, exercise, patch, seed_image};

/// Images made from each seed image.
fn rounds() -> u64 {
    if std::env::var_os("UEXT4_LONG").is_some() {
        20_000
    } else {
        150
    }
}

/// Damages the seed image of this index again and again.
fn hammer(seed: usize) {
    let good = seed_image(seed);
    let mut random = SplitMix64::new(good.len() as u64);
    for _ in 0..rounds() {
        let mut bytes = good.clone();
        for _ in 0..1 + random.next_u64() % 12 {
            mutate(&mut bytes, &mut random);
        }
        exercise(Arc::new(MemoryDevice::from_bytes(bytes)));
    }
}

/// Changes a few bytes somewhere that was not empty.
fn mutate(bytes: &mut [u8], random: &mut SplitMix64) {
    for _ in 0..1000 {
        let at = random.next_u64() as usize % bytes.len();
        if bytes[at] == 0 && !random.next_u64().is_multiple_of(16) {
            continue;
        }
        let interesting = [0, 1, 0x7F, 0x80, 0xFF, random.next_u64() as u8];
        for byte in bytes
            .iter_mut()
            .skip(at)
            .take(1 + random.next_u64() as usize % 4)
        {
            *byte = interesting[random.next_u64() as usize % interesting.len()];
        }
        return;
    }
}

#[test]
fn extents_without_checksums() {
    hammer(0);
}

#[test]
fn indirect_blocks() {
    hammer(1);
}

#[test]
fn inline_data_and_large_inodes() {
    hammer(2);
}

#[test]
fn clusters() {
    hammer(3);
}

#[test]
fn with_checksums() {
    hammer(4);
}

#[test]
fn with_a_journal_to_replay() {
    hammer(5);
}

/// Every case the fuzzer found: which image it damages, and how.
#[test]
fn found_by_the_fuzzer() {
    let found = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus-regressions/image");
    let seeds: Vec<Vec<u8>> = (0..SEEDS.len()).map(seed_image).collect();
    for entry in std::fs::read_dir(found).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        let Some((seed, patches)) = bytes.split_first() else {
            continue;
        };
        let mut image = seeds[usize::from(*seed) % SEEDS.len()].clone();
        patch(&mut image, patches);
        exercise(Arc::new(MemoryDevice::from_bytes(image)));
    }
}
