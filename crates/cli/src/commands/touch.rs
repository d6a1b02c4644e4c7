//! `touch`: sets the times of files.

use std::path::PathBuf;

use clap::Args;
use uext4::{FollowLast, SetAttributes, SetTime};
use uext4_ondisk::inode::Timestamp;

use super::change::{Missing, Operands, Operation, Target};
use crate::args::long_help;
use crate::failure::Failure;
use crate::when;

/// Set times, make empty files
///
/// Sets both times, to the present if no time is given. A file that does not exist is created.
/// Symbolic links are followed.
#[derive(Args, Clone, Debug)]
#[command(disable_help_flag = true, arg = long_help())]
#[command(after_help = "Examples:
  uext4 touch disk.img /etc/.updated
  uext4 touch -d '2024-02-29 12:00:00' disk.img /etc/motd
  uext4 touch -m -d @0 disk.img /etc/motd")]
pub struct TouchArgs {
    /// Files to change or create
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// @SECONDS since 1970, or YYYY-MM-DD HH:MM:SS in UTC; fractions allowed
    #[arg(short, long, value_name = "TIME", value_parser = when::parse)]
    date: Option<Timestamp>,
    /// Set only the access time
    #[arg(short)]
    access: bool,
    /// Set only the modification time
    #[arg(short)]
    modification: bool,
    /// Do not create files
    #[arg(short = 'c', long)]
    no_create: bool,
    /// Change a symbolic link itself
    #[arg(short = 'h', long)]
    no_dereference: bool,
}

impl Operands for TouchArgs {
    fn operands(&mut self) -> Vec<&mut PathBuf> {
        self.paths.iter_mut().collect()
    }
}

impl Operation for TouchArgs {
    fn apply(&self, target: &mut Target<'_>) -> Result<(), Failure> {
        let last = match self.no_dereference {
            true => FollowLast::No,
            false => FollowLast::Yes,
        };
        let time = self.date.map_or(SetTime::Now, SetTime::To);
        let both = self.access == self.modification;
        let times = SetAttributes {
            atime: (both || self.access).then_some(time),
            mtime: (both || self.modification).then_some(time),
            ..SetAttributes::default()
        };
        let missing = match self.no_create {
            true => Missing::Skip,
            false => Missing::Make,
        };
        target.each(&self.paths, |target, path| {
            target.file(path, last, missing, |file| file.set_attributes(&times))
        })
    }
}
