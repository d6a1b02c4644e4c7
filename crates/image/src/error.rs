//! Everything that can stop a build, with the path or the archive offset it happened at.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::gpt::GptError;
use crate::verity::SALT_MAX;

/// What stopped a build. No half-made image is left under the output's name after any of these.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// Something in the source could not be read.
    #[error("{}: cannot {op}: {source}", path.display())]
    Source {
        /// The file, directory or archive.
        path: PathBuf,
        /// What was tried: "open", "read", …
        op: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// A file of the source directory is not what it was when it was listed.
    #[error("{}: changed while it was read ({what})", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// What is different.
        what: &'static str,
    },
    /// A name the file system or the builder cannot take.
    #[error("{}: {why}", path.display())]
    Path {
        /// The path as the source has it.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The source is a container image: layers and their description, not a tree of files.
    #[error("{}: {what}, whose layers are not a tree of files", path.display())]
    ContainerImage {
        /// The source.
        path: PathBuf,
        /// Its format.
        what: &'static str,
    },
    /// A path goes through something that is not a directory.
    #[error("{}: {} is not a directory", path.display(), through.display())]
    NotADirectory {
        /// The path as the source has it.
        path: PathBuf,
        /// The part of it that is no directory.
        through: PathBuf,
    },
    /// A hard link whose target is not in the source, or was excluded, or is a directory.
    #[error("{}: hard link to {}: {why}", path.display(), target.display())]
    HardLink {
        /// The link.
        path: PathBuf,
        /// What it should be linked to.
        target: PathBuf,
        /// What is wrong.
        why: &'static str,
    },
    /// A number of the source is more than the builder or the format can hold.
    #[error("too many {what}: more than {limit}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// The most there may be.
        limit: u64,
    },
    /// The archive is damaged, cut short, or uses what is not supported.
    #[error("{}: byte {offset}: {why}", path.display())]
    Tar {
        /// The archive; "-" for standard input.
        path: PathBuf,
        /// Offset in the (decompressed) archive, in bytes.
        offset: u64,
        /// What is wrong there.
        why: TarDamage,
    },
    /// The compressed data is damaged or cut short.
    #[error("{}: {format} data: {source}", path.display())]
    Decompress {
        /// The archive; "-" for standard input.
        path: PathBuf,
        /// "gzip", "zstd", "xz" or "bzip2".
        format: &'static str,
        /// What the decompressor says.
        source: io::Error,
    },
    /// Decompressing takes more memory than it may.
    #[error(
        "{}: {format} data: decompressing it takes more than the {limit} bytes of memory that it \
         may take",
        path.display()
    )]
    DecompressorMemory {
        /// The archive; "-" for standard input.
        path: PathBuf,
        /// "zstd" or "xz".
        format: &'static str,
        /// Bytes that the decompressor may take.
        limit: u64,
    },
    /// Something in the image that is a source cannot be read as it is.
    #[error("{}: {why}", path.display())]
    Base {
        /// The image and the path in it.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A container image is not what its documents say, or cannot be read: an
    /// [`oci::Error`](crate::oci::Error).
    #[error(transparent)]
    Container(Box<dyn std::error::Error + Send + Sync>),
    /// Far more comes out of compressed data than went in.
    #[error(
        "{}: {decompressed} bytes from {compressed} compressed ones: more than {ratio} to 1",
        path.display()
    )]
    Bomb {
        /// The archive; "-" for standard input.
        path: PathBuf,
        /// Bytes read so far.
        compressed: u64,
        /// Bytes that came out of them.
        decompressed: u64,
        /// The most that is allowed.
        ratio: u64,
    },
    /// The system gave no thread, or one has ended before its work was done.
    #[error("cannot run a thread: {source}")]
    Thread {
        /// Why.
        source: io::Error,
    },
    /// The caller wanted no more.
    #[error("stopped")]
    Cancelled,
    /// The temporary file for an archive that cannot be read twice, or for files without a size.
    #[error("{}: cannot keep a temporary file there: {source}", dir.display())]
    Spool {
        /// The directory of the temporary file: the output's.
        dir: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The image cannot be put where it should go.
    #[error("{}: cannot write the image: {source}", path.display())]
    Output {
        /// Its final name.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The image cannot be written.
    #[error("image: {0}")]
    Device(#[from] uext4_blockdev::Error),
    /// There can be no file system of this kind or size.
    #[error(transparent)]
    Mkfs(#[from] uext4_mkfs::Error),
    /// The file system refused an entry.
    #[error("{}: {source}", path.display())]
    Entry {
        /// The entry, or "image" if it was none in particular.
        path: PathBuf,
        /// Why.
        source: uext4::Error,
    },
    /// The source needs more than an image of the size asked for has.
    #[error(
        "the source needs {need} {what}, an image of this size has {have}: {} too many{}",
        need.saturating_sub(*have),
        brought_by(brought.as_deref())
    )]
    DoesNotFit {
        /// "bytes" or "inodes".
        what: &'static str,
        /// How many the source needs, in addition to those of the file system itself.
        need: u64,
        /// How many are free in the empty image.
        have: u64,
        /// Of several sources, the first that does not fit on those before it.
        brought: Option<PathBuf>,
    },
    /// The part of a disk that was given is too small: nothing was written.
    #[error(
        "the image needs {need} bytes, and {} has {have}: {} too few",
        part_of_disk(*partition, *next),
        need.saturating_sub(*have)
    )]
    InDisk {
        /// Bytes of the image.
        need: u64,
        /// Bytes of the part.
        have: u64,
        /// Its number, if it is a partition.
        partition: Option<u32>,
        /// The partition that follows it, else.
        next: Option<u32>,
    },
    /// What shall be put around the file system cannot be.
    #[error(transparent)]
    Finish(#[from] FinishError),
    /// An exclude pattern that cannot be understood.
    #[error("exclude pattern {pattern:?}: {why}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        why: String,
    },
}

/// Why this cannot be put around a file system.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FinishError {
    /// The partition table.
    #[error(transparent)]
    Gpt(#[from] GptError),
    /// The salt.
    #[error("a salt of {len} bytes: at most {SALT_MAX}")]
    Salt {
        /// Its length.
        len: usize,
    },
    /// A partition table says itself where the file system begins.
    #[error("an offset of {offset} bytes and a partition table exclude each other")]
    Offset {
        /// Where the file system was to begin.
        offset: u64,
    },
    /// A partition with a hash tree must be of a type that has one for the tree.
    #[error(
        "partitions of type {kind} have no type for their hash tree, as root-ARCH and usr-ARCH do"
    )]
    NoTreeType {
        /// The type.
        kind: String,
    },
}

/// What is wrong in a tar archive.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TarDamage {
    /// The input does not begin with a tar header.
    #[error("not a tar archive{hint}")]
    NotTar {
        /// What it looks like instead, in brackets, or nothing.
        hint: &'static str,
    },
    /// A header's checksum is wrong.
    #[error("header checksum is {stored:o}, should be {computed:o} (octal)")]
    Checksum {
        /// As the header says.
        stored: u64,
        /// As the bytes add up.
        computed: u64,
    },
    /// A number in a header cannot be read, or is out of range.
    #[error("{field} in the header: {why}")]
    Field {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The archive ends too early.
    #[error("archive is cut short: {missing} more bytes of {what} expected")]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// How much is missing, in bytes.
        missing: u64,
    },
    /// The archive ends between two members, but without the blocks of zeroes that end an archive.
    #[error("archive is cut short: no end-of-archive marker")]
    NoEnd,
    /// A pax record cannot be read.
    #[error("pax record {key:?}: {why}")]
    Pax {
        /// The key, as far as known.
        key: String,
        /// What is wrong.
        why: &'static str,
    },
    /// A sparse map cannot be read, or contradicts the sizes.
    #[error("sparse map: {why}")]
    Sparse {
        /// What is wrong.
        why: &'static str,
    },
    /// An extended header is larger than any sensible one.
    #[error("{what} of {size} bytes (at most {limit})")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size by the header.
        size: u64,
        /// The most there may be.
        limit: u64,
    },
    /// A member of a kind that cannot be put into an image.
    #[error("member type {:?}: {why}", char::from(*kind))]
    Kind {
        /// The type flag.
        kind: u8,
        /// Why not.
        why: &'static str,
    },
}

/// A part of a disk as a sentence names it.
fn part_of_disk(partition: Option<u32>, next: Option<u32>) -> String {
    match (partition, next) {
        (Some(number), _) => format!("partition {number}"),
        (None, Some(next)) => format!("the space before partition {next}"),
        (None, None) => "the rest of the disk".to_owned(),
    }
}

fn brought_by(source: Option<&Path>) -> String {
    match source {
        Some(source) => format!(", from {} on", source.display()),
        None => String::new(),
    }
}

/// A path of bytes as errors show it.
pub(crate) fn path_buf(bytes: &[u8]) -> PathBuf {
    Path::new(OsStr::from_bytes(bytes)).to_path_buf()
}
