//! A file system that the system mounts, through system calls.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, statat, unlinkat};
use tempfile::TempDir;

use crate::loop_mount::LoopMount;
use crate::measure::{BYTES, CALL, Clock, Names, rate};
use crate::ours::mke2fs;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Kernel,
    Fuse,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Fuse => "fuse2fs",
        }
    }
}

/// A mounted file system with two directories; unmounted at the end.
pub struct Mounted {
    kind: Kind,
    dirs: Vec<File>,
    kernels: Option<LoopMount>,
    point: PathBuf,
    _dir: TempDir,
}

pub fn run(program: &str, args: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(args).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(format!("{program}: {said}"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Mounted {
    /// # Errors
    /// Why it cannot be mounted here.
    pub fn new(kind: Kind) -> Result<Self, String> {
        let dir = tempfile::tempdir_in("/dev/shm").map_err(|error| error.to_string())?;
        let (image, point) = (dir.path().join("x.img"), dir.path().join("m"));
        mke2fs(&image);
        std::fs::create_dir(&point).map_err(|error| error.to_string())?;
        let (at, from) = (point.to_str().unwrap(), image.to_str().unwrap());
        let mut mounted = Self {
            kind,
            dirs: Vec::new(),
            kernels: None,
            point: point.clone(),
            _dir: dir,
        };
        match kind {
            Kind::Kernel => mounted.kernels = Some(LoopMount::new(&image, &point, "")?),
            Kind::Fuse => _ = run("fuse2fs", &["-o", "rw", from, at])?,
        }
        for name in ["a", "b"] {
            let path = point.join(name);
            std::fs::create_dir(&path).map_err(|error| error.to_string())?;
            let opened = File::open(&path).map_err(|error| error.to_string())?;
            mounted.dirs.push(opened);
        }
        Ok(mounted)
    }

    /// Megabytes a second of writing a file into the page cache, and of reading it from there.
    pub fn bytes(&self) -> (f64, f64) {
        let mut options = File::options();
        let options = options.read(true).write(true).create(true);
        let file = options.open(self.point.join("f")).unwrap();
        let mut data = vec![1u8; CALL];
        let offsets = || (0..BYTES).step_by(CALL).map(|at| at as u64);
        let fill = || offsets().for_each(|at| file.write_all_at(&data, at).unwrap());
        fill();
        file.set_len(0).unwrap();
        file.sync_all().unwrap();
        let write = rate(Clock::Wall, BYTES, fill);
        let read = rate(Clock::Wall, BYTES, || {
            offsets().for_each(|at| file.read_exact_at(&mut data, at).unwrap());
        });
        (write / 1e6, read / 1e6)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.dirs.clear();
        if self.kind == Kind::Fuse {
            // What was not mounted cannot be unmounted, and need not be.
            _ = run("umount", &[self.point.to_str().unwrap()]);
        }
        self.kernels = None;
    }
}

impl Names for Mounted {
    fn subject(&self) -> &'static str {
        self.kind.name()
    }

    fn create(&self, dir: usize, name: &str) {
        let how = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        drop(openat(&self.dirs[dir], name, how, Mode::from(0o644)).unwrap());
    }

    fn stat(&self, dir: usize, name: &str) {
        statat(&self.dirs[dir], name, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }

    fn rename(&self, dir: usize, name: &str, to: &str) {
        renameat(&self.dirs[dir], name, &self.dirs[dir], to).unwrap();
    }

    fn unlink(&self, dir: usize, name: &str) {
        unlinkat(&self.dirs[dir], name, AtFlags::empty()).unwrap();
    }
}
