//! Damage of no kind, and cases that the fuzzer found.
//!
//! `UEXT4_LONG` tries 100,000 images in place of 300; `UEXT4_SEED=N` tries one, `UEXT4_SEED=N-M` a
//! range of them.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use uext4_testkit::damage::images::{self, Sample};
use uext4_testkit::damage::random;
use uext4_testkit::has_tool;

use crate::cases::{assert_none, is_long, run};
use crate::exercise;
use crate::judge::{Fault, Judge, MEMORY_MAX};

/// Bytes that a process may grow by: what the examinations of two threads may use, and what the
/// test needs for its copies of images.
const GROWTH_MAX: u64 = 2 * MEMORY_MAX + (256 << 20);

/// The seeds of a run.
fn seeds() -> Vec<u64> {
    let count = if is_long() { 100_000 } else { 300 };
    let Ok(asked) = std::env::var("UEXT4_SEED") else {
        return (0..count).collect();
    };
    let (first, last) = asked.split_once('-').unwrap_or((&asked, &asked));
    (first.parse().unwrap()..=last.parse().unwrap()).collect()
}

fn sample_of(seed: u64) -> &'static Sample {
    images::sample((seed % images::ALL.len() as u64) as usize)
}

fn name(seed: &u64) -> String {
    format!("UEXT4_SEED={seed} on {}", sample_of(*seed).kind.name)
}

/// A field of `/proc/self/status`, in bytes; 0 if there is none.
fn memory(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|rest| rest.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

#[test]
fn random_damage_is_mended_by_one_run_and_all_of_it_by_two() {
    if !has_tool("e2fsck") {
        return;
    }
    images::all().for_each(drop);
    let before = memory("VmRSS");
    // Lets the greatest size be measured anew.
    _ = fs::write("/proc/self/clear_refs", "5");
    let seeds = seeds();
    let twice = AtomicU64::new(0);
    let failures = run(&seeds, name, |judge, &seed| {
        let image = random::apply(&sample_of(seed).survey, seed);
        match mend(judge, &image) {
            Ok(1) => Vec::new(),
            Ok(_) => {
                twice.fetch_add(1, Ordering::Relaxed);
                println!("{}: two runs", name(&seed));
                Vec::new()
            }
            Err(complaint) => vec![format!("{}: {complaint}", name(&seed))],
        }
    });
    assert_none(&failures, seeds.len());
    let twice = twice.into_inner();
    assert!(
        twice * 1000 <= seeds.len() as u64,
        "{twice} needed two runs"
    );
    let growth = memory("VmHWM").saturating_sub(before);
    assert!(growth <= GROWTH_MAX, "grew by {growth} bytes");
}

/// The number of runs that an image needs.
fn mend(judge: &Judge, image: &[u8]) -> Result<u32, String> {
    use crate::judge::{Asked, applied, ask};

    let first = match judge.mended(image) {
        Ok(_) => return Ok(1),
        Err(complaint) => complaint,
    };
    match first.fault {
        Fault::Unclean | Fault::Again => {}
        _ => return Err(first.to_string()),
    }
    let outcome = ask(Asked::Plan, image).map_err(|complaint| complaint.to_string())?;
    let once = applied(image, &outcome);
    match judge.mended(&once) {
        Ok(_) => Ok(2),
        Err(second) => Err(format!("{first}; after a second run: {second}")),
    }
}

#[test]
fn found_cases() {
    if !has_tool("mke2fs") {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus-regressions");
    let files = fs::read_dir(root.join("examination")).unwrap();
    let files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    assert!(!files.is_empty());
    for path in files {
        println!("{}", path.display());
        exercise::exercise(&fs::read(&path).unwrap());
    }
}
