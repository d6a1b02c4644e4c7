//! Where a running mount is asked how it does, and takes commands: a socket whose name is the
//! number of the mount's device; and a file that is written every some seconds.
//!
//! ```text
//! /run/uext4/0:57            root's mounts; else $XDG_RUNTIME_DIR/uext4/0:57; mode 0600
//!   ◀── "metrics\n", or a GET of HTTP       ──▶ the page of crate::metrics, then the end
//!   ◀── "operations 2 VERSION\n"            ──▶ "ok IMAGE\n", then frames of uext4_remote;
//!                                               "reading IMAGE\n"; or why not
//! ```

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use uext4_fuse::mount::Mounted;
use uext4_fuse::mountinfo::Number;
use uext4_remote::server::Server as Operations;

use crate::failure::Failure;
use crate::metrics::Metrics;
use crate::sandbox::Needed;

/// How often the file is written.
const INTERVAL: Duration = Duration::from_secs(10);
/// How long a client may take to ask, and to read the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Clients with commands at the same time, at most.
const CLIENTS_MAX: usize = 16;
/// What one with commands says first: both ends must be of one version.
pub const QUESTION: &str = concat!("operations 2 ", env!("CARGO_PKG_VERSION"), "\n");
/// What it is answered.
pub const GREETING: &str = "ok ";
/// What it is answered by a mount for reading, whose image can be opened.
pub const READING: &str = "reading ";
/// Bytes of a question at most.
const QUESTION_MAX: u64 = 4096;

/// Where it is asked, as far as that could be had.
#[derive(Debug)]
pub struct Listener {
    socket: Option<(UnixListener, Socket)>,
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
        _ if rustix::process::geteuid().is_root() => PathBuf::from("/run"),
        Some(dir) if !dir.is_empty() => PathBuf::from(dir),
        _ => of_temporary_files(),
    };
    base.join("uext4")
}

/// This user's directory for a system without `XDG_RUNTIME_DIR`.
fn of_temporary_files() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
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
    let user = rustix::process::geteuid().as_raw();
    match found.is_dir() && found.uid() == user && found.mode() & 0o022 == 0 {
        true => Ok(dir),
        false => Err(io::Error::other("not ours alone")),
    }
}

/// The socket of a mount.
///
/// # Errors
/// Those of looking for its directory.
pub fn socket_of(number: Number) -> io::Result<PathBuf> {
    let Number { major, minor } = number;
    Ok(directory()?.join(format!("{major}:{minor}")))
}

impl Listener {
    /// For a mount, and a file if there is to be one, which is written for the first time. A
    /// socket that cannot be had is left out: the mount is of use without.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn bind(
        mounted: &Mounted,
        file: Option<&Path>,
        metrics: &Metrics,
    ) -> Result<Self, Failure> {
        let socket = mounted.number().and_then(|number| socket_of(number).ok());
        let file = file.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        if let Some(path) = &file {
            let written = write_whole(path, &metrics.text());
            written.map_err(|error| {
                Failure::io(format_args!("-o metrics={}", path.display()), &error)
            })?;
        }
        Ok(Self {
            socket: socket.and_then(|path| listen(path).ok()),
            file,
        })
    }

    /// What is needed of paths from now on.
    pub fn needed(&self) -> Needed<'_> {
        let socket = self.socket.as_ref().map(|(_, socket)| &socket.path);
        Needed {
            removable: socket.and_then(|path| path.parent()),
            writable: self.file.as_ref().and_then(|path| path.parent()),
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
        let (listener, socket) = self.socket?;
        let metrics = metrics.clone();
        let clients = Clients {
            operations,
            has,
            connected: Arc::default(),
        };
        let answer = move || {
            for stream in listener.incoming() {
                // One who does not ask, or does not listen, is left alone.
                _ = stream.and_then(|stream| reply(stream, &metrics, &clients));
            }
        };
        let named = thread::Builder::new().name("uext4-stats".to_owned());
        named.spawn(answer).ok().map(|_| socket)
    }
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
}

impl Clients {
    /// Serves one by a thread of its own.
    fn serve(&self, mut stream: UnixStream) -> io::Result<()> {
        let Some(operations) = self.operations.clone() else {
            return writeln!(stream, "{READING}{}", self.has);
        };
        if self.connected.fetch_add(1, Ordering::Relaxed) >= CLIENTS_MAX {
            self.connected.fetch_sub(1, Ordering::Relaxed);
            return stream.write_all(b"too many commands are connected\n");
        }
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(None)?;
        let greeting = format!("{GREETING}{}\n", self.has);
        let connected = Connected(Arc::clone(&self.connected));
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

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn reply(mut stream: UnixStream, metrics: &Metrics, clients: &Clients) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut question = String::new();
    let mut reader = BufReader::new((&stream).take(QUESTION_MAX));
    reader.read_line(&mut question)?;
    if question == QUESTION {
        return clients.serve(stream);
    }
    let is_http = question.starts_with("GET ");
    while is_http && reader.read_line(&mut question)? > 2 {}
    let page = metrics.text();
    if is_http {
        let len = page.len();
        write!(
            stream,
            "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {len}\r\n\r\n"
        )?;
    }
    stream.write_all(page.as_bytes())
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
