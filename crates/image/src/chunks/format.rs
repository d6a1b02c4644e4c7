//! How an archive is compressed, and what undoes that.

use std::io::{self, BufRead, Read};

/// Memory an xz stream may ask for, in bytes: 64 MiB of dictionary (`xz -9`) and its tables.
const XZ_MEMORY_MAX: u64 = 80 << 20;

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
    ///
    /// # Errors
    /// What the decompressor says when it begins.
    pub fn decoder<'a>(
        self,
        input: impl BufRead + Send + 'a,
    ) -> io::Result<Box<dyn Read + Send + 'a>> {
        Ok(match self {
            Self::Plain => Box::new(input),
            Self::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(input)),
            Self::Zstd => Box::new(zstd::Decoder::with_buffer(input)?),
            Self::Xz => {
                use liblzma::stream::{CONCATENATED, Stream};
                let stream = Stream::new_stream_decoder(XZ_MEMORY_MAX, CONCATENATED)?;
                Box::new(liblzma::bufread::XzDecoder::new_stream(input, stream))
            }
            Self::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(input)),
        })
    }
}
