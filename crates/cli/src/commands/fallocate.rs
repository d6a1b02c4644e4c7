//! `fallocate`: allocates, frees and moves ranges of files.

use std::path::PathBuf;

use clap::Args;
use uext4::FollowLast;
use uext4::data::Fallocate;

use super::bytes;
use super::change::{Missing, Operation, Target};
use crate::args::parse_size;
use crate::failure::Failure;

/// Allocate, zero, punch, insert or collapse a range of a file
///
/// Without an option, allocates blocks that read as zeroes, and extends the file if needed. The
/// file is created if it does not exist. Ranges to insert or collapse must be whole blocks of the
/// file system.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  uext4 fallocate -l 1G disk.img /swapfile
  uext4 fallocate --punch-hole -o 1M -l 64K disk.img /data
  uext4 fallocate --collapse-range -l 4096 disk.img /var/log/ring")]
pub struct FallocateArgs {
    /// The file
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Start of the range, in bytes (K, M, G)
    // The image's own offset has the long name.
    #[arg(short = 'o', value_name = "OFFSET", default_value = "0", value_parser = parse_size)]
    #[arg(id = "range_offset")]
    from: u64,
    /// Length of the range, in bytes (K, M, G)
    #[arg(short, long, value_name = "LENGTH", value_parser = parse_size)]
    length: u64,
    /// Keep the size of the file
    #[arg(short = 'n', long)]
    keep_size: bool,
    /// Free the blocks; the range then reads as zeroes
    #[arg(short, long, group = "how")]
    punch_hole: bool,
    /// Write zeroes, and allocate the blocks
    #[arg(short, long, group = "how")]
    zero_range: bool,
    /// Remove the range; the data after it move down
    #[arg(short, long, group = "how", conflicts_with = "keep_size")]
    collapse_range: bool,
    /// Insert a hole; the data after it move up
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
            _ => Missing::Report,
        };
        target.file(path, FollowLast::Yes, missing, |file| {
            file.fallocate(how, self.from, self.length)
        })
    }
}
