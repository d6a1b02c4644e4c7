//! What a source may at most hold: a few bytes of a compressed archive can stand for very
//! much.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uext4_blockdev::host;

use crate::error::Error;
use crate::tree::Xattr;

/// Decompressed bytes below which the ratio is not looked at: sparse files compress well.
pub const RATIO_FROM: u64 = 1 << 30;

/// Limits of one build. Whatever passes one of them is an error that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Entries, those that later ones replace included.
    pub entries: u64,
    /// Bytes of contents, holes not counted, those that later files replace included.
    pub bytes: u64,
    /// Decompressed bytes for each compressed one, from 1 GiB on.
    pub ratio: u64,
    /// Names in one path.
    pub depth: u64,
    /// Bytes of extended attributes, names and values, all entries together.
    pub xattr_bytes: u64,
    /// Bytes of memory for contents on their way: those that wait until the image is written (an
    /// eighth; the rest is in a temporary file), and what is decompressed before it is wanted (a
    /// quarter, but 1 MiB for each archive that is open). The decompressors of all archives that
    /// are open have five quarters of it, and an archive that needs more is refused
    /// ([`Error::DecompressorMemory`]). What is known of each entry comes on top.
    pub memory: u64,
}

/// Most bytes of memory that decompressing an archive takes: the window of `zstd --long=27`.
const DECOMPRESSOR_MAX: u64 = 128 << 20;
/// The default of [`Limits::memory`] where there is much.
const MEMORY: u64 = 512 << 20;

impl Default for Limits {
    /// More than any image has, less than what fills a machine's memory or disk: 50,000,000
    /// entries, 16 TiB, 10,000 to 1, 16,384 names, 4 GiB of attributes; 512 MiB of memory, or half
    /// of what this process may take.
    fn default() -> Self {
        Self {
            entries: 50_000_000,
            bytes: 16 << 40,
            ratio: 10_000,
            depth: crate::path::DEPTH_MAX as u64,
            xattr_bytes: 4 << 30,
            memory: host::share_of_memory(2, MEMORY),
        }
    }
}

impl Limits {
    /// Bytes of contents that wait in memory.
    pub fn waiting(&self) -> usize {
        usize::try_from(self.memory / 8).unwrap_or(usize::MAX)
    }

    /// Bytes of all sources that are decompressed before they are wanted.
    pub fn ahead(&self) -> usize {
        usize::try_from(self.memory / 4).unwrap_or(usize::MAX)
    }

    /// How many of the archives are open at once, with a thread for each of so many processors: as
    /// many as have the memory for any of the windows that compressors use.
    pub fn side_by_side(&self, processors: usize) -> usize {
        let most = usize::try_from(self.memory / DECOMPRESSOR_MAX).unwrap_or(usize::MAX);
        processors.min(most).max(1)
    }

    /// Bytes that the decompressor of one of so many archives may take.
    pub fn decompressor(&self, side_by_side: usize) -> u64 {
        let all = self.memory.saturating_add(self.memory / 4);
        (all / side_by_side.max(1) as u64).min(DECOMPRESSOR_MAX)
    }

    /// Looks at a path of so many names.
    ///
    /// # Errors
    /// [`Error::TooMany`].
    pub fn check_depth(&self, names: usize) -> Result<(), Error> {
        match names as u64 > self.depth {
            true => Err(Error::TooMany {
                what: "names in one path",
                limit: self.depth,
            }),
            false => Ok(()),
        }
    }
}

/// How much of the limits is used up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    entries: u64,
    bytes: u64,
    xattr_bytes: u64,
}

impl Used {
    /// One more entry, with so many bytes of contents and these attributes.
    ///
    /// # Errors
    /// [`Error::TooMany`] naming the limit.
    pub fn add(&mut self, limits: &Limits, bytes: u64, xattrs: &[Xattr]) -> Result<(), Error> {
        let xattr_bytes = xattrs.iter().map(|(name, value)| name.len() + value.len());
        let xattr_bytes = xattr_bytes.sum::<usize>() as u64;
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.xattr_bytes = self.xattr_bytes.saturating_add(xattr_bytes);
        self.check(limits)
    }

    /// So many more bytes of contents of an entry that has been added.
    ///
    /// # Errors
    /// As [`Used::add`].
    pub fn add_bytes(&mut self, limits: &Limits, bytes: u64) -> Result<(), Error> {
        self.bytes = self.bytes.saturating_add(bytes);
        self.check(limits)
    }

    fn check(&self, limits: &Limits) -> Result<(), Error> {
        for (what, used, limit) in [
            ("entries", self.entries, limits.entries),
            ("bytes of contents", self.bytes, limits.bytes),
            (
                "bytes of extended attributes",
                self.xattr_bytes,
                limits.xattr_bytes,
            ),
        ] {
            if used > limit {
                return Err(Error::TooMany { what, limit });
            }
        }
        Ok(())
    }
}

/// How many bytes of a compressed input have been read.
#[derive(Debug, Default)]
pub struct Compressed(Arc<AtomicU64>);

impl Compressed {
    /// Compares with the decompressed bytes.
    ///
    /// # Errors
    /// [`Error::Bomb`].
    pub fn check(&self, decompressed: u64, ratio: u64, path: &Path) -> Result<(), Error> {
        let compressed = self.0.load(Ordering::Relaxed);
        let limit = compressed.saturating_mul(ratio).max(RATIO_FROM);
        match decompressed > limit {
            true => Err(Error::Bomb {
                path: path.to_path_buf(),
                compressed,
                decompressed,
                ratio,
            }),
            false => Ok(()),
        }
    }
}

/// Counts what is read from `input`.
pub fn counted<R: Read>(input: R) -> (impl Read, Compressed) {
    let count = Compressed::default();
    let counter = Arc::clone(&count.0);
    (Counting { input, counter }, count)
}

struct Counting<R> {
    input: R,
    counter: Arc<AtomicU64>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.input.read(buf)?;
        // One thread writes it, and the same one reads it.
        self.counter.fetch_add(len as u64, Ordering::Relaxed);
        Ok(len)
    }
}
