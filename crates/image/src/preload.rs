//! What `stat` says where a library is preloaded, as `fakeroot` and `pseudo` do: it may give files
//! other owners, modes and device numbers. Such a library sees calls of the C library alone.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::LazyLock;
use std::{env, fs, io};

use rustix::fs::Stat;

/// Whether any library is preloaded: if not, the second call is saved.
static IS_PRELOADED: LazyLock<bool> = LazyLock::new(|| {
    env::var_os("LD_PRELOAD").is_some_and(|libraries| !libraries.is_empty())
        || Path::new("/etc/ld.so.preload").exists()
});

/// Whether a library is preloaded that may show files otherwise than the system does.
pub fn is_preloaded() -> bool {
    *IS_PRELOADED
}

/// Changes `stat`, of the entry `name` of a directory, to what the C library says of it.
///
/// # Errors
/// Those of `lstat`.
pub fn see(dir: BorrowedFd<'_>, name: &OsStr, stat: &mut Stat) -> io::Result<()> {
    if !is_preloaded() {
        return Ok(());
    }
    let dir = format!("/proc/self/fd/{}", dir.as_raw_fd());
    let seen = fs::symlink_metadata(Path::new(&dir).join(name))?;
    stat.st_mode = seen.mode();
    stat.st_uid = seen.uid();
    stat.st_gid = seen.gid();
    stat.st_rdev = seen.rdev();
    Ok(())
}
