//! Tables that may lie in a temporary file: memory for work that must not fail where memory is
//! short.
//!
//! What is taken counts against a limit. Past it, tables are maps of a file without a name: their
//! pages are the kernel's to write out and to take back when others need the memory, which it can
//! do with no other memory of a program. Space on the disk is reserved before a table is handed
//! out, so that a later access does not fail for want of it, where the file system of the
//! temporary file keeps what it reserved.

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::sys::{Mapping, wait_for_writing};

/// Bytes of the file that are mapped at a time, if no table is longer.
const SEGMENT: usize = 4 << 20;
/// What the start of a table is a multiple of.
const ALIGNMENT: usize = 64;

/// Where tables come from. Any thread may ask for one.
#[derive(Debug)]
pub struct Scratch {
    /// Bytes of memory that may still be taken.
    left: AtomicU64,
    file: Mutex<Spill>,
}

/// The temporary file, once there is one.
#[derive(Debug, Default)]
struct Spill {
    file: Option<File>,
    /// Where the next segment begins.
    end: u64,
    /// The last segment, and how much of it is in use.
    segment: Option<(Arc<Mapping>, usize)>,
    /// Why a table could not lie in the file.
    error: Option<io::Error>,
}

/// A table of numbers, at first all 0.
#[derive(Debug)]
pub struct Words(Place<AtomicU64>);

/// A table of bytes, at first all 0.
#[derive(Debug)]
pub struct Bytes(Place<AtomicU8>);

#[derive(Debug)]
enum Place<T> {
    Memory(Box<[T]>),
    File(Mapped),
}

/// A part of a segment, which lives as long as any of its tables.
#[derive(Debug)]
struct Mapped {
    segment: Arc<Mapping>,
    range: Range<usize>,
}

impl Default for Scratch {
    /// Memory without a limit.
    fn default() -> Self {
        Self::new(u64::MAX)
    }
}

impl Scratch {
    /// Tables of at most `memory` bytes are in memory.
    pub fn new(memory: u64) -> Self {
        Self {
            left: AtomicU64::new(memory),
            file: Mutex::default(),
        }
    }

    /// Counts memory that the caller takes; false if it is past the limit.
    pub fn take(&self, bytes: usize) -> bool {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let rest = |left: u64| left.checked_sub(bytes);
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest)
            .is_ok()
    }

    /// A table of `count` numbers in the file.
    pub fn words(&self, count: usize) -> Words {
        let mapped = self.mapped(count.saturating_mul(size_of::<u64>()));
        Words(mapped.map_or_else(|| Place::new(count), Place::File))
    }

    /// A table of `len` bytes: in memory, or in the file if it is past the limit.
    pub fn bytes(&self, len: usize) -> Bytes {
        let mapped = if self.take(len) {
            None
        } else {
            self.mapped(len)
        };
        Bytes(mapped.map_or_else(|| Place::new(len), Place::File))
    }

    /// Whether all tables of the file lie in it, and what was written of them so far can be read
    /// back. A table that cannot lie there is in memory.
    ///
    /// # Errors
    /// Of the first one that could not: no room for the file, or no file at all; of writing it. The
    /// answer stays the same.
    pub fn check(&self) -> io::Result<()> {
        let mut spill = self.file.lock();
        if let (Some(file), None) = (&spill.file, &spill.error) {
            // What could not be written reads as zeroes once its memory is given away.
            spill.error = wait_for_writing(file, &(0..1)).err();
        }
        match &spill.error {
            Some(error) => Err(io::Error::new(error.kind(), error.to_string())),
            None => Ok(()),
        }
    }

    fn mapped(&self, len: usize) -> Option<Mapped> {
        if len == 0 {
            return None;
        }
        let mut file = self.file.lock();
        if file.error.is_some() {
            return None;
        }
        let mapped = file.table(len);
        mapped
            .map_err(|error| _ = file.error.get_or_insert(error))
            .ok()
    }
}

impl<T: Default> Place<T> {
    /// In memory.
    fn new(count: usize) -> Self {
        Self::Memory((0..count).map(|_| T::default()).collect())
    }
}

impl Spill {
    fn table(&mut self, len: usize) -> io::Result<Mapped> {
        let start = match &self.segment {
            Some((segment, used)) if segment.len() - used >= len => *used,
            _ => {
                let segment = self.segment(len.max(SEGMENT))?;
                self.segment = Some((Arc::new(segment), 0));
                0
            }
        };
        let (segment, used) = self.segment.as_mut().ok_or(io::ErrorKind::NotFound)?;
        let end = start + len;
        *used = end.next_multiple_of(ALIGNMENT).min(segment.len());
        Ok(Mapped {
            segment: Arc::clone(segment),
            range: start..end,
        })
    }

    fn segment(&mut self, len: usize) -> io::Result<Mapping> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile()?),
        };
        let range = self.end..self.end.saturating_add(len as u64);
        let mapping = Mapping::new(file, &range)?;
        self.end = range.end.next_multiple_of(SEGMENT as u64);
        Ok(mapping)
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        match &self.0 {
            Place::Memory(words) => words,
            Place::File(mapped) => mapped.segment.words(&mapped.range),
        }
    }
}

impl Deref for Bytes {
    type Target = [AtomicU8];

    fn deref(&self) -> &[AtomicU8] {
        match &self.0 {
            Place::Memory(bytes) => bytes,
            Place::File(mapped) => mapped.segment.bytes(&mapped.range),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_past_the_limit_are_in_the_file_and_apart() {
        let scratch = Scratch::new(1000);
        assert!(scratch.take(800) && !scratch.take(201));
        let first = scratch.words(100);
        let (small, large) = (scratch.bytes(150), scratch.bytes(SEGMENT + 1));
        assert!(matches!(small.0, Place::Memory(_)));
        let second = scratch.words(SEGMENT / 8);
        first[99].store(u64::MAX, Ordering::Relaxed);
        large[SEGMENT].store(7, Ordering::Relaxed);
        assert!(second.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        second[0].store(5, Ordering::Relaxed);
        drop(scratch);
        assert_eq!(first[99].load(Ordering::Relaxed), u64::MAX);
        assert_eq!(first[98].load(Ordering::Relaxed), 0);
        assert_eq!(large[SEGMENT].load(Ordering::Relaxed), 7);
        assert_eq!((first.len(), large.len()), (100, SEGMENT + 1));
    }

    #[test]
    fn a_file_without_room_is_reported_and_memory_used() {
        let scratch = Scratch::new(0);
        scratch.file.lock().end = i64::MAX as u64 - 4096;
        assert_eq!(scratch.words(8).len(), 8);
        assert!(scratch.check().is_err());
        scratch.file.lock().end = 0;
        assert!(matches!(scratch.bytes(8).0, Place::Memory(_)));
        assert!(scratch.check().is_err());
    }
}
