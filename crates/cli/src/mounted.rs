//! Images that one of our mounts has: commands that change them are done by the mount's daemon.
//!
//! The image may be given itself, or a directory of the mount, which then stands for the root.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
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
/// Bytes of what it says at most.
const LINE_MAX: u64 = 4096;

/// A mount of ours that may have an image.
struct Mount {
    /// Where it is mounted.
    place: PathBuf,
    shown: Shown,
}

/// Opens what is to be changed: here, or through the daemon of the mount that has it.
///
/// # Errors
/// As [`open::open_rw`]; exit 13 if the mount belongs to another user; exit 2 for options that are
/// the mount's.
pub fn open_rw(args: &WriteArgs) -> Result<Tree, Failure> {
    let connected = match fs::metadata(&args.place.image) {
        Ok(metadata) if metadata.is_dir() => of_directory(&args.place.image, &metadata)?,
        Ok(metadata) => of_image(&args.place, &metadata)?,
        Err(_) => None,
    };
    let Some((mount, tree)) = connected else {
        return open::open_rw(args).map(Tree::Local);
    };
    if !args.options.is_empty() {
        let what = format_args!(
            "--options: {} is mounted at {}, and its options are those of the mount",
            args.place.image.display(),
            mount.place.display()
        );
        return Err(Failure::new(Exit::Usage, what));
    }
    Ok(Tree::Remote(tree))
}

/// The mount that shows a directory; `None` if that is none of ours.
fn of_directory(
    dir: &Path,
    metadata: &fs::Metadata,
) -> Result<Option<(Mount, RemoteTree)>, Failure> {
    let number = Number {
        major: rustix::fs::major(metadata.dev()),
        minor: rustix::fs::minor(metadata.dev()),
    };
    let (Ok(real), Ok(all)) = (fs::canonicalize(dir), mountinfo::all()) else {
        return Ok(None);
    };
    // Of several places the lowest that the directory lies below, and of these the last.
    let mounts = all.into_iter().filter(|(_, shown)| shown.number == number);
    let above = mounts.filter(|(place, _)| real.starts_with(place));
    let Some((place, shown)) = above.max_by_key(|(place, _)| place.components().count()) else {
        return Ok(None);
    };
    // Where a part of the file system is bound, its directory is the mount's root.
    let within = shown.root.strip_prefix("/").unwrap_or(&shown.root);
    let prefix = within.join(real.strip_prefix(&place).unwrap_or(Path::new("")));
    let mount = Mount { place, shown };
    let client = connect(&mount.shown).and_then(|(stream, _)| Client::new(stream));
    let client = client.map_err(|error| refused(dir, &mount, &error))?;
    let tree = RemoteTree::new(client, prefix.as_os_str().as_bytes());
    Ok(Some((mount, tree)))
}

/// The mount that has an image; `None` where it can be opened, or no daemon of ours answers.
fn of_image(
    place: &PlaceArgs,
    metadata: &fs::Metadata,
) -> Result<Option<(Mount, RemoteTree)>, Failure> {
    let (Ok(real), Ok(all)) = (fs::canonicalize(&place.image), mountinfo::all()) else {
        return Ok(None);
    };
    // Every user may have a mount that says it shows the image: believed are root, the user, and
    // the image's owner.
    let believed = [0, rustix::process::geteuid().as_raw(), metadata.uid()];
    let identity = identity(metadata, place);
    for (dir, shown) in all {
        let is_it = fs::canonicalize(&shown.source).is_ok_and(|of| of == real);
        if !is_it || shown.is_read_only || !believed.contains(&shown.owner) {
            continue;
        }
        let mount = Mount { place: dir, shown };
        match connect(&mount.shown) {
            Ok((stream, has)) if has == identity => {
                let client = Client::new(stream);
                let client = client.map_err(|error| refused(&place.image, &mount, &error))?;
                return Ok(Some((mount, RemoteTree::new(client, b""))));
            }
            // The path is another image's by now, or the mount shows another part of it.
            Ok(_) => {}
            // One that has ended has let go of the image.
            Err(error) if has_ended(&error) => {}
            Err(error) => return Err(refused(&place.image, &mount, &error)),
        }
    }
    Ok(None)
}

/// Whether no process listens any more.
fn has_ended(error: &io::Error) -> bool {
    let kind = error.kind();
    matches!(
        kind,
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

/// What a mount has: the image, and the part of it as options name it.
pub fn identity(image: &fs::Metadata, place: &PlaceArgs) -> String {
    let file = match image.file_type().is_block_device() {
        true => format!("device {:x}", image.rdev()),
        false => format!("file {:x}:{:x}", image.dev(), image.ino()),
    };
    let PlaceArgs {
        offset, partition, ..
    } = place;
    format!("{file} offset {offset:?} partition {partition:?}")
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

/// A connection to the daemon, and what that one has.
fn connect(shown: &Shown) -> io::Result<(UnixStream, String)> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for path in sockets(shown) {
        match UnixStream::connect(&path).and_then(|stream| greeted(stream, shown.owner)) {
            Ok(connected) => return Ok(connected),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Says what is wanted to the daemon, which must be the mount's owner's.
fn greeted(mut stream: UnixStream, owner: u32) -> io::Result<(UnixStream, String)> {
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
    BufReader::new((&stream).take(LINE_MAX)).read_line(&mut line)?;
    if let Some(has) = line.strip_prefix(GREETING) {
        stream.set_read_timeout(None)?;
        return Ok((stream, has.trim_end().to_owned()));
    }
    match line.as_str() {
        "" => Err(io::Error::other("it is of another version")),
        // A page: it does not know the question.
        line if line.starts_with('#') => Err(io::Error::other("it is of another version")),
        line => Err(io::Error::other(line.trim_end().to_owned())),
    }
}

fn refused(image: &Path, mount: &Mount, error: &io::Error) -> Failure {
    let (image, place) = (image.display(), mount.place.display());
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let owner = mount.shown.owner;
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
