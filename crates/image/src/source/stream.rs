//! Sources in order: which are read at once, and which may be read where they are.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use rustix::fs::FileType;

use super::copy::copy_files;
use super::sink::Sink;
use super::spool::Spool;
use super::tar::{self, ArchiveKind};
use super::{Context, Listing, SingleEntry, Source, Store, base, directory, failed, holes, single};
use crate::chunks::{Check, Chunks, Format, Stream};
use crate::error::Error;
use crate::place::Placer;
use crate::sparse::Holes;

/// Bytes of one source decompressed before they are wanted: at most where it is the only one, and
/// at least.
const AHEAD: usize = 8 << 20;
const AHEAD_MIN: usize = 1 << 20;
/// Most bytes of all sources that are open.
const AHEAD_OF_ALL: usize = 128 << 20;

/// Bytes of a pipe between processes: the most that an ordinary user may ask for by default.
const PIPE_LEN: usize = 1 << 20;

/// A source as a build reads it.
pub enum Input {
    /// One that has a path.
    Source(Source),
    /// An archive that is read once.
    Reader(Reader),
}

/// Opens a source. An image may have thousands of layers, of which few are read at a time.
pub type Open = Box<dyn FnOnce() -> Result<Box<dyn Read + Send>, Error> + Send>;

/// An archive that is read once, plain or compressed.
pub struct Reader {
    /// Opens the bytes, when they are wanted.
    pub open: Open,
    /// How errors call it.
    pub path: PathBuf,
    /// Whether it is a layer.
    pub kind: ArchiveKind,
    /// Shown all decompressed bytes.
    pub check: Option<Box<dyn Check>>,
}

/// Bytes of memory that one of the sources which are open may take.
#[derive(Clone, Copy)]
struct Share {
    /// Decompressed before they are wanted.
    ahead: usize,
    /// For the decompressor itself.
    decompressor: u64,
}

/// A source that was opened.
enum Opened {
    Directory(PathBuf),
    Image(PathBuf),
    Single(SingleEntry),
    Archive(tar::Input, ArchiveKind),
}

/// Lists sources, each above those before it. Contents of streams go to the placer, or else into a
/// spool.
///
/// # Errors
/// Whatever is wrong with them; see [`Error`].
pub fn list(
    inputs: Vec<Input>,
    context: &Context<'_>,
    mut placer: Option<&mut Placer>,
) -> Result<Listing, Error> {
    let mut listing = Listing {
        holes: context.holes,
        ..Listing::default()
    };
    let mut waiting = inputs.into_iter();
    let mut opened = VecDeque::new();
    let limits = &context.options.limits;
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let side_by_side = limits.side_by_side(processors).min(waiting.len()).max(1);
    let of_all = limits.ahead().min(AHEAD_OF_ALL);
    let ahead = match waiting.len() {
        1 => AHEAD.min(of_all),
        _ => of_all / side_by_side,
    };
    let share = Share {
        ahead: ahead.max(AHEAD_MIN),
        decompressor: limits.decompressor(side_by_side),
    };
    for number in 0.. {
        // Each decompresses in a thread of its own, while those before it are listed.
        while opened.len() < side_by_side {
            let Some(input) = waiting.next() else { break };
            // In an archive, what is around a hole is not where it can be read as one file.
            let passes = placer.is_some() || context.holes == Holes::Filled;
            opened.push_back(open(input, context, share, passes)?);
        }
        let Some(source) = opened.pop_front() else {
            break;
        };
        listing.tree.begin_source(number)?;
        let store = match source {
            Opened::Directory(path) => directory::list(&path, context, &mut listing)?,
            Opened::Image(path) => base::list(&path, context, &mut listing)?,
            Opened::Single(entry) => single::put(&entry, context, &mut listing)?,
            Opened::Archive(input, kind) => {
                archive(input, kind, context, &mut listing, placer.as_deref_mut())?
            }
        };
        // Zeroes in what passes once have been found meanwhile.
        let is_read = matches!(
            store,
            Store::Placed { .. } | Store::Spool { .. } | Store::Empty
        );
        listing.stores.push(store);
        match (placer.as_deref_mut(), context.holes) {
            _ if is_read => {}
            (Some(placer), holes) => copy_files(&mut listing, placer, holes, context.counter)?,
            (None, Holes::OfZeroes { unit }) => holes::find(&mut listing, unit, context.counter)?,
            (None, Holes::OfSource | Holes::Filled) => {}
        }
    }
    Ok(listing)
}

fn archive(
    input: tar::Input,
    kind: ArchiveKind,
    context: &Context<'_>,
    listing: &mut Listing,
    placer: Option<&mut Placer>,
) -> Result<Store, Error> {
    let path = input.path().to_path_buf();
    let file = input.file().cloned();
    let mut spool = listing
        .spool
        .take()
        .unwrap_or_else(|| Spool::new(context.spool_dir, context.options.limits.waiting()));
    let is_placed = placer.is_some();
    let sink = match placer {
        Some(placer) => Sink::Place(placer),
        None => Sink::Spool(&mut spool),
    };
    tar::list(input, kind, context, listing, sink)?;
    listing.spool = Some(spool);
    Ok(match (file, is_placed) {
        (Some(file), _) => Store::Archive { file, path },
        (None, true) => Store::Placed { path },
        (None, false) => Store::Spool { path },
    })
}

fn open(input: Input, context: &Context<'_>, share: Share, passes: bool) -> Result<Opened, Error> {
    let (file, path, kind) = match input {
        Input::Source(Source::Directory(path)) => return Ok(Opened::Directory(path)),
        Input::Source(Source::Image(path)) => return Ok(Opened::Image(path)),
        Input::Source(Source::Single(entry)) => return Ok(Opened::Single(entry)),
        Input::Source(Source::TarFile(path)) => (open_file(&path)?, path, ArchiveKind::Files),
        Input::Source(Source::Layer(path)) => (open_file(&path)?, path, ArchiveKind::Layer),
        Input::Source(Source::Stdin) => {
            let path = Path::new("-");
            let stdin = io::stdin().as_fd().try_clone_to_owned();
            let stdin = stdin.map_err(|e| failed(path, "open", e))?;
            // Its writer and this process take turns less often. It need not be a pipe.
            let _ = rustix::pipe::fcntl_setpipe_size(&stdin, PIPE_LEN);
            (File::from(stdin), path.to_path_buf(), ArchiveKind::Files)
        }
        Input::Reader(reader) => return stream(reader, context, share),
    };
    if !passes && let Some(input) = in_place(&file, &path)? {
        return Ok(Opened::Archive(input, kind));
    }
    let reader = Reader {
        open: Box::new(move || Ok(Box::new(file))),
        path,
        kind,
        check: None,
    };
    stream(reader, context, share)
}

fn stream(reader: Reader, context: &Context<'_>, share: Share) -> Result<Opened, Error> {
    let path = reader.path.clone();
    let is_verified = reader.check.is_some();
    let chunks = Chunks::start(Stream {
        input: (reader.open)()?,
        path: reader.path,
        check: reader.check,
        ahead: share.ahead,
        ratio: context.options.limits.ratio,
        memory: share.decompressor,
    })?;
    let mut input = tar::Input::from_stream(chunks, &path);
    if is_verified {
        input = input.verified();
    }
    Ok(Opened::Archive(input, reader.kind))
}

fn open_file(path: &Path) -> Result<File, Error> {
    File::open(path).map_err(|e| failed(path, "open", e))
}

/// A plain archive in a file can be read where it is; `None` for any other.
fn in_place(file: &File, path: &Path) -> Result<Option<tar::Input>, Error> {
    let stat = rustix::fs::fstat(file).map_err(|e| failed(path, "stat", e.into()))?;
    let seekable = matches!(
        FileType::from_raw_mode(stat.st_mode),
        FileType::RegularFile | FileType::BlockDevice
    );
    if !seekable {
        return Ok(None);
    }
    let read_error = |e| failed(path, "read", e);
    let mut file = file.try_clone().map_err(|e| failed(path, "open", e))?;
    let base = file.stream_position().map_err(read_error)?;
    let mut start = [0; Format::MAGIC_LEN];
    let len = file.read_at(&mut start, base).map_err(read_error)?;
    if Format::detect(start.get(..len).unwrap_or_default()) != Format::Plain {
        return Ok(None);
    }
    let end = file.seek(SeekFrom::End(0)).map_err(read_error)?;
    let len = end.saturating_sub(base);
    Ok(Some(tar::Input::from_file(Arc::new(file), base, len, path)))
}
