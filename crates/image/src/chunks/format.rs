//! How an archive is compressed, and what undoes that.

use std::io::{self, BufRead, Read};

use bzip2::bufread::BzDecoder;
use flate2::bufread::GzDecoder;

/// How an archive is compressed, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Not at all.
    Plain,
    Gzip,
    Zstd,
    Xz,
    Bzip2,
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
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Self::Bzip2,
            _ => Self::Plain,
        }
    }

    /// Its name in errors.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Xz => "xz",
            Self::Bzip2 => "bzip2",
        }
    }

    /// Reads what `input` was before it was compressed: all members or frames, one after another.
    /// `memory` is how many bytes it may take: more than a few only for xz and zstd, whose streams
    /// say how much they need.
    ///
    /// # Errors
    /// What the decompressor says when it begins.
    pub fn decoder<'a>(
        self,
        input: impl BufRead + Send + 'a,
        memory: u64,
    ) -> io::Result<Box<dyn Read + Send + 'a>> {
        Ok(match self {
            Self::Plain => Box::new(input),
            Self::Gzip => Box::new(Members {
                member: Some(GzDecoder::new(input)),
                begin: GzDecoder::new,
                end: GzDecoder::into_inner,
                first: 0x1F,
            }),
            Self::Zstd => {
                let mut decoder = zstd::Decoder::with_buffer(input)?;
                decoder.window_log_max(memory.max(1).ilog2().clamp(10, 31))?;
                Box::new(decoder)
            }
            Self::Xz => {
                use liblzma::stream::{CONCATENATED, Stream};
                let stream = Stream::new_stream_decoder(memory, CONCATENATED)?;
                Box::new(liblzma::bufread::XzDecoder::new_stream(input, stream))
            }
            Self::Bzip2 => Box::new(Members {
                member: Some(BzDecoder::new(input)),
                begin: BzDecoder::new,
                end: BzDecoder::into_inner,
                first: b'B',
            }),
        })
    }
}

/// Whether an error of a decompressor is that the stream needs more memory than it may take.
pub fn is_want_of_memory(error: &io::Error) -> bool {
    let Some(inner) = error.get_ref() else {
        return false;
    };
    match inner.downcast_ref() {
        Some(error) => matches!(error, liblzma::stream::Error::MemLimit),
        // The library of zstd gives its errors names alone.
        None => inner.to_string() == "Frame requires too much memory for decoding",
    }
}

/// The members of a compressed file, one after another, up to the zeroes that a tape or a block
/// device has behind the last one, as gzip(1) reads them.
struct Members<R, D> {
    /// The one that is being read; `None` at the end.
    member: Option<D>,
    begin: fn(R) -> D,
    /// Gives back the input, of which all of the member has been read and nothing more.
    end: fn(D) -> R,
    /// The first byte of every member.
    first: u8,
}

impl<R: BufRead, D: Read> Read for Members<R, D> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while let Some(mut member) = self.member.take() {
            let len = member.read(buf)?;
            if len > 0 || buf.is_empty() {
                self.member = Some(member);
                return Ok(len);
            }
            let mut input = (self.end)(member);
            match input.fill_buf()?.first() {
                Some(&byte) if byte == self.first => self.member = Some((self.begin)(input)),
                _ => only_zeroes(&mut input)?,
            }
        }
        Ok(0)
    }
}

/// Reads to the end of the input.
fn only_zeroes(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let bytes = input.fill_buf()?;
        let len = bytes.len();
        if bytes.iter().any(|&byte| byte != 0) {
            let what = "rubbish behind its end: neither another member nor zeroes";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        if len == 0 {
            return Ok(());
        }
        input.consume(len);
    }
}
