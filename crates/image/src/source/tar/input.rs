//! An archive as bytes at offsets: a file, or what a [`Spool`] has filled so far.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::header::BLOCK;
use crate::error::{Error, TarDamage};
use crate::source::spool::Spool;

/// Bytes read at once for a header: an extended header, its records and the header it is for.
const WINDOW: usize = 4096;

/// The archive and the place reached in it.
pub struct Input {
    file: Arc<File>,
    /// Where the archive begins in the file, in bytes.
    base: u64,
    path: PathBuf,
    extent: Extent,
    /// Offset in the archive of what is read next.
    position: u64,
    window: Box<[u8; WINDOW]>,
    /// Which part of the archive the window has: from here, this much.
    window_at: u64,
    window_len: usize,
}

/// How much there is to read.
enum Extent {
    Known(u64),
    Growing(Spool),
}

impl Input {
    /// A file that can be read at any offset; the archive is the `len` bytes from `base` on.
    pub fn from_file(file: File, base: u64, len: u64, path: &Path) -> Self {
        Self::new(Arc::new(file), base, path, Extent::Known(len))
    }

    /// What a thread is still decompressing.
    pub fn from_spool(spool: Spool, path: &Path) -> Self {
        Self::new(Arc::clone(spool.file()), 0, path, Extent::Growing(spool))
    }

    fn new(file: Arc<File>, base: u64, path: &Path, extent: Extent) -> Self {
        Self {
            file,
            base,
            path: path.to_path_buf(),
            extent,
            position: 0,
            window: Box::new([0; WINDOW]),
            window_at: 0,
            window_len: 0,
        }
    }

    /// The file, in which offsets are those of the archive plus [`Input::base`].
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Where the archive begins in the file, in bytes.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Offset in the archive of what is read next, in bytes.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Reads as many bytes as there are, up to the length of `buf`.
    pub fn read(&mut self, buf: &mut [u8]) -> Result<usize, Error> {
        let end = self.position.saturating_add(buf.len() as u64);
        let len = self.available(end)?.min(end).saturating_sub(self.position) as usize;
        let buf = &mut buf[..len];
        if len >= WINDOW {
            self.read_at(self.position, buf)?;
        } else if len > 0 {
            let from = match self.in_window(len) {
                Some(from) => from,
                None => {
                    self.fill_window()?;
                    self.in_window(len).unwrap_or(0)
                }
            };
            buf.copy_from_slice(&self.window[from..from + len]);
        }
        self.position += len as u64;
        Ok(len)
    }

    /// Reads `buf` full.
    ///
    /// # Errors
    /// [`TarDamage::Truncated`] naming `what`, if there is less.
    pub fn read_exact(&mut self, buf: &mut [u8], what: &'static str) -> Result<(), Error> {
        let at = self.position;
        let len = self.read(buf)?;
        if len < buf.len() {
            let missing = (buf.len() - len) as u64;
            return Err(self.damage(at, TarDamage::Truncated { what, missing }));
        }
        Ok(())
    }

    /// Reads one block.
    ///
    /// # Errors
    /// As [`Input::read_exact`].
    pub fn read_block(&mut self, what: &'static str) -> Result<[u8; BLOCK], Error> {
        let mut block = [0; BLOCK];
        self.read_exact(&mut block, what)?;
        Ok(block)
    }

    /// The block at the place reached, which stays where it is; `None` if there is no whole one.
    pub fn peek_block(&mut self) -> Result<Option<[u8; BLOCK]>, Error> {
        let (at, mut block) = (self.position, [0; BLOCK]);
        let len = self.read(&mut block)?;
        self.position = at;
        Ok((len == BLOCK).then_some(block))
    }

    /// Goes past `len` bytes of contents, which must be there, and the padding after them, which
    /// need not.
    ///
    /// # Errors
    /// [`TarDamage::Truncated`] naming `what`.
    pub fn skip(&mut self, len: u64, what: &'static str) -> Result<(), Error> {
        let at = self.position;
        let padded = len.checked_next_multiple_of(BLOCK as u64);
        let end = at.checked_add(len);
        let (Some(end), Some(next)) = (end, padded.and_then(|p| at.checked_add(p))) else {
            let missing = len;
            return Err(self.damage(at, TarDamage::Truncated { what, missing }));
        };
        let available = self.available(end)?;
        if available < end {
            let missing = end - available;
            return Err(self.damage(at, TarDamage::Truncated { what, missing }));
        }
        self.position = next;
        Ok(())
    }

    /// Goes past padding, which need not be there.
    pub fn skip_padding(&mut self, len: u64) {
        self.position = self.position.saturating_add(len);
    }

    /// Nothing more is wanted.
    ///
    /// # Errors
    /// What is wrong with the rest of compressed data, such as a checksum.
    pub fn finish(&self) -> Result<(), Error> {
        match &self.extent {
            Extent::Known(_) => Ok(()),
            Extent::Growing(spool) => spool.finish(),
        }
    }

    /// The error `why` at an offset of the archive.
    pub fn damage(&self, offset: u64, why: TarDamage) -> Error {
        Error::Tar {
            path: self.path.clone(),
            offset,
            why,
        }
    }

    fn available(&self, wanted: u64) -> Result<u64, Error> {
        match &self.extent {
            Extent::Known(len) => Ok(*len),
            Extent::Growing(spool) => spool.wait_for(wanted),
        }
    }

    /// Where in the window the next `len` bytes begin, if all are in it.
    fn in_window(&self, len: usize) -> Option<usize> {
        let from = usize::try_from(self.position.checked_sub(self.window_at)?).ok()?;
        (from.checked_add(len)? <= self.window_len).then_some(from)
    }

    fn fill_window(&mut self) -> Result<(), Error> {
        // Asking for no more than is needed keeps a reader close behind a pipe's writer.
        let end = self.available(self.position + 1)?;
        let end = end.min(self.position + WINDOW as u64);
        let len = (end - self.position) as usize;
        self.window_len = 0;
        let at = self.base.saturating_add(self.position);
        let result = self.file.read_exact_at(&mut self.window[..len], at);
        result.map_err(|e| self.read_error(e))?;
        self.window_at = self.position;
        self.window_len = len;
        Ok(())
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> Result<(), Error> {
        let result = self.file.read_exact_at(buf, self.base.saturating_add(at));
        result.map_err(|e| self.read_error(e))
    }

    fn read_error(&self, source: io::Error) -> Error {
        Error::Source {
            path: self.path.clone(),
            op: "read",
            source,
        }
    }
}
