//! What a repair overwrote, in a file that can put it back.
//!
//! ```text
//! line 1: what the file is: version, bytes of the device, block size, number of blocks
//! then:   for each block its number (8 bytes, little-endian) and its old contents
//! end:    SHA-256 of all before
//! ```
//! The file is whole and durable before the first byte of the device changes. Undoing may be cut
//! off and done again.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uext4_blockdev::BlockDevice;
use uext4_ondisk::BlockSize;

use crate::error::{Error, Result};

/// Most bytes of the first line.
const LINE_MAX: u64 = 4096;
const DIGEST_LEN: usize = 32;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    /// The version of the form: 1.
    uext4_undo: u32,
    /// Bytes of the device.
    device_len: u64,
    /// Bytes of a block.
    block_len: u32,
    /// Blocks that follow.
    blocks: u64,
}

/// Keeps the old contents of `blocks`, which ascend, in a new file at `path`, and returns when
/// they are durable.
///
/// # Errors
/// [`Error::Refused`] if the file exists or cannot be written, whole; of the device.
pub fn keep(
    device: &dyn BlockDevice,
    block_size: BlockSize,
    blocks: impl ExactSizeIterator<Item = u64>,
    path: &Path,
) -> Result<()> {
    let mut options = OpenOptions::new();
    // What is in it may be private, whatever the umask says.
    let options = options.write(true).create_new(true).mode(0o600);
    let file = options.open(path);
    let file = file.map_err(|error| failed(path, "cannot be made", &error))?;
    let written = write(device, block_size, blocks, &file);
    if let Err(error) = written {
        // A part of it is of no use; that it stays where removing fails is no new harm.
        let _ = std::fs::remove_file(path);
        return Err(match error {
            Error::Spill(error) => failed(path, "cannot be written", &error),
            other => other,
        });
    }
    sync_directory_of(path).map_err(|error| failed(path, "cannot be written", &error))
}

fn write(
    device: &dyn BlockDevice,
    block_size: BlockSize,
    blocks: impl ExactSizeIterator<Item = u64>,
    file: &File,
) -> Result<()> {
    let mut out = Summing {
        inner: BufWriter::new(file),
        digest: Sha256::new(),
    };
    let head = Head {
        uext4_undo: 1,
        device_len: device.len(),
        block_len: block_size.bytes(),
        blocks: blocks.len() as u64,
    };
    let mut line = serde_json::to_vec(&head).map_err(|error| Error::Spill(error.into()))?;
    line.push(b'\n');
    out.write_all(&line).map_err(Error::Spill)?;
    let mut content = vec![0; block_size.len()];
    for block in blocks {
        device.read_at(block << block_size.log2(), &mut content)?;
        out.write_all(&block.to_le_bytes()).map_err(Error::Spill)?;
        out.write_all(&content).map_err(Error::Spill)?;
    }
    let digest = out.digest.clone().finalize();
    out.inner.write_all(&digest).map_err(Error::Spill)?;
    out.inner.flush().map_err(Error::Spill)?;
    drop(out);
    file.sync_all().map_err(Error::Spill)
}

/// Puts back what the file at `path` holds, and returns the number of blocks.
///
/// # Errors
/// [`Error::Refused`] if it is no whole undo file, or not of a device of this length; of the
/// device: then the file can be used again.
pub fn undo(device: &dyn BlockDevice, path: &Path) -> Result<u64> {
    // Verified as a whole before the first write.
    read(device, path, &mut |_, _| Ok(()))?;
    let blocks = read(device, path, &mut |offset, content| {
        Ok(device.write_at(offset, content)?)
    })?;
    device.flush()?;
    Ok(blocks)
}

/// Calls `each` for each block with its offset on the device.
fn read(
    device: &dyn BlockDevice,
    path: &Path,
    each: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<u64> {
    let unreadable = |error: &io::Error| failed(path, "cannot be read", error);
    let wrong = |why: &str| Error::Refused {
        what: format!("{}: {why}", path.display()),
    };
    let file = File::open(path).map_err(|error| unreadable(&error))?;
    let mut input = BufReader::new(file);
    let mut digest = Sha256::new();
    let mut line = Vec::new();
    let mut first = input.by_ref().take(LINE_MAX);
    first
        .read_until(b'\n', &mut line)
        .map_err(|error| unreadable(&error))?;
    let head: Head = serde_json::from_slice(&line).map_err(|_| wrong("is no undo file"))?;
    digest.update(&line);
    let block_size = BlockSize::from_bytes(head.block_len);
    let (1, Some(block_size)) = (head.uext4_undo, block_size) else {
        return Err(wrong("is no undo file of this version"));
    };
    if head.device_len != device.len() {
        return Err(wrong(&format!(
            "belongs to a device of {} bytes, this one has {}",
            head.device_len,
            device.len()
        )));
    }
    let mut number = [0; 8];
    let mut content = vec![0; block_size.len()];
    for _ in 0..head.blocks {
        let ended = |_| wrong("ends too early");
        input.read_exact(&mut number).map_err(ended)?;
        input.read_exact(&mut content).map_err(ended)?;
        digest.update(number);
        digest.update(&content);
        let block = u64::from_le_bytes(number);
        let offset = block_size.byte_offset(uext4_ondisk::Pblk(block));
        let offset = offset.ok_or_else(|| wrong("names a block that cannot be"))?;
        each(offset, &content)?;
    }
    let mut stored = [0; DIGEST_LEN];
    input
        .read_exact(&mut stored)
        .map_err(|_| wrong("ends too early"))?;
    if digest.finalize()[..] != stored {
        return Err(wrong("is damaged: its digest is wrong"));
    }
    Ok(head.blocks)
}

fn failed(path: &Path, what: &str, error: &io::Error) -> Error {
    Error::Refused {
        what: format!("{} {what}: {error}", path.display()),
    }
}

fn sync_directory_of(path: &Path) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    File::open(directory)?.sync_all()
}

/// Writes, and sums what was written.
struct Summing<W> {
    inner: W,
    digest: Sha256,
}

impl<W: Write> Write for Summing<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let len = self.inner.write(buf)?;
        self.digest.update(&buf[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use uext4_blockdev::MemoryDevice;

    use super::*;

    fn device() -> MemoryDevice {
        MemoryDevice::from_bytes((0..64 * 1024_u32).map(|i| (i / 512) as u8).collect())
    }

    fn kept(path: &Path) -> MemoryDevice {
        let device = device();
        keep(&device, BlockSize::MIN, [3, 4, 60].into_iter(), path).unwrap();
        for block in [3, 4, 60_u64] {
            device.write_at(block * 1024, &[0xEE; 1024]).unwrap();
        }
        device
    }

    #[test]
    fn what_was_overwritten_comes_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("undo");
        let changed = kept(&path);
        assert_eq!(undo(&changed, &path).unwrap(), 3);
        assert_eq!(changed.to_bytes(), device().to_bytes());
        // A second time nothing else happens.
        assert_eq!(undo(&changed, &path).unwrap(), 3);
        assert_eq!(changed.to_bytes(), device().to_bytes());
    }

    #[test]
    fn an_undo_file_is_never_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("undo");
        std::fs::write(&path, "precious").unwrap();
        assert!(keep(&device(), BlockSize::MIN, [1].into_iter(), &path).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn a_damaged_or_foreign_file_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("undo");
        let changed = kept(&path);
        let before = changed.to_bytes();
        let whole = std::fs::read(&path).unwrap();
        for at in [0, 20, 100, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            assert!(undo(&changed, &path).is_err(), "byte {at}");
        }
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert!(undo(&changed, &path).is_err());
        std::fs::write(&path, &whole).unwrap();
        let other = MemoryDevice::new(1 << 20);
        let error = undo(&other, &path).unwrap_err().to_string();
        assert!(
            error.contains("belongs to a device of 65536 bytes"),
            "{error}"
        );
        assert_eq!(changed.to_bytes(), before);
        assert_eq!(other.to_bytes(), vec![0; 1 << 20]);
    }
}
