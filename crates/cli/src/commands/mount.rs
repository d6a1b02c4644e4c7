//! `mount`: an image as a directory, without root.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use uext4::Filesystem;
use uext4_fuse::mount::{self, Error as MountError};
use uext4_fuse::session::{self, Ender, Session};
use uext4_fuse::{Server, Validity};
use uext4_ondisk::features::RoCompat;

use super::Output;
use crate::args::PlaceArgs;
use crate::attached;
use crate::background;
use crate::failure::{Exit, Failure};
use crate::listener::{Listener, Socket};
use crate::metrics::Metrics;
use crate::mount_options::MountOptions;
use crate::open;
use crate::sandbox::{self, Sandbox};
use crate::unmounter::Unmounter;

/// Show an image as a directory, to every program
///
/// Mounts with FUSE: root needs nothing else, others fusermount3 (package fuse3). Runs in the background
/// and is ready when the command returns. What was written is durable after fsync, `uext4 umount`, or
/// SIGTERM to the daemon; else within about half a minute. With `-o ro` not one byte of the image is
/// written: a journal that must be replayed is replayed in memory.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 mount disk.img ~/mnt
  uext4 mount -o ro,allow_other --partition 2 disk.img ~/mnt
  uext4 mount -o fakeroot rootfs.img ~/mnt
  uext4 umount ~/mnt

Options of every mount: ro, rw, [no]dev, [no]suid, [no]exec, noatime, relatime, strictatime, sync,
allow_other, and those of fstab (noauto, nofail, x-systemd.…).
Of ext4: sb=KIB, noload, commit=SECONDS, barrier, nobarrier, discard, stripe=N, max_dir_size_kb=N,
resuid=N, resgid=N, quota, noquota, journal_checksum; data=ordered, errors=remount-ro, delalloc,
user_xattr and acl are how it is anyway.
Of owners: fakeroot (you may do all, what you make is root's), uid=N, gid=N (everything is shown as
theirs), idmap=[u:|g:]INSIDE:OUTSIDE:COUNT (ids of the image and of this machine).
Ours: memory=SIZE, threads=N, nonempty, metrics=FILE, nosandbox, dirty_ratio=N and all others that
`--options` of the changing commands takes. Unknown ones are refused by name.

Exit codes are those of mount(8): 0 done; 1 the command line makes no sense, or no permission;
2 the system cannot; 4 a fault of this program; 8 interrupted; 32 not mounted.")]
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
    /// As mount(8) asks its helpers: everything but mounting.
    #[arg(long, hide = true)]
    fake: bool,
    #[command(flatten)]
    place: PlaceArgs,
    /// Where: an empty directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Mounts, and serves until it is unmounted.
pub fn run(args: &MountArgs, _: &mut Output) -> Result<Exit, Failure> {
    let mut options = MountOptions::parse(&args.options)?;
    if args.fake {
        return Ok(Exit::Success);
    }
    if !args.foreground && !args.in_background {
        return background::start();
    }
    let image = &args.place.image;
    let failed = |error| Failure::engine(image.display(), &error);
    let fs = opened(args, &mut options)?;
    let served = serve(args, &options, &fs);
    if served.is_err() && !options.read_only {
        // Nothing was done with it.
        fs.close().map_err(failed)?;
    }
    let (session, _socket) = served?;
    session.wait().map_err(failed)?;
    Ok(Exit::Success)
}

/// Opens the image; no thread of the engine runs yet.
fn opened(args: &MountArgs, options: &mut MountOptions) -> Result<Filesystem, Failure> {
    if !options.read_only {
        return open::open_still(&args.place, &options.engine);
    }
    let image = &args.place.image;
    let device = attached::loop_device(image).unwrap_or_else(|| image.display().to_string());
    if let Some((dir, true)) = attached::place_of(&device) {
        let what = format_args!("{}: the kernel has it mounted at {dir}", image.display());
        return Err(Failure::new(Exit::CouldNot, what).hint(format!(
            "what it writes would not be seen here: `umount {dir}` first, or use it there"
        )));
    }
    if let Some(kib) = options.superblock_kib {
        let (block, size) = open::backup_at(&args.place, kib)?;
        options.engine.superblock = Some(block);
        options.engine.block_size = Some(size);
    }
    open::open_to_read(&args.place, &options.engine)
}

fn serve(
    args: &MountArgs,
    options: &MountOptions,
    fs: &Filesystem,
) -> Result<(Session, Option<Socket>), Failure> {
    let image = &args.place.image;
    let failed = |error| Failure::engine(image.display(), &error);
    let system = |error| Failure::io("serving the mount", &error).with_exit(Exit::System);
    prepare(options, fs, image)?;
    let server = Server::new(fs.clone(), !options.read_only, Validity::default());
    let server = server.map_err(|_| {
        let what = format_args!("{}: the root directory cannot be read", image.display());
        Failure::new(Exit::Damaged, what).hint("`uext4 check IMAGE` lists all that is damaged")
    })?;
    let server = Arc::new(server.owned_by(options.owners.clone()));
    // Before anything is mounted: a signal that comes then must find somebody.
    let signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(system)?;
    let source = std::path::absolute(image).unwrap_or_else(|_| image.clone());
    let asked = mount::Options {
        source: source.to_string_lossy().into_owned(),
        flags: options.flags,
        allow_other: options.allow_other,
        kernel_decides: !options.owners.fakeroot,
        nonempty: options.nonempty,
    };
    let (fd, mounted) = mount::mount(&args.dir, &asked).map_err(|error| mount_failure(&error))?;
    let mut unmounter = match options.sandbox {
        true => Unmounter::beside(&mounted).unwrap_or(Unmounter::Own(mounted.clone())),
        false => Unmounter::Own(mounted.clone()),
    };
    let begin = || {
        let metrics = Metrics::new(&server, &source, mounted.dir(), !options.read_only);
        let threads = options.threads.unwrap_or_else(session::threads);
        let listener = Listener::bind(&mounted, options.metrics.as_deref(), &metrics)?;
        let confined = match &unmounter {
            Unmounter::Beside(_) => sandbox::confine(&listener.directories()),
            Unmounter::Own(_) => Sandbox::default(),
        };
        if !options.read_only {
            fs.start_background().map_err(failed)?;
        }
        let session = Session::begin(Arc::clone(&server), fd, threads).map_err(system)?;
        let socket = listener.serve(&metrics);
        Ok((session, metrics, confined, socket))
    };
    match begin() {
        Ok((session, metrics, confined, socket)) => {
            let is_beside = matches!(unmounter, Unmounter::Beside(_));
            end_at_signals(signals, unmounter, session.ender());
            let filter = || {
                if is_beside {
                    metrics.set_sandbox(sandbox::filter(confined));
                }
            };
            match args.in_background {
                true => background::ready(filter).map_err(system)?,
                false => filter(),
            }
            Ok((session, socket))
        }
        Err(failure) => {
            unmounter.end();
            Err(failure)
        }
    }
}

/// What the options ask of the file system before it is shown.
fn prepare(options: &MountOptions, fs: &Filesystem, image: &Path) -> Result<(), Failure> {
    let features = fs.geometry().features;
    if options.needs_log_checksums && !features.ro_compat.contains(RoCompat::METADATA_CSUM) {
        let what = format_args!("-o journal_checksum: {} has no checksums", image.display());
        return Err(Failure::new(Exit::Usage, what)
            .hint("`tune2fs -O metadata_csum IMAGE` gives it some, its log too"));
    }
    if options.read_only {
        return Ok(());
    }
    let noted = fs.note_access(options.access_times());
    noted.map_err(|error| Failure::engine(image.display(), &error))
}

/// Unmounts when a signal asks for the end. The thread is never waited for.
fn end_at_signals(mut signals: Signals, mut unmounter: Unmounter, ender: Ender) {
    thread::spawn(move || {
        for _ in signals.forever() {
            unmounter.end();
            ender.end();
        }
    });
}

/// What to do about what keeps us from mounting.
pub fn mount_failure(error: &MountError) -> Failure {
    let failure = Failure::new(exit_of(error), error);
    match error {
        MountError::Device(_) => {
            failure.hint("load the module with `modprobe fuse`; in a container, pass /dev/fuse in")
        }
        MountError::NoFusermount(_) => {
            failure.hint("install it (Debian: `apt install fuse3`), or run as root")
        }
        MountError::NotDirectory { .. } => failure.hint("say the image first, then a directory"),
        MountError::NotEmpty { dir } => match mount::source_of(dir) {
            Ok(Some(image)) => failure.hint(format!(
                "{} is mounted there: `uext4 umount {}` first, or choose another directory",
                image.display(),
                dir.display()
            )),
            _ => failure.hint("choose an empty directory; `-o nonempty` hides what is in it"),
        },
        MountError::Busy { .. } => {
            failure.hint("end who uses it (`fuser -vm DIR` lists them), and try again")
        }
        MountError::Place { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            failure.hint("make it first: `mkdir -p DIR`")
        }
        MountError::Fusermount { said } if said.contains("allow_other") => failure.hint(
            "root allows it with the line `user_allow_other` in /etc/fuse.conf; or leave it away",
        ),
        MountError::Fusermount { said } if said.contains("write access") => {
            failure.hint("mount at a directory that is yours")
        }
        MountError::NotMounted { .. }
        | MountError::Place { .. }
        | MountError::Fusermount { .. } => failure,
    }
}

fn exit_of(error: &MountError) -> Exit {
    match error {
        MountError::Device(_) | MountError::NoFusermount(_) => Exit::System,
        MountError::Place { source, .. }
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
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
