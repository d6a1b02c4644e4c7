//! The subcommands, one file each.

pub mod bdi;
pub mod build;
pub mod cat;
pub mod change;
pub mod chattr;
pub mod check;
pub mod chmod;
pub mod chown;
pub mod clone;
pub mod completions;
pub mod dedup_xattrs;
pub mod diff;
pub mod doctor;
pub mod du;
pub mod fallocate;
pub mod find;
pub mod frag;
pub mod fsck;
pub mod get;
pub mod getfacl;
pub mod getfattr;
pub mod grep;
pub mod grow;
pub mod help;
pub mod info;
mod listing;
pub mod ln;
pub mod ls;
pub mod lsattr;
pub mod man;
pub mod manifest;
pub mod mkdir;
pub mod mkfs;
pub mod mount;
mod mount_help;
pub mod mount_stats;
pub mod mv;
pub mod put;
pub mod quota;
mod remount;
pub mod repair;
pub mod rm;
pub mod salvage;
pub mod scan;
pub mod script;
pub mod setfacl;
pub mod setfattr;
pub mod shrink;
pub mod stat;
pub mod stats;
pub mod sync;
pub mod tar;
pub mod touch;
pub mod tree;
pub mod trim;
pub mod truncate;
pub mod tune;
pub mod umount;
pub mod undelete;
pub mod undo;
pub mod untar;

use std::ffi::OsStr;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;

/// Where a command prints, buffered: standard output, but for tests.
pub type Output = BufWriter<Box<dyn Write>>;

/// Bytes of output gathered before they are written.
const OUTPUT_BUFFER: usize = 64 << 10;

/// Output that is gathered before it is written.
pub fn output(to: Box<dyn Write>) -> Output {
    BufWriter::with_capacity(OUTPUT_BUFFER, to)
}

/// The bytes of a path argument.
pub fn bytes(path: &OsStr) -> &[u8] {
    path.as_bytes()
}
