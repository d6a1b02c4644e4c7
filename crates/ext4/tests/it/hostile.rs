//! Damaged images of every kind neither panic nor hang the engine.
//!
//! Small images of the real mke2fs are changed at random, most of all where metadata is, and then
//! read from end to end. The fuzzer does the same with more patience.

use std::path::Path;
use std::sync::Arc;

use uext4_blockdev::MemoryDevice;
use uext4_testkit::SplitMix64;

use crate::exercise::{self, SEEDS, seed_images};
use crate::exercise_changes;
use crate::exercise_fast_commit;

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
    let good = seed_images()[seed].clone();
    let mut random = SplitMix64::new(good.len() as u64);
    for _ in 0..rounds() {
        let mut bytes = good.clone();
        for _ in 0..1 + random.next_u64() % 12 {
            mutate(&mut bytes, &mut random);
        }
        exercise::exercise(Arc::new(MemoryDevice::from_bytes(bytes)));
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

#[test]
fn with_quotas_and_an_orphan_file() {
    hammer(6);
}

/// Random operations on the seed image of this index, damaged and opened for writing.
fn hammer_changes(seed: usize) {
    let good = seed_images()[seed].clone();
    let mut random = SplitMix64::new(good.len() as u64 + 1);
    for _ in 0..rounds() / 2 {
        let mut bytes = good.clone();
        for _ in 0..1 + random.next_u64() % 6 {
            mutate(&mut bytes, &mut random);
        }
        let operations: Vec<u8> = (0..160).map(|_| random.next_u64() as u8).collect();
        exercise_changes::exercise_changes(Arc::new(MemoryDevice::from_bytes(bytes)), &operations);
    }
}

#[test]
fn changes_of_damaged_images_end() {
    (0..SEEDS.len()).for_each(hammer_changes);
}

#[test]
fn records_of_fast_commits_of_random_bytes() {
    let left = exercise_fast_commit::seed();
    let mut random = SplitMix64::new(5);
    for _ in 0..rounds() {
        let mut bytes = Vec::new();
        for _ in 0..random.next_u64() % 12 {
            let (tag, len) = (1 + random.next_u64() % 7, random.next_u64() % 24);
            bytes.extend([tag as u8, len as u8]);
            // Small numbers: inodes and blocks that there are.
            bytes.extend((0..len).map(|at| match at % 4 {
                0 => (random.next_u64() % 32) as u8,
                _ => 0,
            }));
        }
        exercise_fast_commit::exercise_fast_commit(&left, &bytes);
    }
}

/// Runs every case that the fuzzer found with this target.
fn replay(target: &str, exercise: impl Fn(&[u8])) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus-regressions");
    let cases: Vec<_> = std::fs::read_dir(root.join(target)).unwrap().collect();
    assert!(!cases.is_empty(), "nothing in {target}");
    for case in cases {
        let path = case.unwrap().path();
        println!("{}", path.display());
        exercise(&std::fs::read(path).unwrap());
    }
}

#[test]
fn found_by_the_fuzzer() {
    replay("image", exercise::exercise_bytes);
    replay("changes", exercise_changes::exercise_bytes);
    let left = exercise_fast_commit::seed();
    replay("fast_commit", |bytes| {
        exercise_fast_commit::exercise_fast_commit(&left, bytes);
    });
}
