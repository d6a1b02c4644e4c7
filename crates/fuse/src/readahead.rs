//! How far ahead of a reader the kernel reads.
//!
//! It asks for 128 KiB in one request, though one may carry a MiB, and INIT can only make that
//! less. Root can make it more for each mount, in `/sys/class/bdi`: then the next large request is
//! served while the reader is at the last. Other users keep what the kernel does.

use std::fs::File;
use std::io::{self, Write};

use crate::init::IO_MAX;
use crate::mountinfo::Number;

/// KiB: two of the largest requests.
const KIB: u32 = 2 * IO_MAX / 1024;

/// Where the kernel takes it for a mount, open for writing.
#[derive(Debug)]
pub struct Readahead(File);

impl Readahead {
    /// Of the mount of this number. It can be set later, also by a process that cannot open it any
    /// more.
    ///
    /// # Errors
    /// Those of opening it, for all but root.
    pub fn open(number: Number) -> io::Result<Self> {
        let Number { major, minor } = number;
        let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
        Ok(Self(File::options().write(true).open(path)?))
    }

    /// Has the kernel read two of the largest requests ahead. After INIT, whose answer sets it too.
    ///
    /// # Errors
    /// Those of writing it.
    pub fn set(&mut self) -> io::Result<()> {
        write!(self.0, "{KIB}")
    }
}
