//! Waiting for a daemon that is ending.
//!
//! umount(8) and `fusermount3 -u` return when nothing is mounted any more; the daemon then writes
//! what is still in memory, and has the image for so long. A command that comes meanwhile waits for
//! it. Where the image is mounted, or another command has it, that is an error at once.

use std::io::{ErrorKind, IsTerminal};
use std::path::Path;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use uext4_blockdev::{Access, Error, FileDevice};
use uext4_fuse::unmount_status::{Ended, Holder, Waiting};

use crate::messages;

/// How long a daemon is waited for.
const PATIENCE: Duration = Duration::from_secs(300);
/// A wait this short is not reported.
const SILENCE: Duration = Duration::from_millis(300);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);
/// The same at an image that another program has.
const PAUSE_FOR_OTHERS: Duration = Duration::from_millis(30);
/// Looks at an image that no daemon answers for: one that has just ended may have it for a moment
/// yet.
const LOOKS: u32 = 20;
/// The same where a daemon said that it was ending, or its process ends.
const LOOKS_AFTER_END: u32 = 500;

/// How long commands wait for an image that another program has, in seconds.
static WAIT: AtomicU32 = AtomicU32::new(0);

/// Waits for images that other programs have, too, at most so many seconds each.
pub fn wait_for_others(seconds: u32) {
    WAIT.store(seconds, Relaxed);
}

/// Opens an image with `open`; while a daemon has it whose mount is gone, waits for the end of that
/// one.
///
/// # Errors
/// Those of `open`.
pub fn after_ending<T>(
    image: &Path,
    mut open: impl FnMut() -> Result<T, Error>,
) -> Result<T, Error> {
    let began = Instant::now();
    let mut looks = LOOKS;
    let mut was_ended = false;
    loop {
        let error = match open() {
            Err(error) if is_in_use(&error) => error,
            opened => return opened,
        };
        match Holder::of(image) {
            Holder::Ending(daemon) if began.elapsed() < PATIENCE => {
                wait(image, daemon);
                looks = LOOKS_AFTER_END;
            }
            Holder::Ended if !was_ended => {
                (was_ended, looks) = (true, LOOKS_AFTER_END);
            }
            Holder::Ended | Holder::Unknown if looks > 0 => {
                looks -= 1;
                thread::sleep(PAUSE);
            }
            // Not for a mount: it may stay for good.
            Holder::Unknown if began.elapsed() < Duration::from_secs(WAIT.load(Relaxed).into()) => {
                thread::sleep(PAUSE_FOR_OTHERS);
            }
            _ => return Err(error),
        }
    }
}

/// Waits for the daemon of an image that is ending, if there is one: for what locks the image later
/// and reports errors itself.
pub fn wait_for_ending(image: &Path) {
    _ = after_ending(image, || FileDevice::open(image, Access::ReadOnly)?.lock());
}

fn is_in_use(error: &Error) -> bool {
    match error {
        Error::Locked { .. } => true,
        // A block device.
        Error::Open { source, .. } => source.kind() == ErrorKind::ResourceBusy,
        _ => false,
    }
}

/// Waits for a daemon, and says so on a terminal where that takes a while.
fn wait(image: &Path, mut daemon: Waiting) {
    let image = image.display();
    let mut ended = daemon.wait_on(SILENCE);
    if ended == Ended::NotYet {
        if std::io::stderr().is_terminal() {
            messages::warning(format_args!(
                "{image}: was just unmounted; waiting until its daemon has written everything"
            ));
        }
        ended = daemon.wait(PATIENCE);
    }
    // umount(8) did not ask.
    if let Ended::Badly(wrong) = ended {
        messages::warning(format_args!(
            "{image}: its last mount did not write all that was written there: {wrong}"
        ));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    use uext4_fuse::addresses::{self, Kind};
    use uext4_fuse::mountinfo::Number;

    use super::*;

    /// An image that is locked, and one who listens as its daemon does.
    fn held() -> (tempfile::NamedTempFile, FileDevice, UnixListener) {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(4096).unwrap();
        let held = FileDevice::open(image.path(), Access::ReadWrite).unwrap();
        held.lock().unwrap();
        // No major number is as large.
        let (major, minor) = (u32::MAX, 1);
        let found = fs::metadata(image.path()).unwrap();
        let address = addresses::new(Kind::Mount, Number { major, minor }, Some(&found)).unwrap();
        let address = SocketAddr::from_abstract_name(&address).unwrap();
        (image, held, UnixListener::bind_addr(&address).unwrap())
    }

    fn locked(image: &Path) -> Result<(), Error> {
        after_ending(image, || FileDevice::open(image, Access::ReadWrite)?.lock())
    }

    #[test]
    fn one_that_ends_all_connections_and_stays_is_waited_for_no_longer_than_an_end_takes() {
        let (image, _held, listener) = held();
        thread::spawn(move || listener.incoming().for_each(drop));
        let error = locked(image.path()).unwrap_err();
        assert!(is_in_use(&error), "{error}");
    }

    #[test]
    fn a_daemon_whose_process_ends_is_waited_for() {
        let (image, held, listener) = held();
        let ending = thread::spawn(move || {
            // It has no thread that answers any more, and its files are closed one by one.
            for _ in 0..LOOKS * 2 {
                drop(listener.accept().unwrap());
            }
            drop(listener);
            thread::sleep(PAUSE * LOOKS * 2);
            drop(held);
        });
        locked(image.path()).unwrap();
        ending.join().unwrap();
    }
}
