//! `rm`: removes files and directories.

use std::path::PathBuf;

use clap::Args;
use uext4::{Error, FileType, FollowLast};

use super::change::{Operands, Operation, Target, about};
use crate::failure::Failure;
use crate::paths;

/// Remove files, and with -r directories and everything below them
///
/// Symbolic links are removed themselves. The command never asks.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  uext4 rm disk.img /etc/motd
  uext4 rm -r disk.img /var/cache /var/tmp")]
pub struct RmArgs {
    /// Files and directories to remove
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Remove directories and everything below them
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Ignore paths that do not exist
    #[arg(short, long)]
    force: bool,
}

impl Operands for RmArgs {
    fn operands(&mut self) -> Vec<&mut PathBuf> {
        self.paths.iter_mut().collect()
    }
}

impl Operation for RmArgs {
    fn apply(&self, target: &mut Target<'_>) -> Result<(), Failure> {
        target.each(&self.paths, |target, path| {
            let fs = target.fs;
            let path = &*paths::meant(fs, path);
            let removed = match self.recursive {
                true => fs.remove_all(path),
                false => fs.open_path(path, FollowLast::No).and_then(|inode| {
                    let is_dir = inode.view()?.file_type() == FileType::Directory;
                    drop(inode);
                    match is_dir {
                        true => Err(Error::IsDirectory),
                        false => fs.remove(path),
                    }
                }),
            };
            match removed {
                Err(Error::NotFound) if self.force => Ok(()),
                Err(error @ Error::NotFound) if paths::number(path).is_some() => Err(about(path)(
                    error,
                )
                .hint("an inode goes with its last name: `uext4 ls -Ri IMAGE` lists the names")),
                Err(error @ Error::IsDirectory) => {
                    Err(about(path)(error).hint("-r removes directories"))
                }
                removed => removed.map_err(about(path)),
            }
        })
    }
}
