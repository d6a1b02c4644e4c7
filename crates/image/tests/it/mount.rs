//! What others say of an image: e2fsck, and the kernel where there is one to ask.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::fixture::{has, is_root};

/// Panics unless e2fsck finds nothing to repair.
pub fn assert_clean(image: &Path) {
    if !has("e2fsck") {
        return;
    }
    let output = Command::new("e2fsck")
        .arg("-fn")
        .arg(image)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
}

/// True if images can be mounted here; says so if not.
pub fn can_mount() -> bool {
    let can = is_root() && Path::new("/dev/loop-control").exists();
    if !can {
        println!("skipped: needs root");
    }
    can
}

/// A loop device, gone when dropped.
pub struct Loop {
    device: String,
    file: PathBuf,
}

impl Loop {
    /// Makes one of a file.
    pub fn new(file: &Path, options: &[&str]) -> Self {
        let mut losetup = Command::new("losetup");
        let output = losetup
            .args(options)
            .args(["-f", "--show"])
            .arg(file)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        Self {
            device: String::from_utf8(output.stdout).unwrap().trim().to_owned(),
            file: file.to_owned(),
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        Path::new(&self.device)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
        // The kernel waits for the last to close it, who may be another test that looks for a free one.
        let name = self.device.trim_start_matches("/dev/");
        let backing = format!("/sys/block/{name}/loop/backing_file");
        let is_there =
            || fs::read_to_string(&backing).is_ok_and(|of| Path::new(of.trim()) == self.file);
        let end = Instant::now() + Duration::from_secs(10);
        while is_there() && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// An image mounted by the kernel until dropped.
pub struct Mount {
    dir: tempfile::TempDir,
    _device: Loop,
}

impl Mount {
    /// Mounts with these options.
    pub fn new(image: &Path, options: &str) -> Self {
        let device = Loop::new(image, &[]);
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        let mount = mount
            .args(["-t", "ext4", "-o", options])
            .arg(&device.device)
            .arg(dir.path());
        let output = mount.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        Self {
            dir,
            _device: device,
        }
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.dir.path().to_path_buf()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A process that another test has just forked has its files open until it runs its program.
        let end = Instant::now() + Duration::from_secs(10);
        let umount = || Command::new("umount").arg(self.dir.path()).status();
        while !umount().is_ok_and(|status| status.success()) && Instant::now() < end {
            thread::sleep(Duration::from_millis(10));
        }
    }
}
