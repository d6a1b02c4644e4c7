//! The subcommands, one file each.

pub mod build;
pub mod cat;
pub mod check;
pub mod frag;
pub mod get;
pub mod info;
pub mod ls;
pub mod manifest;
pub mod mkfs;
pub mod stat;
pub mod tar;
pub mod tree;

use std::ffi::OsStr;
use std::io::{BufWriter, StdoutLock, Write};
use std::os::unix::ffi::OsStrExt;

use crate::args::{Cli, Command};
use crate::failure::{Exit, Failure};

/// Standard output, buffered.
pub type Output = BufWriter<StdoutLock<'static>>;

/// Bytes of output gathered before they are written.
const OUTPUT_BUFFER: usize = 64 << 10;

/// Runs what the command line asks for; all output is written when it returns.
///
/// # Errors
/// Whatever ends the command early.
pub fn run(cli: &Cli) -> Result<Exit, Failure> {
    let mut out = BufWriter::with_capacity(OUTPUT_BUFFER, std::io::stdout().lock());
    let exit = match &cli.command {
        Command::Build(args) => build::run(args, &mut out),
        Command::Mkfs(args) => mkfs::run(args, &mut out),
        Command::Info(args) => info::run(args, &mut out),
        Command::Ls(args) => ls::run(args, &mut out),
        Command::Tree(args) => tree::run(args, &mut out),
        Command::Cat(args) => cat::run(args, &mut out),
        Command::Stat(args) => stat::run(args, &mut out),
        Command::Get(args) => get::run(args),
        Command::Tar(args) => tar::run(args, &mut out),
        Command::Manifest(args) => manifest::run(args, &mut out),
        Command::Frag(args) => frag::run(args, &mut out),
        Command::Check(args) => check::run(args, &mut out),
    };
    // What came before a failure is still worth reading.
    out.flush()?;
    exit
}

/// The bytes of a path argument.
pub fn bytes(path: &OsStr) -> &[u8] {
    path.as_bytes()
}
