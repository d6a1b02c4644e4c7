//! What a signal to end leads to: the unmounting, by a process of its own that a daemon in its
//! sandbox keeps for that.
//!
//! ```text
//! daemon  ──────────▶  uext4 umount --when-notified=0:57 DIR     unmounts, or runs fusermount3
//!         ◀── one byte: no signal ends it any more           reads no image
//!         ──"end"───▶
//!         ◀── it ends; its exit code is that of the unmounting
//! ```
//! Signals that end a daemon often go to all processes that belong to it. This one outlives them,
//! because the daemon, which gets the same signal, needs it then. If the daemon ends in another
//! way, this process reads the end of the pipe, does nothing, and ends as well.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use uext4_fuse::mount::{Error, Mounted};
use uext4_fuse::mountinfo::Number;
use uext4_fuse::report::report;
use uext4_fuse::session::Ender;
use uext4_remote::changes::Observer;

use crate::failure::Failure;
use crate::mount_failure::mount_failure;

/// The flag that makes `umount` wait, with the number of the mount if it is known.
pub const FLAG: &str = "--when-notified";
/// What it waits for.
const END: &[u8] = b"end";
/// What it says when signals do not end it any more.
const HELD: u8 = b'.';

/// What ends a mount.
#[derive(Debug)]
pub struct Unmounter {
    mounted: Mounted,
    /// The helper process, if there is one.
    helper: Option<Child>,
}

impl Unmounter {
    /// This process.
    pub fn own(mounted: Mounted) -> Self {
        Self {
            mounted,
            helper: None,
        }
    }

    /// The helper process.
    ///
    /// # Errors
    /// Those of starting it; `UnexpectedEof` if it ended at once.
    pub fn start(mounted: Mounted) -> io::Result<Self> {
        let flag = match mounted.number() {
            Some(Number { major, minor }) => format!("{FLAG}={major}:{minor}"),
            None => FLAG.to_owned(),
        };
        let child = Command::new(std::env::current_exe()?)
            .args(["umount", &flag, "--"])
            .arg(mounted.dir())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // A signal from the terminal is not for it.
            .process_group(0)
            .spawn()?;
        wait_until_held(child).map(|child| Self {
            mounted,
            helper: Some(child),
        })
    }

    /// Whether another process does it, so that this one need not be able to.
    pub fn is_running(&self) -> bool {
        self.helper.is_some()
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        self.mounted.dir()
    }

    /// Unmounts. A thread that still uses it gets errors from now on. Reports whether it is gone.
    pub fn end(&mut self) -> bool {
        let Some(child) = &mut self.helper else {
            return end(&self.mounted).is_ok();
        };
        // Reported once; its answer stays.
        let notified = child.stdin.take().map(|mut stdin| stdin.write_all(END));
        let ended = child.wait().is_ok_and(|status| status.success());
        ended && notified.is_none_or(|sent| sent.is_ok())
    }
}

/// Waits until signals do not end it any more.
fn wait_until_held(mut child: Child) -> io::Result<Child> {
    let mut said = [0];
    let read = match &mut child.stdout {
        Some(stdout) => stdout.read_exact(&mut said),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    };
    if let Err(error) = read {
        // It has ended, or is of no use.
        _ = child.kill();
        _ = child.wait();
        return Err(error);
    }
    Ok(child)
}

/// Unmounts what is there. That it was there no more is what was wanted.
fn end(mounted: &Mounted) -> Result<(), Error> {
    match mounted.end() {
        Err(Error::NotMounted { .. }) => Ok(()),
        ended => ended,
    }
}

/// The number of a mount, as [`FLAG`] has it.
///
/// # Errors
/// The reason why there is none.
pub fn number(text: &str) -> Result<Number, String> {
    let number = text.split_once(':').and_then(|(major, minor)| {
        Some(Number {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    });
    number.ok_or_else(|| "not MAJOR:MINOR".to_owned())
}

/// Waits for the word, and unmounts.
///
/// # Errors
/// It is still mounted; those of holding signals, and of notifying the parent.
pub fn wait(dir: &Path, number: Option<Number>) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::io("waiting for the end", &error);
    // Ignored, so that none of them ends this process.
    let _signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(failed)?;
    let mut stdout = io::stdout();
    stdout.write_all(&[HELD]).map_err(failed)?;
    stdout.flush().map_err(failed)?;
    let mut received = Vec::new();
    let read = io::stdin()
        .take(END.len() as u64 + 1)
        .read_to_end(&mut received);
    if read.is_err() || received != END {
        return Ok(());
    }
    let ended = end(&Mounted::known(dir, number));
    ended.map_err(|error| mount_failure(&error))
}

/// Unmounts. A failure is printed, because no caller is left to return it to.
pub fn unmount(unmounter: &Mutex<Unmounter>) {
    let mut unmounter = unmounter.lock().unwrap_or_else(PoisonError::into_inner);
    if !unmounter.end() {
        report(&format!(
            "{0}: still mounted: `umount -l {0}` takes it away",
            unmounter.dir().display()
        ));
    }
}

/// How long the kernel may take to write what it holds when a signal asks for the end.
const WRITE_BACK_MAX: Duration = Duration::from_secs(30);

/// Unmounts when a signal asks for the end, by threads of its own, which are never waited for.
///
/// Before that, `kernel` has the kernel write what it holds: where files are open, the connection
/// is cut, and syncfs does not wait for a mount of FUSE. That takes half a minute at most, as a
/// disk may stall and a program may write faster; a second signal does not wait for it.
pub fn end_at_signals(
    mut signals: Signals,
    unmounter: Arc<Mutex<Unmounter>>,
    ender: Ender,
    mut kernel: Option<Arc<dyn Observer>>,
) {
    let ending = Mutex::new(ender);
    let end = Arc::new(move || {
        let ender = ending.lock().unwrap_or_else(PoisonError::into_inner);
        // By now others may be mounted where it was.
        if !ender.has_ended() {
            unmount(&unmounter);
            ender.end();
        }
    });
    thread::spawn(move || {
        for _ in signals.forever() {
            let Some(kernel) = kernel.take() else {
                end();
                continue;
            };
            let (done, is_done) = mpsc::channel();
            let later = Arc::clone(&end);
            let asks = move || {
                kernel.write_back();
                // After that time nobody waits for it any more.
                _ = done.send(());
            };
            let waits = move || {
                // Without a thread it is dropped, and so is the sender.
                _ = thread::Builder::new().spawn(asks);
                _ = is_done.recv_timeout(WRITE_BACK_MAX);
                later();
            };
            if thread::Builder::new().spawn(waits).is_err() {
                end();
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_mounts() {
        let found = number("0:57");
        assert_eq!(
            found,
            Ok(Number {
                major: 0,
                minor: 57
            })
        );
        for text in ["", ":", "0", "0:", "0:57:1", "-1:2", "0:4294967296"] {
            assert!(number(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_helper_that_ends_at_once_is_not_used() {
        let child = Command::new("true")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        assert!(wait_until_held(child.unwrap()).is_err());
    }

    #[test]
    fn one_that_fails_or_died_has_not_unmounted() {
        for (script, is_gone) in [
            ("cat", true),
            ("cat; exit 32", false),
            ("kill -KILL $$", false),
        ] {
            let child = Command::new("sh")
                .args(["-c", &format!("printf .; {script}")])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn();
            let child = wait_until_held(child.unwrap()).unwrap();
            let mut unmounter = Unmounter {
                mounted: Mounted::known(Path::new("/nowhere"), None),
                helper: Some(child),
            };
            assert_eq!(unmounter.end(), is_gone, "{script}");
            assert_eq!(unmounter.dir(), Path::new("/nowhere"));
        }
    }
}
