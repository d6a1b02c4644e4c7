//! What the kernel says of the machine's memory and disks, and of this process: how much memory it
//! may take, and the texts as the kernel gives them.

mod limits;

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// More than any of these texts has.
const LEN_MAX: u64 = 64 << 10;
/// Bytes of a table that are read, at most.
const TABLE_MAX: u64 = 16 << 20;

/// Bytes of memory that this process can have at most: the machine's, or less where its control
/// group (`memory.max` and `memory.high` of version 2, `memory.limit_in_bytes` of version 1), a
/// group above that, or a resource limit (`RLIMIT_AS`, `RLIMIT_DATA`) has less. `None` where the
/// system says nothing of it. Looked up anew each time: some ten small files are read.
#[must_use]
pub fn memory() -> Option<u64> {
    let own = [Resource::As, Resource::Data].map(|resource| getrlimit(resource).current);
    limits::least(Path::new("/"), own)
}

/// One part in so many of [`memory`], at most `most` bytes; `most` where it is not known.
#[must_use]
pub fn share_of_memory(parts: u64, most: u64) -> u64 {
    memory().map_or(most, |memory| (memory / parts.max(1)).min(most))
}

/// `/proc/pressure/memory`: how much time was lost waiting for memory. `None` where the kernel
/// does not report.
pub fn memory_pressure() -> Option<String> {
    text("/proc/pressure/memory")
}

/// `/etc/machine-id`: the number of this installation, which hosts that share a disk differ by.
/// `None` where there is none, as in many containers.
pub fn machine_id() -> Option<String> {
    let id = text("/etc/machine-id")?.trim().to_owned();
    (!id.is_empty()).then_some(id)
}

/// The effective user of this process as the kernel has it: for what the kernel decides by it, such
/// as who may mount. `geteuid` of the C library says 0 under `fakeroot` and `pseudo`.
pub fn effective_user() -> u32 {
    let status = text("/proc/self/status");
    let user = status.as_deref().and_then(effective_user_in);
    user.unwrap_or_else(|| rustix::process::geteuid().as_raw())
}

/// The second of the four users in the line `Uid:`.
fn effective_user_in(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// A process that has locked a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// Its number.
    pub pid: u32,
    /// The name of its program, as `/proc` has it.
    pub name: String,
}

/// The process that has locked a file with flock(2), by `/proc/locks`; `None` where that shows
/// none, as for one in another container.
pub fn lock_holder(file: &Path) -> Option<LockHolder> {
    let file = std::fs::metadata(file).ok()?;
    let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    let place = format!("{major:02x}:{minor:02x}:{}", file.ino());
    let (_, pid) = locks(&table("/proc/locks")?, &place).next()?;
    let name = text(format!("/proc/{pid}/comm"))?.trim_end().to_owned();
    Some(LockHolder { pid, name })
}

/// The locks of flock(2) in the table of the kernel that a place has: "READ" or "WRITE", and the
/// process. What waits for a lock is left out.
fn locks<'a>(table: &'a str, place: &'a str) -> impl Iterator<Item = (&'a str, u32)> {
    table.lines().filter_map(move |line| {
        // `4: FLOCK  ADVISORY  WRITE 1234 00:2f:56 0 EOF`; a line with `->` waits for a lock.
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, "FLOCK", _, kind, pid, at, ..] if at == place => Some((kind, pid.parse().ok()?)),
            _ => None,
        }
    })
}

/// Whether a process holds the exclusive lock (flock(2)) of this file, which only one that has it
/// open can take; false where `/proc` shows neither the lock nor the process, and where another
/// file is locked that the table has at the same place, as subvolumes of btrfs have. `file` must
/// have no lock of its own: it would be given up.
#[must_use]
pub fn has_locked(process: u32, file: &File) -> bool {
    let (Some(table), Some(place)) = (table("/proc/locks"), place_of_locks(file)) else {
        return false;
    };
    let mut held = locks(&table, &place).filter(|(kind, _)| *kind == "WRITE");
    let is_alone = held.next().is_some_and(|(_, pid)| pid == process) && held.next().is_none();
    process != 0 && is_alone && keeps_out(file)
}

/// Whether a lock of another open description of the file keeps this one from it. A lock that this
/// one has is given up.
fn keeps_out(file: &File) -> bool {
    match flock(file, FlockOperation::NonBlockingLockShared) {
        Err(error) => error == Errno::WOULDBLOCK,
        Ok(()) => {
            // Closing the file would give it back, too.
            _ = flock(file, FlockOperation::Unlock);
            false
        }
    }
}

/// Where the kernel's table of locks has a file: the device of the file system, which is not
/// always the one that stat(2) reports, and the number of the inode.
fn place_of_locks(file: &File) -> Option<String> {
    let info = text(format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
    let of = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
    let (mount, inode) = (of("mnt_id:")?.trim(), of("ino:")?.trim());
    let mounts = table("/proc/self/mountinfo")?;
    let device = mounts.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(mount)).then(|| words.nth(1))?
    })?;
    let (major, minor) = device.split_once(':')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    Some(format!("{major:02x}:{minor:02x}:{inode}"))
}

/// Whether a disk, or the disk that a partition is of, is a spindle, by its `queue/rotational`;
/// false where the kernel does not report, as for what is no disk.
pub(crate) fn is_rotational(device: u64) -> bool {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let device = format!("/sys/dev/block/{major}:{minor}");
    // A partition lies in the directory of its disk.
    text(format!("{device}/queue/rotational"))
        .or_else(|| text(format!("{device}/../queue/rotational")))
        .is_some_and(|text| text.trim() == "1")
}

/// Whether the kernel refuses to write a disk or partition; false where it does not report.
pub(crate) fn is_read_only(device: u64) -> bool {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    text(format!("/sys/dev/block/{major}:{minor}/ro")).is_some_and(|text| text.trim() == "1")
}

fn text(path: impl AsRef<Path>) -> Option<String> {
    read(path.as_ref(), LEN_MAX)
}

/// At most `most` bytes of a text of the kernel. What is not UTF-8, such as a path, hides nothing
/// else.
fn read(path: &Path, most: u64) -> Option<String> {
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(most).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The same with a line for each of many things.
fn table(path: &str) -> Option<String> {
    read(Path::new(path), TABLE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_user_is_the_second_of_the_four() {
        let status = "Name:\tuext4\nUid:\t1000\t0\t1000\t1000\nGid:\t1\t2\t3\t4\n";
        assert_eq!(effective_user_in(status), Some(0));
        assert_eq!(effective_user_in("Uid:\tx\n"), None);
        assert_eq!(effective_user(), rustix::process::geteuid().as_raw());
    }

    #[test]
    fn the_holder_of_a_lock_is_found() {
        let table = "1: POSIX  ADVISORY  WRITE 7 00:2f:56 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 8 00:2f:57 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 9 00:2f:56 0 EOF\n\
                     3: -> FLOCK  ADVISORY  READ 10 00:2f:56 0 EOF\n";
        let held = |place| locks(table, place).collect::<Vec<_>>();
        assert_eq!(held("00:2f:56"), [("WRITE", 9)]);
        assert_eq!(held("00:2f:5"), []);
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(lock_holder(file.path()), None);
        file.as_file().lock().unwrap();
        // A kernel that shows no locks says nothing.
        let holder = lock_holder(file.path());
        assert!(holder.is_none_or(|holder| holder.pid == std::process::id()));
    }

    #[test]
    fn an_exclusive_lock_is_that_of_its_process() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let other = File::open(file.path()).unwrap();
        let own = std::process::id();
        assert!(!has_locked(own, &other));
        file.as_file().lock_shared().unwrap();
        assert!(!has_locked(own, &other));
        file.as_file().lock().unwrap();
        if lock_holder(file.path()).is_some() {
            assert!(has_locked(own, &other));
        }
        assert!(!has_locked(own + 1, &other) && !has_locked(0, &other));
        let another = tempfile::tempfile().unwrap();
        assert!(!has_locked(own, &another));
    }

    #[test]
    fn a_missing_file_is_none() {
        assert_eq!(text("/proc/no such text"), None);
        assert!(memory().is_none_or(|bytes| bytes > 1 << 20));
    }
}
