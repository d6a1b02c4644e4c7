//! `mv`: moves and renames.

use std::path::PathBuf;

use clap::Args;
use uext4_remote::wire::Rename;

use super::bytes;
use super::change::{Operands, Operation, Target, about, last_name};
use crate::failure::Failure;
use crate::paths;
use crate::show::escaped;

/// Move or rename
///
/// The change is atomic: at every moment either the old or the new name exists. If NEW is a
/// directory, OLD is moved into it. An existing file with the new name is replaced.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  uext4 mv disk.img /etc/motd.new /etc/motd
  uext4 mv disk.img /etc/motd /srv
  uext4 mv --exchange disk.img /system-a /system-b")]
pub struct MvArgs {
    /// File or directory to move
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// New name, or the directory to move it to
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// Exchange two existing names; NEW is then not a directory to move into
    #[arg(long, conflicts_with = "no_clobber")]
    exchange: bool,
    /// Do not replace an existing file
    #[arg(short, long)]
    no_clobber: bool,
}

impl Operands for MvArgs {
    fn operands(&mut self) -> Vec<&mut PathBuf> {
        vec![&mut self.old, &mut self.new]
    }
}

impl Operation for MvArgs {
    fn apply(&self, target: &mut Target<'_>) -> Result<(), Failure> {
        let old = &*paths::meant(target.fs, bytes(self.old.as_os_str()));
        let new = &*paths::meant_new(target.fs, bytes(self.new.as_os_str()));
        let (new, mode) = match (self.exchange, self.no_clobber) {
            (true, _) => (new.to_vec(), Rename::Exchange),
            (_, true) => (target.inside(new, last_name(old)), Rename::NoReplace),
            _ => (target.inside(new, last_name(old)), Rename::Replace),
        };
        let moved = target.fs.rename(old, &new, mode);
        moved.map_err(|error| match error {
            uext4::Error::NotFound => about(old)(error),
            // Another file system is mounted on either of them, which the daemon names.
            uext4::Error::Remote { .. } => {
                let both = format_args!("{} to {}", escaped(old), escaped(&new));
                Failure::engine(both, &error)
            }
            error => about(&new)(error),
        })
    }
}
