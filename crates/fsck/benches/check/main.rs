//! The examination against `e2fsck -fn`: the same images in turns, each in a process of its own;
//! the medians of wall time, processor time and peak memory.
//!
//! `UEXT4_BENCH_IMAGES` (a directory below that of temporary files) is where the images are kept
//! from run to run: 12 GB of disk. `UEXT4_BENCH_ROUNDS` (5) is how often each has a turn.
//! `UEXT4_BENCH_ONLY` names images, separated by commas: without it all are measured. Images are
//! in the page cache, as far as it goes. GNU time measures; the image with a million extents needs
//! root, to be made.

mod images;
mod tar;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use tempfile::NamedTempFile;
use uext4_blockdev::{Access, FileDevice};
use uext4_fsck::{Finding, Observer, Options, examine};
use uext4_testkit::has_tool;

/// What one run took.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// Seconds of wall time.
    wall: f64,
    /// Seconds of processor time, the kernel's for the process too.
    processor: f64,
    /// MiB of memory at most.
    memory: f64,
}

/// Prints the findings; there should be none.
struct Shown;

impl Observer for Shown {
    fn finding(&self, finding: &Finding) {
        println!("{finding}");
    }
}

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    match &arguments[..] {
        [word, image] if word == "--examine" => examine_once(Path::new(image)),
        // cargo says "--bench".
        _ => compare_all(),
    }
}

/// What the process that is measured does. Exits as `e2fsck -fn` would.
fn examine_once(image: &Path) -> ExitCode {
    let device = FileDevice::open(image, Access::ReadOnly).unwrap();
    let outcome = examine(&(Arc::new(device) as _), &Options::default(), &Shown).unwrap();
    match outcome.is_clean {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(4),
    }
}

fn compare_all() -> ExitCode {
    if !(has_tool("time") && has_tool("e2fsck")) {
        return ExitCode::SUCCESS;
    }
    let rounds = env::var("UEXT4_BENCH_ROUNDS").map_or(5, |text| text.parse().unwrap());
    let kept = env::var_os("UEXT4_BENCH_IMAGES").map(PathBuf::from);
    let dir = kept.unwrap_or_else(|| env::temp_dir().join("uext4-check-images"));
    std::fs::create_dir_all(&dir).unwrap();
    let only = env::var("UEXT4_BENCH_ONLY").unwrap_or_default();
    println!("| image | who | wall s | processor s | memory MiB |");
    println!("|---|---|---|---|---|");
    for image in images::ALL {
        if !only.is_empty() && !only.split(',').any(|name| name == image.name) {
            continue;
        }
        if let Some(path) = image.made(&dir) {
            compare(image.name, &path, rounds);
        }
    }
    ExitCode::SUCCESS
}

fn compare(name: &str, image: &Path, rounds: usize) {
    let itself = env::current_exe().unwrap();
    let mut costs = [const { Vec::new() }; 2];
    for _ in 0..rounds {
        let mut theirs = vec!["e2fsck".into(), "-fn".into(), image.into()];
        let mut ours = vec![itself.clone().into(), "--examine".into(), image.into()];
        costs[0].push(measure(&mut theirs));
        costs[1].push(measure(&mut ours));
    }
    for (who, costs) in ["e2fsck -fn", "uext4"].into_iter().zip(costs) {
        let median = |of: fn(&Cost) -> f64| {
            let mut all: Vec<_> = costs.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let (wall, processor) = (median(|c| c.wall), median(|c| c.processor));
        let memory = median(|c| c.memory);
        println!("| {name} | {who} | {wall:.2} | {processor:.2} | {memory:.0} |");
    }
}

/// Runs a command, which must exit with 0.
fn measure(words: &mut Vec<std::ffi::OsString>) -> Cost {
    let report = NamedTempFile::new().unwrap();
    let mut command = Command::new("time");
    command.args(["-f", "%e %U %S %M", "-o"]).arg(report.path());
    let output = command.args(words).output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        uext4_testkit::tools::said(&output)
    );
    let text = std::fs::read_to_string(report.path()).unwrap();
    let numbers: Vec<f64> = text
        .split_whitespace()
        .map(|n| n.parse().unwrap())
        .collect();
    Cost {
        wall: numbers[0],
        processor: numbers[1] + numbers[2],
        memory: numbers[3] / 1024.0,
    }
}
