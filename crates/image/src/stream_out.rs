//! Copies a finished image to a pipe, a socket or an open file, such as standard output.
//!
//! The system copies from file to file or pipe (`sendfile`), so that the data does not come into
//! memory here. Holes are not read: a pipe gets zeroes, and a file gets holes where it
//! had nothing before.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, SeekFrom, Write};

use rustix::fs::OFlags;
use rustix::io::Errno;
use uext4_blockdev::BlockDevice;

/// Zeroes written at once.
const ZEROES: usize = 256 << 10;
/// Bytes of one `sendfile`.
const AT_ONCE: usize = 1 << 30;

/// Where an image is copied to.
#[derive(Debug)]
pub struct Stream {
    file: File,
    /// Where the next byte goes in an ordinary file, and the bytes that it had; `None` for all
    /// else, and for a file to whose end everything is written.
    regular: Option<Regular>,
}

#[derive(Clone, Copy, Debug)]
struct Regular {
    at: u64,
    len: u64,
}

impl Stream {
    /// Takes the stream.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for a terminal; those of the system.
    pub fn new(file: File) -> io::Result<Self> {
        if file.is_terminal() {
            let why = "an image is not written to a terminal";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let metadata = file.metadata()?;
        let appends = rustix::fs::fcntl_getfl(&file)?.contains(OFlags::APPEND);
        let regular = match metadata.is_file() && !appends {
            true => Some(Regular {
                at: (&file).stream_position()?,
                len: metadata.len(),
            }),
            false => None,
        };
        Ok(Self { file, regular })
    }

    /// Copies all of `from`, which `device` says the holes of.
    ///
    /// # Errors
    /// Those of both; [`io::ErrorKind::BrokenPipe`] if the stream has no reader any more.
    pub fn copy(&mut self, from: &File, device: &dyn BlockDevice) -> io::Result<()> {
        let mut at = 0;
        while at < device.len() {
            let next = device.next_data(at).map_err(io::Error::other)?;
            let data = next.unwrap_or(device.len()..device.len());
            self.hole(data.start.saturating_sub(at))?;
            self.data(from, data.start, data.end - data.start)?;
            at = data.end;
        }
        match self.regular {
            // What ends with a hole.
            Some(Regular { at, len }) if at > len => self.file.set_len(at),
            _ => Ok(()),
        }
    }

    fn data(&mut self, from: &File, at: u64, len: u64) -> io::Result<()> {
        let end = at.saturating_add(len);
        let mut next = at;
        while next < end {
            let count = usize::try_from(end - next)
                .unwrap_or(usize::MAX)
                .min(AT_ONCE);
            match rustix::fs::sendfile(&self.file, from, Some(&mut next), count) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) | Err(Errno::INTR) => {}
                // Not to this kind of file, such as one that is appended to.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    let mut reader: &File = from;
                    reader.seek(SeekFrom::Start(next))?;
                    next += io::copy(&mut reader.take(end - next), &mut &self.file)?;
                    if next < end {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.advance(len);
        Ok(())
    }

    /// Leaves a hole where there is nothing yet; elsewhere writes zeroes.
    fn hole(&mut self, len: u64) -> io::Result<()> {
        let present = match self.regular {
            Some(Regular { at, len: end }) => end.saturating_sub(at).min(len),
            None => len,
        };
        let mut left = present;
        if left > 0 {
            let zeroes = vec![0; ZEROES];
            while left > 0 {
                let count = left.min(ZEROES as u64);
                (&self.file).write_all(&zeroes[..count as usize])?;
                left -= count;
            }
        }
        self.advance(len);
        match self.regular {
            Some(Regular { at, .. }) if present < len => {
                (&self.file).seek(SeekFrom::Start(at)).map(drop)
            }
            _ => Ok(()),
        }
    }

    fn advance(&mut self, by: u64) {
        if let Some(regular) = &mut self.regular {
            regular.at = regular.at.saturating_add(by);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use uext4_blockdev::{Access, FileDevice};
    use uext4_testkit::scratch;

    use super::*;

    const LEN: u64 = 40 << 20;

    /// An image with holes at the beginning, in the middle and at the end, and its bytes.
    fn image(dir: &Path) -> (File, FileDevice, Vec<u8>) {
        let path = dir.join("image");
        let device = FileDevice::create(&path, LEN).unwrap();
        for at in [1 << 20, 3 << 20, 35 << 20] {
            device
                .write_at(at, &[at.to_le_bytes()[2] + 1; 70_000])
                .unwrap();
        }
        drop(device);
        let device = FileDevice::open(&path, Access::ReadOnly).unwrap();
        (File::open(&path).unwrap(), device, fs::read(&path).unwrap())
    }

    #[test]
    fn a_pipe_gets_every_byte() {
        let dir = scratch();
        let (from, device, bytes) = image(dir.path());
        let (mut reader, writer) = io::pipe().unwrap();
        let copier = std::thread::spawn(move || {
            let mut stream = Stream::new(File::from(OwnedFd::from(writer)))?;
            stream.copy(&from, &device)
        });
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        copier.join().unwrap().unwrap();
        assert!(read == bytes);
    }

    #[test]
    fn a_pipe_without_a_reader_is_an_error() {
        let dir = scratch();
        let (from, device, _) = image(dir.path());
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut stream = Stream::new(File::from(OwnedFd::from(writer))).unwrap();
        let error = stream.copy(&from, &device).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_terminal_is_refused() {
        // Its other side is a terminal, too.
        let terminal = File::options().read(true).write(true).open("/dev/ptmx");
        let Ok(terminal) = terminal else {
            println!("skipped: needs /dev/ptmx");
            return;
        };
        let error = Stream::new(terminal).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_file_gets_the_holes() {
        let dir = scratch();
        let (from, device, bytes) = image(dir.path());
        let path = dir.path().join("copy");
        let mut stream = Stream::new(File::create(&path).unwrap()).unwrap();
        stream.copy(&from, &device).unwrap();
        assert!(fs::read(&path).unwrap() == bytes);
        let used = fs::metadata(&path).unwrap().blocks() * 512;
        assert!(used < 1 << 20, "{used} bytes are used");
    }

    #[test]
    fn what_a_file_had_is_replaced_from_where_it_is() {
        let dir = scratch();
        let (from, device, bytes) = image(dir.path());
        let path = dir.path().join("copy");
        // The old contents end within a hole, within data, and after the image.
        for old_len in [2 << 20, (3 << 20) + 100, LEN + 50] {
            let old = vec![0xee; old_len as usize];
            fs::write(&path, &old).unwrap();
            let mut file = File::options().write(true).open(&path).unwrap();
            file.seek(SeekFrom::Start(10)).unwrap();
            Stream::new(file).unwrap().copy(&from, &device).unwrap();
            let mut expected = old[..10].to_vec();
            expected.extend(&bytes);
            if old.len() > expected.len() {
                expected.extend(&old[expected.len()..]);
            }
            assert!(fs::read(&path).unwrap() == expected, "{old_len}");
        }
        fs::write(&path, "before").unwrap();
        let appending = File::options().append(true).open(&path).unwrap();
        Stream::new(appending)
            .unwrap()
            .copy(&from, &device)
            .unwrap();
        let found = fs::read(&path).unwrap();
        assert!(found[..6] == *b"before" && found[6..] == bytes);
    }
}
