//! Requests of random bytes: see `tests/exercise/requests.rs`, which the fuzzer runs, too.

use std::path::Path;

use uext4_testkit::SplitMix64;

#[path = "../tests/exercise/requests.rs"]
mod requests;

#[test]
fn requests_of_random_bytes_are_answered() {
    let rounds = match std::env::var_os("UEXT4_LONG") {
        Some(_) => 50_000,
        None => 300,
    };
    let mut random = SplitMix64::new(3);
    for _ in 0..rounds {
        let mut bytes = Vec::new();
        for _ in 0..random.next_u64() % 24 {
            let len = random.next_u64() % 64;
            bytes.extend([random.next_u64() as u8, 1 + (random.next_u64() % 4) as u8]);
            bytes.push(len as u8);
            // Small numbers and names of a letter, more often than not.
            bytes.extend((0..len).map(|_| match random.next_u64() % 4 {
                0 => (random.next_u64() % 8) as u8,
                1 => b'a' + (random.next_u64() % 3) as u8,
                _ => 0,
            }));
        }
        requests::exercise(&bytes);
    }
}

#[test]
fn requests_that_the_fuzzer_found() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus-regressions");
    let cases: Vec<_> = std::fs::read_dir(root.join("requests")).unwrap().collect();
    assert!(!cases.is_empty());
    for case in cases {
        requests::exercise(&std::fs::read(case.unwrap().path()).unwrap());
    }
}
