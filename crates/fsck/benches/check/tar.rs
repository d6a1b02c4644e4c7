//! A tar archive that is made while it is read, so that millions of files need no disk.

use std::collections::VecDeque;
use std::io::{self, Read};

/// A file or a directory.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its path, at most 99 bytes; a directory's ends with a slash.
    pub path: String,
    /// Bytes of content.
    pub len: u64,
}

/// The archive of some entries.
#[derive(Debug)]
pub struct Archive<I> {
    entries: I,
    /// Bytes of content to come, and padding behind them.
    left: u64,
    padding: u64,
    /// What is made and not yet read.
    ready: VecDeque<u8>,
    /// For content, so that blocks differ.
    number: u64,
    /// Whether the two empty records at its end were made.
    has_ended: bool,
}

impl<I: Iterator<Item = Entry>> Archive<I> {
    /// Of these entries, parents first.
    pub fn new(entries: I) -> Self {
        Self {
            entries,
            left: 0,
            padding: 0,
            ready: VecDeque::new(),
            number: 1,
            has_ended: false,
        }
    }

    /// Makes the next bytes: none at the end.
    fn make(&mut self) {
        if self.left > 0 {
            let len = self.left.min(1 << 16);
            let number = self.number;
            self.number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let words = (0..len.div_ceil(8)).map(|i| (number ^ i).to_le_bytes());
            self.ready.extend(words.flatten().take(len as usize));
            self.left -= len;
        } else if self.padding > 0 {
            self.ready
                .extend(std::iter::repeat_n(0, self.padding as usize));
            self.padding = 0;
        } else if let Some(entry) = self.entries.next() {
            self.ready.extend(header(&entry));
            self.left = entry.len;
            self.padding = entry.len.next_multiple_of(512) - entry.len;
        } else if !self.has_ended {
            self.ready.extend([0; 1024]);
            self.has_ended = true;
        }
    }
}

impl<I: Iterator<Item = Entry>> Read for Archive<I> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.ready.len() < buf.len() {
            let before = self.ready.len();
            self.make();
            if self.ready.len() == before && self.left == 0 {
                break;
            }
        }
        self.ready.read(buf)
    }
}

/// The header of an entry, as ustar has it.
fn header(entry: &Entry) -> [u8; 512] {
    let mut header = [0; 512];
    let is_directory = entry.path.ends_with('/');
    let mode = if is_directory { "0000755" } else { "0000644" };
    header[..entry.path.len()].copy_from_slice(entry.path.as_bytes());
    header[100..107].copy_from_slice(mode.as_bytes());
    header[108..115].copy_from_slice(b"0000000");
    header[116..123].copy_from_slice(b"0000000");
    header[124..135].copy_from_slice(format!("{:011o}", entry.len).as_bytes());
    header[136..147].copy_from_slice(b"14000000000");
    header[156] = if is_directory { b'5' } else { b'0' };
    header[257..265].copy_from_slice(b"ustar\x0000");
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    header
}
