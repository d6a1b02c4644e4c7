//! Archives that no tar would write: see `tests/exercise/tar.rs`, which the fuzzer runs, too.

use std::path::Path;

use uext4_testkit::SplitMix64;

#[path = "../exercise/tar.rs"]
mod tar;

/// Cases the fuzzer found, and archives to begin with.
fn cases() -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus-regressions/tar");
    let cases = std::fs::read_dir(root).unwrap();
    cases
        .map(|case| std::fs::read(case.unwrap().path()).unwrap())
        .collect()
}

#[test]
fn archives_that_the_fuzzer_found() {
    let cases = cases();
    assert!(!cases.is_empty());
    cases.iter().for_each(|case| tar::exercise(case));
}

#[test]
fn archives_with_random_changes_are_refused_or_become_sound_images() {
    let rounds = match std::env::var_os("UEXT4_LONG") {
        Some(_) => 20_000,
        None => 150,
    };
    let (cases, mut random) = (cases(), SplitMix64::new(9));
    for _ in 0..rounds {
        let mut bytes = cases[random.next_u64() as usize % cases.len()].clone();
        for _ in 0..1 + random.next_u64() % 8 {
            let len = bytes.len();
            let at = random.next_u64() as usize % len;
            // Most of an archive is zeroes, which mean nothing where they are.
            let at = (at..len).find(|&at| bytes[at] != 0).unwrap_or(at);
            bytes[at] = match random.next_u64() % 3 {
                0 => b'0' + (random.next_u64() % 8) as u8,
                1 => b'x',
                _ => random.next_u64() as u8,
            };
        }
        tar::exercise(&bytes);
    }
}
