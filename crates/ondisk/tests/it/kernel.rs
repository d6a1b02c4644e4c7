//! Images left behind by the running kernel: mounted, changed, and copied before they are
//! unmounted, so that the journal is as after a power cut.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tools;

/// True if this may mount; prints why the test is skipped otherwise.
pub fn may_mount() -> bool {
    let root = Command::new("id").arg("-u").output();
    let root = root.is_ok_and(|o| o.stdout == b"0\n");
    let may = root && Path::new("/dev/loop-control").exists();
    if !may {
        println!("skipped: needs root");
    }
    may && tools::have(&["mke2fs", "debugfs", "losetup", "mount"])
}

/// A loop device with a mounted file system on it; both go when it is dropped.
struct Mount {
    device: String,
    point: tempfile::TempDir,
}

impl Mount {
    fn new(image: &Path, options: &str) -> Self {
        let device = tools::run(Command::new("losetup").args(["-f", "--show"]).arg(image), 0);
        let mount = Self {
            device: String::from_utf8(device).unwrap().trim().to_owned(),
            point: tempfile::tempdir().unwrap(),
        };
        let mut command = Command::new("mount");
        command.args(["-o", options, &mount.device]);
        tools::run(command.arg(mount.point.path()), 0);
        mount
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.point.path()).status();
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
    }
}

fn format(dir: &Path, mke2fs_options: &str) -> PathBuf {
    let image = dir.join("image");
    let mut mke2fs = Command::new("mke2fs");
    mke2fs
        .args(["-q", "-F"])
        .args(mke2fs_options.split_whitespace());
    tools::run(mke2fs.arg(&image).arg("32M"), 0);
    image
}

/// Formats an image, has `fill` run in it while it is mounted, and returns its path.
pub fn filled_image(dir: &Path, mke2fs_options: &str, fill: impl Fn(&Path)) -> PathBuf {
    let image = format(dir, mke2fs_options);
    fill(Mount::new(&image, "defaults").point.path());
    image
}

/// Formats an image, mounts it, runs `change` in it and returns the path of a copy taken while it
/// is still mounted.
pub fn lost_image(
    dir: &Path,
    mke2fs_options: &str,
    mount_options: &str,
    change: impl Fn(&Path),
) -> PathBuf {
    let (image, lost) = (format(dir, mke2fs_options), dir.join("lost"));
    let mount = Mount::new(&image, mount_options);
    change(mount.point.path());
    fs::write(&lost, fs::read(&mount.device).unwrap()).unwrap();
    lost
}

/// Makes what was written so far a transaction.
pub fn sync(mount_point: &Path) {
    tools::run(Command::new("sync").arg("-f").arg(mount_point), 0);
}
