//! Random operations on a mounted file system, each made durable by an fsync: what the kernel
//! reports in fast commits.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use uext4_testkit::SplitMix64;

/// Files and directories there are at once, at most.
const FILES_MAX: usize = 60;
const DIRS_MAX: usize = 12;

/// What there is below a mount.
pub struct Workload {
    random: SplitMix64,
    files: Vec<PathBuf>,
    dirs: Vec<PathBuf>,
    made: u64,
}

impl Workload {
    pub fn new(root: &Path, seed: u64) -> Self {
        Self {
            random: SplitMix64::new(seed),
            files: Vec::new(),
            dirs: vec![root.to_path_buf()],
            made: 0,
        }
    }

    fn below(&mut self, count: usize) -> usize {
        self.random.below(count as u64) as usize
    }

    fn file(&mut self) -> Option<PathBuf> {
        let count = self.files.len();
        (count > 0)
            .then(|| self.below(count))
            .map(|at| self.files[at].clone())
    }

    fn new_name(&mut self) -> PathBuf {
        let at = self.below(self.dirs.len());
        self.made += 1;
        let padding = "-".repeat(self.below(40));
        self.dirs[at].join(format!("{}{padding}", self.made))
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let len = 1 + self.below(most);
        vec![b'a' + self.below(26) as u8; len]
    }

    /// Does something, and makes it durable.
    pub fn step(&mut self) {
        let done = match self.below(14) {
            0..4 => self.create(),
            4..6 => self.write(),
            6 => self.truncate(),
            7 => self.allocate(),
            8 => self.rename(),
            9 => self.link(),
            10..12 => self.unlink(),
            12 => self.make_dir(),
            _ => self.remove_dir(),
        };
        // What has no file of its own rides on that of another.
        if done.is_none() {
            let name = self.new_name();
            File::create(&name).unwrap().sync_all().unwrap();
            self.files.push(name);
        }
    }

    fn create(&mut self) -> Option<()> {
        if self.files.len() >= FILES_MAX {
            return self.unlink();
        }
        let name = self.new_name();
        let file = File::create(&name).unwrap();
        if self.below(4) > 0 {
            let bytes = self.bytes(40_000);
            file.write_all_at(&bytes, 0).unwrap();
        }
        let mode = 0o600 + self.below(64) as u32;
        file.set_permissions(fs::Permissions::from_mode(mode))
            .unwrap();
        file.sync_all().unwrap();
        self.files.push(name);
        Some(())
    }

    fn write(&mut self) -> Option<()> {
        let name = self.file()?;
        let file = OpenOptions::new().write(true).open(name).unwrap();
        for _ in 0..=self.below(3) {
            let (bytes, at) = (self.bytes(20_000), self.below(150_000) as u64);
            file.write_all_at(&bytes, at).unwrap();
        }
        file.sync_all().unwrap();
        Some(())
    }

    fn truncate(&mut self) -> Option<()> {
        let name = self.file()?;
        let file = OpenOptions::new().write(true).open(name).unwrap();
        file.set_len(self.below(120_000) as u64).unwrap();
        file.sync_all().unwrap();
        Some(())
    }

    fn allocate(&mut self) -> Option<()> {
        let name = self.file()?;
        let file = OpenOptions::new().write(true).open(name).unwrap();
        let keep = FallocateFlags::KEEP_SIZE;
        let flags = match self.below(3) {
            0 => keep | FallocateFlags::PUNCH_HOLE,
            1 => keep,
            _ => FallocateFlags::empty(),
        };
        let (at, len) = (self.below(100_000) as u64, 1 + self.below(50_000) as u64);
        // Not every map can do this.
        let _ = rustix::fs::fallocate(&file, flags, at, len);
        file.sync_all().unwrap();
        Some(())
    }

    fn rename(&mut self) -> Option<()> {
        let from = self.file()?;
        let to = match self.below(2) {
            0 => self.new_name(),
            _ => self.file()?,
        };
        fs::rename(&from, &to).unwrap();
        // Two names of one inode both stay.
        let stays = from.exists();
        self.files
            .retain(|name| *name != to && (stays || *name != from));
        self.files.push(to.clone());
        File::open(&to).unwrap().sync_all().unwrap();
        None
    }

    fn link(&mut self) -> Option<()> {
        let from = self.file()?;
        let to = self.new_name();
        fs::hard_link(&from, &to).unwrap();
        File::open(&to).unwrap().sync_all().unwrap();
        self.files.push(to);
        Some(())
    }

    fn unlink(&mut self) -> Option<()> {
        let name = self.file()?;
        fs::remove_file(&name).unwrap();
        self.files.retain(|other| *other != name);
        None
    }

    fn make_dir(&mut self) -> Option<()> {
        if self.dirs.len() < DIRS_MAX {
            let name = self.new_name();
            fs::create_dir(&name).unwrap();
            self.dirs.push(name);
        }
        None
    }

    fn remove_dir(&mut self) -> Option<()> {
        let at = self.below(self.dirs.len());
        // The root and what is not empty stay.
        if at > 0 && fs::remove_dir(&self.dirs[at]).is_ok() {
            self.dirs.remove(at);
        }
        None
    }
}
