//! A loop device over a file in memory, held to a rate of writing, with an empty ext4.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use uext4_testkit::{is_root, try_run};

use crate::kernel::cgroup::{Rates, Throttled};
use crate::kernel::undo::Undo;

/// Where its file lies: in memory, so that the rate is the limit and nothing else.
const MEMORY: &str = "/dev/shm";
/// Bytes for the journal and all else that is not data.
const SPARE: u64 = 2 << 30;
/// Undoes everything in its order. What is mounted may be in use by a process that is being killed.
const UNDO: &str = "for i in 1 2 3 4 5 6 7 8 9 10; do \
                    mountpoint -q \"$1\" || break; umount \"$1\" && break; sleep 0.2; done; \
                    mountpoint -q \"$1\" && umount -l \"$1\"; losetup -d \"$2\"; \
                    losetup --remove \"$2\" 2>/dev/null; rm -rf \"$3\"";
/// Numbers of loop devices that are tried. What is below is for others.
const NUMBERS: std::ops::Range<u32> = 64..4096;

/// The device; unmounted, detached and removed when dropped, and when this process is killed.
#[derive(Debug)]
pub struct Disk {
    throttled: Option<Throttled>,
    device: PathBuf,
    dir: PathBuf,
    _undo: Undo,
    _place: TempDir,
}

impl Disk {
    /// A device that has room for `bytes` of data and holds what is in the directory `content`, not
    /// mounted yet and as fast as memory.
    ///
    /// # Errors
    /// What this machine lacks: root, loop devices, mke2fs.
    pub fn new(bytes: u64, content: Option<&Path>) -> Result<Self, String> {
        if !is_root() || !Path::new("/dev/loop-control").exists() {
            return Err("needs root and loop devices".to_owned());
        }
        let text = |error: std::io::Error| error.to_string();
        let place = TempDir::new_in(MEMORY).map_err(text)?;
        let (image, dir) = (place.path().join("image"), place.path().join("dir"));
        fs::create_dir(&dir).map_err(text)?;
        let file = File::create(&image).map_err(text)?;
        file.set_len(bytes + SPARE).map_err(text)?;
        let device = attach(&image)?;
        let undo = Undo::command([
            "sh".as_ref(),
            "-c".as_ref(),
            UNDO.as_ref(),
            "sh".as_ref(),
            dir.as_os_str(),
            device.as_os_str(),
            place.path().as_os_str(),
        ]);
        let undo = undo.inspect_err(|_| {
            _ = try_run("losetup", ["-d".as_ref(), device.as_os_str()]);
        })?;
        // Tables are zero already, and nothing is to be written behind the writers' back.
        let wishes = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
        let mut options = ["-q", "-F", "-E", wishes].map(OsStr::new).to_vec();
        options.extend(
            content
                .iter()
                .flat_map(|dir| ["-d".as_ref(), dir.as_os_str()]),
        );
        options.push(device.as_os_str());
        try_run("mkfs.ext4", options)?;
        // What mke2fs wrote is read from the device again.
        try_run("blockdev", ["--flushbufs".as_ref(), device.as_os_str()])?;
        Ok(Self {
            throttled: None,
            device,
            dir,
            _undo: undo,
            _place: place,
        })
    }

    /// Holds it to `rate` bytes written a second from now on.
    ///
    /// # Errors
    /// Why control groups cannot do that.
    pub fn hold(mut self, rate: u64) -> Result<Self, String> {
        let rates = Rates {
            read: None,
            write: Some(rate),
        };
        self.throttled = Some(Throttled::new(&self.device, rates)?);
        Ok(self)
    }

    /// The block device.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// Where it is to be mounted.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Mounts it with the kernel's ext4.
    ///
    /// # Errors
    /// What mount(8) printed.
    pub fn mount(&self) -> Result<(), String> {
        let words = ["-t".as_ref(), "ext4".as_ref(), self.device.as_os_str()];
        try_run("mount", words.into_iter().chain([self.dir.as_os_str()])).map(drop)
    }

    /// Has a process that this one starts use the device at its rate.
    ///
    /// # Errors
    /// Why the kernel did not move the process to the device's control group.
    pub fn enter(&self, process: u32) -> Result<(), String> {
        match &self.throttled {
            Some(throttled) => throttled.enter(process),
            None => Ok(()),
        }
    }

    /// Lets the device go as fast as it can, so that what is dirty is soon written.
    pub fn release(&mut self) {
        self.throttled = None;
    }

    /// `7:0`, as trace events name the device.
    ///
    /// # Errors
    /// Why sysfs cannot be read.
    pub fn numbers(&self) -> Result<String, String> {
        Ok(self.attribute("dev")?.trim().to_owned())
    }

    /// Bytes written to it since it was attached.
    ///
    /// # Errors
    /// Why sysfs cannot be read.
    pub fn written(&self) -> Result<u64, String> {
        let stat = self.attribute("stat")?;
        // The seventh field of Documentation/block/stat.rst: sectors of 512 bytes written.
        let sectors = stat.split_whitespace().nth(6);
        let sectors = sectors.and_then(|text| text.parse::<u64>().ok());
        sectors
            .map(|sectors| sectors * 512)
            .ok_or_else(|| format!("{}: {stat:?}", self.device.display()))
    }

    fn attribute(&self, name: &str) -> Result<String, String> {
        let device = self.device.file_name().unwrap_or_default();
        let file = Path::new("/sys/block").join(device).join(name);
        fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))
    }
}

/// Attaches the file to a loop device of a number that was never used: the kernel remembers for
/// each device how fast its writers may dirty pages, and the next user would begin with that.
/// losetup of util-linux 2.41 can remove the number again; with an older one it stays until the
/// machine restarts.
fn attach(image: &Path) -> Result<PathBuf, String> {
    let mut last = "each number of a loop device is used".to_owned();
    for number in NUMBERS {
        let name = format!("loop{number}");
        if Path::new("/sys/block").join(&name).exists() {
            continue;
        }
        let device = Path::new("/dev").join(name);
        let words = [
            "--direct-io=on".as_ref(),
            device.as_os_str(),
            image.as_os_str(),
        ];
        match try_run("losetup", words) {
            Ok(_) => return Ok(device),
            // Another process may have taken the number meanwhile.
            Err(error) => last = error,
        }
        if !Path::new("/sys/block")
            .join(format!("loop{number}"))
            .exists()
        {
            break;
        }
    }
    Err(last)
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.release();
    }
}
