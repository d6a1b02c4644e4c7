//! Clients that have connected and not asked yet: one thread waits for all of them.
//!
//! None holds the others up: what each has said is read without waiting for more. Where more have
//! connected than are kept, the one that has waited longest loses its connection. So a client that
//! asks at once is answered, whatever number of others does nothing.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// How long a client may take to ask.
const PATIENCE: Duration = Duration::from_secs(5);
/// Clients that have not asked yet, at most.
const WAITING_MAX: usize = 256;
/// Bytes of a question at most.
const QUESTION_MAX: usize = 4096;
/// How long nothing is accepted after the system refused to.
const PAUSE: Duration = Duration::from_millis(10);

/// A client that has not asked yet.
struct Waiting {
    stream: UnixStream,
    since: Instant,
    said: Vec<u8>,
    /// The first descriptor that came with it.
    shown: Option<OwnedFd>,
}

impl Waiting {
    /// Takes what it has said since. Returns whether that is all it asks.
    fn hear(&mut self) -> io::Result<bool> {
        let mut buffer = [0; QUESTION_MAX];
        loop {
            let room = QUESTION_MAX - self.said.len();
            let mut parts = [IoSliceMut::new(&mut buffer[..room])];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let received = recvmsg(&self.stream, &mut parts, &mut ancillary, flags);
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(passed) = message {
                    // All are taken out, so that those which are not kept are closed.
                    let passed: Vec<OwnedFd> = passed.collect();
                    self.shown = self.shown.take().or_else(|| passed.into_iter().next());
                }
            }
            match received.map(|received| received.bytes) {
                // It says no more, or may not.
                Ok(0) => return Ok(true),
                Ok(len) => self.said.extend_from_slice(&buffer[..len]),
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if self.has_asked() {
                return Ok(true);
            }
        }
    }

    /// A line is a question; one of HTTP has more, up to an empty one.
    fn has_asked(&self) -> bool {
        let has = |end: &[u8]| self.said.windows(end.len()).any(|part| part == end);
        match self.said.starts_with(b"GET ") {
            true => has(b"\r\n\r\n") || has(b"\n\n"),
            false => has(b"\n"),
        }
    }
}

/// Calls `answer` with each client that may ask and has, with its question and the descriptor that
/// came with it, and does not return. `answer` must not wait for the client.
pub fn serve(
    listener: &UnixListener,
    may_ask: impl Fn(&UnixStream) -> bool,
    mut answer: impl FnMut(UnixStream, &str, Option<OwnedFd>),
) {
    let mut waiting = VecDeque::new();
    loop {
        let has_new = wait(listener, &waiting);
        if has_new {
            accept(listener, &may_ask, &mut waiting);
        }
        let now = Instant::now();
        let mut still = VecDeque::with_capacity(waiting.len());
        for mut client in waiting.drain(..) {
            match client.hear() {
                Ok(true) => {
                    let question = String::from_utf8_lossy(&client.said);
                    answer(client.stream, &question, client.shown);
                }
                // One that does not ask is left alone.
                Ok(false) if now < client.since + PATIENCE => still.push_back(client),
                Ok(false) | Err(_) => {}
            }
        }
        waiting = still;
    }
}

/// Waits until one connects or says something, or has taken too long. Returns whether one connects.
fn wait(listener: &UnixListener, waiting: &VecDeque<Waiting>) -> bool {
    let mut all = vec![PollFd::new(listener, PollFlags::IN)];
    all.extend(
        waiting
            .iter()
            .map(|client| PollFd::new(&client.stream, PollFlags::IN)),
    );
    let left = waiting.front().map(|first| {
        let left = (first.since + PATIENCE).saturating_duration_since(Instant::now());
        Timespec {
            // OK to unwrap: some seconds.
            tv_sec: i64::try_from(left.as_secs()).unwrap(),
            tv_nsec: left.subsec_nanos().into(),
        }
    });
    match poll(&mut all, left.as_ref()) {
        Ok(_) => all.first().is_some_and(|first| !first.revents().is_empty()),
        Err(Errno::INTR) => false,
        Err(_) => {
            thread::sleep(PAUSE);
            false
        }
    }
}

fn accept(
    listener: &UnixListener,
    may_ask: &impl Fn(&UnixStream) -> bool,
    waiting: &mut VecDeque<Waiting>,
) {
    match listener.accept() {
        // It takes no place of those who may.
        Ok((stream, _)) if !may_ask(&stream) => {}
        Ok((stream, _)) => waiting.push_back(Waiting {
            stream,
            since: Instant::now(),
            said: Vec::new(),
            shown: None,
        }),
        // There are too many descriptors, perhaps for those that wait.
        Err(_) => {
            waiting.pop_front();
            thread::sleep(PAUSE);
        }
    }
    if waiting.len() > WAITING_MAX {
        waiting.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn those_who_do_not_ask_hold_no_client_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        thread::spawn(move || {
            serve(
                &listener,
                |_| true,
                |mut stream, question, _| {
                    _ = stream.write_all(format!("asked {question:?}").as_bytes());
                },
            );
        });
        // Each that is dropped has lost its connection first; more wait than are kept.
        let mut idle: Vec<UnixStream> = Vec::new();
        for number in 0..WAITING_MAX + 100 {
            let mut stream = UnixStream::connect(&path).unwrap();
            if number % 3 == 0 {
                stream.write_all(b"GET /half of it HTTP/1.0\r\n").unwrap();
            }
            idle.push(stream);
        }
        let ask = |question: &str| {
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(question.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        for question in [
            "metrics\n",
            "operations\n",
            "GET / HTTP/1.0\r\nHost: x\r\n\r\n",
        ] {
            assert_eq!(ask(question), format!("asked {question:?}"));
        }
        let long = "x".repeat(2 * QUESTION_MAX);
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(long.as_bytes()).unwrap();
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"asked \"x");
        // The one that has waited longest was let go of; one that has ended its question is heard.
        assert_eq!(idle[0].read(&mut [0]).unwrap(), 0);
        let last = idle.last_mut().unwrap();
        last.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        last.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "asked \"\"");
    }
}
