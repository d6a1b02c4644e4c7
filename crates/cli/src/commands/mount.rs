//! `mount`: shows an image as a directory, without root.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use clap::builder::ArgPredicate;
use clap::{Arg, Args};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use uext4::tuning::{Background, Policies};
use uext4_blockdev::{attached, host};
use uext4_fuse::addresses;
use uext4_fuse::errno::Errno;
use uext4_fuse::mount::{self, Mounted};
use uext4_fuse::omitted::{Omitted, XattrSearch, find_xattr};
use uext4_fuse::readahead::Readahead;
use uext4_fuse::report::report;
use uext4_fuse::session::{self, How, PAYLOADS_MAX, Session};
use uext4_fuse::unmount_status::UnmountStatus;
use uext4_fuse::writeback_cache::{self, WritebackCache};
use uext4_fuse::{Placement, Served, Server, Validity};
use uext4_ondisk::features::RoCompat;
use uext4_remote::changes::Observer;
use uext4_remote::server::Server as Operations;
use uext4_remote::snapshot::Disk;

use super::{Output, bytes, mount_help};
use crate::args::PlaceArgs;
use crate::background;
use crate::failure::{Exit, Failure};
use crate::file_limit;
use crate::folded;
use crate::grower::Resize;
use crate::json::Json;
use crate::listener::{Listener, Socket};
use crate::memory;
use crate::messages;
use crate::metrics::Metrics;
use crate::mount_failure::mount_failure;
use crate::mount_options::{self, MountOptions, Xattrs, default_options};
use crate::mounted;
use crate::open;
use crate::part;
use crate::sandbox::{self, Needed, Sandbox};
use crate::trace;
use crate::unmounter::{Unmounter, end_at_signals, unmount};

/// The share of the memory that requests get: half of it for their contents, half for the data of
/// writers that wait.
const WAITING_SHARE: u64 = 8;

/// Inodes that are examined for extended attributes: 256 MiB of inode tables at most.
const EXAMINED_MAX: u32 = 1 << 20;

/// Show an image as a directory, to every program
///
/// Mounts with FUSE: users other than root need fusermount3 (package fuse3); `uext4 doctor` checks
/// that. The daemon runs in the background; the mount is ready when the command returns. Data are
/// durable after fsync, `uext4 umount`, or SIGTERM to the daemon, and otherwise within about half a
/// minute. With `-o ro` not one byte of the image is written: a journal is replayed in memory.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 mount disk.img ~/mnt
  uext4 mount -o ro,allow_other --partition 2 disk.img ~/mnt
  uext4 mount -o fakeroot rootfs.img ~/mnt
  uext4 umount ~/mnt

Options: `uext4 mount --help-options` lists all with their ranges and defaults: those of every mount
(ro, noatime, sync, allow_other, …), of ext4 (commit=SECONDS, errors=, stripe=N, discard, …), of owners
(fakeroot, uid=N, idmap=…), of this program (memory=SIZE, transport=, …) and the kernel's tunables of
writeback (dirty_ratio=N, …). An option whose effect is impossible here is refused with the reason.
Set-id bits and devices count only with suid and dev, which only root can give. After remount,ro, by
root, everything is durable.

Exit codes are those of mount(8): 0 done; 1 the command line makes no sense, or no permission;
2 the system cannot; 4 a fault of this program; 8 interrupted; 32 not mounted.")]
#[command(
    override_usage = "uext4 mount [OPTIONS] <IMAGE> <DIR>\n       uext4 mount --help-options [--json]",
    mut_arg("image", |arg| unless_help(arg)),
    mut_arg("dir", |arg| unless_help(arg))
)]
pub struct MountArgs {
    /// Options, separated by commas
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Stay in the foreground until it is unmounted
    #[arg(short, long)]
    foreground: bool,
    /// With -f, print trace events of the engine to standard error; see `uext4 help image`
    #[arg(
        long,
        value_name = "EVENT,…",
        value_delimiter = ',',
        requires = "foreground"
    )]
    trace: Vec<String>,
    /// Print the image and the directory as JSON when it is mounted; print errors as JSON too
    #[arg(long)]
    json: bool,
    /// List all options of -o, with their ranges and defaults; with --json as JSON
    #[arg(long)]
    help_options: bool,
    /// Set by the command itself.
    #[arg(long = "in-background", hide = true)]
    in_background: bool,
    /// As mount(8) asks of its helpers: do everything except mounting.
    #[arg(long, hide = true)]
    fake: bool,
    /// Designs of subsystems; only a program that calls [`crate::mount`] has others.
    #[arg(skip)]
    policies: Policies,
    #[command(flatten)]
    place: PlaceArgs,
    /// Directory to mount it at
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

impl MountArgs {
    /// A mount in the foreground with designs of subsystems, in this process alone.
    pub fn with_policies(
        image: PathBuf,
        dir: PathBuf,
        mut options: Vec<String>,
        trace: Vec<String>,
        policies: Policies,
    ) -> Self {
        // The sandbox needs a second process, of the program `uext4`.
        options.push("nosandbox".to_owned());
        Self {
            options,
            trace,
            foreground: true,
            json: false,
            help_options: false,
            in_background: false,
            fake: false,
            policies,
            place: PlaceArgs::of(image),
            dir,
        }
    }
}

/// An argument that `--help-options` does without.
fn unless_help(arg: Arg) -> Arg {
    const HELP: &str = "help_options";
    let arg = arg.required(false).required_unless_present(HELP);
    arg.default_value_if(HELP, ArgPredicate::Equals("true".into()), "-")
}

/// A file system that is mounted and served.
struct Serving {
    session: Session,
    /// `None` if waiters can only watch the lock on the image.
    unmount_status: Option<UnmountStatus>,
    /// The socket of its statistics, until it ends.
    _socket: Option<Socket>,
    /// Whether the process that started it has been notified.
    ready: Result<(), Failure>,
}

/// An open image.
struct Opened {
    fs: Served,
    /// What commands read snapshots of, if it is written.
    disk: Option<Arc<Disk>>,
    /// The image, if its length can be set.
    resizable: Option<RawFd>,
}

/// A file system that is mounted, before it is served.
struct Mount<'a> {
    server: Arc<Server>,
    /// The source of its requests.
    fd: OwnedFd,
    mounted: &'a Mounted,
    /// The absolute path of the image.
    image: &'a Path,
    /// The image, as commands on it know it.
    has: String,
    /// What they read snapshots of.
    disk: Option<Arc<Disk>>,
}

/// Its server and its sandbox.
struct Begun {
    session: Session,
    unmount_status: Option<UnmountStatus>,
    confined: Sandbox,
    socket: Option<Socket>,
    /// The kernel, which can be asked to write; none of a mount for reading.
    kernel: Option<Arc<dyn Observer>>,
}

/// Mounts, and serves until it is unmounted.
pub fn run(args: &MountArgs, out: &mut Output) -> Result<Exit, Failure> {
    if args.help_options {
        match args.json {
            true => out.write_all(mount_help::json().as_bytes())?,
            false => {
                let columns = folded::columns(&io::stdout()).unwrap_or(mount_help::WIDTH);
                mount_help::print(out, columns.min(mount_help::WIDTH))?;
            }
        }
        return Ok(Exit::Success);
    }
    let mut options = mount_options::parse(&args.options)?;
    options.engine.policies = args.policies.clone();
    options.transport.check().map_err(no_rings)?;
    if args.fake {
        return Ok(Exit::Success);
    }
    announce(args, &options)?;
    if options.remount {
        let exit = super::remount::run(&args.place.image, &args.dir, &options)?;
        print_mounted(args);
        return Ok(exit);
    }
    if !args.foreground && !args.in_background {
        let exit = background::start()?;
        if exit == Exit::Success {
            print_mounted(args);
        }
        return Ok(exit);
    }
    trace::start(&args.trace);
    file_limit::is_an_error();
    let image = &args.place.image;
    let failed = |error| Failure::engine(image.display(), &error);
    let opened = open_image(args, &mut options)?;
    let served = serve(args, &options, &opened);
    if let (Err(_), Some(volume)) = (&served, opened.fs.volume()) {
        // Nothing was done with it.
        volume.close().map_err(failed)?;
    }
    let serving = served?;
    // In the background, the command that started it says so.
    if !args.in_background {
        print_mounted(args);
    }
    let ended = serving.session.wait();
    // Before another may write to the image.
    if let Some(disk) = &opened.disk {
        disk.origin.end_all();
    }
    drop(opened);
    let wrong = ended.as_ref().err().map(ToString::to_string);
    if let Some(unmount_status) = &serving.unmount_status {
        unmount_status.say(wrong.as_deref());
    }
    if args.in_background
        && let Some(wrong) = &wrong
    {
        report(&format!("{}: {wrong}", image.display()));
    }
    ended.map_err(failed)?;
    serving.ready.map(|()| Exit::Success)
}

/// Makes the directory to mount at, if it is missing and is to be made, and says which options have
/// no effect: once, by the process that mounts.
fn announce(args: &MountArgs, options: &MountOptions) -> Result<(), Failure> {
    if let Some(mode) = options.make_directory.filter(|_| !args.dir.is_dir()) {
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(&args.dir);
        made.map_err(|error| Failure::io(args.dir.display(), &error))?;
    }
    if args.foreground || args.in_background || options.remount {
        for note in &options.notes {
            messages::warning(note);
        }
    }
    Ok(())
}

/// With `--json`, says that it is mounted.
fn print_mounted(args: &MountArgs) {
    if args.json {
        print_place(&args.place.image, &args.dir);
    }
}

/// Prints an image and the directory where it is, or was, mounted, as JSON. If that fails, it
/// prints a warning and changes no exit code: the mount is not affected.
pub fn print_place(image: &Path, dir: &Path) {
    let [image, dir] =
        [image, dir].map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    let mut json = Json::new();
    json.open_object();
    json.key("image").text(bytes(image.as_os_str()));
    json.key("dir").text(bytes(dir.as_os_str()));
    json.close_object();
    json.end_line();
    // Not through what would try it again at the end.
    let mut out = io::stdout();
    let printed = out.write_all(json.as_bytes()).and_then(|()| out.flush());
    if let Err(error) = printed {
        messages::warning(format_args!("standard output: {error}"));
    }
}

/// Opens the image; no thread of the engine runs yet.
fn open_image(args: &MountArgs, options: &mut MountOptions) -> Result<Opened, Failure> {
    options.engine.memory = options.engine.memory.or(memory::given());
    options.payloads = usize::try_from(host::share_of_memory(
        2 * WAITING_SHARE,
        PAYLOADS_MAX as u64,
    ))
    .unwrap_or(PAYLOADS_MAX);
    if let Some(memory) = &mut options.engine.memory {
        let waiting = *memory / WAITING_SHARE;
        *memory -= waiting;
        let half = usize::try_from(waiting / 2);
        options.payloads = half.map_or(PAYLOADS_MAX, |half| half.min(PAYLOADS_MAX));
    }
    if !options.read_only && !args.place.drop_verity {
        // As mount(8) does with a device that is write-protected.
        if let Some(why) = part::protection(&args.place) {
            let image = args.place.image.display();
            messages::warning(format_args!("{image}: {why}: mounted read-only"));
            options.read_only = true;
        }
    }
    if !options.read_only {
        options.engine.background = Background::None;
        let opened = open::open_to_serve(&args.place, &options.engine)?;
        return Ok(Opened {
            fs: Served::from(opened.fs),
            disk: opened.disk.map(Arc::new),
            resizable: opened.resizable,
        });
    }
    let image = &args.place.image;
    let device = attached::loop_device(image).unwrap_or_else(|| image.display().to_string());
    if let Some((dir, true)) = attached::place_of(&device) {
        let what = format_args!("{}: the kernel has it mounted at {dir}", image.display());
        return Err(Failure::new(Exit::CouldNot, what).hint(format!(
            "what it writes would not be seen here: `umount {dir}` first, or use it there"
        )));
    }
    open::must_stay_as_it_is(image)?;
    if let Some(kib) = options.superblock_kib {
        let (block, size) = open::backup_at(&args.place, kib)?;
        options.engine.superblock = Some(block);
        options.engine.block_size = Some(size);
    }
    let fs = open::open_to_read(&args.place, &options.engine)?;
    Ok(Opened {
        fs: Served::from(fs),
        disk: None,
        resizable: None,
    })
}

fn system(error: io::Error) -> Failure {
    Failure::io("serving the mount", &error).with_exit(Exit::System)
}

fn serve(args: &MountArgs, options: &MountOptions, opened: &Opened) -> Result<Serving, Failure> {
    let (image, fs) = (&args.place.image, &opened.fs);
    let server = server_of(options, fs, image)?;
    // Without it no command takes the mount for one of the image.
    let found = fs::metadata(image);
    let has = found.map_or(String::new(), |found| {
        mounted::identity(&found, &args.place)
    });
    // Before anything is mounted: a signal that arrives then must have a handler.
    let signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(system)?;
    let source = std::path::absolute(image).unwrap_or_else(|_| image.clone());
    let asked = mount::Options {
        source: source.clone(),
        flags: options.flags,
        allow_other: options.allow_other,
        kernel_decides: !options.owners.fakeroot,
        nonempty: options.nonempty,
    };
    let (fd, mounted) = mount::mount(&args.dir, &asked).map_err(|error| mount_failure(&error))?;
    let unmounter = match options.sandbox {
        true => Unmounter::start(mounted.clone()).unwrap_or_else(|error| {
            report(&format!(
                "{}: mounted without a sandbox: its helper process does not run: {error}",
                mounted.dir().display()
            ));
            Unmounter::own(mounted.clone())
        }),
        false => Unmounter::own(mounted.clone()),
    };
    let is_confined = unmounter.is_running();
    let unmounter = Arc::new(Mutex::new(unmounter));
    let metrics = Metrics::new(&server, &source, mounted.dir());
    let mount = Mount {
        server,
        fd,
        mounted: &mounted,
        image: &source,
        has,
        disk: opened.disk.clone(),
    };
    let begun = begin(options, fs, mount, &metrics, is_confined);
    let begun = begun.inspect_err(|_| unmount(&unmounter))?;
    let ender = begun.session.ender();
    end_at_signals(signals, Arc::clone(&unmounter), ender, begun.kernel);
    let filter = || {
        if is_confined {
            metrics.set_sandbox(sandbox::filter(begun.confined, opened.resizable));
        }
    };
    let ready = match args.in_background {
        true => background::ready(filter).map_err(system),
        false => {
            filter();
            Ok(())
        }
    };
    if ready.is_err() {
        // The parent is gone: no process knows that anything is mounted.
        unmount(&unmounter);
        begun.session.ender().end();
    }
    Ok(Serving {
        session: begun.session,
        unmount_status: begun.unmount_status,
        _socket: begun.socket,
        ready,
    })
}

/// Whether threads may serve in the class SCHED_IDLE, and leave it.
fn serves_low(options: &MountOptions) -> bool {
    options.placement == Placement::Auto && options.transport.may_use_rings()
}

/// Serves from now on, after it has acquired what the sandbox would deny.
fn begin(
    options: &MountOptions,
    fs: &Served,
    mount: Mount<'_>,
    metrics: &Metrics,
    is_confined: bool,
) -> Result<Begun, Failure> {
    let listener = Listener::bind(
        mount.mounted,
        mount.image,
        options.metrics.as_deref(),
        metrics,
    )?;
    let number = mount.mounted.number();
    // Before they are out of reach.
    if let Some(number) = number {
        mount.server.set_held_max(writeback_cache::held_max(number));
    }
    let readahead = number.and_then(|number| Readahead::open(number).ok());
    let found = fs::metadata(mount.image).ok();
    let address = number
        .and_then(|number| addresses::new(addresses::Kind::Mount, number, found.as_ref()).ok());
    let confined = match is_confined {
        true => sandbox::confine(Needed {
            leaves_idle: serves_low(options),
            ..listener.needed()
        }),
        false => Sandbox::default(),
    };
    let unmounted = mount.fd.try_clone().ok();
    let unmount_status =
        address.and_then(|address| UnmountStatus::listen(&address, unmounted).ok());
    if let Some(volume) = fs.volume() {
        let started = volume.start_background();
        started.map_err(|error| Failure::engine("starting the flushers", &error))?;
    }
    let how = How {
        threads: options.threads.unwrap_or_else(session::threads),
        transport: options.transport,
        placement: options.placement,
        payloads: options.payloads,
    };
    let session = Session::begin(mount.server, mount.fd, how).map_err(system)?;
    // It fails for all but root, whose mounts alone read further ahead.
    _ = readahead.map(|mut readahead| readahead.set());
    metrics.set_transport(session.transport(), session.placed());
    let operations = session.operations(number);
    let kernel = operations.as_ref().map(|it| Arc::clone(&it.observer));
    let operations = operations.map(|operations| Operations {
        disk: mount.disk,
        grower: Some(Arc::new(Resize)),
        ..operations
    });
    let socket = listener.serve(metrics, operations, mount.has);
    Ok(Begun {
        session,
        unmount_status,
        confined,
        socket,
        kernel,
    })
}

/// The server of the file system, as the options say.
fn server_of(options: &MountOptions, fs: &Served, image: &Path) -> Result<Arc<Server>, Failure> {
    let features = fs.geometry().features;
    if options.needs_log_checksums && !features.ro_compat.contains(RoCompat::METADATA_CSUM) {
        let what = format_args!("-o journal_checksum: {} has no checksums", image.display());
        return Err(Failure::new(Exit::Usage, what)
            .hint("`tune2fs -O metadata_csum IMAGE` gives it some, its log too"));
    }
    if let Some(name) = &options.quota
        && !features.ro_compat.contains(RoCompat::QUOTA)
    {
        let what = format_args!("-o {name}: {} has no quotas", image.display());
        return Err(Failure::new(Exit::Usage, what)
            .hint("`tune2fs -O quota IMAGE` gives it some; or leave the option out"));
    }
    if let Some(volume) = fs.volume() {
        volume.note_access(options.access_times());
    }
    let superblock = fs.superblock();
    let late = default_options::last_times(fs.geometry().inode_size);
    let late = late.filter(|_| fs.volume().is_some());
    let notes = default_options::not_followed(superblock).into_iter();
    for note in notes.chain(late.map(str::to_owned)) {
        messages::warning(format_args!("{}: {note}", image.display()));
    }
    let server = Server::new(fs.clone(), Validity::default());
    let server = server.map_err(|error| {
        let why = match error {
            Errno::ENOTDIR => "the root inode (2) is no directory",
            _ => "the root directory cannot be read",
        };
        let what = format_args!("{}: {why}", image.display());
        Failure::new(Exit::Damaged, what).hint("`uext4 check IMAGE` lists all that is damaged")
    })?;
    let server = server.omitting(omitted(options, fs, image)?);
    let server = server.with_sync_policy(options.sync_policy());
    let server = server.with_waiting(options.payloads);
    let server = match options.writeback_cache {
        WritebackCache::On => server.with_writeback_cache(),
        WritebackCache::Auto | WritebackCache::Off => server,
    };
    Ok(Arc::new(server.owned_by(options.owners.clone())))
}

/// The kinds of requests that are not served, as the options and the image say.
fn omitted(options: &MountOptions, fs: &Served, image: &Path) -> Result<Omitted, Failure> {
    let xattrs = match options.xattrs {
        Xattrs::Served => false,
        Xattrs::Hidden => true,
        Xattrs::Auto => {
            options.read_only && matches!(find_xattr(fs, EXAMINED_MAX), Ok(XattrSearch::None))
        }
        Xattrs::Omitted => {
            let found = find_xattr(fs, EXAMINED_MAX);
            let found = found.map_err(|error| Failure::engine(image.display(), &error))?;
            let why = match found {
                XattrSearch::None => None,
                XattrSearch::In(ino) => Some(format!("inode {} has extended attributes", ino.0)),
                XattrSearch::Unknown => Some(format!(
                    "more than {EXAMINED_MAX} inodes, whose extended attributes are not looked for"
                )),
            };
            if let Some(why) = why {
                let what = format_args!("-o noxattr: {}: {why}", image.display());
                return Err(Failure::new(Exit::Usage, what).hint(
                    "leave the option out; noxattr=force hides attributes: the mode alone \
                     decides then what an ACL would forbid",
                ));
            }
            true
        }
    };
    Ok(Omitted {
        xattrs,
        opens: !options.opens,
    })
}

fn no_rings(what: &str) -> Failure {
    Failure::new(Exit::CouldNot, format_args!("-o transport=io_uring: {what}")).hint(
        "as root, write Y to /sys/module/fuse/parameters/enable_uring (Linux 6.14 or newer), or leave \
         the option out",
    )
}
