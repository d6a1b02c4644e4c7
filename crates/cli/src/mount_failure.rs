//! Why an image cannot be mounted or unmounted, and what to do.

use std::io;

use uext4_fuse::mount::Error as MountError;
use uext4_fuse::mountinfo;

use crate::failure::{Exit, Failure};

/// What to do about programs that use a mount.
const BUSY: &str = "end the programs that use it (`fuser -vm DIR` lists them), and try again; \
     `uext4 umount --lazy DIR` detaches it at once";

/// What to do about what keeps us from mounting.
pub fn mount_failure(error: &MountError) -> Failure {
    let failure = Failure::new(exit_of(error), error);
    match error {
        MountError::Device(error) => failure.hint(match error.raw_os_error() {
            Some(libc::EACCES) => {
                "its mode keeps you out: `chmod 666 /dev/fuse` as root opens it until the next start, a \
                 udev rule for good; or mount as root"
            }
            Some(libc::EPERM) => "in a container, pass it in: `--device /dev/fuse`",
            _ => {
                "load the module with `modprobe fuse`; in a container, pass it in: `--device /dev/fuse`"
            }
        }),
        MountError::NoFusermount(_) => {
            failure.hint("install it (Debian: `apt install fuse3`), or run as root")
        }
        MountError::NotDirectory { .. } => failure.hint("say the image first, then a directory"),
        MountError::NotEmpty { dir } => match mountinfo::at(dir) {
            Ok(Some(shown)) => failure.hint(format!(
                "{} is mounted there: `uext4 umount {}` first, or choose another directory",
                shown.source.display(),
                dir.display()
            )),
            _ => failure.hint("choose an empty directory; `-o nonempty` hides what is in it"),
        },
        MountError::Busy { .. } => failure.hint(BUSY),
        MountError::Fusermount { said } if said.contains("busy") => failure.hint(BUSY),
        MountError::Place { source, dir } if source.raw_os_error() == Some(libc::ENOTCONN) => {
            failure.hint(format!(
                "the daemon of an earlier mount has ended: `uext4 umount {}` removes what is left",
                dir.display()
            ))
        }
        MountError::Place { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            failure.hint("make it first: `mkdir -p DIR`")
        }
        MountError::Fusermount { said } if said.contains("allow_other") => failure.hint(
            "root allows it with the line `user_allow_other` in /etc/fuse.conf; or leave it away",
        ),
        MountError::Fusermount { said } if said.contains("write access") => {
            failure.hint("mount at a directory that is yours")
        }
        _ => failure,
    }
}

fn exit_of(error: &MountError) -> Exit {
    match error {
        MountError::Device(_) | MountError::NoFusermount(_) => Exit::System,
        MountError::Place { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            Exit::Denied
        }
        MountError::Fusermount { said }
            if said.contains("allowed")
                || said.contains("access")
                || said.contains("permitted") =>
        {
            Exit::Denied
        }
        _ => Exit::CouldNot,
    }
}
