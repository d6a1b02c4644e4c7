//! `mount`: the whole engine with other designs, as programs use it.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use uext4_blockdev::{Access, BlockDevice, FileDevice};

use crate::lab;

/// Designs of each subsystem, those of the product among them.
const DESIGNS: [(&str, &[&str]); 5] = [
    (
        "bh-lru",
        &[
            "vanilla+16",
            "tunable",
            "mainline",
            "lru-hash",
            "set-associative",
            "recent",
        ],
    ),
    (
        "extent-status",
        &[
            "vanilla",
            "lru",
            "round-robin",
            "mainline",
            "clock",
            "leaf-queue",
        ],
    ),
    (
        "mballoc",
        &[
            "table+linear",
            "table+criteria",
            "pow2+linear",
            "predict+largest-run",
        ],
    ),
    (
        "mbcache",
        &[
            "mb1",
            "mbcache2",
            "mbcache2-touch-fixed",
            "mainline",
            "one-donor",
        ],
    ),
    (
        "writeback",
        &["vanilla", "ioless", "ioless-fixed", "mainline", "cell-rate"],
    ),
];
const BYTES: u64 = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// True if this process can mount with FUSE; else says that the test is skipped.
fn can_mount() -> bool {
    let opened = fs::File::options().read(true).write(true).open("/dev/fuse");
    let helper = Command::new("fusermount3").arg("-V").output();
    let possible = opened.is_ok() && helper.is_ok();
    if !possible {
        println!("skipped: needs /dev/fuse and fusermount3");
    }
    possible
}

fn make(image: &Path) {
    fs::File::create(image).unwrap().set_len(BYTES).unwrap();
    let device = FileDevice::open(image, Access::ReadWrite).unwrap();
    let mut wishes = uext4_mkfs::Options::new([7; 16], [9; 16], 1_700_000_000);
    wishes.assume_zeroed = true;
    let layout = uext4_mkfs::layout(&wishes, BYTES).unwrap();
    uext4_mkfs::format(&layout, &device).unwrap();
}

/// A mount in the foreground; ended when dropped.
struct Mounted<'a> {
    child: Child,
    dir: &'a Path,
}

impl<'a> Mounted<'a> {
    fn new(image: &Path, dir: &'a Path, policies: &[String]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uext4-lab"));
        command.arg("mount");
        for policy in policies {
            command.args(["--policy", policy]);
        }
        let child = command.arg(image).arg(dir).stderr(Stdio::piped()).spawn();
        let mut mounted = Self {
            child: child.unwrap(),
            dir,
        };
        let start = Instant::now();
        while !is_mounted(dir) {
            let ended = mounted.child.try_wait().unwrap();
            assert!(ended.is_none(), "{policies:?}: {ended:?}");
            assert!(start.elapsed() < PATIENCE, "{policies:?}: not mounted");
            thread::sleep(Duration::from_millis(5));
        }
        mounted
    }

    /// Unmounts, and waits until everything is written.
    fn end(mut self) {
        self.unmount();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }

    fn unmount(&self) {
        let unmounted = Command::new("fusermount3").arg("-u").arg(self.dir).status();
        assert!(unmounted.unwrap().success());
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if is_mounted(self.dir) {
            _ = Command::new("fusermount3")
                .arg("-uz")
                .arg(self.dir)
                .status();
            _ = self.child.wait();
        }
    }
}

fn is_mounted(dir: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let dir = dir.to_str().unwrap();
    mounts
        .lines()
        .any(|line| line.split(' ').nth(4) == Some(dir))
}

fn content(file: usize) -> Vec<u8> {
    (0..100_000 + file * 1000)
        .map(|at| (at / 7 + file) as u8)
        .collect()
}

#[test]
fn an_image_is_mounted_with_every_design() {
    if !can_mount() {
        return;
    }
    let place = TempDir::new().unwrap();
    let (image, dir) = (place.path().join("image"), place.path().join("dir"));
    fs::create_dir(&dir).unwrap();
    let dir = dir.canonicalize().unwrap();
    make(&image);
    let rounds = DESIGNS.iter().map(|(_, designs)| designs.len()).max();
    for round in 0..rounds.unwrap() {
        let design = |(subsystem, designs): &(&str, &[&str])| {
            format!("{subsystem}={}", designs[round % designs.len()])
        };
        let policies: Vec<String> = DESIGNS.iter().map(design).collect();
        let mounted = Mounted::new(&image, &dir, &policies);
        for file in 0..8 {
            let path = dir.join(format!("{round}-{file}"));
            fs::write(&path, content(file)).unwrap();
            assert_eq!(fs::read(&path).unwrap(), content(file), "{policies:?}");
        }
        if let Some(before) = round.checked_sub(1) {
            let path = dir.join(format!("{before}-0"));
            assert_eq!(fs::read(path).unwrap(), content(0), "{policies:?}");
        }
        mounted.end();
        let device: Arc<dyn BlockDevice> =
            Arc::new(FileDevice::open(&image, Access::ReadOnly).unwrap());
        assert_eq!(uext4_fsck::findings(&device).unwrap(), [], "{policies:?}");
    }
}

#[test]
fn a_design_that_there_is_not_is_a_usage_error() {
    for policy in [
        "mballoc",
        "mballoc=fastest",
        "raid=mainline",
        "writeback=",
        "mbcache=mb3",
    ] {
        let output = lab(&["mount", "--policy", policy, "image", "dir"]);
        assert_eq!(output.status.code(), Some(2), "{policy}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(policy), "{stderr}");
    }
}
