//! The machine the tests run on: tools, loop devices, mounts, scratch space, the command itself.

use std::fs::File;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// Bytes that must be free for the scratch directory to lie in memory.
const MEMORY_NEEDED: u64 = 2 << 30;

/// True if loop devices can be made and mounted; else says that the test is skipped.
pub fn can_mount() -> bool {
    let root = rustix::process::geteuid().is_root();
    let possible = root && Path::new("/dev/loop-control").exists() && has_tool("mke2fs");
    if !possible {
        println!("skipped: needs root, loop devices and mke2fs");
    }
    possible
}

/// True if ordinary users may open `/dev/fuse`; else says that the test is skipped. Where root runs the
/// tests by cargo, `scripts/run-test` has seen to it, if it could.
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

/// The machine's permission to mount over io_uring; as it was before when dropped.
pub struct RingsAllowed {
    parameter: File,
    before: String,
}

impl RingsAllowed {
    const PATH: &str = "/sys/module/fuse/parameters/enable_uring";

    fn opened() -> Option<File> {
        let opened = File::options().read(true).write(true).open(Self::PATH);
        if opened.is_err() {
            println!("skipped: needs root and FUSE over io_uring");
        }
        opened.ok()
    }

    /// True if the machine has it to give; else says that the test is skipped.
    pub fn can_be_had() -> bool {
        Self::opened().is_some()
    }

    /// Where the machine has none, it says that the test is skipped. Whoever else wants it waits.
    pub fn new() -> Option<Self> {
        let parameter = Self::opened()?;
        rustix::fs::flock(&parameter, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let before = std::fs::read_to_string(Self::PATH).unwrap();
        let allowed = Self { parameter, before };
        allowed.set(true);
        Some(allowed)
    }

    /// Allows or forbids them.
    pub fn set(&self, on: bool) {
        let told = if on { b"Y" } else { b"N" };
        self.parameter.write_all_at(told, 0).unwrap();
    }
}

impl Drop for RingsAllowed {
    fn drop(&mut self) {
        self.parameter
            .write_all_at(self.before.as_bytes(), 0)
            .unwrap();
    }
}

/// True if tests are to take long, and see more.
pub fn is_long() -> bool {
    std::env::var_os("UEXT4_LONG").is_some()
}

/// True if the tool is there; else says that the test is skipped.
pub fn has_tool(tool: &str) -> bool {
    let found = Command::new(tool).arg("-V").output().is_ok();
    if !found {
        println!("skipped: needs {tool}");
    }
    found
}

/// A directory that goes away with the test; in memory where there is room.
pub fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let room = rustix::fs::statvfs(memory).map_or(0, |s| s.f_bavail * s.f_frsize);
    let made = if room > MEMORY_NEEDED {
        TempDir::new_in(memory)
    } else {
        TempDir::new()
    };
    made.unwrap()
}

/// Runs a tool and panics with all it said if it fails.
pub fn run(tool: &str, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(tool).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{tool} {arguments:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

/// Runs a tool that unmounts, and panics with what it said if it fails.
pub fn unmount(tool: &str, arguments: &[&str]) {
    let output = while_busy(Command::new(tool).args(arguments));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{tool} {arguments:?}: {stderr}");
}

/// Runs a command that unmounts, again while the mount is in use: a process that another test has
/// forked holds the files that are open here until it becomes its program. Returns its last output.
pub fn while_busy(command: &mut Command) -> Output {
    for _ in 0..100 {
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        if output.status.success() || !(stderr.contains("in use") || stderr.contains("busy")) {
            return output;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("{command:?}: still in use");
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
    let size = format!("{mib}M");
    let mut arguments = vec!["-q", "-F"];
    arguments.extend(options);
    arguments.extend([text(image), &size]);
    run("mke2fs", &arguments);
}

/// A mounted image; unmounted and detached when dropped.
pub struct Mount {
    device: String,
    point: TempDir,
}

impl Mount {
    /// Mounts; `None`, with a word why, if the kernel refuses the file system.
    pub fn new(image: &Path, read_only: bool) -> Option<Self> {
        let mut mount = Self {
            device: attach(image, read_only),
            point: TempDir::new().unwrap(),
        };
        let options = if read_only { "ro,noload" } else { "rw,noatime" };
        let options = if read_only && needs_replay(image) {
            "ro"
        } else {
            options
        };
        let output = Command::new("mount")
            .args(["-t", "ext4", "-o", options, &mount.device])
            .arg(mount.point.path())
            .output()
            .unwrap();
        if output.status.success() {
            return Some(mount);
        }
        println!(
            "skipped: the kernel refuses: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        detach(&std::mem::take(&mut mount.device));
        None
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.point.path()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.device.is_empty() {
            return;
        }
        // No panic here: it would hide the one that may be on its way.
        let unmounted = Command::new("umount").arg(self.point.path()).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            let _ = Command::new("umount")
                .arg("-l")
                .arg(self.point.path())
                .status();
        }
        detach(&self.device);
    }
}

/// An image at a place, shown by the kernel's own ext4; unmounted when dropped, so also where a test
/// fails: what stays mounted keeps its memory and a loop device for ever.
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
            _ = Command::new("umount").arg("-l").arg(&self.place).output();
        }
    }
}

fn needs_replay(image: &Path) -> bool {
    let told = run("dumpe2fs", &["-h", text(image)]);
    String::from_utf8_lossy(&told).contains("needs_recovery")
}

/// A loop device. Others may take the one that was free a moment ago.
fn attach(image: &Path, read_only: bool) -> String {
    for _ in 0..50 {
        let mut command = Command::new("losetup");
        if read_only {
            command.arg("-r");
        }
        let output = command.args(["-f", "--show"]).arg(image).output().unwrap();
        if output.status.success() {
            return String::from_utf8(output.stdout).unwrap().trim().to_owned();
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("no loop device for {}", image.display());
}

fn detach(device: &str) {
    let _ = Command::new("losetup").args(["-d", device]).status();
}

/// A copy of an image that keeps its holes.
pub fn copy_image(image: &Path, to: &str) -> PathBuf {
    let copy = image.with_file_name(to);
    run("cp", &["--sparse=always", text(image), text(&copy)]);
    copy
}

/// Changes an image by commands of debugfs.
pub fn debugfs(image: &Path, commands: &[&str]) {
    for command in commands {
        // It always succeeds; what went wrong stands behind its version.
        let output = Command::new("debugfs")
            .args(["-w", "-R", command, text(image)])
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(told.lines().count(), 1, "debugfs {command}: {told}");
    }
}
