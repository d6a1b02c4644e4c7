//! Where the fields of a tar header lie, as POSIX.1-2001 has it; read by the listing of archives,
//! written by the command.

use std::ops::Range;

/// Length of a block: headers are one long, contents are padded to it.
pub const BLOCK: usize = 512;
/// The name, up to a zero byte.
pub const NAME: Range<usize> = 0..100;
/// Permission bits, octal.
pub const MODE: Range<usize> = 100..108;
/// Owner, octal.
pub const UID: Range<usize> = 108..116;
/// Group, octal.
pub const GID: Range<usize> = 116..124;
/// Bytes that follow, octal.
pub const SIZE: Range<usize> = 124..136;
/// Seconds since 1970, octal.
pub const MTIME: Range<usize> = 136..148;
/// Sum of all bytes, these taken as spaces.
pub const CHKSUM: Range<usize> = 148..156;
/// What it is.
pub const TYPEFLAG: usize = 156;
/// Target of a link.
pub const LINKNAME: Range<usize> = 157..257;
/// `ustar` and the version.
pub const MAGIC: Range<usize> = 257..265;
/// The owner's name.
pub const UNAME: Range<usize> = 265..297;
/// The group's name.
pub const GNAME: Range<usize> = 297..329;
/// Major number of a device, octal.
pub const DEVMAJOR: Range<usize> = 329..337;
/// Minor number of a device, octal.
pub const DEVMINOR: Range<usize> = 337..345;
/// POSIX only: what stands before the name.
pub const PREFIX: Range<usize> = 345..500;
