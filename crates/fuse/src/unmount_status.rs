//! Reports the final status of a mount to `uext4 umount`, over an abstract Unix socket.
//!
//! ```text
//! daemon   listens at the abstract address "uext4-mount-MAJOR:MINOR-WHEN-RANDOM-IMAGE", of the
//!          mount's number and the image's
//! umount   finds it in /proc/net/unix, the youngest that the right user listens at
//!          comes            ◀── the daemon writes a line: whether it is still mounted
//!          unmounts, waits  ◀── the daemon writes one line: "ok", or what went wrong
//!                           ◀── the daemon has ended: the image is free
//! ```
//! umount(8) does not wait for the daemon, as the kernel does not. So a command that finds an
//! image in use looks for the daemons of that image: where one is no longer mounted, the command
//! waits for it ([`Holder`]).
//!
//! No directory and no privilege is needed. Only root and the user who mounted may ask: nobody else
//! gets an answer, and an answer from another user's process is ignored. The socket goes with the
//! daemon, however that ends: those who wait then read the end of the stream without a line.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use uext4_blockdev::host;

use crate::addresses::{Kind, addresses, connect, peer, prefix, suffix};
use crate::mountinfo::Shown;

/// Those who wait at once, at most.
const WAITING_MAX: usize = 64;
/// Bytes of the line, at most.
const LINE_MAX: usize = 4096;
/// What is said to one who has come while the file system is mounted, and will be reported.
const MOUNTED: &str = "";
/// What is said to one who has come later.
const ENDING: &str = "ending";
/// What is said to one whose business it is not.
const REFUSED: &str = "refused";
/// How long that may take.
const NOTED_WITHIN: Duration = Duration::from_secs(5);
/// What is said when nothing went wrong.
const WELL: &str = "ok";

#[derive(Debug)]
struct State {
    /// The descriptor of `/dev/fuse`, by which the kernel reports at once that nothing is mounted
    /// any more.
    fuse: Option<OwnedFd>,
    /// These wait: for the line, and then for the end of the process.
    waiting: Vec<UnixStream>,
    /// What was said.
    line: Option<String>,
}

impl State {
    /// Whether the kernel sends no more requests.
    fn is_ending(&self) -> bool {
        let is_unmounted = self.fuse.as_ref().is_some_and(|fuse| {
            let mut asked = [PollFd::new(fuse, PollFlags::empty())];
            poll(&mut asked, Some(&Timespec::default())).is_ok()
                && asked[0].revents().contains(PollFlags::ERR)
        });
        is_unmounted || self.line.is_some()
    }
}

/// The daemon's side.
#[derive(Debug)]
pub struct UnmountStatus(Arc<Mutex<State>>);

impl UnmountStatus {
    /// Listens from now on, to the end of the process, at a [new address](crate::addresses::new);
    /// `fuse` is the descriptor that requests come by.
    ///
    /// # Errors
    /// Those of the socket, and of starting a thread.
    pub fn listen(address: &str, fuse: Option<OwnedFd>) -> io::Result<Self> {
        let address = SocketAddr::from_abstract_name(address)?;
        let listener = UnixListener::bind_addr(&address)?;
        let state = Arc::new(Mutex::new(State {
            fuse,
            waiting: Vec::new(),
            line: None,
        }));
        let shared = Arc::clone(&state);
        let named = thread::Builder::new().name("uext4-unmount_status".to_owned());
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
            send_line(stream, &line);
        }
        state.line = Some(line);
    }
}

fn came(state: &Mutex<State>, stream: UnixStream) {
    let own = host::effective_user();
    if peer(&stream).is_none_or(|uid| uid != 0 && uid != own) {
        // Without a line it would look as if the process ended.
        return send_line(&stream, REFUSED);
    }
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    send_line(
        &stream,
        match state.is_ending() {
            true => ENDING,
            false => MOUNTED,
        },
    );
    if let Some(line) = &state.line {
        send_line(&stream, line);
    }
    state.waiting.push(stream);
    if state.waiting.len() > WAITING_MAX {
        state.waiting.remove(0);
    }
}

fn send_line(mut stream: &UnixStream, line: &str) {
    // A line fits in the socket's buffer. A caller that has gone need not be notified.
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

/// A waiter for the end of a mount.
#[derive(Debug)]
pub struct Waiting {
    daemon: UnixStream,
    /// What it said so far.
    line: Vec<u8>,
}

impl Waiting {
    /// Connects to the daemon of a mount, while it is mounted. `None` if none listens.
    ///
    /// The kernel gives the number of a mount away as soon as that is unmounted, while its daemon
    /// still writes: a daemon that is ending is of this mount only if it is one of the same image.
    pub fn at(shown: &Shown) -> Option<Self> {
        let suffix = fs::metadata(&shown.source).ok().map(|found| suffix(&found));
        let mut all = addresses(&prefix(Kind::Mount, shown.number), "").into_iter();
        all.find_map(|address| {
            let (waiting, is_ending) = Self::noted(connect(&address).ok()?, &[shown.owner]).ok()?;
            let is_of_image = || suffix.as_ref().is_some_and(|end| address.ends_with(end));
            (!is_ending || is_of_image()).then_some(waiting)
        })
    }

    fn new(daemon: UnixStream) -> Self {
        Self {
            daemon,
            line: Vec::new(),
        }
    }

    /// Asks the listener to note us, if it is root or one of these owners; returns whether it is
    /// ending.
    ///
    /// # Errors
    /// `UnexpectedEof` and `ConnectionReset` where the process ends just now, `PermissionDenied`
    /// where it is another's or refuses, `InvalidData` where it says something else, and those of
    /// the socket.
    fn noted(stream: UnixStream, owners: &[u32]) -> io::Result<(Self, bool)> {
        // Before it is waited for: any thread can listen and say nothing.
        if peer(&stream).is_none_or(|uid| uid != 0 && !owners.contains(&uid)) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        stream.set_read_timeout(Some(NOTED_WITHIN))?;
        let mut said = Vec::new();
        while said.len() <= ENDING.len().max(REFUSED.len()) {
            let mut byte = [0];
            (&stream).read_exact(&mut byte)?;
            if byte == *b"\n" {
                return match said == REFUSED.as_bytes() {
                    true => Err(io::ErrorKind::PermissionDenied.into()),
                    false => Ok((Self::new(stream), said == ENDING.as_bytes())),
                };
            }
            said.extend(byte);
        }
        Err(io::ErrorKind::InvalidData.into())
    }

    /// Waits for the last word, and for the end of the daemon.
    pub fn wait(mut self, patience: Duration) -> Ended {
        self.wait_on(patience)
    }

    /// The same; after [`Ended::NotYet`] it can be called again.
    pub fn wait_on(&mut self, patience: Duration) -> Ended {
        let began = Instant::now();
        let mut buf = [0; LINE_MAX];
        while self.line.len() < LINE_MAX {
            let left = patience.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Ended::NotYet;
            }
            _ = self.daemon.set_read_timeout(Some(left));
            match self.daemon.read(&mut buf) {
                Ok(0) => break,
                Ok(len) => self.line.extend_from_slice(&buf[..len]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ended::NotYet,
                Err(_) => break,
            }
        }
        match String::from_utf8_lossy(&self.line).trim_end() {
            "" => Ended::Silently,
            WELL => Ended::Well,
            wrong => Ended::Badly(wrong.to_owned()),
        }
    }
}

/// What the daemons of an image say of themselves to a command that finds it in use.
#[derive(Debug)]
pub enum Holder {
    /// It is mounted.
    Mounted,
    /// It is not mounted any more; what was written is being made durable.
    Ending(Waiting),
    /// One closes the connection without a word, as a process does that ends: until that is done it
    /// may have the image.
    Ended,
    /// None answers.
    Unknown,
}

impl Holder {
    /// Asks the daemons of an image: those of root, of our own, and of the image's owner.
    pub fn of(image: &Path) -> Self {
        let found = fs::metadata(image);
        let Ok((owner, suffix)) = found.map(|found| (found.uid(), suffix(&found))) else {
            return Self::Unknown;
        };
        let own = host::effective_user();
        let mut holder = Self::Unknown;
        for address in addresses(Kind::Mount.name(), &suffix) {
            let noted = connect(&address).and_then(|stream| Waiting::noted(stream, &[own, owner]));
            match noted {
                // Of several that read, one that stays is enough.
                Ok((_, false)) => return Self::Mounted,
                Ok((waiting, true)) => holder = Self::Ending(waiting),
                Err(error) if is_of_end(&error) && matches!(holder, Self::Unknown) => {
                    holder = Self::Ended;
                }
                Err(_) => {}
            }
        }
        holder
    }
}

/// Whether an error is that of a listener whose process ends.
fn is_of_end(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionReset, UnexpectedEof};
    matches!(error.kind(), ConnectionReset | UnexpectedEof)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addresses;
    use crate::mountinfo::Number;

    const LONG: Duration = Duration::from_secs(60);

    impl UnmountStatus {
        fn forget(&self) {
            self.0.lock().unwrap().waiting.clear();
        }
    }

    fn listen(shown: &Shown) -> io::Result<UnmountStatus> {
        UnmountStatus::listen(
            &addresses::new(
                Kind::Mount,
                shown.number,
                fs::metadata(&shown.source).ok().as_ref(),
            )?,
            None,
        )
    }

    /// A mount that there is not: no major number is as large.
    fn shown(minor: u32) -> Shown {
        Shown {
            number: Number {
                major: std::process::id() << 12 | 0x8000_0000,
                minor,
            },
            root: "/".into(),
            source: std::env::current_exe().unwrap(),
            owner: rustix::process::geteuid().as_raw(),
            is_read_only: false,
        }
    }

    #[test]
    fn the_final_status_is_sent_to_all_waiters() {
        for (minor, wrong) in [(1, None), (2, Some("data\nwere lost"))] {
            let shown = shown(minor);
            assert!(Waiting::at(&shown).is_none());
            let unmount_status = listen(&shown).unwrap();
            let early: Vec<_> = (0..3).map(|_| Waiting::at(&shown).unwrap()).collect();
            let executor = Waiting::at(&shown).unwrap();
            let threads: Vec<_> = early
                .into_iter()
                .map(|waiting| thread::spawn(move || waiting.wait(LONG)))
                .collect();
            unmount_status.say(wrong);
            // As the end of the process does.
            unmount_status.forget();
            let ended = match wrong {
                None => Ended::Well,
                Some(_) => Ended::Badly("data were lost".to_owned()),
            };
            for thread in threads {
                assert_eq!(thread.join().unwrap(), ended);
            }
            assert_eq!(executor.wait(LONG), ended);
            let after = Waiting::at(&shown).unwrap();
            assert_eq!(after.wait(Duration::from_millis(10)), Ended::NotYet);
        }
    }

    #[test]
    fn the_youngest_daemon_of_a_number_is_asked() {
        let shown = shown(3);
        let taken = SocketAddr::from_abstract_name(prefix(Kind::Mount, shown.number)).unwrap();
        let _silent = UnixListener::bind_addr(&taken).unwrap();
        let unmount_statuses: Vec<_> = (0..2).map(|_| listen(&shown).unwrap()).collect();
        let waiting = Waiting::at(&shown).unwrap();
        unmount_statuses[0].say(Some("of another mount"));
        unmount_statuses[1].say(None);
        unmount_statuses.iter().for_each(UnmountStatus::forget);
        assert_eq!(waiting.wait(LONG), Ended::Well);
        let other = Shown {
            owner: shown.owner + 1,
            ..shown
        };
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(Waiting::at(&other).is_some(), is_root);
    }

    #[test]
    fn a_daemon_that_is_ending_is_not_that_of_the_next_mount_of_its_number() {
        let before = shown(8);
        let image = tempfile::NamedTempFile::new().unwrap();
        let next = Shown {
            source: image.path().to_owned(),
            ..shown(8)
        };
        let ending = listen(&before).unwrap();
        ending.say(None);
        assert!(Waiting::at(&next).is_none());
        assert!(Waiting::at(&before).is_some());
        let _daemon = listen(&next).unwrap();
        assert!(Waiting::at(&next).is_some());
    }

    #[test]
    fn a_silent_listener_delays_no_waiter() {
        let shown = shown(4);
        let name = format!("{}f", prefix(Kind::Mount, shown.number));
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let _listener = UnixListener::bind_addr(&address).unwrap();
        let mut came = Vec::new();
        while let Ok(stream) = connect(&name) {
            came.push(stream);
        }
        assert!(Waiting::at(&shown).is_none());
        listen(&shown).unwrap();
        assert!(Waiting::at(&shown).is_some());
    }

    #[test]
    fn a_daemon_of_an_image_says_whether_it_is_mounted() {
        let image = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(Holder::of(image.path()), Holder::Unknown));
        let of = |minor| Shown {
            source: image.path().to_owned(),
            ..shown(minor)
        };
        let _others = listen(&shown(5)).unwrap();
        let first = listen(&of(6)).unwrap();
        assert!(matches!(Holder::of(image.path()), Holder::Mounted));
        // What the kernel says of a descriptor whose other end is gone.
        let (read, write) = rustix::pipe::pipe().unwrap();
        drop(read);
        let address = addresses::new(
            Kind::Mount,
            of(7).number,
            fs::metadata(image.path()).ok().as_ref(),
        )
        .unwrap();
        let ending = UnmountStatus::listen(&address, Some(write)).unwrap();
        assert!(matches!(Holder::of(image.path()), Holder::Mounted));
        first.say(None);
        let Holder::Ending(waiting) = Holder::of(image.path()) else {
            panic!("it is not ending");
        };
        ending.say(None);
        for unmount_status in [first, ending] {
            unmount_status.forget();
        }
        assert_eq!(waiting.wait(LONG), Ended::Well);
    }

    #[test]
    fn an_end_without_a_word_and_no_end() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        assert_eq!(
            Waiting::new(ours).wait(Duration::from_millis(10)),
            Ended::NotYet
        );
        drop(theirs);
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert_eq!(Waiting::new(ours).wait(LONG), Ended::Silently);
    }
}
