//! `mount -o remount`: what the kernel decides of a mount, changed while it is in use.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use uext4_blockdev::checkpoint;
use uext4_fuse::mount::Error as MountError;
use uext4_fuse::mountinfo;

use crate::failure::{Exit, Failure};
use crate::mount_failure::mount_failure;
use crate::mount_options::MountOptions;

/// Gives the mount at `dir` the flags of `options`. Read-only, it has everything durable and
/// nothing in the journal.
pub fn run(image: &Path, dir: &Path, options: &MountOptions) -> Result<Exit, Failure> {
    let place = |source: io::Error| {
        let dir = dir.to_owned();
        mount_failure(&MountError::Place { dir, source })
    };
    let dir = &fs::canonicalize(dir).map_err(place)?;
    let table = |error| Failure::io("/proc/self/mountinfo", &error);
    let shown = mountinfo::at(dir).map_err(table)?;
    let is_it = |source: &Path| match (fs::canonicalize(source), fs::canonicalize(image)) {
        (Ok(source), Ok(image)) => source == image,
        _ => source == image,
    };
    if !shown.is_some_and(|shown| is_it(&shown.source)) {
        let dir = dir.clone();
        return Err(mount_failure(&MountError::NotMounted { dir }));
    }
    let opened = File::open(dir).map_err(place)?;
    if !options.read_only
        && let Err(error) = checkpoint(&opened)
        && error.kind() == io::ErrorKind::ReadOnlyFilesystem
    {
        let what = format_args!(
            "{}: takes no writes: it was mounted with ro, or an error has ended writing",
            dir.display()
        );
        return Err(Failure::new(Exit::CouldNot, what)
            .hint("`uext4 umount DIR`, and mount it again with rw"));
    }
    rustix::mount::mount_remount(dir, options.flags, c"").map_err(|error| {
        let failure = |exit| Failure::new(exit, format_args!("{}: {error}", dir.display()));
        match error.kind() {
            io::ErrorKind::PermissionDenied => failure(Exit::Denied).hint("only root can remount"),
            io::ErrorKind::ResourceBusy => failure(Exit::CouldNot)
                .hint("files are open for writing: `fuser -vm DIR` lists the programs"),
            _ => failure(Exit::CouldNot),
        }
    })?;
    match options.read_only.then(|| checkpoint(&opened)) {
        Some(Err(error)) if error.kind() != io::ErrorKind::ReadOnlyFilesystem => {
            let what = format_args!(
                "{}: read-only now, but not all that was written is in the image: {error}",
                dir.display()
            );
            Err(Failure::new(Exit::CouldNot, what))
        }
        // What takes no writes has none to make durable.
        _ => Ok(Exit::Success),
    }
}
