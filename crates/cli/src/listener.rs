//! Where a running mount is asked how it does, and takes commands: a socket whose name is the
//! number of the mount's device; and a file that is written every some seconds.
//!
//! ```text
//! /run/uext4/0:57            root's mounts; else $XDG_RUNTIME_DIR/uext4/0:57; mode 0600
//!   ◀── "metrics\n", or a GET of HTTP       ──▶ the page of crate::metrics, then the end
//!   ◀── "operations 2 VERSION\n"            ──▶ "ok IMAGE\n", then frames of uext4_remote;
//!                                               "reading IMAGE\n"; or why not
//! @uext4-door-0:57-…         commands of those who see another /run, and look for the image by
//!                            what it is: uext4_fuse::addresses
//!   ◀── "operations …", a descriptor        ──▶ the same to root and the owner, if they show a
//!                                               descriptor of the image (possession)
//! ```

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use uext4_blockdev::host;
use uext4_fuse::addresses;
use uext4_fuse::mount::Mounted;
use uext4_fuse::mountinfo::Number;
use uext4_remote::rights::Rights;
use uext4_remote::server::Server as Operations;

use crate::failure::Failure;
use crate::messages;
use crate::metrics::Metrics;
use crate::sandbox::Needed;

mod possession;
mod questions;

/// How often the file is written.
const INTERVAL: Duration = Duration::from_secs(10);
/// How long a client may take to read the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Clients with commands at the same time, at most, and clients that are given a page. Of those
/// with commands one that is idle makes room for another.
const CLIENTS_MAX: usize = 16;
/// What one with commands says first: both ends must be of one version.
pub const QUESTION: &str = concat!("operations 2 ", env!("CARGO_PKG_VERSION"), "\n");
/// What it is answered.
pub const GREETING: &str = "ok ";
/// What it is answered by a mount for reading, whose image can be opened.
pub const READING: &str = "reading ";

/// Where it is asked, as far as that could be had.
#[derive(Debug)]
pub struct Listener {
    socket: Option<(UnixListener, Socket)>,
    door: Option<UnixListener>,
    file: Option<PathBuf>,
}

/// The name of a socket; dropping it takes the name away, if it is not another's by then.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    /// Device and inode of what was bound.
    id: (u64, u64),
}

impl Drop for Socket {
    fn drop(&mut self) {
        let found = fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == self.id) {
            // What stays is taken by the next mount of this number.
            _ = fs::remove_file(&self.path);
        }
    }
}

/// The directory of this user's sockets, which no other user can write to. It is created if needed.
///
/// # Errors
/// It cannot be created, or belongs to another user.
fn directory() -> io::Result<PathBuf> {
    let dir = directory_of_sockets();
    // In a directory that every user can write to, the parent may exist and belong to another one.
    if let Some(parent) = dir
        .parent()
        .filter(|parent| *parent == of_temporary_files())
    {
        ours_alone(parent.to_owned())?;
    }
    ours_alone(dir)
}

/// The same, which may not exist, or may belong to another user.
pub fn directory_of_sockets() -> PathBuf {
    let base = match std::env::var_os("XDG_RUNTIME_DIR") {
        _ if host::effective_user() == 0 => PathBuf::from("/run"),
        Some(dir) if !dir.is_empty() => PathBuf::from(dir),
        _ => of_temporary_files(),
    };
    base.join("uext4")
}

/// This user's directory for a system without `XDG_RUNTIME_DIR`.
fn of_temporary_files() -> PathBuf {
    let user = host::effective_user();
    std::env::temp_dir().join(format!("uext4-{user}"))
}

/// A directory, created if needed, that no other user can write to.
fn ours_alone(dir: PathBuf) -> io::Result<PathBuf> {
    if let Err(error) = fs::DirBuilder::new().mode(0o700).create(&dir)
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(error);
    }
    let found = fs::symlink_metadata(&dir)?;
    let user = host::effective_user();
    match found.is_dir() && found.uid() == user && found.mode() & 0o022 == 0 {
        true => Ok(dir),
        false => Err(io::Error::other("not ours alone")),
    }
}

/// The socket of a mount, in a directory that is made if needed.
fn socket_of(number: Number) -> io::Result<PathBuf> {
    directory()?;
    Ok(place_of_socket(number))
}

impl Listener {
    /// For a mount, and a file if there is to be one, which is written for the first time. A
    /// socket that cannot be had is left out: the mount is of use without.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn bind(
        mounted: &Mounted,
        image: &Path,
        file: Option<&Path>,
        metrics: &Metrics,
    ) -> Result<Self, Failure> {
        let socket = mounted
            .number()
            .map(|number| socket_of(number).and_then(listen));
        let file = file.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        if let Some(path) = &file {
            let written = write_whole(path, &metrics.text());
            written.map_err(|error| {
                Failure::io(format_args!("-o metrics={}", path.display()), &error)
            })?;
        }
        Ok(Self {
            socket: socket.and_then(|listening| listening.map_err(without_socket).ok()),
            door: mounted.number().and_then(|number| door(number, image).ok()),
            file,
        })
    }

    /// What is needed of paths from now on.
    pub fn needed(&self) -> Needed<'_> {
        let socket = self.socket.as_ref().map(|(_, socket)| &socket.path);
        Needed {
            removable: socket.and_then(|path| path.parent()),
            writable: self.file.as_ref().and_then(|path| path.parent()),
            leaves_idle: false,
        }
    }

    /// Answers clients from now on. The threads are never joined.
    pub fn serve(
        self,
        metrics: &Metrics,
        operations: Option<Operations>,
        has: String,
    ) -> Option<Socket> {
        if let Some(path) = self.file {
            let metrics = metrics.clone();
            let named = thread::Builder::new().name("uext4-metrics".to_owned());
            // Without a thread the file stays as it was written first.
            _ = named.spawn(move || {
                loop {
                    thread::sleep(INTERVAL);
                    _ = write_whole(&path, &metrics.text());
                }
            });
        }
        let clients = Arc::new(Clients {
            operations,
            has,
            connected: Arc::default(),
            reading: Arc::default(),
        });
        let own = host::effective_user();
        let may_ask = move |stream: &UnixStream| {
            let uid = addresses::peer(stream);
            uid.is_some_and(|uid| uid == 0 || uid == own)
        };
        if let Some(door) = self.door {
            let clients = Arc::clone(&clients);
            let named = thread::Builder::new().name("uext4-door".to_owned());
            // Without a thread the other one answers.
            _ = named.spawn(move || {
                questions::serve(&door, may_ask, |stream, question, shown| {
                    // One who does not listen is left alone.
                    _ = clients.reply_at_door(stream, question, shown);
                });
            });
        }
        let (listener, socket) = self.socket?;
        let metrics = metrics.clone();
        let named = thread::Builder::new().name("uext4-stats".to_owned());
        // Who can connect is decided by the modes of the directory and of the socket.
        let answering = named.spawn(move || {
            questions::serve(
                &listener,
                |_| true,
                |stream, question, _| {
                    _ = reply(stream, question, &metrics, &clients);
                },
            );
        });
        answering.ok().map(|_| socket)
    }
}

/// A socket without a path for commands, which is found by what the image is.
fn door(number: Number, image: &Path) -> io::Result<UnixListener> {
    let image = fs::metadata(image)?;
    let address = addresses::new(addresses::Kind::Door, number, Some(&image))?;
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(address)?)
}

/// Says what a mount without a socket lacks.
fn without_socket(error: io::Error) {
    messages::warning(format_args!(
        "{}: {error}: `uext4 stats`, and commands that are given a directory of this mount, will \
         not reach it",
        directory_of_sockets().display()
    ));
}

/// Where the socket of a mount is, whether it is there or not.
pub fn place_of_socket(number: Number) -> PathBuf {
    let Number { major, minor } = number;
    directory_of_sockets().join(format!("{major}:{minor}"))
}

/// Replaces a socket of the same name: the mount that had this number before is gone.
fn listen(path: PathBuf) -> io::Result<(UnixListener, Socket)> {
    remove(&path)?;
    let listener = UnixListener::bind(&path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    let found = fs::symlink_metadata(&path)?;
    let id = (found.dev(), found.ino());
    Ok((listener, Socket { path, id }))
}

/// Those who have commands.
struct Clients {
    operations: Option<Operations>,
    /// The image, as a client knows it.
    has: String,
    connected: Arc<AtomicUsize>,
    /// Those who are given a page.
    reading: Arc<AtomicUsize>,
}

impl Clients {
    /// Answers a question that comes without a path: the one who asks must have the image.
    fn reply_at_door(
        &self,
        mut stream: UnixStream,
        question: &str,
        shown: Option<OwnedFd>,
    ) -> io::Result<()> {
        if question != QUESTION {
            return Ok(());
        }
        // One that a mount reads can be opened by those who have it.
        let disk = self.operations.as_ref().and_then(|all| all.disk.as_ref());
        let rights = disk.and_then(|disk| possession::rights(&disk.image, shown?));
        match rights {
            Some(rights) => self.serve(stream, rights),
            None => stream.write_all(b"here commands must show the image\n"),
        }
    }

    /// Serves one by a thread of its own.
    fn serve(&self, mut stream: UnixStream, rights: Rights) -> io::Result<()> {
        let Some(operations) = self.operations.clone() else {
            return writeln!(stream, "{READING}{}", self.has);
        };
        let operations = Operations {
            rights,
            ..operations
        };
        let connected = Connected::one_more(&self.connected).or_else(|| {
            // Its place is free as soon as its thread has ended.
            let has_room = operations.idle.end_longest();
            has_room.then(|| Connected::after_another(&self.connected))
        });
        let Some(connected) = connected else {
            return stream.write_all(b"too many commands are connected\n");
        };
        let greeting = format!("{GREETING}{}\n", self.has);
        let named = thread::Builder::new().name("uext4-client".to_owned());
        let serving = named.spawn(move || {
            stream.write_all(greeting.as_bytes())?;
            let served = operations.serve(&stream);
            drop(connected);
            served
        });
        serving.map(|_| ())
    }
}

/// One of the clients; dropping it makes room for another.
struct Connected(Arc<AtomicUsize>);

impl Connected {
    /// One more of those that are counted there, if there may be one.
    fn one_more(all: &Arc<AtomicUsize>) -> Option<Self> {
        let has_room = all.fetch_add(1, Ordering::Relaxed) < CLIENTS_MAX;
        let one = Self(Arc::clone(all));
        has_room.then_some(one)
    }

    /// One in the place of another that ends.
    fn after_another(all: &Arc<AtomicUsize>) -> Self {
        all.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(all))
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Answers a question, for which no time is spent on waiting for the client.
fn reply(
    mut stream: UnixStream,
    question: &str,
    metrics: &Metrics,
    clients: &Clients,
) -> io::Result<()> {
    if question == QUESTION {
        return clients.serve(stream, Rights::All);
    }
    let Some(reading) = Connected::one_more(&clients.reading) else {
        return Ok(());
    };
    let page = metrics.text();
    let head = match question.starts_with("GET ") {
        true => format!(
            "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\
             Content-Length: {}\r\n\r\n",
            page.len()
        ),
        false => String::new(),
    };
    stream.set_write_timeout(Some(PATIENCE))?;
    let named = thread::Builder::new().name("uext4-page".to_owned());
    let answering = named.spawn(move || {
        let written = stream.write_all((head + &page).as_bytes());
        drop(reading);
        written
    });
    answering.map(|_| ())
}

/// No reader sees half of it. In the place of `FILE.new` whatever was there is removed, not
/// followed: the directory may be one where others write.
fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    remove(&new)?;
    let mut options = File::options();
    let created = options.write(true).create_new(true).mode(0o644).open(&new);
    created?.write_all(text.as_bytes())?;
    fs::rename(&new, path)
}

/// Removes a name, if it is there.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_directory_that_others_can_write_to_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name| dir.path().join(name);
        for _ in 0..2 {
            assert_eq!(ours_alone(at("ours")).unwrap(), at("ours"));
        }
        assert_eq!(fs::metadata(at("ours")).unwrap().mode() & 0o777, 0o700);
        symlink(at("ours"), at("link")).unwrap();
        fs::write(at("file"), "").unwrap();
        fs::create_dir(at("open")).unwrap();
        fs::set_permissions(at("open"), fs::Permissions::from_mode(0o777)).unwrap();
        for name in ["link", "file", "open", "not/there"] {
            assert!(ours_alone(at(name)).is_err(), "{name}");
        }
    }

    #[test]
    fn a_file_is_written_through_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name| dir.path().join(name);
        fs::write(at("others"), "theirs").unwrap();
        symlink(at("others"), at("page.new")).unwrap();
        for text in ["one", "another"] {
            write_whole(&at("page"), text).unwrap();
            assert_eq!(fs::read_to_string(at("page")).unwrap(), text);
        }
        assert_eq!(fs::read_to_string(at("others")).unwrap(), "theirs");
        assert!(!at("page.new").exists());
        let found = fs::symlink_metadata(at("page")).unwrap();
        assert!(found.is_file() && found.mode() & 0o7133 == 0);
    }
}
