//! `umount`: ends a mount when all data are durable.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use uext4_fuse::mount;
use uext4_fuse::mountinfo::{self, Number, Shown};
use uext4_fuse::unmount_status::{Ended, Waiting};

use super::Output;
use super::mount::print_place;
use crate::failure::{Exit, Failure};
use crate::mount_failure::mount_failure;
use crate::open;
use crate::unmounter;

/// The longest wait for the daemon.
const PATIENCE: Duration = Duration::from_secs(300);
/// The hint for a missing program.
const NEXT: &str = "what was fsynced without an error is there; if it cannot be mounted again, \
     `uext4 repair IMAGE` comes first";
/// The longest wait for the readers of the image to end.
const PATIENCE_WITH_READERS: Duration = Duration::from_secs(2);

/// Unmount an image that `uext4 mount` mounted
///
/// Returns when all data are durable in the image and the image is no longer in use. If data
/// could not be written, the command reports it and ends with exit code 32.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 umount ~/mnt

umount(8) does the same where /sbin/umount.fuse.uext4 is a link to this program; without, it
returns while the daemon is still writing. Commands of uext4 that open the image meanwhile wait.

Exit codes are those of mount(8): 0 done; 1 the command line makes no sense, or no permission;
2 the system cannot; 32 not unmounted.")]
pub struct UmountArgs {
    /// Set by the command itself.
    #[expect(
        clippy::option_option,
        reason = "the flag, and its number where that is known"
    )]
    #[arg(
        long = "when-notified",
        hide = true,
        num_args = 0..=1,
        require_equals = true,
        value_name = "MAJOR:MINOR",
        value_parser = unmounter::number
    )]
    when_notified: Option<Option<Number>>,
    /// Detach the mount at once, even while it is in use: open files stay usable, and the daemon
    /// ends with the last user
    #[arg(short, long)]
    lazy: bool,
    /// Print the image and the directory as JSON when it is unmounted; print errors as JSON too
    #[arg(long)]
    json: bool,
    /// Directory where it is mounted
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Unmounts, and waits for the daemon.
pub fn run(args: &UmountArgs, _: &mut Output) -> Result<Exit, Failure> {
    if let Some(number) = args.when_notified {
        return unmounter::wait(&args.dir, number).map(|()| Exit::Success);
    }
    let shown = unmounted(args)?;
    if args.json {
        print_place(&shown.source, &args.dir);
    }
    Ok(Exit::Success)
}

/// Unmounts it, and returns what was mounted.
fn unmounted(args: &UmountArgs) -> Result<Shown, Failure> {
    let dir = std::path::absolute(&args.dir).unwrap_or_else(|_| args.dir.clone());
    let dir = std::fs::canonicalize(&dir).unwrap_or(dir);
    let table = |error| Failure::io("/proc/self/mountinfo", &error);
    let Some(shown) = mountinfo::at(&dir).map_err(table)? else {
        let error = mount::Error::NotMounted { dir };
        return Err(mount_failure(&error).hint("`findmnt -t fuse.uext4` lists what is"));
    };
    if args.lazy {
        let detached = mount::detach(&dir).map_err(|error| mount_failure(&error));
        return detached.map(|()| shown);
    }
    // Before: afterwards it may be gone.
    let waiting = Waiting::at(&shown);
    mount::unmount(&dir).map_err(|error| mount_failure(&error))?;
    let began = Instant::now();
    let ended = waiting.map_or(Ended::Silently, |waiting| waiting.wait(PATIENCE));
    match ended {
        Ended::Badly(wrong) => Err(lost(&shown, &wrong)),
        Ended::NotYet => Err(still_in_use(&shown)),
        // It has ended, so what keeps us from looking at the image is no matter.
        Ended::Well => {
            _ = wait_until_free(&shown, began);
            Ok(shown)
        }
        Ended::Silently => {
            wait_until_free(&shown, began)?;
            match open::was_left_clean(&shown.source) {
                _ if shown.is_read_only => Ok(shown),
                Some(true) => Ok(shown),
                Some(false) => {
                    let what = "its daemon had ended before: what was not fsynced may be missing";
                    let what = format_args!("{}: unmounted, but {what}", shown.source.display());
                    Err(Failure::new(Exit::CouldNot, what).hint(NEXT))
                }
                None => {
                    let what =
                        "unmounted, but the daemon did not report whether all data are in it";
                    let what = format_args!("{}: {what}", shown.source.display());
                    Err(Failure::new(Exit::CouldNot, what).hint("`uext4 check IMAGE` looks at it"))
                }
            }
        }
    }
}

fn lost(shown: &Shown, wrong: &str) -> Failure {
    let image = shown.source.display();
    let what = format_args!("{image}: unmounted, but not all that was written is in it: {wrong}");
    Failure::new(Exit::CouldNot, what).hint(NEXT)
}

fn still_in_use(shown: &Shown) -> Failure {
    let what = format_args!("{}: unmounted, but still in use", shown.source.display());
    Failure::new(Exit::CouldNot, what)
}

/// Waits until the daemon has released its lock on the image, which it holds until it ends. If the
/// image is only read, other readers may share the lock; this does not wait for them.
fn wait_until_free(shown: &Shown, began: Instant) -> Result<(), Failure> {
    let image: &Path = &shown.source;
    let file = File::open(image).map_err(|error| {
        let what = format_args!(
            "{}: unmounted, but whether it is still in use is not known: {error}",
            image.display()
        );
        Failure::new(Exit::CouldNot, what)
    })?;
    let mut pause = Duration::from_millis(1);
    loop {
        let locked = match shown.is_read_only {
            true => file.try_lock(),
            false => file.try_lock_shared(),
        };
        match locked {
            Err(TryLockError::WouldBlock) => {}
            // Where there are no locks, the daemon had none.
            Ok(()) | Err(TryLockError::Error(_)) => return Ok(()),
        }
        match began.elapsed() {
            waited if shown.is_read_only && waited > PATIENCE_WITH_READERS => return Ok(()),
            waited if waited > PATIENCE => return Err(still_in_use(shown)),
            _ => std::thread::sleep(pause),
        }
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}
