//! Where daemons of mounts listen, of the image that a command has been given.
//!
//! An abstract address is seen wherever the network is the same, in every mount namespace, and has
//! no path. Ours are called
//!
//! ```text
//! uext4-mount-0:57-WHEN-RANDOM-fd01:1a2b     how the mount ends (unmount_status)
//! uext4-door-0:57-WHEN-RANDOM-fd01:1a2b      commands for what is mounted
//!             │                 └── the image: device and inode, or the number of a block device
//!             └── the number of the mount
//! ```
//! so that a command finds the daemon by what an image is, whatever its name: through a hard link,
//! a bind mount, after a rename, from another mount namespace.
//!
//! Everyone can listen at such an address, and connect to it, also from where neither image nor
//! mount can be seen. So both ends look whose the other one is, and at a door each proves that it
//! has the image: the daemon's process holds its lock, and only then the client shows a descriptor
//! of it. No other can take an address before its daemon, as a part of it cannot be guessed.

use std::cmp::Reverse;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::net::sockopt::socket_peercred;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::rand::GetRandomFlags;

use uext4_blockdev::{Clock, SystemClock};

use crate::mountinfo::{self, Number};

/// What a daemon listens for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Those who wait for the end of the mount.
    Mount,
    /// Commands.
    Door,
}

impl Kind {
    /// What its addresses begin with.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mount => "uext4-mount-",
            Self::Door => "uext4-door-",
        }
    }
}

/// What the addresses of all daemons of this number begin with.
pub(crate) fn prefix(kind: Kind, Number { major, minor }: Number) -> String {
    format!("{}{major}:{minor}-", kind.name())
}

/// What the addresses of all daemons of an image end with: its device and inode, or the number of a
/// block device.
pub(crate) fn suffix(image: &Metadata) -> String {
    match image.file_type().is_block_device() {
        true => format!("-{:x}", image.rdev()),
        false => format!("-{:x}:{:x}", image.dev(), image.ino()),
    }
}

/// An address that is not taken yet, for the daemon of a mount and of its image, which may be gone
/// by now. Of two, that of the younger is greater.
///
/// # Errors
/// Those of random numbers.
pub fn new(kind: Kind, number: Number, image: Option<&Metadata>) -> io::Result<String> {
    let mut random = [0; 16];
    rustix::rand::getrandom(&mut random, GetRandomFlags::empty())?;
    let (seconds, nanos) = SystemClock.now();
    let when = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    let when = u128::try_from(when).unwrap_or(0);
    let random = u128::from_le_bytes(random);
    let suffix = image.map_or(String::new(), suffix);
    let prefix = prefix(kind, number);
    Ok(format!("{prefix}{when:024x}-{random:032x}{suffix}"))
}

/// A daemon, or another who pretends to be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemon {
    /// Where it listens.
    pub address: String,
    /// The number of its mount.
    pub number: Number,
}

/// Where the daemons of an image take commands: the youngest first.
#[must_use]
pub fn of_image(image: &Metadata) -> Vec<Daemon> {
    let all = addresses(Kind::Door.name(), &suffix(image));
    let daemon = |address: String| {
        let number = address.strip_prefix(Kind::Door.name())?.split('-').next()?;
        let (major, minor) = number.split_once(':')?;
        let (major, minor) = (major.parse().ok()?, minor.parse().ok()?);
        let number = Number { major, minor };
        Some(Daemon { address, number })
    };
    all.into_iter().filter_map(daemon).collect()
}

/// Whether a daemon of an image listens for anything, or another pretends to.
#[must_use]
pub fn has_daemon(image: &Metadata) -> bool {
    !addresses("uext4-", &suffix(image)).is_empty()
}

/// Where this process sees a mount of an image; `None` where it sees none.
///
/// # Errors
/// Those of reading the table of mounts, of finding the image.
pub fn place_of(image: &Path) -> io::Result<Option<PathBuf>> {
    let image = fs::metadata(image)?;
    let daemons = of_image(&image);
    let mut all = mountinfo::all()?.into_iter();
    let found = all.find(|(_, shown)| {
        let has = |daemon: &Daemon| daemon.number == shown.number;
        is_same(&shown.source, &image) || daemons.iter().any(has)
    });
    Ok(found.map(|(place, _)| place))
}

/// Whether a path names this file, or this block device.
#[must_use]
pub fn is_same(path: &Path, file: &Metadata) -> bool {
    fs::metadata(path).is_ok_and(|found| are_same(&found, file))
}

/// Whether two are the same file, or the same block device.
#[must_use]
pub fn are_same(one: &Metadata, other: &Metadata) -> bool {
    suffix(one) == suffix(other)
}

/// Where daemons listen whose addresses begin and end so, or others who pretend to be such: the
/// youngest first.
pub(crate) fn addresses(prefix: &str, suffix: &str) -> Vec<String> {
    const LISTENS: u32 = 0x1_0000;
    let table = fs::read("/proc/self/net/unix").unwrap_or_default();
    let table = String::from_utf8_lossy(&table);
    let of_line = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
        let address = fields.nth(3)?.strip_prefix('@')?;
        let is_one = address.starts_with(prefix) && address.ends_with(suffix);
        let is_one = is_one && flags & LISTENS != 0;
        is_one.then(|| address.to_owned())
    };
    let mut all: Vec<String> = table.lines().filter_map(of_line).collect();
    // Behind the kind and the number of the mount.
    let when = |address: &String| address.split('-').nth(3).map(str::to_owned);
    all.sort_by_cached_key(|address| Reverse(when(address)));
    all
}

/// Connects without waiting: one who listens and takes no thread in must not hold us up.
///
/// # Errors
/// Those of the socket; `WouldBlock` where too many wait.
pub fn connect(address: &str) -> io::Result<UnixStream> {
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

/// The process at the other end, that of a daemon being the one that listens; 0 where it cannot be
/// seen from here.
#[must_use]
pub fn process(stream: &UnixStream) -> u32 {
    let peer = socket_peercred(stream).ok();
    peer.map_or(0, |peer| {
        u32::try_from(peer.pid.as_raw_nonzero().get()).unwrap_or(0)
    })
}

/// The user at the other end; `None` where the system does not say.
#[must_use]
pub fn peer(stream: &UnixStream) -> Option<u32> {
    socket_peercred(stream).ok().map(|peer| peer.uid.as_raw())
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    use super::*;

    #[test]
    fn daemons_are_found_by_another_name_of_their_image() {
        let dir = tempfile::tempdir().unwrap();
        let [image, link, other] = ["image", "link", "other"].map(|name| dir.path().join(name));
        fs::write(&image, "").unwrap();
        fs::write(&other, "").unwrap();
        fs::hard_link(&image, &link).unwrap();
        let metadata = |path| fs::metadata(path).unwrap();
        let listen = |minor| {
            let number = Number {
                major: std::process::id() << 12 | 0x8000_0000,
                minor,
            };
            let address = new(Kind::Door, number, Some(&metadata(&image))).unwrap();
            let bound = SocketAddr::from_abstract_name(&address).unwrap();
            let listener = UnixListener::bind_addr(&bound).unwrap();
            (Daemon { address, number }, listener)
        };
        assert_eq!(of_image(&metadata(&link)), []);
        let (older, _first) = listen(1);
        let (younger, _second) = listen(2);
        fs::remove_file(&image).unwrap();
        let found = of_image(&metadata(&link));
        assert_eq!(found, [younger, older]);
        let stream = connect(&found[0].address).unwrap();
        assert_eq!(peer(&stream), Some(rustix::process::geteuid().as_raw()));
        assert_eq!(of_image(&metadata(&other)), []);
    }
}
