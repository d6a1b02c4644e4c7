//! A mount's last word: how it ended, told to those who wait for that.
//!
//! ```text
//! daemon   listens at the abstract address "uext4-mount-MAJOR:MINOR", the mount's number
//! umount   comes            ◀── the daemon writes an empty line: it is noted who waits
//!          unmounts, waits  ◀── the daemon writes one line: "ok", or what went wrong
//!                           ◀── the daemon has ended: the image is nobody's any more
//! ```
//! Needs no directory and no right but to be the one who mounted, or root: others are not told, and who is
//! neither is not believed. The address is free again when the daemon has ended, however it did: then
//! those who wait read an end without a line. Only where both see the same network.

use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;

use crate::mountinfo::{Number, Shown};

/// Those who wait at once, at most.
const WAITING_MAX: usize = 64;
/// Bytes of the line, at most.
const LINE_MAX: usize = 4096;
/// What is said to who has come, and will be told.
const NOTED: &str = "";
/// How long that may take.
const NOTED_WITHIN: Duration = Duration::from_secs(5);
/// How long a daemon waits for an address: the kernel gives numbers of mounts anew before the daemon that had
/// this one has ended.
const FREE_WITHIN: Duration = Duration::from_secs(3);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(20);
/// What is said when nothing went wrong.
const WELL: &str = "ok";

fn address(number: Number) -> io::Result<SocketAddr> {
    let Number { major, minor } = number;
    SocketAddr::from_abstract_name(format!("uext4-mount-{major}:{minor}"))
}

/// The user at the other end.
fn peer(stream: &UnixStream) -> Option<u32> {
    socket_peercred(stream).ok().map(|peer| peer.uid.as_raw())
}

#[derive(Debug, Default)]
struct State {
    /// These wait: for the line, and then for the end of the process.
    waiting: Vec<UnixStream>,
    /// What was said.
    line: Option<String>,
}

/// The daemon's side.
#[derive(Debug)]
pub struct Parting(Arc<Mutex<State>>);

impl Parting {
    /// Listens from now on, to the end of the process.
    ///
    /// # Errors
    /// Those of the socket, `AddrInUse` if somebody else pretends to be this mount, and goes on so for some
    /// seconds; and of starting a thread.
    pub fn listen(number: Number) -> io::Result<Self> {
        Self::listen_within(number, FREE_WITHIN)
    }

    fn listen_within(number: Number, patience: Duration) -> io::Result<Self> {
        let listener = bind(&address(number)?, patience)?;
        let state = Arc::<Mutex<State>>::default();
        let shared = Arc::clone(&state);
        let named = thread::Builder::new().name("uext4-parting".to_owned());
        named.spawn(move || {
            for stream in listener.incoming() {
                match stream {
                    Ok(stream) => came(&shared, stream),
                    // Too many files are open: those who wait see the end of the process.
                    Err(_) => thread::sleep(Duration::from_millis(100)),
                }
            }
        })?;
        Ok(Self(state))
    }

    /// Says how it ended: with `None` nothing went wrong.
    pub fn say(&self, wrong: Option<&str>) {
        // One line.
        let line = wrong.unwrap_or(WELL).replace('\n', " ");
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in &state.waiting {
            tell(stream, &line);
        }
        state.line = Some(line);
    }
}

fn bind(address: &SocketAddr, patience: Duration) -> io::Result<UnixListener> {
    let began = Instant::now();
    loop {
        match UnixListener::bind_addr(address) {
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse && began.elapsed() < patience =>
            {
                thread::sleep(LOOK);
            }
            bound => return bound,
        }
    }
}

fn came(state: &Mutex<State>, stream: UnixStream) {
    let own = rustix::process::geteuid().as_raw();
    if peer(&stream).is_none_or(|uid| uid != 0 && uid != own) {
        return;
    }
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    tell(&stream, NOTED);
    if let Some(line) = &state.line {
        tell(&stream, line);
    }
    state.waiting.push(stream);
    if state.waiting.len() > WAITING_MAX {
        state.waiting.remove(0);
    }
}

fn tell(mut stream: &UnixStream, line: &str) {
    // A line fits in the socket's buffer. Who has gone need not be told.
    _ = stream.set_nonblocking(true);
    _ = writeln!(stream, "{line}");
}

/// How a mount ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All that was written is durable, and the file system closed.
    Well,
    /// This went wrong.
    Badly(String),
    /// The daemon is gone, and said nothing.
    Silently,
    /// It has not, in the time it was given.
    NotYet,
}

/// Who waits for the end of a mount.
#[derive(Debug)]
pub struct Waiting(UnixStream);

impl Waiting {
    /// Comes to the daemon of a mount, while it is mounted. `None` if nobody who could be it listens.
    pub fn at(shown: &Shown) -> Option<Self> {
        let stream = UnixStream::connect_addr(&address(shown.number).ok()?).ok()?;
        // Before it is waited for: anybody can listen and say nothing.
        let uid = peer(&stream)?;
        if uid != 0 && uid != shown.owner {
            return None;
        }
        stream.set_read_timeout(Some(NOTED_WITHIN)).ok()?;
        let mut noted = [0; NOTED.len() + 1];
        let is_noted = (&stream).read_exact(&mut noted).is_ok();
        is_noted.then_some(Self(stream))
    }

    /// Waits for the last word, and for the end of the daemon.
    pub fn wait(mut self, patience: Duration) -> Ended {
        let began = Instant::now();
        let mut line = Vec::new();
        let mut buf = [0; LINE_MAX];
        while line.len() < LINE_MAX {
            let left = patience.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Ended::NotYet;
            }
            _ = self.0.set_read_timeout(Some(left));
            match self.0.read(&mut buf) {
                Ok(0) => break,
                Ok(len) => line.extend_from_slice(&buf[..len]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ended::NotYet,
                Err(_) => break,
            }
        }
        match String::from_utf8_lossy(&line).trim_end() {
            "" => Ended::Silently,
            WELL => Ended::Well,
            wrong => Ended::Badly(wrong.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    impl Parting {
        fn forget(&self) {
            self.0.lock().unwrap().waiting.clear();
        }
    }

    /// A mount that there is not: no major number is as large.
    fn shown(minor: u32) -> Shown {
        Shown {
            number: Number {
                major: std::process::id() << 12 | 0x8000_0000,
                minor,
            },
            source: "image".into(),
            owner: rustix::process::geteuid().as_raw(),
            is_read_only: false,
        }
    }

    #[test]
    fn the_last_word_is_told_to_all_who_wait() {
        for (minor, wrong) in [(1, None), (2, Some("data\nwere lost"))] {
            let shown = shown(minor);
            assert!(Waiting::at(&shown).is_none());
            let parting = Parting::listen(shown.number).unwrap();
            let taken = Parting::listen_within(shown.number, Duration::from_millis(50));
            assert_eq!(taken.unwrap_err().kind(), io::ErrorKind::AddrInUse);
            let early: Vec<_> = (0..3).map(|_| Waiting::at(&shown).unwrap()).collect();
            let late = Waiting::at(&shown).unwrap();
            let threads: Vec<_> = early
                .into_iter()
                .map(|waiting| thread::spawn(move || waiting.wait(LONG)))
                .collect();
            parting.say(wrong);
            // As the end of the process does.
            parting.forget();
            let ended = match wrong {
                None => Ended::Well,
                Some(_) => Ended::Badly("data were lost".to_owned()),
            };
            for thread in threads {
                assert_eq!(thread.join().unwrap(), ended);
            }
            assert_eq!(late.wait(LONG), ended);
            let after = Waiting::at(&shown).unwrap();
            assert_eq!(after.wait(Duration::from_millis(10)), Ended::NotYet);
        }
    }

    #[test]
    fn an_address_that_is_soon_free_is_waited_for() {
        let number = shown(3).number;
        let before = UnixListener::bind_addr(&address(number).unwrap()).unwrap();
        let ending = thread::spawn(move || {
            thread::sleep(3 * LOOK);
            drop(before);
        });
        Parting::listen(number).unwrap();
        ending.join().unwrap();
    }

    #[test]
    fn an_end_without_a_word_and_no_end() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        assert_eq!(Waiting(ours).wait(Duration::from_millis(10)), Ended::NotYet);
        drop(theirs);
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert_eq!(Waiting(ours).wait(LONG), Ended::Silently);
    }
}
