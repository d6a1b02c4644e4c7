//! The subcommands, one file each.

pub mod bdi;
pub mod build;
pub mod cat;
pub mod change;
pub mod check;
pub mod chmod;
pub mod chown;
pub mod dedup_xattrs;
pub mod fallocate;
pub mod frag;
pub mod get;
pub mod getfattr;
pub mod info;
pub mod ln;
pub mod ls;
pub mod man;
pub mod manifest;
pub mod mkdir;
pub mod mkfs;
pub mod mount;
pub mod mount_stats;
pub mod mv;
pub mod put;
mod remount;
pub mod rm;
pub mod script;
pub mod setfattr;
pub mod stat;
pub mod stats;
pub mod sync;
pub mod tar;
pub mod touch;
pub mod tree;
pub mod trim;
pub mod truncate;
pub mod umount;

use std::ffi::OsStr;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;

use crate::args::{Cli, Command};
use crate::failure::{self, Exit, Failure};
use crate::open;

/// Where a command prints, buffered: standard output, but for tests.
pub type Output = BufWriter<Box<dyn Write>>;

/// Bytes of output gathered before they are written.
const OUTPUT_BUFFER: usize = 64 << 10;

/// Output that is gathered before it is written.
fn output(to: Box<dyn Write>) -> Output {
    BufWriter::with_capacity(OUTPUT_BUFFER, to)
}

/// Runs what the command line asks for; all output is written when it returns.
///
/// # Errors
/// Whatever ends the command early.
pub fn run(cli: &Cli) -> Result<Exit, Failure> {
    let mut out = output(Box::new(std::io::stdout().lock()));
    let exit = match &cli.command {
        Command::Build(args) => build::run(args, &mut out),
        Command::Mkfs(args) => mkfs::run(args, &mut out),
        Command::Info(args) => info::run(args, &mut out),
        Command::Ls(args) => ls::run(&args.what, &open::open(&args.image)?, &mut out),
        Command::Tree(args) => tree::run(args, &mut out),
        Command::Cat(args) => cat::run(&args.what, &open::open(&args.image)?, &mut out),
        Command::Stat(args) => stat::run(&args.what, &open::open(&args.image)?, &mut out),
        Command::Get(args) => get::run(args, &mut out),
        Command::Tar(args) => tar::run(args, &mut out),
        Command::Manifest(args) => manifest::run(args, &mut out),
        Command::Frag(args) => frag::run(args, &mut out),
        Command::Stats(args) => stats::run(args, &mut out),
        Command::Check(args) => check::run(args, &mut out),
        Command::Getfattr(args) => getfattr::run(&args.what, &open::open(&args.image)?, &mut out),
        Command::Put(args) => change::run(&args.image, &args.what),
        Command::Mkdir(args) => change::run(&args.image, &args.what),
        Command::Rm(args) => change::run(&args.image, &args.what),
        Command::Mv(args) => change::run(&args.image, &args.what),
        Command::Ln(args) => change::run(&args.image, &args.what),
        Command::Chmod(args) => change::run(&args.image, &args.what),
        Command::Chown(args) => change::run(&args.image, &args.what),
        Command::Setfattr(args) => change::run(&args.image, &args.what),
        Command::Truncate(args) => change::run(&args.image, &args.what),
        Command::Fallocate(args) => change::run(&args.image, &args.what),
        Command::Touch(args) => change::run(&args.image, &args.what),
        Command::Sync(args) => sync::run(args, &mut out),
        Command::DedupXattrs(args) => dedup_xattrs::run(args, &mut out),
        Command::Trim(args) => trim::run(args, &mut out),
        Command::Mount(args) => mount::run(args, &mut out),
        Command::Man(args) => man::run(args, &mut out),
        Command::Umount(args) => umount::run(args, &mut out),
        Command::Script(args) => script::run(args, &mut out),
    };
    // What came before a failure is still worth reading.
    let flushed = out.flush().map_err(Failure::from);
    match (exit, flushed) {
        (Err(Failure::BrokenPipe), _) | (Ok(Exit::Success), Err(Failure::BrokenPipe)) => {
            Ok(when_cut(&cli.command).max(failure::known()))
        }
        (Ok(exit), Err(Failure::BrokenPipe)) => Ok(exit),
        (Ok(exit), Err(failure)) => Err(failure.at_least(exit)),
        (exit, _) => exit,
    }
}

/// How a command ends whose reader has gone away. `head` and the like have seen enough of a list,
/// and that is no failure; an archive that is cut, or commands that are not carried out, are.
fn when_cut(command: &Command) -> Exit {
    match command {
        Command::Tar(_) | Command::Script(_) => Exit::Incomplete,
        _ => Exit::Success,
    }
}

/// The bytes of a path argument.
pub fn bytes(path: &OsStr) -> &[u8] {
    path.as_bytes()
}
