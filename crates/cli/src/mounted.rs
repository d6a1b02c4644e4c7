//! Images that one of our mounts has: what commands do with them goes through the mount's daemon.
//!
//! The image may be given itself, or a directory of the mount, which then stands for the root.

use std::cell::OnceCell;
use std::fs::{self, File};
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use uext4_blockdev::host;
use uext4_fuse::addresses::{self, Daemon};
use uext4_fuse::mountinfo::{self, Number, Shown};
use uext4_remote::client::Client;

use crate::args::PlaceArgs;
use crate::failure::{Exit, Failure};
use crate::kernel_mount::ELSEWHERE;
use crate::listener::{GREETING, QUESTION, READING, directory_of_sockets};
use crate::part;

/// How long the daemons of an image may take to say that they are there, all together.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of what it says at most.
const LINE_MAX: usize = 4096;

/// A mount of ours that has an image.
#[derive(Debug)]
pub struct Mount {
    /// Where it is mounted.
    pub place: PathBuf,
    shown: Shown,
    /// The directory of the file system that stands for the root; empty for the root.
    pub prefix: Vec<u8>,
    /// The image that the daemon says it has.
    has: String,
}

/// What a mount of ours does with commands.
#[derive(Debug)]
pub enum Door {
    /// Its daemon takes them.
    Open(Mount, Client),
    /// The image does not change, and can be read by others.
    Reading(Mount),
}

/// What is wanted of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Reading,
    Changing,
}

/// A question to the daemons of an image.
struct Asking {
    /// When none is waited for any more.
    until: Instant,
    wanted: Wanted,
}

impl Asking {
    fn to(wanted: Wanted) -> Self {
        let until = Instant::now() + PATIENCE;
        Self { until, wanted }
    }

    /// How long the daemons may still take.
    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(left),
        }
    }

    /// Opens the image as the command could use it, to show it to a daemon.
    fn open(&self, image: &Path) -> io::Result<File> {
        let writes = self.wanted == Wanted::Changing;
        File::options().read(true).write(writes).open(image)
    }
}

/// A daemon's answer to the question.
enum Greeted {
    /// It takes commands for this image.
    Open(UnixStream, String),
    /// It reads this image.
    Reading(String),
}

/// The mount that has an image, or that shows a directory; `None` if that is none of ours.
///
/// # Errors
/// Exit 13 if the mount belongs to another user, 8 if its daemon takes no commands.
pub fn find(place: &PlaceArgs) -> Result<Option<Door>, Failure> {
    find_to(place, &Asking::to(Wanted::Reading))
}

fn find_to(place: &PlaceArgs, asking: &Asking) -> Result<Option<Door>, Failure> {
    match fs::metadata(&place.image) {
        Ok(metadata) if metadata.is_dir() => of_directory(&place.image, &metadata, asking),
        Ok(metadata) => of_image(place, &metadata, asking),
        Err(_) => Ok(None),
    }
}

/// The same for a command that changes what the mount has.
///
/// # Errors
/// As [`find`]; exit 8 if it is mounted for reading.
pub fn to_change(place: &PlaceArgs) -> Result<Option<(Mount, Client)>, Failure> {
    match find_to(place, &Asking::to(Wanted::Changing))? {
        Some(Door::Open(mount, client)) if !mount.is_read_only() => Ok(Some((mount, client))),
        Some(Door::Open(mount, _) | Door::Reading(mount)) => {
            Err(refused(&place.image, &mount, &for_reading()))
        }
        None => Ok(None),
    }
}

/// The mount that shows a directory; `None` if that is none of ours.
fn of_directory(
    dir: &Path,
    metadata: &fs::Metadata,
    asking: &Asking,
) -> Result<Option<Door>, Failure> {
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
    let prefix = prefix.as_os_str().as_bytes().to_vec();
    let mut mount = Mount {
        place,
        shown,
        prefix,
        has: String::new(),
    };
    let met = connect(&mount.shown, asking).map_err(|error| refused(dir, &mount, &error))?;
    match met {
        Greeted::Open(stream, _) => open(dir, mount, stream).map(Some),
        Greeted::Reading(has) => {
            mount.has = has;
            Ok(Some(Door::Reading(mount)))
        }
    }
}

fn open(given: &Path, mount: Mount, stream: UnixStream) -> Result<Door, Failure> {
    match Client::new(stream) {
        Ok(client) => Ok(Door::Open(mount, client)),
        Err(error) => Err(refused(given, &mount, &error)),
    }
}

impl Mount {
    /// Whether nothing is changed through it.
    pub fn is_read_only(&self) -> bool {
        self.shown.is_read_only
    }

    /// The image of a mount for reading, if it has nothing but the file system.
    pub fn image(&self) -> PlaceArgs {
        PlaceArgs::of(self.shown.source.clone())
    }

    /// Makes sure that a file that was opened is the one that the daemon has. Every user may have a
    /// mount that says so of any file: believed are root, the user, and the file's owner.
    ///
    /// # Errors
    /// Exit 8 with the image to be given.
    pub fn must_have(&self, opened: &fs::Metadata, dir: &Path) -> Result<(), Failure> {
        let is_it = identity(opened, &self.image()) == self.has;
        if is_it && believed(opened).contains(&self.shown.owner) {
            return Ok(());
        }
        let (dir, image) = (dir.display(), self.shown.source.display());
        let what = format_args!(
            "{dir}: shows a file system in {image} for reading, and is not read in its place"
        );
        let hint = "give the image itself, with the --partition or --offset of the mount";
        Err(Failure::new(Exit::CouldNot, what).hint(hint))
    }
}

/// Whose mounts are believed to have a file.
fn believed(file: &fs::Metadata) -> [u32; 3] {
    [0, host::effective_user(), file.uid()]
}

fn for_reading() -> io::Error {
    io::Error::other("it is mounted for reading")
}

/// The mount that has an image; `None` where it can be opened, or no daemon of ours answers.
fn of_image(
    place: &PlaceArgs,
    metadata: &fs::Metadata,
    asking: &Asking,
) -> Result<Option<Door>, Failure> {
    let all = mountinfo::all().unwrap_or_default();
    let believed = believed(metadata);
    // The image is read for it, and few images are mounted.
    let own = OnceCell::new();
    let is_own = |has: &str| own.get_or_init(|| identity(metadata, place)) == has;
    for (dir, shown) in &all {
        let is_it = addresses::is_same(&shown.source, metadata);
        if !is_it || !believed.contains(&shown.owner) {
            continue;
        }
        let mount = Mount {
            place: dir.clone(),
            shown: shown.clone(),
            prefix: Vec::new(),
            has: String::new(),
        };
        match connect(&mount.shown, asking) {
            Ok(Greeted::Open(stream, has)) if is_own(&has) => {
                return open(&place.image, mount, stream).map(Some);
            }
            // The path is another image's by now, or the mount shows another part of it.
            Ok(_) => {}
            // One that has ended has let go of the image.
            Err(error) if has_ended(&error) => {}
            Err(error) => return Err(refused(&place.image, &mount, &error)),
        }
    }
    by_what_it_is(place, metadata, &is_own, &all, asking)
}

/// The same for an image that has another name by now than when it was mounted, or a mount that
/// this process does not see: by the address of its daemon.
fn by_what_it_is(
    place: &PlaceArgs,
    metadata: &fs::Metadata,
    is_own: &dyn Fn(&str) -> bool,
    all: &[(PathBuf, Shown)],
    asking: &Asking,
) -> Result<Option<Door>, Failure> {
    for daemon in addresses::of_image(metadata) {
        let seen = all.iter().find(|(_, shown)| shown.number == daemon.number);
        let seen = seen.filter(|(_, shown)| believed(metadata).contains(&shown.owner));
        // Through its socket, if this process sees the mount.
        let by_path = seen.and_then(|(dir, shown)| {
            let met = connect(shown, asking).ok()?;
            Some((dir.clone(), shown.clone(), met))
        });
        let met = by_path.or_else(|| without_path(place, metadata, &daemon, asking));
        let Some((dir, shown, Greeted::Open(stream, has))) = met else {
            // One that reads the image lets others read it.
            continue;
        };
        if !is_own(&has) {
            continue;
        }
        let mount = Mount {
            place: dir,
            shown,
            prefix: Vec::new(),
            has: String::new(),
        };
        return open(&place.image, mount, stream).map(Some);
    }
    Ok(None)
}

/// The daemon of a mount in another mount namespace.
///
/// Every process can listen at such an address, those that cannot see the image too, and no other
/// should be given it: the daemon is the process that holds the lock of the image.
fn without_path(
    place: &PlaceArgs,
    metadata: &fs::Metadata,
    daemon: &Daemon,
    asking: &Asking,
) -> Option<(PathBuf, Shown, Greeted)> {
    let stream = addresses::connect(&daemon.address).ok()?;
    let owner = addresses::peer(&stream)?;
    if !believed(metadata).contains(&owner) {
        return None;
    }
    let image = asking.open(&place.image).ok()?;
    if !host::has_locked(addresses::process(&stream), &image) {
        return None;
    }
    let met = greeted(stream, owner, Some(&image), asking).ok()?;
    let shown = Shown {
        number: daemon.number,
        source: place.image.clone(),
        root: "/".into(),
        owner,
        is_read_only: false,
    };
    Some((PathBuf::from(ELSEWHERE), shown, met))
}

/// Whether no process listens any more.
fn has_ended(error: &io::Error) -> bool {
    let kind = error.kind();
    matches!(
        kind,
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

/// What a mount has: the image, and where in it the file system begins, whichever options name it.
pub fn identity(image: &fs::Metadata, place: &PlaceArgs) -> String {
    let file = match image.file_type().is_block_device() {
        true => format!("device {:x}", image.rdev()),
        false => format!("file {:x}:{:x}", image.dev(), image.ino()),
    };
    match part::start(place) {
        Some(start) => format!("{file} from byte {start}"),
        // Where the file system is cannot be found any more, and two that say the same mean it.
        None => format!("{file} {:?} {:?}", place.offset, place.partition),
    }
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

/// A connection to the daemon.
fn connect(shown: &Shown, asking: &Asking) -> io::Result<Greeted> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for path in sockets(shown) {
        let stream = UnixStream::connect(&path);
        match stream.and_then(|stream| greeted(stream, shown.owner, None, asking)) {
            Ok(connected) => return Ok(connected),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Says what is wanted to the daemon, which must be the mount's owner's, and shows the image.
fn greeted(
    stream: UnixStream,
    owner: u32,
    image: Option<&File>,
    asking: &Asking,
) -> io::Result<Greeted> {
    let peer = addresses::peer(&stream).ok_or(io::ErrorKind::Other)?;
    if peer != owner && peer != 0 {
        return Err(io::Error::other(format!(
            "its socket belongs to user {peer}"
        )));
    }
    let descriptors: Vec<_> = image.iter().map(|image| image.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // So few bytes are sent as a whole.
    let question = [IoSlice::new(QUESTION.as_bytes())];
    sendmsg(&stream, &question, &mut ancillary, SendFlags::NOSIGNAL)?;
    let line = line(&stream, asking)?;
    if let Some(has) = line.strip_prefix(GREETING) {
        stream.set_read_timeout(None)?;
        return Ok(Greeted::Open(stream, has.trim_end().to_owned()));
    }
    if let Some(has) = line.strip_prefix(READING) {
        return Ok(Greeted::Reading(has.trim_end().to_owned()));
    }
    match line.as_str() {
        "" => Err(io::Error::other("it is of another version")),
        // A page: it does not know the question.
        line if line.starts_with('#') => Err(io::Error::other("it is of another version")),
        line => Err(io::Error::other(line.trim_end().to_owned())),
    }
}

/// The line that the daemon says. It sends no more before it is asked.
fn line(mut stream: &UnixStream, asking: &Asking) -> io::Result<String> {
    let mut line = Vec::new();
    let mut buffer = [0; LINE_MAX];
    while !line.ends_with(b"\n") && line.len() < LINE_MAX {
        stream.set_read_timeout(Some(asking.left()?))?;
        match stream.read(&mut buffer[..LINE_MAX - line.len()]) {
            Ok(0) => break,
            Ok(len) => line.extend_from_slice(&buffer[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

fn refused(image: &Path, mount: &Mount, error: &io::Error) -> Failure {
    let (image, place) = (image.display(), mount.place.display());
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let owner = mount.shown.owner;
            let what = format_args!(
                "{image}: it is mounted at {place} by user {owner}, and only that user and root can \
                 use it with commands"
            );
            Failure::new(Exit::Denied, what)
        }
        kind => {
            let why = match kind {
                io::ErrorKind::NotFound => "it has no socket, and could not make one when it was \
                     mounted (a read-only /run)"
                    .to_owned(),
                _ => error.to_string(),
            };
            let what = format_args!(
                "{image}: it is mounted at {place}, and the daemon of that mount takes no commands: \
                 {why}"
            );
            let hint = match mount.place == Path::new(ELSEWHERE) {
                true => "unmount it there first, or use it there with other programs".to_owned(),
                false => {
                    format!("`uext4 umount {place}` first, or use it there with other programs")
                }
            };
            Failure::new(Exit::CouldNot, what).hint(hint)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_that_say_nothing_are_waited_for_together() {
        let asking = Asking {
            until: Instant::now() + Duration::from_millis(20),
            wanted: Wanted::Reading,
        };
        for _ in 0..2 {
            let (ours, _theirs) = UnixStream::pair().unwrap();
            let own = host::effective_user();
            assert!(greeted(ours, own, None, &asking).is_err());
            // The first has used up the time of all.
            assert!(asking.left().is_err());
        }
    }
}
