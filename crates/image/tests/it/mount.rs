//! What others say of an image: e2fsck, and the kernel where there is one to ask.

use std::path::{Path, PathBuf};
use std::process::Command;

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
pub struct Loop(String);

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
        Self(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
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
            .arg(&device.0)
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
        let _ = Command::new("umount").arg(self.dir.path()).status();
    }
}
