//! A mount's last word: how it ended, told to those who wait for that.
//!
//! ```text
//! daemon   listens at the abstract address "uext4-mount-MAJOR:MINOR-WHEN-RANDOM", of the mount's number
//! umount   finds it in /proc/net/unix, the youngest that the right user listens at
//!          comes            ◀── the daemon writes an empty line: it is noted who waits
//!          unmounts, waits  ◀── the daemon writes one line: "ok", or what went wrong
//!                           ◀── the daemon has ended: the image is nobody's any more
//! ```
//! Needs no directory and no right but to be the one who mounted, or root: others are not told, and who is
//! neither is not believed. No other can take the address before, as its last part cannot be guessed. It is
//! gone when the daemon has ended, however it did: then those who wait read an end without a line. Only
//! where both see the same network.

use std::fs;
use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::net::sockopt::socket_peercred;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::rand::GetRandomFlags;

use crate::mountinfo::{Number, Shown};

/// Those who wait at once, at most.
const WAITING_MAX: usize = 64;
/// Bytes of the line, at most.
const LINE_MAX: usize = 4096;
/// What is said to who has come, and will be told.
const NOTED: &str = "";
/// How long that may take.
const NOTED_WITHIN: Duration = Duration::from_secs(5);
/// What is said when nothing went wrong.
const WELL: &str = "ok";

/// What the addresses of all daemons of this number begin with.
fn prefix(Number { major, minor }: Number) -> String {
    format!("uext4-mount-{major}:{minor}-")
}

/// An address that is nobody's yet. Of two, that of the younger is greater.
fn new_address(number: Number) -> io::Result<String> {
    let mut random = [0; 16];
    rustix::rand::getrandom(&mut random, GetRandomFlags::empty())?;
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let when = since.unwrap_or_default().as_nanos();
    let random = u128::from_le_bytes(random);
    Ok(format!("{}{when:024x}-{random:032x}", prefix(number)))
}

/// Where daemons of this number listen, or others who pretend to be such: the youngest first.
fn addresses(number: Number) -> Vec<String> {
    const LISTENS: u32 = 0x1_0000;
    let table = fs::read("/proc/self/net/unix").unwrap_or_default();
    let table = String::from_utf8_lossy(&table);
    let prefix = prefix(number);
    let of_line = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
        let address = fields.nth(3)?.strip_prefix('@')?;
        let is_one = flags & LISTENS != 0 && address.starts_with(&prefix);
        is_one.then(|| address.to_owned())
    };
    let mut all: Vec<String> = table.lines().filter_map(of_line).collect();
    all.sort_unstable_by(|a, b| b.cmp(a));
    all
}

/// Connects without waiting: one who listens and takes nobody in must not hold us up.
fn connect(address: &str) -> io::Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::connect(
        &socket,
        &SocketAddrUnix::new_abstract_name(address.as_bytes())?,
    )?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
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
    /// Those of the socket, and of starting a thread.
    pub fn listen(number: Number) -> io::Result<Self> {
        let address = SocketAddr::from_abstract_name(new_address(number)?)?;
        let listener = UnixListener::bind_addr(&address)?;
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
        let mut all = addresses(shown.number).into_iter();
        all.find_map(|address| Self::noted(connect(&address).ok()?, shown.owner))
    }

    /// Who listens there is asked to note us, if it is root or the owner of the mount.
    fn noted(stream: UnixStream, owner: u32) -> Option<Self> {
        // Before it is waited for: anybody can listen and say nothing.
        let uid = peer(&stream)?;
        if uid != 0 && uid != owner {
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
    fn the_youngest_daemon_of_a_number_is_asked() {
        let shown = shown(3);
        let taken = SocketAddr::from_abstract_name(prefix(shown.number)).unwrap();
        let _silent = UnixListener::bind_addr(&taken).unwrap();
        let partings: Vec<_> = (0..2)
            .map(|_| Parting::listen(shown.number).unwrap())
            .collect();
        let waiting = Waiting::at(&shown).unwrap();
        partings[0].say(Some("of another mount"));
        partings[1].say(None);
        partings.iter().for_each(Parting::forget);
        assert_eq!(waiting.wait(LONG), Ended::Well);
        let other = Shown {
            owner: shown.owner + 1,
            ..shown
        };
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(Waiting::at(&other).is_some(), is_root);
    }

    #[test]
    fn one_who_takes_nobody_in_holds_nobody_up() {
        let shown = shown(4);
        let name = format!("{}f", prefix(shown.number));
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let _listener = UnixListener::bind_addr(&address).unwrap();
        let mut came = Vec::new();
        while let Ok(stream) = connect(&name) {
            came.push(stream);
        }
        assert!(Waiting::at(&shown).is_none());
        Parting::listen(shown.number).unwrap();
        assert!(Waiting::at(&shown).is_some());
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
