//! `fallocate`: ranges of files allocated, given back, moved.

use std::path::PathBuf;

use clap::Args;
use uext4::FollowLast;
use uext4::data::Fallocate;

use super::bytes;
use super::change::{Missing, Operation, Target};
use crate::args::parse_size;
use crate::failure::Failure;

/// Allocate, zero, punch, insert or take out a range of a file
///
/// Without an option blocks are allocated that read as zeroes, and the file grows if need be; it
/// is made if it is not there. Inserting and taking out wants whole blocks of the file system.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  uext4 fallocate -l 1G disk.img /swapfile
  uext4 fallocate --punch-hole -o 1M -l 64K disk.img /data
  uext4 fallocate --collapse-range -l 4096 disk.img /var/log/ring")]
pub struct FallocateArgs {
    /// The file
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Where the range begins, in bytes (K, M, G)
    // The image's own offset has the long name.
    #[arg(short = 'o', value_name = "OFFSET", default_value = "0", value_parser = parse_size)]
    #[arg(id = "range_offset")]
    from: u64,
    /// How long it is, in bytes (K, M, G)
    #[arg(short, long, value_name = "LENGTH", value_parser = parse_size)]
    length: u64,
    /// The size stays
    #[arg(short = 'n', long)]
    keep_size: bool,
    /// Give the blocks back; the range reads as zeroes
    #[arg(short, long, group = "how")]
    punch_hole: bool,
    /// Zeroes, and blocks
    #[arg(short, long, group = "how")]
    zero_range: bool,
    /// Take the range out; what follows moves down
    #[arg(short, long, group = "how", conflicts_with = "keep_size")]
    collapse_range: bool,
    /// Put a hole in; what follows moves up
    #[arg(short, long, group = "how", conflicts_with = "keep_size")]
    insert_range: bool,
}

impl Operation for FallocateArgs {
    fn apply(&self, target: &mut Target<'_>) -> Result<(), Failure> {
        let path = bytes(self.path.as_os_str());
        let keep_size = self.keep_size;
        let how = match self {
            Self {
                punch_hole: true, ..
            } => Fallocate::PunchHole,
            Self {
                zero_range: true, ..
            } => Fallocate::ZeroRange { keep_size },
            Self {
                collapse_range: true,
                ..
            } => Fallocate::CollapseRange,
            Self {
                insert_range: true, ..
            } => Fallocate::InsertRange,
            _ => Fallocate::Allocate { keep_size },
        };
        let missing = match how {
            Fallocate::Allocate { .. } => Missing::Make,
            _ => Missing::Tell,
        };
        target.file(path, FollowLast::Yes, missing, |file| {
            file.fallocate(how, self.from, self.length)
        })
    }
}
