//! The asking side of a connection.
//!
//! One request at a time and its answer ([`Client::call`]), or many that wait for none
//! ([`Client::queue`]): these are collected into frames, of which some are under way at the same
//! time, and their answers are taken later, in order. A thread receives, so that neither side waits
//! for the other to take what it sends.

use std::collections::VecDeque;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use uext4::{Error, RemoteError, Result};

use crate::frame::{DESCRIPTORS_MAX, FRAME_MAX, Frame, receive, send};
use crate::wire::{Answer, Request, Slot};

/// Bytes of requests that are sent together.
const BATCH: usize = 64 << 10;
/// Requests that are sent together.
const REQUESTS: usize = 256;
/// Frames under way at the same time.
const FRAMES: usize = 4;

/// What passes with a request.
#[derive(Clone, Copy, Debug)]
pub enum Passed<'a> {
    /// Nothing.
    Nothing,
    /// A file of this request alone.
    Own(BorrowedFd<'a>),
    /// A file that stays open, which other requests pass too: once in a frame is enough.
    Shared(BorrowedFd<'a>),
}

/// A connection to the process that has a file system open.
#[derive(Clone, Debug)]
pub struct Client {
    state: Arc<Mutex<State>>,
    /// The same stream as in the state.
    stream: Arc<UnixStream>,
}

#[derive(Debug)]
struct State {
    stream: UnixStream,
    received: Receiver<io::Result<Frame>>,
    /// Requests that were not sent yet.
    batch: Vec<u8>,
    /// What passes with them.
    descriptors: Vec<OwnedFd>,
    /// The last of these, as its owner numbers it, if others may pass it too.
    last_shared: Option<RawFd>,
    /// Whether the answer of each request is wanted, of those not sent yet and of those under way.
    wanted: VecDeque<bool>,
    /// How many of the last ones were not sent yet.
    unsent: usize,
    frames: usize,
    /// Answers that were not taken yet.
    answers: Vec<Answer>,
    next: Slot,
    free: Vec<Slot>,
    /// Requests that were answered.
    done: u64,
    /// What passed with the last frame of answers.
    came: Option<OwnedFd>,
}

impl Client {
    /// Of a stream on which the other end serves.
    ///
    /// # Errors
    /// Those of duplicating it, of starting a thread.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        let receiving = stream.try_clone()?;
        let (sender, received) = sync_channel(FRAMES);
        let looked_at = Arc::new(stream.try_clone()?);
        let named = thread::Builder::new().name("uext4-answers".to_owned());
        named.spawn(move || {
            loop {
                let frame = match receive(&receiving, Vec::new()) {
                    Ok(Some(frame)) => Ok(frame),
                    Ok(None) => Err(io::ErrorKind::UnexpectedEof.into()),
                    Err(error) => Err(error),
                };
                let is_end = frame.is_err();
                if sender.send(frame).is_err() || is_end {
                    break;
                }
            }
        })?;
        let state = State {
            stream,
            received,
            batch: Vec::new(),
            descriptors: Vec::new(),
            last_shared: None,
            wanted: VecDeque::new(),
            unsent: 0,
            frames: 0,
            answers: Vec::new(),
            next: 0,
            free: Vec::new(),
            done: 0,
            came: None,
        };
        Ok(Self {
            state: Arc::new(Mutex::new(state)),
            stream: looked_at,
        })
    }

    /// Whether the other end has not closed the connection.
    pub fn is_connected(&self) -> bool {
        let mut byte = [0];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match recv(&*self.stream, &mut byte[..], flags) {
            Ok((_, 0)) => false,
            Ok(_) | Err(Errno::WOULDBLOCK | Errno::INTR) => true,
            Err(_) => false,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for a file that is about to be opened.
    pub fn new_slot(&self) -> Slot {
        let mut state = self.state();
        state.free.pop().unwrap_or_else(|| {
            state.next += 1;
            state.next
        })
    }

    /// Asks, and waits for the answer. What was queued before is done before, and its answers wait
    /// to be taken.
    ///
    /// # Errors
    /// What the other end refuses it with; [`Error::Remote`] where the connection is lost.
    pub fn call(&self, request: &Request<'_>) -> Result<Answer> {
        self.state().call(request)
    }

    /// The same, with a refusal as an answer.
    ///
    /// # Errors
    /// [`Error::Remote`] where the connection is lost.
    pub fn ask(&self, request: &Request<'_>) -> Result<Answer> {
        self.state().ask(request)
    }

    /// The same for a request that a descriptor passes with, as [`Client::queue`] numbers it; what
    /// passes with the answer comes too.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn call_passing<'a>(
        &self,
        passed: Passed<'_>,
        request: impl FnOnce(u32) -> Request<'a>,
    ) -> Result<(Answer, Option<OwnedFd>)> {
        let mut state = self.state();
        let number = state.pass(passed)?;
        let answer = state.call(&request(number))?;
        Ok((answer, state.came.take()))
    }

    /// Asks without waiting; [`Client::take_answers`] gives the answer later. `request` is given
    /// the number that what passes with it has in its frame.
    ///
    /// # Errors
    /// [`Error::Remote`] where the connection is lost.
    pub fn queue<'a>(
        &self,
        passed: Passed<'_>,
        request: impl FnOnce(u32) -> Request<'a>,
    ) -> Result<()> {
        let mut state = self.state();
        let number = state.pass(passed)?;
        state.push(&request(number), true)
    }

    /// Lets go of a file, when the next request is sent.
    pub fn close(&self, slot: Slot) {
        let mut state = self.state();
        // A connection that is lost has let go of all.
        if state.push(&Request::Close(slot), false).is_ok() {
            state.free.push(slot);
        }
    }

    /// A number can be given to another file: its file was closed by a request.
    pub fn free_slot(&self, slot: Slot) {
        self.state().free.push(slot);
    }

    /// Answers of queued requests that have come, in the order of these.
    pub fn take_answers(&self) -> Vec<Answer> {
        std::mem::take(&mut self.state().answers)
    }

    /// Waits until all that was queued is answered.
    ///
    /// # Errors
    /// [`Error::Remote`] where the connection is lost.
    pub fn drain(&self) -> Result<()> {
        self.state().drain()
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // The thread that receives has the stream, too.
        _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl State {
    fn ask(&mut self, request: &Request<'_>) -> Result<Answer> {
        self.push(request, true)?;
        self.drain()?;
        let answer = self.answers.pop();
        answer.ok_or_else(|| self.lost(&io::ErrorKind::InvalidData.into()))
    }

    fn call(&mut self, request: &Request<'_>) -> Result<Answer> {
        match self.ask(request)? {
            Answer::Refused(refusal) => Err(refusal.into()),
            answer => Ok(answer),
        }
    }

    /// Puts a descriptor into the batch, and returns its number there.
    fn pass(&mut self, passed: Passed<'_>) -> Result<u32> {
        let (source, shared) = match passed {
            Passed::Nothing => return Ok(u32::MAX),
            Passed::Own(source) => (source, None),
            Passed::Shared(source) => (source, Some(source.as_raw_fd())),
        };
        if shared.is_none() || self.last_shared != shared {
            if self.descriptors.len() == DESCRIPTORS_MAX {
                self.send()?;
            }
            let own = source.try_clone_to_owned();
            let own = own.map_err(|source| Error::Content { offset: 0, source })?;
            self.descriptors.push(own);
            self.last_shared = shared;
        }
        // OK to cast: at most DESCRIPTORS_MAX.
        Ok((self.descriptors.len() - 1) as u32)
    }

    fn push(&mut self, request: &Request<'_>, is_wanted: bool) -> Result<()> {
        let bytes = postcard::to_stdvec(request);
        let bytes = bytes.map_err(|_| self.lost(&io::ErrorKind::InvalidData.into()))?;
        if bytes.len() > FRAME_MAX - BATCH {
            return Err(Error::Remote {
                kind: RemoteError::Limit,
                message: format!(
                    "it takes {} bytes to describe, and the daemon of a mount takes {}: it has too \
                     many pieces or attributes",
                    bytes.len(),
                    FRAME_MAX - BATCH
                ),
            });
        }
        self.batch.extend_from_slice(&bytes);
        self.wanted.push_back(is_wanted);
        self.unsent += 1;
        // What is not wanted waits for another.
        match is_wanted && (self.batch.len() >= BATCH || self.unsent >= REQUESTS) {
            true => self.send(),
            false => Ok(()),
        }
    }

    fn send(&mut self) -> Result<()> {
        if self.unsent == 0 {
            return Ok(());
        }
        while self.frames >= FRAMES {
            self.receive()?;
        }
        let passed: Vec<BorrowedFd<'_>> = self.descriptors.iter().map(OwnedFd::as_fd).collect();
        let sent = send(&self.stream, &self.batch, &passed);
        sent.map_err(|error| self.lost(&error))?;
        self.batch.clear();
        self.descriptors.clear();
        self.last_shared = None;
        self.unsent = 0;
        self.frames += 1;
        Ok(())
    }

    fn receive(&mut self) -> Result<()> {
        let gone = || Err(io::ErrorKind::UnexpectedEof.into());
        let frame = self.received.recv().unwrap_or_else(|_| gone());
        let frame = frame.map_err(|error| self.lost(&error))?;
        self.came = frame.descriptors.into_iter().next();
        let mut rest = frame.bytes.as_slice();
        while !rest.is_empty() {
            let answer = postcard::take_from_bytes::<Answer>(rest);
            let under_way = self.wanted.len() - self.unsent;
            let wanted = self.wanted.front().copied().filter(|_| under_way > 0);
            let (Ok((answer, after)), Some(is_wanted)) = (answer, wanted) else {
                return Err(self.lost(&io::ErrorKind::InvalidData.into()));
            };
            rest = after;
            self.wanted.pop_front();
            self.done += 1;
            if is_wanted {
                self.answers.push(answer);
            }
        }
        self.frames -= 1;
        Ok(())
    }

    fn drain(&mut self) -> Result<()> {
        self.send()?;
        while self.frames > 0 {
            self.receive()?;
        }
        Ok(())
    }

    /// The other end is gone, or speaks another language.
    fn lost(&self, error: &io::Error) -> Error {
        let why = match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset => "it has ended".to_owned(),
            _ => error.to_string(),
        };
        let (done, unknown) = (self.done, self.wanted.len());
        Error::Remote {
            kind: RemoteError::FileSystem,
            message: format!(
                "the daemon of the mount does not answer any more ({why}): {done} requests were \
                 done, of {unknown} more that is not known; what was done is durable only after \
                 `sync`"
            ),
        }
    }
}
