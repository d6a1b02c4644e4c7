//! Images left behind by the running kernel: mounted, changed, and copied before they are
//! unmounted, so that the journal is as after a power cut.

use std::fs;
use std::path::{Path, PathBuf};

use uext4_testkit::{Mount, mke2fs, run};

fn format(dir: &Path, mke2fs_options: &str) -> PathBuf {
    let image = dir.join("image");
    mke2fs(&image, mke2fs_options.split_whitespace(), "32M");
    image
}

/// Formats an image, has `fill` run in it while it is mounted, and returns its path.
pub fn filled_image(dir: &Path, mke2fs_options: &str, fill: impl Fn(&Path)) -> PathBuf {
    let image = format(dir, mke2fs_options);
    fill(Mount::new(&image, "defaults").path());
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
    change(mount.path());
    fs::write(&lost, fs::read(mount.device()).unwrap()).unwrap();
    lost
}

/// Makes what was written so far a transaction.
pub fn sync(mount_point: &Path) {
    run("sync", ["-f".as_ref(), mount_point]);
}
