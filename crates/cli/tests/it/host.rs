//! The machine the tests run on: tools, loop devices, mounts, scratch space, the command itself.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub use uext4_testkit::{
    Loop, Mount, RingsAllowed, assert_clean, can_mount, copy_image, debugfs, debugfs_write,
    dumpe2fs, has_tool, scratch, unmount_lazily, while_busy,
};

/// True if ordinary users may open `/dev/fuse`; else says that the test is skipped. If root runs
/// the tests by cargo, `scripts/run-test` has seen to it, if it could.
pub fn is_fuse_open_to_users() -> bool {
    let found = std::fs::metadata("/dev/fuse");
    let possible = found.is_ok_and(|found| found.permissions().mode() & 0o6 == 0o6);
    if !possible {
        println!(
            "skipped: needs a /dev/fuse of mode 0666, or root with CAP_SYS_ADMIN and CAP_MKNOD"
        );
    }
    possible
}

/// True if tests are to take long, and see more.
pub fn is_long() -> bool {
    std::env::var_os("UEXT4_LONG").is_some()
}

/// Runs a tool, which must succeed, and returns what it printed.
#[track_caller]
pub fn run(tool: &str, arguments: &[&str]) -> Vec<u8> {
    uext4_testkit::run(tool, arguments)
}

/// Runs a tool that unmounts, and panics with what it said if it fails.
pub fn unmount(tool: &str, arguments: &[&str]) {
    let output = while_busy(Command::new(tool).args(arguments));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{tool} {arguments:?}: {stderr}");
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The command under test.
pub const UEXT4: &str = env!("CARGO_BIN_EXE_uext4");

/// Runs it.
pub fn uext4(arguments: &[&str]) -> Output {
    Command::new(UEXT4).args(arguments).output().unwrap()
}

/// Runs the command under test, which must succeed.
pub fn uext4_ok(arguments: &[&str]) -> Vec<u8> {
    run(UEXT4, arguments)
}

/// Makes an empty image with the options given, of this many MiB.
pub fn mke2fs(image: &Path, options: &[&str], mib: u32) {
    uext4_testkit::mke2fs(image, options, &format!("{mib}M"));
}

/// An image mounted by the kernel; `None`, with a word why, if it refuses the file system.
pub fn mounted(image: &Path, read_only: bool) -> Option<Mount> {
    let needs_replay = read_only && dumpe2fs(image).contains("needs_recovery");
    let (attached, options) = match read_only {
        true if needs_replay => (Loop::with_options(image, &["-r"]), "ro"),
        true => (Loop::with_options(image, &["-r"]), "ro,noload"),
        false => (Loop::with_options(image, &[]), "rw,noatime"),
    };
    let mount = Mount::on(attached.unwrap(), options);
    mount
        .map_err(|why| println!("skipped: the kernel refuses: {why}"))
        .ok()
}

/// An image at a place, shown by the kernel's own ext4; unmounted when dropped, so also where a
/// test fails: what stays mounted keeps its memory and a loop device for ever.
pub struct Shown {
    place: PathBuf,
    is_mounted: bool,
}

impl Shown {
    /// Mounts with the options given, besides `loop`.
    pub fn new(image: &Path, place: &Path, options: &str) -> Self {
        let options = format!("loop,{options}");
        run("mount", &["-o", &options, text(image), text(place)]);
        Self {
            place: place.to_owned(),
            is_mounted: true,
        }
    }

    /// Unmounts, which must succeed.
    pub fn end(mut self) {
        unmount("umount", &[text(&self.place)]);
        self.is_mounted = false;
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if self.is_mounted {
            unmount_lazily(&self.place);
        }
    }
}
