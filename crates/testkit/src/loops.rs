//! Loop devices, and images that the kernel's ext4 has mounted through them. Needs root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::tools::{has_tool, is_root, said, try_run, unmount_lazily, while_busy};

/// True if loop devices can be made and mounted; otherwise prints why the test is skipped.
pub fn can_mount() -> bool {
    let possible = is_root() && Path::new("/dev/loop-control").exists();
    if !possible {
        println!("skipped: needs root and loop devices");
    }
    possible && has_tool("mke2fs")
}

/// A file attached as a block device; detached when dropped.
#[derive(Debug)]
pub struct Loop {
    device: PathBuf,
    file: PathBuf,
}

impl Loop {
    /// Attaches a file.
    #[track_caller]
    pub fn new(file: &Path) -> Self {
        Self::with_options(file, &[]).unwrap()
    }

    /// Attaches a file with more options of losetup(8). Another process may attach the device that
    /// was free a moment ago, so this tries again for a while.
    ///
    /// # Errors
    /// What losetup said last.
    pub fn with_options(file: &Path, options: &[&str]) -> Result<Self, String> {
        let mut arguments = options.to_vec();
        // OK to unwrap: a path that a test made.
        arguments.extend(["--find", "--show", file.to_str().unwrap()]);
        let end = Instant::now() + Duration::from_secs(5);
        loop {
            match try_run("losetup", &arguments) {
                Ok(reported) => {
                    return Ok(Self {
                        device: String::from_utf8_lossy(&reported).trim().into(),
                        file: file.to_owned(),
                    });
                }
                Err(message) if Instant::now() > end => return Err(message),
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// The block device.
    pub fn path(&self) -> &Path {
        &self.device
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        _ = try_run("losetup", ["-d".as_ref(), self.device.as_path()]);
        // The kernel detaches it when the last process closes it: another test that looks for a
        // free device may have it open.
        let name = self.device.file_name().unwrap_or_default();
        let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
        let is_there =
            || fs::read_to_string(&backing).is_ok_and(|of| Path::new(of.trim()) == self.file);
        let end = Instant::now() + Duration::from_secs(10);
        while is_there() && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// An image mounted by the kernel's ext4; unmounted and detached when dropped. A test that still
/// has one of its files open then fails: it would wait long for nothing.
#[derive(Debug)]
pub struct Mount {
    point: TempDir,
    /// Dropped after the mount.
    device: Loop,
}

impl Mount {
    /// Mounts an image with these options.
    #[track_caller]
    pub fn new(image: &Path, options: &str) -> Self {
        Self::attempt(image, options).unwrap_or_else(|message| panic!("{message}"))
    }

    /// Mounts an image. The loop device is writable also where the mount is not: the journal may
    /// have to be replayed.
    ///
    /// # Errors
    /// What mount(8) said if the kernel refuses the file system.
    pub fn attempt(image: &Path, options: &str) -> Result<Self, String> {
        Self::on(Loop::with_options(image, &[])?, options)
    }

    /// Mounts a loop device.
    ///
    /// # Errors
    /// What mount(8) said if the kernel refuses the file system.
    pub fn on(device: Loop, options: &str) -> Result<Self, String> {
        let point = TempDir::new().map_err(|error| error.to_string())?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "ext4", "-o", options]);
        mount.arg(device.path()).arg(point.path());
        let output = mount.output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(Self { point, device }),
            false => Err(format!("mount {options}: {}", said(&output))),
        }
    }

    /// The loop device that it is mounted from.
    pub fn device(&self) -> &Path {
        self.device.path()
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.point.path()
    }

    /// Stops the file system as a power cut does: nothing is written any more. `how` is the flag of
    /// `EXT4_IOC_SHUTDOWN`: 0 writes everything first, 1 the log, 2 nothing.
    #[track_caller]
    pub fn shut_down(&self, how: u32) {
        let script = "import fcntl, os, struct, sys\n\
            place = os.open(sys.argv[1], os.O_RDONLY)\n\
            fcntl.ioctl(place, 0x8004587d, struct.pack('I', int(sys.argv[2])))\n";
        let (path, flag) = (self.path().as_os_str(), how.to_string());
        let arguments = ["-c".as_ref(), script.as_ref(), path, flag.as_ref()];
        crate::run("python3", arguments);
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A test that panics has this run: another panic would hide the first.
        let unmounted =
            std::panic::catch_unwind(|| while_busy(Command::new("umount").arg(self.point.path())));
        if !unmounted.is_ok_and(|output| output.status.success()) {
            unmount_lazily(self.point.path());
            let point = self.point.path().display();
            assert!(
                thread::panicking(),
                "{point} is in use: a file of it is open"
            );
        }
    }
}
