//! The progress of `fsck`: a bar, or lines on a file descriptor for fsck(8) and systemd-fsck.
//!
//! Each line is `PASS DONE TOTAL DEVICE`, with the passes of e2fsck: 1 inodes, 2 directories, 3
//! connections, 4 link counts, 5 bitmaps. A repair makes its passes more than once; readers compute
//! a percentage from the pass, so that only the first round is reported.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use uext4_fsck::{Finding, Observer, Pass, Progress};

use crate::failure::{Exit, Failure};
use crate::interrupt;
use crate::progress::Examining;

/// Where progress goes.
pub enum Reporting {
    Bar(Mutex<Examining>),
    Lines(Mutex<Lines>),
}

impl Reporting {
    /// Reports to file descriptor `fd`; a bar if it is 0 or none.
    ///
    /// # Errors
    /// Exit 16 if `fd` is not open for writing.
    pub fn new(fd: Option<i32>, device: &Path) -> Result<Self, Failure> {
        let Some(fd) = fd.filter(|fd| *fd > 0) else {
            return Ok(Self::Bar(Mutex::new(Examining::new())));
        };
        let file = File::options()
            .append(true)
            .open(format!("/proc/self/fd/{fd}"));
        let file = file.map_err(|error| {
            let what = format_args!("-C {fd}: no open file can be written there: {error}");
            Failure::new(Exit::Usage, what)
        })?;
        Ok(Self::Lines(Mutex::new(Lines {
            file: Some(file),
            device: device.to_owned(),
            last: 0,
        })))
    }

    /// The last pass has ended.
    pub fn end(&self) {
        if let Self::Lines(lines) = self {
            lines.lock().put(LAST, 1, 1);
        }
    }
}

impl Observer for Reporting {
    fn finding(&self, _: &Finding) {}

    fn memory(&self, bytes: u64) {
        if let Self::Bar(bar) = self {
            bar.lock().state_memory(bytes);
        }
    }

    fn progress(&self, progress: Progress) {
        match self {
            Self::Bar(bar) => bar.lock().show(progress),
            Self::Lines(lines) => {
                let mut lines = lines.lock();
                if let Some(pass) = number(progress.pass).filter(|pass| *pass >= lines.last) {
                    lines.put(pass, progress.done, progress.total);
                }
            }
        }
    }

    fn is_cancelled(&self) -> bool {
        interrupt::is_requested()
    }
}

/// The last pass of e2fsck.
const LAST: u8 = 5;

/// The number that e2fsck gives to a pass.
fn number(pass: Pass) -> Option<u8> {
    match pass {
        Pass::Super => None,
        Pass::Inodes | Pass::Shared => Some(1),
        Pass::Directories => Some(2),
        Pass::Connected => Some(3),
        Pass::Links => Some(4),
        Pass::Bitmaps => Some(LAST),
    }
}

/// Lines on a file descriptor.
pub struct Lines {
    /// `None` after its reader went away.
    file: Option<File>,
    device: PathBuf,
    /// The last pass that was reported.
    last: u8,
}

impl Lines {
    fn put(&mut self, pass: u8, done: u64, total: u64) {
        self.last = pass;
        let device = self.device.display();
        let line = format!("{pass} {done} {total} {device}\n");
        let written = self
            .file
            .as_mut()
            .map(|file| file.write_all(line.as_bytes()));
        if let Some(Err(_)) = written {
            // The examination matters more than its display.
            self.file = None;
        }
    }
}
