//! Where a running mount is asked how it does: a socket whose name is the number of the mount's device,
//! and a file that is written every some seconds.
//!
//! ```text
//! /run/uext4/0:57            root's mounts; else $XDG_RUNTIME_DIR/uext4/0:57; mode 0600
//!   ◀── "metrics\n", or a GET of HTTP       ──▶ the page of crate::metrics, then the end
//! ```

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use uext4_fuse::mount::Mounted;
use uext4_fuse::mountinfo::Number;

use crate::failure::Failure;
use crate::metrics::Metrics;

/// How often the file is written.
const INTERVAL: Duration = Duration::from_secs(10);
/// How long somebody may take to ask, and to read the answer.
const PATIENCE: Duration = Duration::from_secs(5);
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

/// The directory of sockets, if there is one that nobody else can write.
fn directory() -> io::Result<PathBuf> {
    let user = rustix::process::geteuid();
    let base = match std::env::var_os("XDG_RUNTIME_DIR") {
        _ if user.is_root() => PathBuf::from("/run"),
        Some(dir) if !dir.is_empty() => PathBuf::from(dir),
        _ => std::env::temp_dir().join(format!("uext4-{}", user.as_raw())),
    };
    let dir = base.join("uext4");
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&dir)?;
    let found = fs::symlink_metadata(&dir)?;
    let is_ours = found.is_dir() && found.uid() == user.as_raw() && found.mode() & 0o022 == 0;
    match is_ours {
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
    /// For a mount, and a file if there is to be one, which is written for the first time. A socket that
    /// cannot be had is left out: the mount is of use without.
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

    /// What must stay writable.
    pub fn directories(&self) -> Vec<PathBuf> {
        let socket = self.socket.as_ref().map(|(_, socket)| &socket.path);
        let all = socket.into_iter().chain(&self.file);
        all.filter_map(|path| Some(path.parent()?.to_owned()))
            .collect()
    }

    /// Answers whoever asks from now on. The threads are never waited for.
    pub fn serve(self, metrics: &Metrics) -> Option<Socket> {
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
        let answer = move || {
            for stream in listener.incoming() {
                // One who does not ask, or does not listen, is left alone.
                _ = stream.and_then(|stream| reply(stream, &metrics));
            }
        };
        let named = thread::Builder::new().name("uext4-stats".to_owned());
        named.spawn(answer).ok().map(|_| socket)
    }
}

/// Listens in the place of who listened there before: he had this number, so his mount is gone.
fn listen(path: PathBuf) -> io::Result<(UnixListener, Socket)> {
    if let Err(error) = fs::remove_file(&path)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let listener = UnixListener::bind(&path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    let found = fs::symlink_metadata(&path)?;
    let id = (found.dev(), found.ino());
    Ok((listener, Socket { path, id }))
}

fn reply(mut stream: UnixStream, metrics: &Metrics) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut question = String::new();
    let mut reader = BufReader::new((&stream).take(QUESTION_MAX));
    reader.read_line(&mut question)?;
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

/// Nobody sees half of it.
fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    fs::write(&new, text)?;
    fs::rename(&new, path)
}
