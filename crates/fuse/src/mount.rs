//! Mounting and unmounting: root asks the kernel itself, others `fusermount3`, which is
//! set-user-id.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::io::{Errno as Host, FdFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use uext4_blockdev::host;

use crate::init::IO_MAX;
use crate::mountinfo::{self, Number, TYPE};

/// Mounts and unmounts for those who are not root.
const FUSERMOUNT: &str = "fusermount3";

/// Why nothing was mounted, or unmounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel does not offer FUSE, or not to us.
    #[error("/dev/fuse: {0}")]
    Device(#[source] io::Error),
    /// The place is none to mount at.
    #[error("{}: {source}", .dir.display())]
    Place {
        /// Where.
        dir: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The place is no directory.
    #[error("{}: not a directory", .dir.display())]
    NotDirectory {
        /// Where.
        dir: PathBuf,
    },
    /// Something is in the place, and would be hidden.
    #[error("{}: not empty", .dir.display())]
    NotEmpty {
        /// Where.
        dir: PathBuf,
    },
    /// A program still uses the mount.
    #[error("{}: in use", .dir.display())]
    Busy {
        /// Where.
        dir: PathBuf,
    },
    /// Nothing is mounted there.
    #[error("{}: not mounted", .dir.display())]
    NotMounted {
        /// Where.
        dir: PathBuf,
    },
    /// `fusermount3` is not there, or does not run.
    #[error("{FUSERMOUNT}: {0}")]
    NoFusermount(#[source] io::Error),
    /// `fusermount3` said no.
    #[error("{FUSERMOUNT}: {said}")]
    Fusermount {
        /// What it said.
        said: String,
    },
}

/// How something is mounted.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the mount table shows as its source: the image.
    pub source: PathBuf,
    /// What every mount has: read-only, no devices, …
    pub flags: MountFlags,
    /// Users other than the one who mounted may use it.
    pub allow_other: bool,
    /// The kernel decides by owners and modes who may do what; otherwise every process that reaches
    /// the mount may do everything.
    pub kernel_decides: bool,
    /// What is in the directory may be hidden.
    pub nonempty: bool,
}

/// The names of flags, as `mount -o` has them.
const FLAG_NAMES: [(MountFlags, &str); 6] = [
    (MountFlags::RDONLY, "ro"),
    (MountFlags::NOSUID, "nosuid"),
    (MountFlags::NODEV, "nodev"),
    (MountFlags::NOEXEC, "noexec"),
    (MountFlags::NOATIME, "noatime"),
    (MountFlags::SYNCHRONOUS, "sync"),
];

impl Options {
    /// As `fusermount3` takes them.
    fn text(&self) -> OsString {
        let has = FLAG_NAMES
            .iter()
            .filter(|(flag, _)| self.flags.contains(*flag));
        let mut all: Vec<String> = has.map(|(_, name)| (*name).to_owned()).collect();
        if self.kernel_decides {
            all.push("default_permissions".to_owned());
        }
        if self.allow_other {
            all.push("allow_other".to_owned());
        }
        all.push(format!("max_read={IO_MAX}"));
        all.push("subtype=uext4".to_owned());
        let mut text = all.join(",").into_bytes();
        text.extend_from_slice(b",fsname=");
        for byte in self.source.as_os_str().as_bytes() {
            // A comma or a backslash would end the name.
            if let b',' | b'\\' = byte {
                text.push(b'\\');
            }
            text.push(*byte);
        }
        OsString::from_vec(text)
    }

    /// As mount(2) takes them.
    fn data(&self, device: &File) -> String {
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        let permissions = match self.kernel_decides {
            true => ",default_permissions",
            false => "",
        };
        let allow_other = if self.allow_other { ",allow_other" } else { "" };
        format!(
            "fd={},rootmode=40000,user_id={},group_id={},max_read={IO_MAX}{permissions}{allow_other}",
            device.as_raw_fd(),
            uid.as_raw(),
            gid.as_raw(),
        )
    }
}

/// A mount of ours.
#[derive(Clone, Debug)]
pub struct Mounted {
    dir: PathBuf,
    /// `None` where the table of mounts cannot be read.
    number: Option<Number>,
}

/// Mounts at `dir`. Gives the descriptor that requests come from.
///
/// # Errors
/// Every [`enum@Error`].
pub fn mount(dir: &Path, options: &Options) -> Result<(OwnedFd, Mounted), Error> {
    let place = |source| Error::Place {
        dir: dir.to_owned(),
        source,
    };
    // The daemon leaves the directory it was started in.
    let dir = fs::canonicalize(dir).map_err(place)?;
    if !fs::metadata(&dir).map_err(place)?.is_dir() {
        return Err(Error::NotDirectory { dir });
    }
    if !options.nonempty && fs::read_dir(&dir).map_err(place)?.next().is_some() {
        return Err(Error::NotEmpty { dir });
    }
    let fd = match host::effective_user() == 0 {
        true => mount_as_root(&dir, options)?,
        false => mount_with_help(&dir, options)?,
    };
    let shown = mountinfo::at(&dir).ok().flatten();
    let number = shown.map(|shown| shown.number);
    Ok((fd, Mounted { dir, number }))
}

fn mount_as_root(dir: &Path, options: &Options) -> Result<OwnedFd, Error> {
    let device = open_device().map_err(Error::Device)?;
    // OK to unwrap: a number and words without zero bytes.
    let data = CString::new(options.data(&device)).unwrap();
    let mounted = rustix::mount::mount(
        options.source.as_path(),
        dir,
        TYPE,
        options.flags,
        Some(data.as_c_str()),
    );
    mounted.map_err(|error| match error {
        Host::NODEV => Error::Device(error.into()),
        _ => Error::Place {
            dir: dir.to_owned(),
            source: error.into(),
        },
    })?;
    Ok(device.into())
}

fn open_device() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/fuse")
}

/// Has `fusermount3` mount, which sends the descriptor over a socket.
fn mount_with_help(dir: &Path, options: &Options) -> Result<OwnedFd, Error> {
    let failed = Error::NoFusermount;
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    // It is to have this one after exec.
    rustix::io::fcntl_setfd(&theirs, FdFlags::empty()).map_err(|e| failed(e.into()))?;
    let child = Command::new(FUSERMOUNT)
        .args([OsStr::new("-o"), &options.text(), OsStr::new("--")])
        .arg(dir)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    drop(theirs);
    let received = receive(&ours);
    let ended = child.wait_with_output().map_err(failed)?;
    match received {
        Some(fd) if ended.status.success() => Ok(fd),
        // It opens the device with the rights of its caller. Asked afterwards, as it may have a
        // device elsewhere: outside of a sandbox, for example.
        _ => Err(match open_device() {
            Err(error) => Error::Device(error),
            Ok(_) => refused(&ended.stderr),
        }),
    }
}

/// What `fusermount3` said, without its name.
fn refused(stderr: &[u8]) -> Error {
    let said = String::from_utf8_lossy(stderr);
    let line = said.lines().last().unwrap_or("it failed").trim();
    let prefix = format!("{FUSERMOUNT}: ");
    Error::Fusermount {
        said: line.strip_prefix(&prefix).unwrap_or(line).to_owned(),
    }
}

fn receive(socket: impl AsFd) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    rustix::net::recvmsg(socket, &mut parts, &mut control, flags).ok()?;
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    })
}

/// Unmounts what is mounted at `dir`. When it returns, its daemon has been notified; that has
/// everything durable when it has ended.
///
/// # Errors
/// [`Error::Busy`], [`Error::NotMounted`], [`Error::Place`], those of `fusermount3`.
pub fn unmount(dir: &Path) -> Result<(), Error> {
    unmount_with(dir, UnmountFlags::NOFOLLOW)
}

/// The same, also while it is in use: then its daemon ends with its last user (`umount -l`).
///
/// # Errors
/// As [`unmount`], but for [`Error::Busy`].
pub fn detach(dir: &Path) -> Result<(), Error> {
    unmount_with(dir, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)
}

fn unmount_with(dir: &Path, flags: UnmountFlags) -> Result<(), Error> {
    let dir = dir.to_owned();
    if host::effective_user() != 0 {
        let mut command = Command::new(FUSERMOUNT);
        command.arg("-u");
        if flags.contains(UnmountFlags::DETACH) {
            command.arg("-z");
        }
        let ended = command.arg("--").arg(&dir).stdin(Stdio::null()).output();
        let ended = ended.map_err(Error::NoFusermount)?;
        return match ended.status.success() {
            true => Ok(()),
            false => Err(refused(&ended.stderr)),
        };
    }
    rustix::mount::unmount(&dir, flags).map_err(|error| match error {
        Host::BUSY => Error::Busy { dir },
        Host::INVAL => Error::NotMounted { dir },
        _ => Error::Place {
            dir,
            source: error.into(),
        },
    })
}

impl Mounted {
    /// One of ours that another process has mounted, by its directory and number.
    pub fn known(dir: &Path, number: Option<Number>) -> Self {
        let dir = dir.to_owned();
        Self { dir, number }
    }

    /// Where.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What no other mount has in common with it as long as it is there; `None` where the table of
    /// mounts cannot be read.
    pub fn number(&self) -> Option<Number> {
        self.number
    }

    /// Unmounts. What is in use is made durable and taken from its users: they get errors from
    /// then on. What is mounted there by now and is not this is left alone.
    ///
    /// # Errors
    /// As [`unmount`].
    pub fn end(&self) -> Result<(), Error> {
        if !self.is_on_top() {
            self.abort();
            let dir = self.dir.clone();
            return Err(Error::NotMounted { dir });
        }
        let Err(busy) = unmount(&self.dir) else {
            return Ok(());
        };
        if matches!(busy, Error::NotMounted { .. }) {
            return Err(busy);
        }
        // What was changed through mappings is in the kernel until now. This begins to write it,
        // and does not wait: who can ask the kernel (`KernelCache::write_back`) does so before.
        if let Ok(dir) = File::open(&self.dir) {
            _ = rustix::fs::syncfs(dir);
        }
        self.abort();
        unmount_with(&self.dir, UnmountFlags::FORCE | UnmountFlags::DETACH)
    }

    /// Whether it is what `dir` shows. Where that cannot be seen it is taken to be.
    fn is_on_top(&self) -> bool {
        match mountinfo::at(&self.dir) {
            // Without a number it was hidden, or gone, as soon as it was mounted.
            Ok(shown) => shown.is_some_and(|shown| Some(shown.number) == self.number),
            Err(_) => true,
        }
    }

    /// Ends the connection where its owner may: it is listed under the minor number of its
    /// device. Once it is mounted nowhere, others may come to have that.
    fn abort(&self) {
        if let Some(number) = self.number
            && number.major == 0
            && mountinfo::has(number).is_ok_and(|has| has)
        {
            _ = fs::write(
                format!("/sys/fs/fuse/connections/{}/abort", number.minor),
                "1",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(source: &str) -> Options {
        Options {
            source: source.into(),
            flags: MountFlags::RDONLY | MountFlags::NODEV,
            allow_other: true,
            kernel_decides: true,
            nonempty: false,
        }
    }

    #[test]
    fn options_in_both_forms() {
        let text = options("a,b\\c").text();
        assert_eq!(
            text,
            "ro,nodev,default_permissions,allow_other,max_read=1048576,subtype=uext4,fsname=a\\,b\\\\c"
        );
        let device = File::open("/dev/null").unwrap();
        let data = options("x").data(&device);
        assert!(
            data.starts_with("fd=")
                && data.contains(",rootmode=40000,")
                && data.contains(",max_read=1048576,"),
            "{data}"
        );
        assert!(data.ends_with(",default_permissions,allow_other"), "{data}");
    }

    #[test]
    fn wrong_mount_points_are_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = mount(file.path(), &options("x")).unwrap_err();
        assert!(matches!(error, Error::NotDirectory { .. }), "{error}");
        let error = mount(Path::new("/no/such/place"), &options("x")).unwrap_err();
        assert!(matches!(error, Error::Place { .. }), "{error}");
        let dir = tempfile::tempdir().unwrap();
        assert!(unmount(dir.path()).is_err());
    }

    #[test]
    fn nothing_but_ones_own_is_unmounted() {
        let dir = tempfile::tempdir().unwrap();
        let number = Number { major: 0, minor: 0 };
        for number in [None, Some(number)] {
            let error = Mounted::known(dir.path(), number).end().unwrap_err();
            assert!(matches!(error, Error::NotMounted { .. }), "{error}");
        }
    }

    #[test]
    fn what_fusermount_says_is_passed_on() {
        let error = refused(b"x\nfusermount3: user has no write access to mountpoint /mnt\n");
        let said = error.to_string();
        assert_eq!(
            said,
            "fusermount3: user has no write access to mountpoint /mnt"
        );
    }

    #[test]
    fn a_descriptor_comes_over_a_socket() {
        use std::io::IoSlice;

        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
        let (ours, theirs) = UnixStream::pair().unwrap();
        let file = File::open("/dev/null").unwrap();
        let fds = [file.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        sendmsg(
            &theirs,
            &[IoSlice::new(b"x")],
            &mut control,
            SendFlags::empty(),
        )
        .unwrap();
        assert!(receive(&ours).is_some());
        drop(theirs);
        assert!(receive(&ours).is_none());
    }
}
