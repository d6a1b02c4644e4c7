//! Where the bytes of a blob are, and how they are read: exactly as many as expected.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

use super::error::{Fault, Part};

/// Where the bytes of a blob are.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// A file of its own.
    File(PathBuf),
    /// Within a tar archive.
    Range {
        /// The archive.
        file: Arc<File>,
        /// How errors call it.
        path: Arc<Path>,
        /// Where the blob begins in it, in bytes.
        at: u64,
    },
    /// In a registry.
    #[cfg(feature = "registry-http")]
    Remote {
        /// The connection to it.
        connection: Arc<super::connection::Connection>,
        /// The digest of the blob.
        digest: super::digest::Digest,
    },
}

/// A blob that is there.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub place: Place,
    /// Its length in bytes, before anything of it is read.
    pub len: u64,
}

impl Stored {
    /// A file of a directory; `None` if there is none of this name.
    pub fn in_directory(part: &Part, path: PathBuf, name: &str) -> Result<Option<Self>, Fault> {
        match std::fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() => Ok(Some(Self {
                place: Place::File(path),
                len: metadata.len(),
            })),
            Ok(_) => Err(Fault::Stored {
                part: part.clone(),
                name: name.to_owned(),
                why: "not a regular file",
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(failed(&path, "open", source)),
        }
    }

    /// How errors call the file that it is in.
    fn path(&self) -> PathBuf {
        match &self.place {
            Place::File(path) => path.clone(),
            Place::Range { path, .. } => path.to_path_buf(),
            #[cfg(feature = "registry-http")]
            Place::Remote { digest, .. } => PathBuf::from(digest.to_string()),
        }
    }

    /// All bytes, which are at most `limit`.
    pub fn read_all(&self, part: &Part, limit: u64) -> Result<Vec<u8>, Fault> {
        if self.len > limit {
            let (part, size) = (part.clone(), self.len);
            return Err(Fault::TooLarge { part, size, limit });
        }
        let mut reader = BlobReader::open(&self.place, part, self.len)?;
        let mut bytes = Vec::with_capacity(self.len as usize);
        match reader.read_to_end(&mut bytes) {
            Ok(_) => Ok(bytes),
            Err(error) => Err(match error.downcast::<Fault>() {
                Ok(fault) => fault,
                Err(source) => failed(&self.path(), "read", source),
            }),
        }
    }
}

/// Reads the bytes of a blob, exactly as many as its description says. A read that finds fewer
/// fails with a [`Fault::Size`] inside the [`io::Error`].
#[derive(Debug)]
pub(super) struct BlobReader {
    part: Part,
    input: Input,
    size: u64,
    /// Bytes read.
    done: u64,
}

#[derive(Debug)]
enum Input {
    /// A file, and where the blob begins in it, in bytes.
    File(Arc<File>, u64),
    #[cfg(feature = "registry-http")]
    Remote(super::connection::Download),
}

impl BlobReader {
    /// Opens a blob of `size` bytes.
    ///
    /// # Errors
    /// [`Fault::Io`]; [`Fault::Size`] if a file of its own, or the answer of a registry, has
    /// another size; [`Fault::Registry`] and [`Fault::Status`].
    pub fn open(place: &Place, part: &Part, size: u64) -> Result<Self, Fault> {
        let input = match place {
            Place::File(path) => Input::File(open_file(part, path, size)?, 0),
            Place::Range { file, at, .. } => Input::File(Arc::clone(file), *at),
            #[cfg(feature = "registry-http")]
            Place::Remote { connection, digest } => {
                Input::Remote(connection.download(part, digest, size)?)
            }
        };
        let part = part.clone();
        let done = 0;
        Ok(Self {
            part,
            input,
            size,
            done,
        })
    }

    fn wrong_size(&self, actual: u64) -> io::Error {
        let fault = Fault::Size {
            part: self.part.clone(),
            expected: self.size,
            actual,
        };
        io::Error::new(io::ErrorKind::InvalidData, fault)
    }
}

/// A file in place of a FIFO since it was looked at must not block.
fn open_file(part: &Part, path: &Path, expected: u64) -> Result<Arc<File>, Fault> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty());
    let file = File::from(file.map_err(|e| failed(path, "open", e.into()))?);
    let metadata = file.metadata().map_err(|e| failed(path, "stat", e))?;
    let part = part.clone();
    if !metadata.is_file() {
        let (name, why) = (path.display().to_string(), "not a regular file");
        return Err(Fault::Stored { part, name, why });
    }
    match metadata.len() {
        actual if actual != expected => Err(Fault::Size {
            part,
            expected,
            actual,
        }),
        _ => Ok(Arc::new(file)),
    }
}

impl Read for BlobReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.size - self.done;
        let len = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
        let buf = &mut buf[..len];
        let len = match &mut self.input {
            _ if buf.is_empty() => return Ok(0),
            Input::File(file, at) => file.read_at(buf, at.saturating_add(self.done))?,
            #[cfg(feature = "registry-http")]
            Input::Remote(download) => download.read(buf)?,
        };
        if len == 0 {
            return Err(self.wrong_size(self.done));
        }
        self.done += len as u64;
        Ok(len)
    }
}

pub(super) fn failed(path: &Path, op: &'static str, source: io::Error) -> Fault {
    Fault::Io {
        path: path.to_path_buf(),
        op,
        source,
    }
}
