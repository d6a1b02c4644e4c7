//! Archives that cannot be read twice – compressed, or from a pipe – into an unlinked file.
//!
//! A thread decompresses and writes the archive whole, headers and all, so that an offset in the
//! archive is an offset in the file; any thread that reads behind it waits until there is enough.
//! What stops the thread reaches the reader when it gets there, not before.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::error::Error;

/// Bytes decompressed between two messages to the reader.
const CHUNK: usize = 1 << 20;
/// Bytes after the end of the archive that are still read, so that a compressor's checksum is
/// tested and a writer into a pipe is not cut off.
const AFTER_END_MAX: u64 = 64 << 20;
/// Memory an xz stream may ask for, in bytes: 64 MiB of dictionary (`xz -9`) and its tables.
const XZ_MEMORY_MAX: u64 = 80 << 20;

/// How an archive is compressed, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Plain,
    Gzip,
    Zstd,
    Xz,
}

impl Format {
    /// Bytes [`Format::detect`] needs to see.
    pub const MAGIC_LEN: usize = 6;

    /// Looks at the first bytes of an archive (fewer if it has no more).
    pub fn detect(start: &[u8]) -> Self {
        match start {
            [0x1F, 0x8B, 8, ..] => Self::Gzip,
            // A skippable frame may come before the first real one.
            [0x28, 0xB5, 0x2F, 0xFD, ..] | [0x50..=0x5F, 0x2A, 0x4D, 0x18, ..] => Self::Zstd,
            [0xFD, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            _ => Self::Plain,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Xz => "xz",
        }
    }

    fn decoder(self, input: impl io::BufRead + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Self::Plain => Box::new(input),
            Self::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(input)),
            Self::Zstd => Box::new(zstd::Decoder::with_buffer(input)?),
            Self::Xz => {
                use liblzma::stream::{CONCATENATED, Stream};
                let stream = Stream::new_stream_decoder(XZ_MEMORY_MAX, CONCATENATED)?;
                Box::new(liblzma::bufread::XzDecoder::new_stream(input, stream))
            }
        })
    }
}

/// The file, and how far it has been filled. Dropping it stops the thread at its next chunk.
#[derive(Debug)]
pub struct Spool {
    file: Arc<File>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes of the file that may be read.
    available: u64,
    /// No more will come.
    ended: bool,
    /// Why, if it was not the end of the input.
    error: Option<Error>,
    /// The reader has seen the archive's end: nothing more need be stored.
    finished: bool,
    /// The reader is gone.
    abandoned: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves numbers that are still right.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spool {
    /// Begins to read `input` into a file without a name in the directory `dir`. `path` is how
    /// errors call the input.
    ///
    /// # Errors
    /// [`Error::Spool`] if there is no room for the file.
    pub fn start(
        input: impl Read + Send + 'static,
        format: Format,
        path: &Path,
        dir: &Path,
    ) -> Result<Self, Error> {
        let spool_error = |source| Error::Spool {
            dir: dir.to_path_buf(),
            source,
        };
        let file = Arc::new(tempfile::tempfile_in(dir).map_err(spool_error)?);
        let shared = Arc::new(Shared::default());
        let filler = Filler {
            file: Arc::clone(&file),
            shared: Arc::clone(&shared),
            format,
            path: path.to_path_buf(),
            dir: dir.to_path_buf(),
        };
        let run = move || filler.run(BufReader::with_capacity(CHUNK / 4, input));
        let thread = thread::Builder::new().name("decompress".into());
        thread.spawn(run).map_err(spool_error)?;
        Ok(Self { file, shared })
    }

    /// The file. What lies before an offset [`Spool::wait_for`] has notified of may be read.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Waits until `end` bytes are there, or all there will be, and returns how many are.
    ///
    /// # Errors
    /// What stopped the thread, once; the bytes before that were fine.
    pub fn wait_for(&self, end: u64) -> Result<u64, Error> {
        let mut state = self.shared.state();
        while state.available < end && !state.ended {
            let woken = self.shared.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        match state.error.take() {
            Some(error) if state.available < end => Err(error),
            error => {
                state.error = error;
                Ok(state.available)
            }
        }
    }

    /// Nothing more is wanted; waits until the input has been read to its end.
    ///
    /// # Errors
    /// What was wrong with the rest of the input, such as a checksum.
    pub fn finish(&self) -> Result<(), Error> {
        self.shared.state().finished = true;
        self.wait_for(u64::MAX).map(drop)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.shared.state().abandoned = true;
    }
}

/// The thread's side.
struct Filler {
    file: Arc<File>,
    shared: Arc<Shared>,
    format: Format,
    path: PathBuf,
    dir: PathBuf,
}

impl Filler {
    fn run(self, input: impl io::BufRead + Send + 'static) {
        let error = self.fill(input).err();
        let mut state = self.shared.state();
        state.error = error;
        state.ended = true;
        self.shared.changed.notify_all();
    }

    fn fill(&self, input: impl io::BufRead + Send + 'static) -> Result<(), Error> {
        let mut decoder = self.format.decoder(input).map_err(|e| self.bad(e))?;
        let mut chunk = vec![0; CHUNK];
        let (mut at, mut after_end) = (0u64, 0u64);
        loop {
            let (len, error) = fill_chunk(&mut decoder, &mut chunk);
            let finished = self.shared.state().finished;
            if !finished && len > 0 {
                self.file
                    .write_all_at(&chunk[..len], at)
                    .map_err(|source| Error::Spool {
                        dir: self.dir.clone(),
                        source,
                    })?;
            }
            at += len as u64;
            after_end += if finished { len as u64 } else { 0 };
            let abandoned = {
                let mut state = self.shared.state();
                if !finished {
                    state.available = at;
                }
                self.shared.changed.notify_all();
                state.abandoned
            };
            if let Some(error) = error {
                return Err(self.bad(error));
            }
            if len < chunk.len() || abandoned || after_end > AFTER_END_MAX {
                return Ok(());
            }
        }
    }

    fn bad(&self, source: io::Error) -> Error {
        let path = self.path.clone();
        match self.format {
            Format::Plain => Error::Source {
                path,
                op: "read",
                source,
            },
            format => Error::Decompress {
                path,
                format: format.name(),
                source,
            },
        }
    }
}

/// Reads until `chunk` is full or the input ends or fails; what came before a failure counts.
fn fill_chunk(input: &mut impl Read, chunk: &mut [u8]) -> (usize, Option<io::Error>) {
    let mut len = 0;
    while len < chunk.len() {
        match input.read(&mut chunk[len..]) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return (len, Some(e)),
        }
    }
    (len, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 1u32;
        let step = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Compressible, but not to nothing.
            (state >> 28) as u8
        };
        (0..len).map(step).collect()
    }

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn xz(data: &[u8]) -> Vec<u8> {
        let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 0);
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn spool(compressed: Vec<u8>) -> Spool {
        let format = Format::detect(&compressed);
        let input = io::Cursor::new(compressed);
        Spool::start(input, format, Path::new("in"), &std::env::temp_dir()).unwrap()
    }

    #[test]
    fn every_format_in_several_pieces() {
        let data = noise(3 * CHUNK + 17);
        let (a, b) = data.split_at(CHUNK + 5);
        let skippable = [0x50, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 1, 2, 3];
        let zstd = |data| zstd::encode_all(data, 1).unwrap();
        for compressed in [
            data.clone(),
            [gzip(a), gzip(b)].concat(),
            [xz(a), xz(b)].concat(),
            [&skippable[..], &zstd(a), &zstd(b)].concat(),
        ] {
            let spool = spool(compressed);
            assert!(spool.wait_for(100).unwrap() >= 100);
            let len = spool.wait_for(u64::MAX).unwrap();
            let mut got = vec![0; len as usize];
            spool.file().read_exact_at(&mut got, 0).unwrap();
            assert!(got == data);
            spool.finish().unwrap();
        }
    }

    #[test]
    fn what_came_before_the_damage_can_be_read() {
        let data = noise(3 * CHUNK);
        for whole in [
            gzip(&data),
            xz(&data),
            zstd::encode_all(&data[..], 1).unwrap(),
        ] {
            let spool = spool(whole[..whole.len() * 2 / 3].to_vec());
            assert!(spool.wait_for(CHUNK as u64).unwrap() >= CHUNK as u64);
            let error = spool.wait_for(u64::MAX).unwrap_err();
            assert!(matches!(error, Error::Decompress { .. }), "{error}");
        }
    }

    #[test]
    fn a_wrong_checksum_is_found_at_the_end() {
        let mut whole = gzip(&noise(5000));
        let at = whole.len() - 5;
        whole[at] ^= 1;
        let spool = spool(whole);
        spool.wait_for(1000).unwrap();
        assert!(spool.finish().is_err());
    }

    #[test]
    fn an_endless_input_is_left() {
        let path = Path::new("-");
        let spool =
            Spool::start(io::repeat(0), Format::Plain, path, &std::env::temp_dir()).unwrap();
        spool.wait_for(10).unwrap();
        spool.finish().unwrap();
    }

    #[test]
    fn a_dictionary_beyond_the_limit_is_refused() {
        let mut options = liblzma::stream::LzmaOptions::new_preset(0).unwrap();
        options.dict_size(256 << 20);
        let mut filters = liblzma::stream::Filters::new();
        filters.lzma2(&options);
        let check = liblzma::stream::Check::Crc32;
        let stream = liblzma::stream::Stream::new_stream_encoder(&filters, check).unwrap();
        let mut encoder = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
        encoder.write_all(b"small").unwrap();
        let spool = spool(encoder.finish().unwrap());
        assert!(matches!(
            spool.wait_for(1),
            Err(Error::Decompress { format: "xz", .. })
        ));
    }
}
