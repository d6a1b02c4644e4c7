//! The kernel's ext4 on an image of the lab's: made, attached, mounted, and all of that undone.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use uext4_testkit::{is_root, try_run};

use super::undo::Undo;

/// How long this tries to get a loop device that another process may just have taken, and to
/// unmount while a process that is being started still has our files open.
const PATIENCE: Duration = Duration::from_secs(10);
/// Undoes what a killed process left; it fails without effect where all was undone.
const CLEAN: &str = "umount -l \"$1\"; rm -rf \"$2\"";

/// What is to be made and mounted.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// Bytes of the image, which begins as one hole.
    pub bytes: u64,
    /// Options of mke2fs(8), which makes an ext4; for example `&["-b", "1024"]`.
    pub format: &'a [&'a str],
    /// Options of the mount, separated by commas; empty for the defaults.
    pub options: &'a str,
    /// Options of losetup(8); for example `&["--direct-io=on"]`.
    pub attach: &'a [&'a str],
    /// The directory for the image; memory (`/dev/shm`) if there is room for it, else the directory
    /// for temporary files.
    pub dir: Option<&'a Path>,
}

impl Default for Plan<'_> {
    fn default() -> Self {
        Self {
            bytes: 1 << 30,
            format: &[],
            options: "",
            attach: &[],
            dir: None,
        }
    }
}

/// A file system of the kernel's; unmounted, detached and deleted when dropped, also if this
/// process is killed.
#[derive(Debug)]
pub struct Mounted {
    is_mounted: bool,
    device: PathBuf,
    dir: TempDir,
    _undo: Undo,
}

/// Why no file system can be mounted here; `None` if it can.
pub fn obstacle() -> Option<String> {
    if !is_root() {
        return Some("mounting needs root".to_owned());
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_missing =
        |tool: &&&str| !std::env::split_paths(&paths).any(|dir| dir.join(tool).exists());
    if let Some(tool) = ["mke2fs", "losetup", "mount"].iter().find(is_missing) {
        return Some(format!("{tool} is not installed"));
    }
    let control = Path::new("/dev/loop-control");
    (!control.exists()).then(|| "there are no loop devices".to_owned())
}

/// A new directory with room for `bytes`.
fn scratch(plan: &Plan) -> Result<TempDir, String> {
    let memory = Path::new("/dev/shm");
    let free = rustix::fs::statvfs(memory).map_or(0, |s| s.f_bavail.saturating_mul(s.f_frsize));
    let made = match plan.dir {
        Some(dir) => TempDir::new_in(dir),
        None if free / 2 > plan.bytes => TempDir::new_in(memory),
        None => TempDir::new(),
    };
    made.map_err(|error| format!("a directory for the image: {error}"))
}

/// Does it again until it succeeds or patience ends.
fn again<T>(mut work: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    let end = Instant::now() + PATIENCE;
    loop {
        match work() {
            Err(_) if Instant::now() < end => thread::sleep(Duration::from_millis(50)),
            other => return other,
        }
    }
}

impl Mounted {
    /// Makes an image with an ext4, attaches it to a loop device and mounts it.
    ///
    /// # Errors
    /// What stands in the way ([`obstacle`]), or what mke2fs, losetup or mount said.
    pub fn new(plan: &Plan) -> Result<Self, String> {
        if let Some(obstacle) = obstacle() {
            return Err(obstacle);
        }
        let dir = scratch(plan)?;
        let (image, point) = (dir.path().join("image"), dir.path().join("mount"));
        let words = ["sh", "-c", CLEAN, "sh"].map(AsRef::as_ref);
        let undo = Undo::command(
            words
                .into_iter()
                .chain([point.as_os_str(), dir.path().as_os_str()]),
        )?;
        std::fs::create_dir(&point).map_err(|error| format!("{}: {error}", point.display()))?;
        let file = File::create(&image).and_then(|file| file.set_len(plan.bytes));
        file.map_err(|error| format!("{}: {error}", image.display()))?;
        let format = ["-q", "-F", "-t", "ext4"].iter().chain(plan.format);
        let format = format.map(AsRef::as_ref).chain([image.as_os_str()]);
        try_run("mke2fs", format)?;
        let attach = ["--find", "--show"].iter().chain(plan.attach);
        let attach: Vec<_> = attach
            .map(AsRef::as_ref)
            .chain([image.as_os_str()])
            .collect();
        let said = again(|| try_run("losetup", &attach))?;
        let device = PathBuf::from(String::from_utf8_lossy(&said).trim());
        let options = match plan.options {
            "" => "defaults",
            options => options,
        };
        let words = ["-t", "ext4", "-o", options].map(AsRef::as_ref);
        let mounted = try_run(
            "mount",
            words
                .into_iter()
                .chain([device.as_os_str(), point.as_os_str()]),
        );
        // The kernel detaches a device that is in use when its last user has gone: so the mount
        // alone holds it, and nothing else is to be undone.
        _ = try_run("losetup", ["-d".as_ref(), device.as_os_str()]);
        mounted?;
        Ok(Self {
            is_mounted: true,
            device,
            dir,
            _undo: undo,
        })
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mount")
    }

    /// The image; it is complete only after [`Mounted::unmount`].
    pub fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    /// The device's name below `/proc/fs/ext4` and `/sys/fs/ext4`, for example `loop3`.
    pub fn name(&self) -> String {
        let name = self.device.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// The device's numbers as [`super::trace::Event::is_on`] takes them, for example `7:3`.
    ///
    /// # Errors
    /// What stat(2) failed with.
    pub fn numbers(&self) -> Result<String, String> {
        let (major, minor) = self.device_numbers()?;
        Ok(format!("{major}:{minor}"))
    }

    /// A filter that passes the trace events of this file system only.
    ///
    /// # Errors
    /// What stat(2) failed with.
    pub fn filter(&self) -> Result<String, String> {
        let (major, minor) = self.device_numbers()?;
        // The kernel's own representation of a device's numbers.
        Ok(format!(
            "dev == {}",
            (u64::from(major) << 20) | u64::from(minor)
        ))
    }

    fn device_numbers(&self) -> Result<(u32, u32), String> {
        let status = rustix::fs::stat(&self.device)
            .map_err(|error| format!("{}: {error}", self.device.display()))?;
        let device = status.st_rdev;
        Ok((rustix::fs::major(device), rustix::fs::minor(device)))
    }

    /// Unmounts. The image stays until this is dropped.
    ///
    /// # Errors
    /// What umount(8) said last: a process still uses the file system.
    pub fn unmount(&mut self) -> Result<(), String> {
        if self.is_mounted {
            again(|| try_run("umount", [self.path()]))?;
            self.is_mounted = false;
        }
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // If it fails, the guard unmounts it lazily and removes the directory.
        _ = self.unmount();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn an_image_is_mounted_and_all_of_it_goes() {
        if let Some(why) = obstacle() {
            println!("skipped: {why}");
            return;
        }
        let plan = Plan {
            bytes: 64 << 20,
            format: &["-b", "1024"],
            options: "noatime",
            ..Plan::default()
        };
        let mut mounted = Mounted::new(&plan).unwrap();
        fs::write(mounted.path().join("file"), "contents").unwrap();
        let block = rustix::fs::statvfs(mounted.path()).unwrap().f_bsize;
        assert_eq!(block, 1024);
        assert!(mounted.numbers().unwrap().starts_with("7:"));
        let attached = Path::new("/sys/block").join(mounted.name()).join("loop");
        let ours = |file: &Path| {
            let text = fs::read_to_string(attached.join("backing_file")).unwrap_or_default();
            Path::new(text.trim()) == file
        };
        let image = mounted.image();
        assert!(ours(&image));
        mounted.unmount().unwrap();
        assert!(!mounted.path().join("file").exists());
        assert_eq!(uext4_testkit::complaints(&image), None);
        drop(mounted);
        assert!(!image.exists() && !ours(&image));
    }

    #[test]
    fn what_the_tools_say_is_the_error() {
        if let Some(why) = obstacle() {
            println!("skipped: {why}");
            return;
        }
        let plan = Plan {
            bytes: 64 << 20,
            options: "no_such_option",
            ..Plan::default()
        };
        let error = Mounted::new(&plan).unwrap_err();
        assert!(error.contains("no_such_option"), "{error}");
    }
}
