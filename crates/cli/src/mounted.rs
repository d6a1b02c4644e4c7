//! Images that one of our mounts has: commands that change them are done by the mount's daemon.
//!
//! The image may be given itself, or a directory of the mount, which then stands for the root.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use uext4_fuse::mountinfo::{self, Number, Shown};
use uext4_remote::client::Client;
use uext4_remote::{RemoteTree, Tree};

use crate::args::{PlaceArgs, WriteArgs};
use crate::failure::{Exit, Failure};
use crate::listener::{GREETING, QUESTION, directory_of_sockets};
use crate::open;

/// How long a daemon may take to say that it is there.
const PATIENCE: Duration = Duration::from_secs(10);

/// A mount of ours that has an image.
struct Held {
    /// Where it is mounted.
    place: PathBuf,
    shown: Shown,
    /// The directory that stands for the root, from there.
    prefix: Vec<u8>,
}

/// Opens what is to be changed: here, or through the daemon of the mount that has it.
///
/// # Errors
/// As [`open::open_rw`]; exit 13 if the mount belongs to another user; exit 2 for options that are
/// the mount's.
pub fn open_rw(args: &WriteArgs) -> Result<Tree, Failure> {
    let Some(held) = held(&args.place) else {
        return open::open_rw(args).map(Tree::Local);
    };
    if !args.options.is_empty() {
        let what = format_args!(
            "--options: {} is mounted at {}, and its options are those of the mount",
            args.place.image.display(),
            held.place.display()
        );
        return Err(Failure::new(Exit::Usage, what));
    }
    let client = connect(&held).map_err(|error| refused(&args.place.image, &held, &error))?;
    Ok(Tree::Remote(RemoteTree::new(client, &held.prefix)))
}

/// The mount that has an image, or shows a directory; `None` where it can be opened, or no daemon
/// of ours can be asked.
fn held(args: &PlaceArgs) -> Option<Held> {
    let image = fs::canonicalize(&args.image).ok()?;
    let metadata = fs::metadata(&image).ok()?;
    let all = mountinfo::all().ok()?;
    if metadata.is_dir() {
        let number = Number {
            major: rustix::fs::major(metadata.dev()),
            minor: rustix::fs::minor(metadata.dev()),
        };
        // Of several places the one that the directory lies below.
        let mut mounts = all.into_iter().filter(|(_, shown)| shown.number == number);
        let (place, shown) = mounts.find(|(place, _)| image.starts_with(place))?;
        let prefix = image
            .strip_prefix(&place)
            .ok()?
            .as_os_str()
            .as_bytes()
            .to_vec();
        return Some(Held {
            place,
            shown,
            prefix,
        });
    }
    // Which part of the image a mount shows is not in the table.
    if args.offset.is_some() || args.partition.is_some() {
        return None;
    }
    let shows = |shown: &Shown| fs::canonicalize(&shown.source).is_ok_and(|of| of == image);
    let (place, shown) = all.into_iter().find(|(_, shown)| shows(shown))?;
    (!shown.is_read_only).then(|| Held {
        place,
        shown,
        prefix: Vec::new(),
    })
}

/// Where the socket of a mount may be: in the directory of its owner.
fn sockets(shown: &Shown) -> Vec<PathBuf> {
    let Number { major, minor } = shown.number;
    let owner = shown.owner;
    let of_owner = match owner {
        0 => vec![PathBuf::from("/run/uext4")],
        _ => vec![
            PathBuf::from(format!("/run/user/{owner}/uext4")),
            std::env::temp_dir().join(format!("uext4-{owner}/uext4")),
        ],
    };
    let all = std::iter::once(directory_of_sockets()).chain(of_owner);
    all.map(|dir| dir.join(format!("{major}:{minor}")))
        .collect()
}

fn connect(held: &Held) -> io::Result<Client> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for path in sockets(&held.shown) {
        match UnixStream::connect(&path).and_then(|stream| greeted(stream, held.shown.owner)) {
            Ok(client) => return Ok(client),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Says what is wanted to the daemon, which must be the mount's owner's.
fn greeted(mut stream: UnixStream, owner: u32) -> io::Result<Client> {
    let peer = socket_peercred(&stream)?.uid.as_raw();
    if peer != owner && peer != 0 {
        return Err(io::Error::other(format!(
            "its socket belongs to user {peer}"
        )));
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(QUESTION.as_bytes())?;
    // The daemon sends no more before it is asked: nothing is read beyond the line.
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line)?;
    match line.as_str() {
        GREETING => {}
        "" => return Err(io::Error::other("it is of another version")),
        // A page: it does not know the question.
        line if line.starts_with('#') => return Err(io::Error::other("it is of another version")),
        line => return Err(io::Error::other(line.trim_end().to_owned())),
    }
    stream.set_read_timeout(None)?;
    Client::new(stream)
}

fn refused(image: &Path, held: &Held, error: &io::Error) -> Failure {
    let (image, place) = (image.display(), held.place.display());
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let owner = held.shown.owner;
            let what = format_args!(
                "{image}: it is mounted at {place} by user {owner}, and only that user and root can \
                 change it with commands"
            );
            Failure::new(Exit::Denied, what)
        }
        _ => {
            let what = format_args!(
                "{image}: it is mounted at {place}, and the daemon of that mount takes no commands: \
                 {error}"
            );
            let hint =
                format!("`uext4 umount {place}` first, or change it there with other programs");
            Failure::new(Exit::CouldNot, what).hint(hint)
        }
    }
}
