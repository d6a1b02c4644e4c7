//! An archive as bytes: a file that is read where it is wanted, or a stream that is read once.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::header::BLOCK;
use crate::chunks::{Chunks, Slice};
use crate::error::{Error, TarDamage};
use crate::source::sink::Sink;

/// Bytes read at once for a header: an extended header, its records and the header it is for.
const WINDOW: usize = 4096;

/// The archive and the place reached in it.
pub struct Input {
    path: PathBuf,
    bytes: Bytes,
    /// Offset in the archive of what is read next.
    position: u64,
    /// Something else vouches that it is whole, where it has no end-of-archive marker.
    is_verified: bool,
}

/// What the archive is read from.
enum Bytes {
    File(Window),
    Stream(Chunks),
}

/// A file that can be read at any offset, and the part of it that was read last.
struct Window {
    file: Arc<File>,
    /// Where the archive begins in the file, in bytes.
    base: u64,
    /// Bytes of the archive.
    len: u64,
    bytes: Box<[u8; WINDOW]>,
    /// Which part of the archive `bytes` has: from here, this much.
    at: u64,
    filled: usize,
}

impl Input {
    /// A file that can be read at any offset; the archive is the `len` bytes from `base` on.
    pub fn from_file(file: Arc<File>, base: u64, len: u64, path: &Path) -> Self {
        let window = Window {
            file,
            base,
            len,
            bytes: Box::new([0; WINDOW]),
            at: 0,
            filled: 0,
        };
        Self::new(Bytes::File(window), path)
    }

    /// What is read once.
    pub fn from_stream(chunks: Chunks, path: &Path) -> Self {
        Self::new(Bytes::Stream(chunks), path)
    }

    fn new(bytes: Bytes, path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
            bytes,
            position: 0,
            is_verified: false,
        }
    }

    /// The same, of which a digest shows by the end that nothing is missing.
    pub fn verified(mut self) -> Self {
        self.is_verified = true;
        self
    }

    /// Whether a digest shows that nothing is missing.
    pub fn is_verified(&self) -> bool {
        self.is_verified
    }

    /// How errors call the archive.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file, if it is one, in which contents can be read later.
    pub fn file(&self) -> Option<&Arc<File>> {
        match &self.bytes {
            Bytes::File(window) => Some(&window.file),
            Bytes::Stream(_) => None,
        }
    }

    /// Offset in the archive of what is read next, in bytes.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Reads as many bytes as there are, up to the length of `buf`.
    pub fn read(&mut self, buf: &mut [u8]) -> Result<usize, Error> {
        let len = match &mut self.bytes {
            Bytes::File(window) => window
                .read(self.position, buf)
                .map_err(|e| read_error(&self.path, e))?,
            Bytes::Stream(chunks) => {
                let mut len = 0;
                while len < buf.len() {
                    let slice = chunks.take((buf.len() - len) as u64)?;
                    if slice.is_empty() {
                        break;
                    }
                    buf[len..len + slice.len()].copy_from_slice(&slice);
                    len += slice.len();
                }
                len
            }
        };
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
    /// The place is a multiple of a block.
    pub fn peek_block(&mut self) -> Result<Option<[u8; BLOCK]>, Error> {
        let mut block = [0; BLOCK];
        let len = match &mut self.bytes {
            Bytes::File(window) => window
                .read(self.position, &mut block)
                .map_err(|e| read_error(&self.path, e))?,
            // All pieces but the last have whole blocks.
            Bytes::Stream(chunks) => {
                let ahead = chunks.peek()?;
                let len = ahead.len().min(BLOCK);
                block[..len].copy_from_slice(&ahead[..len]);
                len
            }
        };
        Ok((len == BLOCK).then_some(block))
    }

    /// Goes past `len` bytes of contents, which must be there, and the padding after them, which
    /// need not.
    ///
    /// # Errors
    /// [`TarDamage::Truncated`] naming `what`.
    pub fn skip(&mut self, len: u64, what: &'static str) -> Result<(), Error> {
        self.pass(len, what, &mut |_| Ok(()))?;
        self.skip_padding(len)
    }

    /// Goes past `len` bytes of contents, which a stream gives to `each`; of a file, where they
    /// stay, nothing is read.
    ///
    /// # Errors
    /// As [`Input::skip`], and those of `each`.
    pub fn store(
        &mut self,
        len: u64,
        each: &mut dyn FnMut(Slice) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.pass(len, "contents", each)
    }

    /// Goes past `len` bytes of contents.
    ///
    /// # Errors
    /// As [`Input::skip`].
    pub fn leave(&mut self, len: u64) -> Result<(), Error> {
        self.pass(len, "contents", &mut |_| Ok(()))
    }

    /// Where contents that come next are to be read later: in the file, or where the sink is.
    pub fn place(&self, sink: &Sink<'_>) -> u64 {
        match &self.bytes {
            Bytes::File(window) => window.base.saturating_add(self.position),
            Bytes::Stream(_) => sink.position(),
        }
    }

    /// Goes past `len` bytes, which a stream shows to `each`.
    fn pass(
        &mut self,
        len: u64,
        what: &'static str,
        each: &mut dyn FnMut(Slice) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let at = self.position;
        let mut left = len;
        match &mut self.bytes {
            Bytes::File(window) => {
                left = len.saturating_sub(window.len.saturating_sub(at));
                self.position = at.saturating_add(len);
            }
            Bytes::Stream(chunks) => {
                while left > 0 {
                    let slice = chunks.take(left)?;
                    if slice.is_empty() {
                        break;
                    }
                    left -= slice.len() as u64;
                    self.position += slice.len() as u64;
                    each(slice)?;
                }
            }
        }
        let missing = left;
        match missing {
            0 => Ok(()),
            _ => Err(self.damage(at, TarDamage::Truncated { what, missing })),
        }
    }

    /// Goes past the padding after `len` bytes, which need not be there.
    pub fn skip_padding(&mut self, len: u64) -> Result<(), Error> {
        // The remainder alone: the sum may pass 2^64.
        let padding = (BLOCK as u64 - len % BLOCK as u64) % BLOCK as u64;
        match &mut self.bytes {
            Bytes::File(_) => self.position = self.position.saturating_add(padding),
            Bytes::Stream(chunks) => {
                let mut left = padding;
                while left > 0 {
                    let slice = chunks.take(left)?;
                    if slice.is_empty() {
                        break;
                    }
                    left -= slice.len() as u64;
                }
                self.position += padding;
            }
        }
        Ok(())
    }

    /// Nothing more is wanted.
    ///
    /// # Errors
    /// What is wrong with the rest of a stream, such as a checksum.
    pub fn finish(&mut self) -> Result<(), Error> {
        match &mut self.bytes {
            Bytes::File(_) => Ok(()),
            Bytes::Stream(chunks) => chunks.finish(),
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
}

impl Window {
    /// Reads what there is from `at` on, up to the length of `buf`.
    fn read(&mut self, at: u64, buf: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.len.saturating_sub(at)).unwrap_or(usize::MAX);
        let len = left.min(buf.len());
        let buf = &mut buf[..len];
        if len >= WINDOW {
            self.file.read_exact_at(buf, self.base.saturating_add(at))?;
        } else if len > 0 {
            let from = match self.holds(at, len) {
                Some(from) => from,
                None => {
                    self.fill(at)?;
                    0
                }
            };
            buf.copy_from_slice(&self.bytes[from..from + len]);
        }
        Ok(len)
    }

    /// Where the `len` bytes from `at` on begin in the window, if all are in it.
    fn holds(&self, at: u64, len: usize) -> Option<usize> {
        let from = usize::try_from(at.checked_sub(self.at)?).ok()?;
        (from.checked_add(len)? <= self.filled).then_some(from)
    }

    fn fill(&mut self, at: u64) -> io::Result<()> {
        let len = self.len.saturating_sub(at).min(WINDOW as u64) as usize;
        self.filled = 0;
        let offset = self.base.saturating_add(at);
        self.file.read_exact_at(&mut self.bytes[..len], offset)?;
        self.at = at;
        self.filled = len;
        Ok(())
    }
}

fn read_error(path: &Path, source: io::Error) -> Error {
    Error::Source {
        path: path.to_path_buf(),
        op: "read",
        source,
    }
}
