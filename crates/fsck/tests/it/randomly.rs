//! Damage of no kind, and cases that the fuzzer found.
//!
//! `UEXT4_LONG` tries 100,000 images in place of 300; `UEXT4_SEED=N` tries one, `UEXT4_SEED=N-M` a
//! range of them, `UEXT4_SEED=N,N-M` both. `UEXT4_KEEP=DIR` keeps the images that are not mended
//! there.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use uext4_blockdev::{BlockDevice, MemoryDevice};
use uext4_fsck::{Options, Outcome, plan};
use uext4_testkit::damage::images::{self, Sample};
use uext4_testkit::damage::random;
use uext4_testkit::has_tool;

use crate::cases::{assert_none, is_long, run};
use crate::exercise;
use crate::judge::{Asked, Fault, Judge, MEMORY_MAX, applied, ask};

/// Bytes that a process may grow by: what the examinations of two threads may use, and what the
/// test needs for its copies of images.
const GROWTH_MAX: u64 = 2 * MEMORY_MAX + (256 << 20);

/// The seeds of a run.
fn seeds() -> Vec<u64> {
    let count = if is_long() { 100_000 } else { 300 };
    let Ok(asked) = std::env::var("UEXT4_SEED") else {
        return (0..count).collect();
    };
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.parse::<u64>().unwrap()..=last.parse().unwrap()
    };
    asked.split(',').flat_map(range).collect()
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
    let (twice, hopeless) = (AtomicU64::new(0), AtomicU64::new(0));
    let slowest = Mutex::new(Duration::ZERO);
    let failures = run(&seeds, name, |judge, &seed| {
        let image = random::apply(&sample_of(seed).survey, seed);
        let start = Instant::now();
        let result = mend(judge, &image);
        let mut slowest = slowest.lock().unwrap();
        *slowest = start.elapsed().max(*slowest);
        drop(slowest);
        match result {
            Ok(Runs::One) => 0,
            Ok(Runs::Two) => {
                println!("{}: two runs", name(&seed));
                twice.fetch_add(1, Ordering::Relaxed)
            }
            Ok(Runs::Hopeless(why)) => {
                println!("{}: hopeless: {why}", name(&seed));
                hopeless.fetch_add(1, Ordering::Relaxed)
            }
            Err(complaint) => {
                if let Some(dir) = std::env::var_os("UEXT4_KEEP") {
                    fs::write(Path::new(&dir).join(format!("seed-{seed}.img")), &image).unwrap();
                }
                return vec![format!("{}: {complaint}", name(&seed))];
            }
        };
        Vec::new()
    });
    let growth = memory("VmHWM").saturating_sub(before);
    let (twice, hopeless) = (twice.into_inner(), hopeless.into_inner());
    let count = seeds.len() as u64;
    println!(
        "{count} images, {twice} needed two runs, {hopeless} are hopeless; {:?} at most with all \
         judgements, {growth} bytes more",
        slowest.into_inner().unwrap()
    );
    assert_none(&failures, seeds.len());
    // 99.9 % are clean after one run. Among few images there may be one that is not.
    let more = twice + hopeless;
    assert!(
        more * 1000 <= count.max(1000),
        "{more} not clean after one run"
    );
    assert!(growth <= GROWTH_MAX, "grew by {growth} bytes");
}

/// The number of runs that an image needs.
#[derive(Clone, Debug)]
enum Runs {
    One,
    Two,
    /// Neither we nor e2fsck find a file system there, or one that is known; our words.
    Hopeless(String),
}

fn mend(judge: &Judge, image: &[u8]) -> Result<Runs, String> {
    let first = match judge.mended(image) {
        Ok(_) => return Ok(Runs::One),
        Err(complaint) => complaint,
    };
    match first.fault {
        Fault::Unclean | Fault::Again => {}
        Fault::NoPlan if !first.said.contains("no free block") && !judge.can_e2fsck_mend(image) => {
            return Ok(Runs::Hopeless(first.said));
        }
        _ => return Err(first.to_string()),
    }
    let outcome = ask(Asked::Plan, image).map_err(|complaint| complaint.to_string())?;
    let once = applied(image, &outcome);
    match judge.mended(&once) {
        Ok(_) => Ok(Runs::Two),
        Err(second) => Err(format!("{first}; after a second run: {second}")),
    }
}

#[test]
fn tables_and_changes_in_temporary_files_make_no_difference() {
    if !has_tool("e2fsck") {
        return;
    }
    let compared = AtomicU64::new(0);
    let seeds: Vec<_> = seeds().into_iter().take(15).collect();
    let failures = run(&seeds, name, |_, &seed| {
        let image = random::apply(&sample_of(seed).survey, seed);
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(image.clone()));
        let planned = |memory| {
            let options = Options {
                memory,
                now: 1_700_000_000,
                ..Options::default()
            };
            plan(&device, &options, &())
        };
        let (Ok(all), Ok(few)) = (planned(MEMORY_MAX), planned(96 << 10)) else {
            return Vec::new();
        };
        compared.fetch_add(1, Ordering::Relaxed);
        let findings = |outcome: &Outcome| -> Vec<_> {
            let findings = outcome.findings.iter();
            findings.map(|(_, finding)| finding.to_string()).collect()
        };
        let is_same =
            findings(&all) == findings(&few) && applied(&image, &all) == applied(&image, &few);
        let complain = || vec![format!("{}: another plan with little memory", name(&seed))];
        if is_same { Vec::new() } else { complain() }
    });
    assert_none(&failures, seeds.len());
    assert!(compared.into_inner() * 2 >= seeds.len() as u64);
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
