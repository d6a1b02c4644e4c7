//! `umount`: the end of a mount, when all is durable.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use uext4_fuse::mount;

use super::Output;
use super::mount::mount_failure;
use crate::failure::{Exit, Failure};
use crate::unmounter;

/// How long the daemon is waited for.
const PATIENCE: Duration = Duration::from_secs(300);

/// Unmount what `uext4 mount` mounted
///
/// Returns when everything is durable in the image and the image is no longer in use.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 umount ~/mnt

Exit codes are those of mount(8): 0 done; 1 the command line makes no sense, or no permission;
2 the system cannot; 32 not unmounted.")]
pub struct UmountArgs {
    /// Set by the command itself.
    #[arg(long = "when-told", hide = true)]
    when_told: bool,
    /// Where it is mounted
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Unmounts, and waits for the daemon.
pub fn run(args: &UmountArgs, _: &mut Output) -> Result<Exit, Failure> {
    if args.when_told {
        unmounter::wait(&args.dir);
        return Ok(Exit::Success);
    }
    let dir = std::path::absolute(&args.dir).unwrap_or_else(|_| args.dir.clone());
    let dir = std::fs::canonicalize(&dir).unwrap_or(dir);
    let table = |error| Failure::io("/proc/self/mounts", &error);
    let Some(image) = mount::source_of(&dir).map_err(table)? else {
        let error = mount::Error::NotMounted { dir };
        return Err(mount_failure(&error).hint("`findmnt -t fuse.uext4` lists what is"));
    };
    mount::unmount(&dir).map_err(|error| mount_failure(&error))?;
    wait_until_free(&image)
}

/// Waits until the daemon has let go of the image: it holds a lock on it to its end.
fn wait_until_free(image: &Path) -> Result<Exit, Failure> {
    let Ok(file) = std::fs::File::open(image) else {
        // It was moved or is not ours to read: there is nothing to wait for.
        return Ok(Exit::Success);
    };
    let began = Instant::now();
    let mut pause = Duration::from_millis(1);
    while file.try_lock_shared().is_err() {
        if began.elapsed() > PATIENCE {
            let what = format_args!("{}: still in use", image.display());
            return Err(Failure::new(Exit::CouldNot, what));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
    Ok(Exit::Success)
}
