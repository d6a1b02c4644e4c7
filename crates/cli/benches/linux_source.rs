//! Whole commands on the Linux source, compared with the tools they replace, taking turns in one
//! run.
//!
//! What it shows: the time a user waits, the CPU it costs, the memory it takes at most, images on
//! tmpfs. What it does not: a disk's speed. Every run is made to prove that it did its work.
//!
//! Input: `UEXT4_BENCH_TAR`, or the tar of Debian's linux-source package below `/usr/src`;
//! without one it says so and ends. `UEXT4_BENCH_ROUNDS` (5) is how often every user has a turn.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Kernel clock ticks a second, the unit of CPU times in /proc.
const TICKS: f64 = 100.0;
/// Size of mke2fs's image, which cannot choose it by itself.
const IMAGE_SIZE: &str = "2G";
/// Bytes the scratch directory needs.
const ROOM: u64 = 10 << 30;

/// A command to be measured.
struct Contender {
    name: &'static str,
    arguments: Vec<String>,
    /// The image it makes, which is not there when it begins.
    makes: Option<String>,
    /// What was measured, a turn each.
    runs: Vec<Run>,
    /// The limit, where there is a target.
    limits: Limits,
}

#[derive(Clone, Copy, Default)]
struct Limits {
    wall_s: Option<f64>,
    cpu_s: Option<f64>,
}

#[derive(Clone, Copy)]
struct Run {
    wall_s: f64,
    cpu_s: f64,
    peak_mib: f64,
}

fn main() {
    let Some(tar) = source() else {
        println!("skipped: no linux-source tar (apt-get install linux-source-6.1)");
        return;
    };
    let scratch = scratch();
    let (tar, tree) = unpack(&tar, scratch.path());
    let rounds = env::var("UEXT4_BENCH_ROUNDS")
        .ok()
        .and_then(|r| r.parse().ok())
        .unwrap_or(5);
    let entries = count(&tree);
    println!(
        "{entries} entries, {} MiB of tar, {rounds} rounds\n",
        size(&tar) >> 20
    );
    let mut contenders = contenders(&tar, &tree, scratch.path());
    for _ in 0..rounds {
        for contender in &mut contenders {
            let run = contender.run();
            contender.runs.push(run);
        }
    }
    prove(entries, scratch.path());
    report(&contenders);
}

/// The tar to take, packed or not.
fn source() -> Option<PathBuf> {
    if let Some(path) = env::var_os("UEXT4_BENCH_TAR") {
        return Some(path.into());
    }
    let mut found: Vec<PathBuf> = fs::read_dir("/usr/src")
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("linux-source-") && name.contains(".tar")
        })
        .collect();
    found.sort();
    found.pop()
}

fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let room = rustix::fs::statvfs(memory).map_or(0, |s| s.f_bavail * s.f_frsize);
    if room >= ROOM {
        return tempfile::TempDir::new_in(memory).unwrap();
    }
    println!("note: no room in /dev/shm; images are not on tmpfs");
    tempfile::TempDir::new().unwrap()
}

/// The plain tar and its tree, both in the scratch directory.
fn unpack(packed: &Path, scratch: &Path) -> (PathBuf, PathBuf) {
    let (tar, tree) = (scratch.join("linux.tar"), scratch.join("tree"));
    let name = packed.to_string_lossy();
    let tool = match name.rsplit('.').next() {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => "cat",
    };
    let mut command = Command::new(tool);
    if tool != "cat" {
        command.arg("-dc");
    }
    let out = File::create(&tar).unwrap();
    assert!(command.arg(packed).stdout(out).status().unwrap().success());
    fs::create_dir(&tree).unwrap();
    let unpacked = Command::new("tar")
        .arg("-xf")
        .arg(&tar)
        .arg("-C")
        .arg(&tree)
        .status();
    assert!(unpacked.unwrap().success());
    (tar, tree)
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

/// Everything below a directory, and the directory.
fn count(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let below = entries.map(|entry| match entry.file_type().unwrap().is_dir() {
        true => count(&entry.path()),
        false => 1,
    });
    1 + below.sum::<u64>()
}

fn contenders(tar: &Path, tree: &Path, scratch: &Path) -> Vec<Contender> {
    let uext4 = env!("CARGO_BIN_EXE_uext4");
    let path = |name: &str| scratch.join(name).to_str().unwrap().to_owned();
    let (tar, tree) = (tar.to_str().unwrap(), tree.to_str().unwrap());
    let (ours, theirs) = (path("ours.img"), path("theirs.img"));
    let none = Limits::default();
    let contender = |name, arguments: &[&str], makes: Option<&String>, limits| Contender {
        name,
        makes: makes.cloned(),
        arguments: arguments.iter().map(|&a| a.to_owned()).collect(),
        runs: Vec::new(),
        limits,
    };
    let build = Limits {
        wall_s: None,
        cpu_s: Some(3.0),
    };
    let list = Limits {
        wall_s: Some(1.5),
        cpu_s: None,
    };
    let from_tree = path("from-tree.img");
    vec![
        contender(
            "uext4 build, from the tar",
            &[uext4, "build", "-qF", tar, "-o", &ours],
            Some(&ours),
            build,
        ),
        contender(
            "uext4 build, from the tree",
            &[uext4, "build", "-qF", tree, "-o", &from_tree],
            Some(&from_tree),
            build,
        ),
        contender(
            "mke2fs -d, from the tree",
            &[
                "mke2fs", "-q", "-F", "-t", "ext4", "-d", tree, &theirs, IMAGE_SIZE,
            ],
            Some(&theirs),
            none,
        ),
        contender(
            "uext4 manifest --no-hash",
            &[uext4, "manifest", "--no-hash", &ours],
            None,
            list,
        ),
        contender("uext4 manifest", &[uext4, "manifest", &ours], None, none),
        contender("uext4 tar", &[uext4, "tar", &ours], None, none),
        contender("uext4 check", &[uext4, "check", &ours], None, none),
        contender("e2fsck -fn", &["e2fsck", "-f", "-n", &ours], None, none),
    ]
}

impl Contender {
    fn run(&self) -> Run {
        if let Some(image) = &self.makes {
            let _ = fs::remove_file(image);
        }
        let cpu_before = children_cpu_s();
        let begun = Instant::now();
        let mut child = Command::new(&self.arguments[0])
            .args(&self.arguments[1..])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|e| panic!("{}: {e}", self.arguments[0]));
        let status = format!("/proc/{}/status", child.id());
        let mut peak_kib = 0;
        let exit = loop {
            peak_kib = peak_kib.max(peak_of(&status));
            if let Some(exit) = child.try_wait().unwrap() {
                break exit;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let wall_s = begun.elapsed().as_secs_f64();
        assert!(exit.success(), "{} failed", self.name);
        Run {
            wall_s,
            cpu_s: children_cpu_s() - cpu_before,
            peak_mib: peak_kib as f64 / 1024.0,
        }
    }

    fn median(&self, of: impl Fn(&Run) -> f64) -> f64 {
        let mut values: Vec<f64> = self.runs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    }
}

/// CPU seconds of all children that have ended.
fn children_cpu_s() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    // The second field is a name in brackets, which may hold anything.
    let after_name = stat.rsplit(')').next().unwrap();
    let ticks: u64 = after_name
        .split_whitespace()
        .skip(13)
        .take(2)
        .map(|f| f.parse::<u64>().unwrap())
        .sum();
    ticks as f64 / TICKS
}

/// Peak resident KiB so far; 0 once the process has ended.
fn peak_of(status: &str) -> u64 {
    let text = fs::read_to_string(status).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

/// The images hold everything, and are sound.
fn prove(entries: u64, scratch: &Path) {
    for image in ["ours.img", "from-tree.img", "theirs.img"] {
        let output = Command::new(env!("CARGO_BIN_EXE_uext4"))
            .args(["manifest", "--no-hash"])
            .arg(scratch.join(image))
            .output()
            .unwrap();
        assert!(output.status.success());
        let lines = output.stdout.iter().filter(|&&b| b == b'\n').count() as u64;
        // lost+found is the file system's own.
        assert_eq!(lines, entries + 1, "{image}");
        let judged = Command::new("e2fsck")
            .args(["-f", "-n"])
            .arg(scratch.join(image))
            .output();
        assert!(judged.unwrap().status.success(), "{image} is not clean");
    }
}

fn report(contenders: &[Contender]) {
    println!("| command | wall, median (s) | min | max | CPU, median (s) | peak (MiB) | target |");
    println!("|---|---|---|---|---|---|---|");
    for contender in contenders {
        let walls = || contender.runs.iter().map(|run| run.wall_s);
        let (wall, cpu) = (
            contender.median(|r| r.wall_s),
            contender.median(|r| r.cpu_s),
        );
        let mut targets = Vec::new();
        for (what, limit, is) in [
            ("wall", contender.limits.wall_s, wall),
            ("CPU", contender.limits.cpu_s, cpu),
        ] {
            if let Some(limit) = limit {
                let verdict = if is <= limit { "met" } else { "MISSED" };
                targets.push(format!("{what} ≤ {limit} s {verdict}"));
            }
        }
        println!(
            "| {} | {wall:.2} | {:.2} | {:.2} | {cpu:.2} | {:.0} | {} |",
            contender.name,
            walls().fold(f64::INFINITY, f64::min),
            walls().fold(0.0, f64::max),
            contender.median(|r| r.peak_mib),
            targets.join(", ")
        );
    }
}
