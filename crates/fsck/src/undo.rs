//! What a repair overwrote, in a file that can put it back.
//!
//! ```text
//! line 1: what the file is: version, bytes of the device, block size, number of blocks
//! then:   for each block its number (8 bytes, little-endian), a crc32c of each of the
//!         sectors that it becomes (4 bytes each), and its old contents
//! end:    SHA-256 of all before
//! ```
//! The file is whole and durable before the first byte of the device changes. Undoing may be cut
//! off and done again.
//!
//! Nothing is put back into a device on which a sector is neither what it was nor what the repair
//! made of it: that is another device, or one that was in use since. It is sectors, not blocks,
//! that are compared, because a block may have been written in part when the power went.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uext4_blockdev::BlockDevice;
use uext4_ondisk::BlockSize;

use uext4_ondisk::checksum::crc32c;
use uext4_ondisk::num::len64;
use uext4_redo::primary::{self, SECTOR_LEN};

use crate::error::{Error, Result};
use crate::mmp::{Pause, while_claimed};

/// Most bytes of the first line.
const LINE_MAX: u64 = 4096;
const DIGEST_LEN: usize = 32;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    /// The version of the form: 2.
    uext4_undo: u32,
    /// Bytes of the device.
    device_len: u64,
    /// Bytes of a block.
    block_len: u32,
    /// Blocks that follow.
    blocks: u64,
}

/// Reads what a block becomes.
pub type Becomes<'a> = dyn FnMut(u64, &mut [u8]) -> Result<()> + 'a;

/// Keeps the old contents of `blocks`, which ascend, in a new file at `path`, with checksums of
/// what they become, and returns when they are durable.
///
/// # Errors
/// [`Error::Refused`] if the file exists or cannot be written, whole; of the device.
pub fn keep(
    device: &dyn BlockDevice,
    block_size: BlockSize,
    blocks: &[u64],
    becomes: &mut Becomes<'_>,
    path: &Path,
) -> Result<()> {
    let mut options = OpenOptions::new();
    // What is in it may be private, whatever the umask says.
    let options = options.write(true).create_new(true).mode(0o600);
    let file = options.open(path);
    let file = file.map_err(|error| failed(path, "cannot be made", &error))?;
    let written = write(device, block_size, blocks, becomes, &file);
    if let Err(error) = written {
        // A part of it is of no use; that it stays where removing fails is no new harm.
        let _ = std::fs::remove_file(path);
        return Err(match error {
            Error::Output(error) => failed(path, "cannot be written", &error),
            other => other,
        });
    }
    sync_directory_of(path).map_err(|error| failed(path, "cannot be written", &error))
}

fn write(
    device: &dyn BlockDevice,
    block_size: BlockSize,
    blocks: &[u64],
    becomes: &mut Becomes<'_>,
    file: &File,
) -> Result<()> {
    let mut out = Summing {
        inner: BufWriter::new(file),
        digest: Sha256::new(),
    };
    let head = Head {
        uext4_undo: 2,
        device_len: device.len(),
        block_len: block_size.bytes(),
        blocks: len64(blocks.len()),
    };
    let mut line = serde_json::to_vec(&head).map_err(|error| Error::Output(error.into()))?;
    line.push(b'\n');
    out.write_all(&line).map_err(Error::Output)?;
    let mut content = vec![0; block_size.len()];
    let mut new = vec![0; block_size.len()];
    for &block in blocks {
        let offset = block << block_size.log2();
        device.read_at(offset, &mut content)?;
        becomes(block, &mut new)?;
        out.write_all(&block.to_le_bytes()).map_err(Error::Output)?;
        for sum in sums(offset, &new) {
            out.write_all(&sum.to_le_bytes()).map_err(Error::Output)?;
        }
        out.write_all(&content).map_err(Error::Output)?;
    }
    let digest = out.digest.clone().finalize();
    out.inner.write_all(&digest).map_err(Error::Output)?;
    out.inner.flush().map_err(Error::Output)?;
    drop(out);
    file.sync_all().map_err(Error::Output)
}

/// The checksums of the sectors from byte `offset` of the device on, without what a repair and an
/// undoing change of the superblock meanwhile.
fn sums(offset: u64, content: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let sectors = (offset..)
        .step_by(SECTOR_LEN)
        .zip(content.chunks(SECTOR_LEN));
    sectors.map(|(at, sector)| match primary::unsteady(at) {
        None => crc32c(!0, sector),
        Some(not) => {
            let mut sector = sector.to_vec();
            sector.get_mut(not).unwrap_or_default().fill(0);
            crc32c(!0, &sector)
        }
    })
}

/// Puts back what the file at `path` holds, and returns the number of blocks.
///
/// The superblock is first marked as one with errors and then put back last, so that a file system
/// of which a part is put back is not used for one that is whole.
///
/// # Errors
/// [`Error::Refused`] if it is no whole undo file, or not of this device as it is: nothing was
/// written then; the same if another host has the file system, for which `pause` waits. Of the
/// device: then the file can be used again.
pub fn undo(device: &dyn BlockDevice, path: &Path, pause: &Pause<'_>) -> Result<u64> {
    let mut other = None;
    let mut has_superblock = false;
    let mut now = Vec::new();
    read(device, path, &mut |block| {
        has_superblock |= block.is_superblock();
        if other.is_none() && !block.is_on(device, &mut now)? {
            other = Some(block.number);
        }
        Ok(())
    })?;
    if let Some(number) = other {
        return Err(Error::Refused {
            what: format!(
                "{}: belongs to another image, or the image was in use since the repair: block \
                 {number} is neither what it was nor what it became; nothing was written",
                path.display()
            ),
        });
    }
    while_claimed(device, device, pause, || {
        if has_superblock {
            primary::mark_errors(device)?;
        }
        let mut superblock = None;
        let blocks = read(device, path, &mut |block| {
            match block.is_superblock() {
                true => superblock = Some((block.offset, block.content.to_vec())),
                false => device.write_at(block.offset, block.content)?,
            }
            Ok(())
        })?;
        device.flush()?;
        if let Some((offset, content)) = superblock {
            device.write_at(offset, &content)?;
            device.flush()?;
        }
        Ok(blocks)
    })
}

/// A block of an undo file.
struct Kept<'a> {
    number: u64,
    size: BlockSize,
    /// On the device, where the block lies as a whole.
    offset: u64,
    /// The checksums of what it became.
    becomes: &'a [u8],
    /// What it was.
    content: &'a [u8],
}

impl Kept<'_> {
    fn is_superblock(&self) -> bool {
        self.number == primary::block(self.size).0
    }

    /// Whether each of its sectors on the device is what it was or what it became.
    fn is_on(&self, device: &dyn BlockDevice, now: &mut Vec<u8>) -> Result<bool> {
        now.resize(self.content.len(), 0);
        device.read_at(self.offset, now)?;
        let old = sums(self.offset, self.content);
        let becomes = self.becomes.chunks_exact(4);
        let becomes = becomes.map(|sum| sum.try_into().map_or(0, u32::from_le_bytes));
        let mut sectors = sums(self.offset, now).zip(old.zip(becomes));
        Ok(sectors.all(|(now, (old, becomes))| now == old || now == becomes))
    }
}

/// Calls `each` for each block.
fn read(
    device: &dyn BlockDevice,
    path: &Path,
    each: &mut dyn FnMut(&Kept<'_>) -> Result<()>,
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
    let (2, Some(block_size)) = (head.uext4_undo, block_size) else {
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
    let mut becomes = vec![0; block_size.len() / SECTOR_LEN * 4];
    let mut content = vec![0; block_size.len()];
    for _ in 0..head.blocks {
        let ended = |_| wrong("ends too early");
        input.read_exact(&mut number).map_err(ended)?;
        input.read_exact(&mut becomes).map_err(ended)?;
        input.read_exact(&mut content).map_err(ended)?;
        digest.update(number);
        digest.update(&becomes);
        digest.update(&content);
        let number = u64::from_le_bytes(number);
        if number >= device.len() >> block_size.log2() {
            return Err(wrong("names a block that cannot be"));
        }
        each(&Kept {
            number,
            size: block_size,
            offset: number << block_size.log2(),
            becomes: &becomes,
            content: &content,
        })?;
    }
    let mut stored = [0; DIGEST_LEN];
    input
        .read_exact(&mut stored)
        .map_err(|_| wrong("ends too early"))?;
    if digest.finalize()[..] != stored {
        return Err(wrong("is damaged: its digest is wrong"));
    }
    let behind = input.read(&mut [0]).map_err(|error| unreadable(&error))?;
    if behind != 0 {
        return Err(wrong(
            "has bytes behind its end, and is not as it was written",
        ));
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
    use uext4_testkit::{SimDevice, SimOptions};

    use super::*;

    fn device() -> MemoryDevice {
        MemoryDevice::from_bytes((0..64 * 1024_u32).map(|i| (i / 512) as u8).collect())
    }

    fn filled(_block: u64, content: &mut [u8]) -> Result<()> {
        content.fill(0xEE);
        Ok(())
    }

    fn kept(path: &Path) -> MemoryDevice {
        let device = device();
        keep(&device, BlockSize::MIN, &[3, 4, 60], &mut filled, path).unwrap();
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
        assert_eq!(undo(&changed, &path, &|_| ()).unwrap(), 3);
        assert_eq!(changed.to_bytes(), device().to_bytes());
        // A second time nothing else happens.
        assert_eq!(undo(&changed, &path, &|_| ()).unwrap(), 3);
        assert_eq!(changed.to_bytes(), device().to_bytes());
    }

    #[test]
    fn an_undo_file_is_never_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("undo");
        std::fs::write(&path, "precious").unwrap();
        assert!(keep(&device(), BlockSize::MIN, &[1], &mut filled, &path).is_err());
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
            assert!(undo(&changed, &path, &|_| ()).is_err(), "byte {at}");
        }
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert!(undo(&changed, &path, &|_| ()).is_err());
        std::fs::write(&path, [&whole[..], b"\n"].concat()).unwrap();
        let error = undo(&changed, &path, &|_| ()).unwrap_err().to_string();
        assert!(error.contains("bytes behind its end"), "{error}");
        std::fs::write(&path, &whole).unwrap();
        let other = MemoryDevice::new(1 << 20);
        let error = undo(&other, &path, &|_| ()).unwrap_err().to_string();
        assert!(
            error.contains("belongs to a device of 65536 bytes"),
            "{error}"
        );
        assert_eq!(changed.to_bytes(), before);
        assert_eq!(other.to_bytes(), vec![0; 1 << 20]);
    }

    #[test]
    fn a_block_of_which_one_sector_was_written_is_put_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("undo");
        let changed = kept(&path);
        changed.write_at(4 * 1024, &[8; 512]).unwrap();
        assert_eq!(undo(&changed, &path, &|_| ()).unwrap(), 3);
        assert_eq!(changed.to_bytes(), device().to_bytes());
    }

    #[test]
    fn an_image_that_was_in_use_since_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("undo");
        let changed = kept(&path);
        changed.write_at(60 * 1024 + 1000, &[1]).unwrap();
        let before = changed.to_bytes();
        let error = undo(&changed, &path, &|_| ()).unwrap_err().to_string();
        assert!(error.contains("block 60 is neither"), "{error}");
        assert_eq!(changed.to_bytes(), before);
        // A device of the same size, for which it was not made.
        let other = MemoryDevice::new(64 << 10);
        assert!(undo(&other, &path, &|_| ()).is_err());
        assert_eq!(other.to_bytes(), vec![0; 64 << 10]);
    }

    #[test]
    fn a_cut_while_blocks_are_put_back_leaves_a_mark_and_can_be_undone() {
        let image = crate::tests::TestImage::new("-t ext4 -b 1024", "4M");
        let bytes = std::fs::read(image.path()).unwrap();
        let start = MemoryDevice::from_bytes(bytes.clone());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("undo");
        let mut superblock = [0; 1024];
        start.read_at(1024, &mut superblock).unwrap();
        let mut new = superblock;
        primary::change(&mut new, |bytes| bytes[0x34] ^= 1);
        let mut becomes = |block, content: &mut [u8]| {
            content.fill(0xEE);
            if block == 1 {
                content.copy_from_slice(&new);
            }
            Ok(())
        };
        keep(&start, BlockSize::MIN, &[1, 50, 51], &mut becomes, &path).unwrap();
        start.write_at(1024, &new).unwrap();
        start.write_at(50 * 1024, &[0xEE; 2048]).unwrap();
        for cut in 0..4 {
            let device = SimDevice::new(&start, SimOptions::default());
            device.cut_at_write(cut);
            assert!(undo(&device, &path, &|_| ()).is_err());
            let after = device.power_cut(cut);
            let mut state = [0; 2];
            after.read_at(1024 + 0x3A, &mut state).unwrap();
            let written = after.to_bytes()[50 * 1024..52 * 1024] != [0xEE; 2048];
            assert!(!written || cut == 3 || state[0] & 2 != 0, "cut at {cut}");
            assert_eq!(undo(&after, &path, &|_| ()).unwrap(), 3);
            assert!(after.to_bytes() == bytes, "cut at {cut}");
        }
    }
}
