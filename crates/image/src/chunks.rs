//! Bytes that can be read once, in pieces that are shared and not copied.
//!
//! A thread reads, decompresses and hashes, at most some bytes ahead of the reader. Contents of
//! files are handed on as slices of the pieces, so that they are copied once: from the piece to
//! the image. What stops the thread reaches the reader when it gets there, not before.
//!
//! ```text
//! input ─▶ digest ─▶ decompressor ─▶ pieces of 1 MiB ─▶ queue ─▶ reader
//!                                          └─▶ checks (a thread of their own)
//! ```

mod format;

use std::collections::VecDeque;
use std::io::{self, BufReader, Read};
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use crate::error::Error;
use crate::limits;
pub use format::Format;
use format::is_want_of_memory;

/// Bytes of a piece. A multiple of a tar block, so that no header lies in two of them.
const PIECE: usize = 1 << 20;
/// Pieces on their way to the thread that checks them.
const CHECKED_AHEAD: usize = 4;
/// Pieces whose memory waits to be taken again.
const POOL_MAX: usize = 16;
/// Bytes after the end of a plain archive that are still read, so that a writer into a pipe is
/// not cut off.
const AFTER_END_MAX: u64 = 64 << 20;

/// Memory of pieces that were let go of: taken again, which spares the system clearing it.
pub type Pool = Arc<Mutex<Vec<Vec<u8>>>>;

/// Some of the bytes, as they came: at most 1 MiB.
#[derive(Debug, Default)]
pub struct Piece {
    memory: Vec<u8>,
    len: usize,
    pool: Pool,
}

impl Piece {
    /// An empty one.
    pub fn new(pool: &Pool) -> Self {
        let memory = pool.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Self {
            memory: memory.unwrap_or_else(|| vec![0; PIECE]),
            len: 0,
            pool: Arc::clone(pool),
        }
    }

    /// True if nothing can be appended.
    pub fn is_full(&self) -> bool {
        self.len == self.memory.len()
    }

    /// The bytes from `from` on, to be set; none past the end.
    pub fn tail_mut(&mut self, from: usize) -> &mut [u8] {
        self.memory.get_mut(from..self.len).unwrap_or_default()
    }

    /// Gives up the bytes from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Appends at most `want` bytes, which the caller sets; fewer if it is full then.
    pub fn extend(&mut self, want: u64) -> &mut [u8] {
        let from = self.len;
        let room = self.memory.len() - from;
        self.len += usize::try_from(want).map_or(room, |want| want.min(room));
        &mut self.memory[from..self.len]
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.len]
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if pool.len() < POOL_MAX {
            pool.push(memory);
        }
    }
}

/// Part of a piece.
#[derive(Clone, Debug, Default)]
pub struct Slice {
    piece: Arc<Piece>,
    range: Range<usize>,
}

impl Deref for Slice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // OK to index: `range` is cut from the piece's own length, and pieces do not change.
        &self.piece[self.range.clone()]
    }
}

impl Slice {
    /// All of a piece.
    pub fn whole(piece: Arc<Piece>) -> Self {
        let range = 0..piece.len();
        Self { piece, range }
    }

    /// The bytes `range` of a piece.
    pub fn part_of(piece: &Arc<Piece>, range: Range<usize>) -> Self {
        let end = range.end.min(piece.len());
        Self {
            piece: Arc::clone(piece),
            range: range.start.min(end)..end,
        }
    }

    /// The bytes `range` of it.
    pub fn part(&self, range: Range<usize>) -> Self {
        let in_piece = |at: usize| self.range.start.saturating_add(at).min(self.range.end);
        Self::part_of(&self.piece, in_piece(range.start)..in_piece(range.end))
    }

    /// Takes at most `len` bytes off the front.
    pub fn take(&mut self, len: u64) -> Self {
        let len = usize::try_from(len).map_or(self.len(), |len| len.min(self.len()));
        let middle = self.range.start + len;
        let front = Self {
            piece: Arc::clone(&self.piece),
            range: self.range.start..middle,
        };
        self.range.start = middle;
        front
    }
}

/// Looks at all bytes that come out of the decompressor, such as a digest that must match.
pub trait Check: Send {
    /// The next bytes.
    fn update(&mut self, bytes: &[u8]);

    /// There are no more.
    ///
    /// # Errors
    /// Whatever is wrong with them.
    fn finish(self: Box<Self>) -> Result<(), Error>;
}

/// What a stream is read from, and how much of it.
pub struct Stream {
    /// The compressed bytes.
    pub input: Box<dyn Read + Send>,
    /// How errors call it.
    pub path: PathBuf,
    /// Shown all decompressed bytes.
    pub check: Option<Box<dyn Check>>,
    /// Most bytes that are decompressed before the reader asks for them.
    pub ahead: usize,
    /// Decompressed bytes for each compressed one that are an attack, from
    /// [`RATIO_FROM`](limits::RATIO_FROM) bytes on.
    pub ratio: u64,
    /// Bytes of memory that undoing the compression may take.
    pub memory: u64,
}

/// The reader's side. Dropping it stops the thread at its next piece.
pub struct Chunks {
    queue: Arc<Queue>,
    current: Slice,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    pieces: VecDeque<Arc<Piece>>,
    /// Bytes in `pieces`.
    bytes: usize,
    /// No more will come.
    ended: bool,
    /// Why, if it was not the end of the input.
    error: Option<Error>,
    /// The reader has seen the archive's end: nothing more need be stored.
    finished: bool,
    /// The reader is gone.
    abandoned: bool,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves numbers that are still right.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let woken = self.changed.wait(state);
        woken.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Chunks {
    /// Begins to read.
    ///
    /// # Errors
    /// [`Error::Thread`] if there can be no thread.
    pub fn start(stream: Stream) -> Result<Self, Error> {
        let queue = Arc::new(Queue::default());
        let filler = Filler {
            queue: Arc::clone(&queue),
            path: stream.path.clone(),
            format: Format::Plain,
            memory: stream.memory,
        };
        let thread = thread::Builder::new().name("decompress".into());
        let spawned = thread.spawn(move || filler.run(stream));
        spawned.map_err(|source| Error::Thread { source })?;
        Ok(Self {
            queue,
            current: Slice::default(),
        })
    }

    /// The bytes that come next, as many as are in one piece; none at the end.
    ///
    /// # Errors
    /// What stopped the thread, once; the bytes before that were fine.
    pub fn peek(&mut self) -> Result<&[u8], Error> {
        if self.current.is_empty() {
            let mut state = self.queue.state();
            loop {
                if let Some(piece) = state.pieces.pop_front() {
                    state.bytes -= piece.len();
                    self.queue.changed.notify_all();
                    self.current = Slice::whole(piece);
                    break;
                }
                if let Some(error) = state.error.take() {
                    return Err(error);
                }
                if state.ended {
                    break;
                }
                state = self.queue.wait(state);
            }
        }
        Ok(&self.current)
    }

    /// Takes at most `len` of the bytes that come next; fewer at the end of a piece, none at the
    /// end of all.
    ///
    /// # Errors
    /// As [`Chunks::peek`].
    pub fn take(&mut self, len: u64) -> Result<Slice, Error> {
        self.peek()?;
        Ok(self.current.take(len))
    }

    /// Nothing more is wanted; waits until the input has been read to its end.
    ///
    /// # Errors
    /// What was wrong with the rest of the input, such as a checksum.
    pub fn finish(&mut self) -> Result<(), Error> {
        let mut state = self.queue.state();
        state.finished = true;
        state.pieces.clear();
        state.bytes = 0;
        self.queue.changed.notify_all();
        while !state.ended {
            state = self.queue.wait(state);
        }
        state.error.take().map_or(Ok(()), Err)
    }
}

impl Drop for Chunks {
    fn drop(&mut self) {
        self.queue.state().abandoned = true;
        self.queue.changed.notify_all();
    }
}

/// The thread's side.
struct Filler {
    queue: Arc<Queue>,
    path: PathBuf,
    format: Format,
    /// Bytes that the decompressor may take.
    memory: u64,
}

/// Sends pieces to the thread that checks them, and gets its verdict.
struct Checker {
    pieces: mpsc::SyncSender<Arc<Piece>>,
    verdict: thread::JoinHandle<Result<(), Error>>,
}

impl Checker {
    fn start(mut check: Box<dyn Check>) -> Result<Self, Error> {
        let (pieces, received) = mpsc::sync_channel::<Arc<Piece>>(CHECKED_AHEAD);
        let thread = thread::Builder::new().name("digest".into());
        let verdict = thread.spawn(move || {
            received.iter().for_each(|piece| check.update(&piece));
            check.finish()
        });
        let verdict = verdict.map_err(|source| Error::Thread { source })?;
        Ok(Self { pieces, verdict })
    }

    fn finish(self) -> Result<(), Error> {
        drop(self.pieces);
        // A panic of the thread is a fault of its own: the bytes were not checked.
        self.verdict.join().unwrap_or_else(|_| {
            let source = io::Error::other("the thread that checks a digest has ended");
            Err(Error::Thread { source })
        })
    }
}

impl Drop for Filler {
    /// However the thread ends, the reader does not wait for it any longer.
    fn drop(&mut self) {
        let mut state = self.queue.state();
        if thread::panicking() {
            let source = io::Error::other("the thread that decompresses has failed");
            state.error = Some(Error::Thread { source });
        }
        state.ended = true;
        self.queue.changed.notify_all();
    }
}

impl Filler {
    fn run(mut self, stream: Stream) {
        let error = self.fill(stream).err();
        self.queue.state().error = error;
    }

    fn fill(&mut self, stream: Stream) -> Result<(), Error> {
        let checker = stream.check.map(Checker::start).transpose()?;
        let (input, compressed) = limits::counted(stream.input);
        let mut input = BufReader::with_capacity(PIECE / 4, input);
        let start = io::BufRead::fill_buf(&mut input).map_err(|e| self.bad(e))?;
        // A reader may return a single byte; regular files and pipes of archivers do not.
        self.format = Format::detect(start);
        let mut decoder = self
            .format
            .decoder(&mut input, stream.memory)
            .map_err(|e| self.bad(e))?;
        let (mut out, mut after_end) = (0u64, 0u64);
        let pool = Pool::default();
        loop {
            let mut piece = Piece::new(&pool);
            let (len, error) = fill_piece(&mut decoder, &mut piece.memory);
            piece.len = len;
            out += len as u64;
            compressed.check(out, stream.ratio, &self.path)?;
            let piece = Arc::new(piece);
            if let Some(checker) = checker.as_ref().filter(|_| len > 0) {
                // It has no reason to stop before the channel is closed.
                let _ = checker.pieces.send(Arc::clone(&piece));
            }
            let finished = match len {
                0 => self.queue.state().finished,
                _ => self.push(piece, stream.ahead)?,
            };
            after_end += if finished { len as u64 } else { 0 };
            if let Some(error) = error {
                return Err(self.bad(error));
            }
            // Compressed data ends, and its checksum is behind all of it.
            let may_leave = checker.is_none() && self.format == Format::Plain;
            let unchecked = may_leave && after_end > AFTER_END_MAX;
            if len < PIECE || unchecked {
                break;
            }
            if self.queue.state().abandoned {
                return Ok(());
            }
        }
        drop(decoder);
        if checker.is_some() {
            // Digests are of all bytes, also of those that the decompressor does not want.
            io::copy(&mut input, &mut io::sink()).map_err(|e| self.bad(e))?;
        }
        checker.map_or(Ok(()), Checker::finish)
    }

    /// Appends a piece when there is room for it; true if the reader wants no more.
    fn push(&self, piece: Arc<Piece>, ahead: usize) -> Result<bool, Error> {
        let mut state = self.queue.state();
        while state.bytes >= ahead && !state.finished && !state.abandoned {
            state = self.queue.wait(state);
        }
        if !state.finished {
            state.bytes += piece.len();
            state.pieces.push_back(piece);
            self.queue.changed.notify_all();
        }
        Ok(state.finished)
    }

    fn bad(&self, source: io::Error) -> Error {
        bad(source, self.format, self.memory, &self.path)
    }
}

/// What an error of reading or decompressing means: an error of ours inside it is that one.
fn bad(source: io::Error, format: Format, memory: u64, path: &Path) -> Error {
    let path = path.to_path_buf();
    if is_want_of_memory(&source) {
        return Error::DecompressorMemory {
            path,
            format: format.name(),
            limit: memory,
        };
    }
    match (source.downcast::<Error>(), format) {
        (Ok(ours), _) => ours,
        (Err(source), Format::Plain) => Error::Source {
            path,
            op: "read",
            source,
        },
        (Err(source), format) => Error::Decompress {
            path,
            format: format.name(),
            source,
        },
    }
}

/// Reads until `piece` is full or the input ends or fails; what came before a failure counts.
fn fill_piece(input: &mut impl Read, piece: &mut [u8]) -> (usize, Option<io::Error>) {
    let mut len = 0;
    while len < piece.len() {
        match input.read(&mut piece[len..]) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return (len, Some(e)),
        }
    }
    (len, None)
}

#[cfg(test)]
mod tests;
