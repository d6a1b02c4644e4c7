//! `mount`: an image as a directory, without root.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use clap::Args;
use rustix::mount::MountFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use uext4::Filesystem;
use uext4_fuse::mount::{self, Error as MountError, Mounted};
use uext4_fuse::parting::Parting;
use uext4_fuse::report::report;
use uext4_fuse::session::{self, Ender, How, Session};
use uext4_fuse::{Server, Validity};

use super::Output;
use crate::args::PlaceArgs;
use crate::background;
use crate::failure::{Exit, Failure};
use crate::mount_options::MountOptions;
use crate::open;

/// Show an image as a directory, to every program
///
/// Mounts with FUSE: root needs nothing else, others fusermount3 (package fuse3). Runs in the background
/// and is ready when the command returns. What was written is durable after fsync, `uext4 umount`, or
/// SIGTERM to the daemon; else within about half a minute. With `-o ro` not one byte of the image is
/// written.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 mount disk.img ~/mnt
  uext4 mount -o ro,allow_other --partition 2 disk.img ~/mnt
  uext4 umount ~/mnt

Options: ro, rw, noatime, nodev, nosuid, noexec, sync, dirsync, allow_other, noload, memory=SIZE,
threads=N, transport=auto|dev|io_uring, discard, stripe=N, dirty_ratio=N and all others that `--options` of the changing commands
takes; unknown ones are refused.")]
pub struct MountArgs {
    /// Options, separated by commas
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Stay in the foreground until it is unmounted
    #[arg(short, long)]
    foreground: bool,
    /// Set by the command itself.
    #[arg(long = "in-background", hide = true)]
    in_background: bool,
    #[command(flatten)]
    place: PlaceArgs,
    /// Where: a directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// A file system that is mounted and served.
struct Serving {
    session: Session,
    mounted: Mounted,
    /// `None` where nobody can wait for its end but by the lock on the image.
    parting: Option<Parting>,
}

/// Mounts, and serves until it is unmounted.
pub fn run(args: &MountArgs, _: &mut Output) -> Result<Exit, Failure> {
    let options = MountOptions::parse(&args.options)?;
    options.transport.check().map_err(no_rings)?;
    if !args.foreground && !args.in_background {
        return background::start();
    }
    let image = &args.place.image;
    let failed = |error| Failure::engine(image.display(), &error);
    let fs = match options.read_only {
        true => {
            open::must_stay_as_it_is(image)?;
            open::open_to_read(&args.place, &options.engine)?
        }
        false => open::open_to_write(&args.place, &options.engine)?,
    };
    let served = serve(args, &options, &fs);
    if served.is_err() && !options.read_only {
        // Nothing was done with it.
        fs.close().map_err(failed)?;
    }
    let serving = served?;
    let ready = match args.in_background {
        true => background::ready(),
        false => Ok(()),
    };
    if ready.is_err() {
        // Who started it is gone: nobody knows that anything is mounted.
        _ = serving.mounted.end();
        serving.session.ender().end();
    }
    let ended = serving.session.wait();
    drop(fs);
    let wrong = ended.as_ref().err().map(ToString::to_string);
    if let Some(parting) = &serving.parting {
        parting.say(wrong.as_deref());
    }
    if args.in_background
        && let Some(wrong) = &wrong
    {
        report(&format!("{}: {wrong}", image.display()));
    }
    ended.map_err(failed)?;
    ready.map_err(|error| Failure::io("telling that it is mounted", &error))?;
    Ok(Exit::Success)
}

fn serve(args: &MountArgs, options: &MountOptions, fs: &Filesystem) -> Result<Serving, Failure> {
    let image = &args.place.image;
    if !options.read_only {
        let notes = !options.flags.contains(MountFlags::NOATIME);
        let noted = fs.note_access(notes);
        noted.map_err(|error| Failure::engine(image.display(), &error))?;
    }
    let server = Server::new(fs.clone(), !options.read_only, Validity::default());
    let server = server.map_err(|_| {
        let what = format_args!("{}: the root directory cannot be read", image.display());
        Failure::new(Exit::Damaged, what).hint("`uext4 check IMAGE` lists all that is damaged")
    })?;
    let server = server.with_durability(options.durability());
    // Before anything is mounted: a signal that comes then must find somebody.
    let signals = Signals::new([SIGHUP, SIGINT, SIGTERM]);
    let signals = signals.map_err(|error| Failure::io("signals", &error))?;
    let (fd, mounted) = mount::mount(
        &args.dir,
        &mount::Options {
            source: std::path::absolute(image).unwrap_or_else(|_| image.clone()),
            flags: options.flags,
            allow_other: options.allow_other,
        },
    )
    .map_err(|error| mount_failure(&error))?;
    let parting = mounted
        .number()
        .and_then(|number| Parting::listen(number).ok());
    let how = How {
        threads: options.threads.unwrap_or_else(session::threads),
        transport: options.transport,
    };
    let begun = Session::begin(Arc::new(server), fd, how);
    let session = begun.map_err(|error| {
        _ = mounted.end();
        Failure::io(args.dir.display(), &error)
    })?;
    end_at_signals(signals, mounted.clone(), session.ender());
    Ok(Serving {
        session,
        mounted,
        parting,
    })
}

fn no_rings(what: &str) -> Failure {
    Failure::new(Exit::CouldNot, format_args!("-o transport=io_uring: {what}")).hint(
        "as root, write Y to /sys/module/fuse/parameters/enable_uring (Linux 6.14 or newer), or leave \
         the option out",
    )
}

/// Unmounts when a signal asks for the end. The thread is never waited for.
fn end_at_signals(mut signals: Signals, mounted: Mounted, ender: Ender) {
    thread::spawn(move || {
        for _ in signals.forever() {
            // By now others may be mounted where it was.
            if !ender.has_ended() {
                // Whoever still uses it gets errors from now on.
                _ = mounted.end();
                ender.end();
            }
        }
    });
}

/// What to do about what keeps us from mounting.
pub fn mount_failure(error: &MountError) -> Failure {
    let failure = Failure::new(Exit::CouldNot, error);
    match error {
        MountError::Device(_) => {
            failure.hint("load the module with `modprobe fuse`; in a container, pass /dev/fuse in")
        }
        MountError::NoFusermount(_) => {
            failure.hint("install it (Debian: `apt install fuse3`), or run as root")
        }
        MountError::NotDirectory { .. } => failure.hint("say the image first, then a directory"),
        MountError::Busy { .. } => {
            failure.hint("end who uses it (`fuser -vm DIR` lists them), and try again")
        }
        MountError::NotMounted { .. }
        | MountError::Place { .. }
        | MountError::Fusermount { .. } => failure,
    }
}
