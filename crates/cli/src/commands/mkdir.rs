//! `mkdir`: makes directories.

use std::path::PathBuf;

use clap::Args;
use uext4::{FileType, NewInode};

use super::change::{Operands, Operation, Target, about, by_root};
use crate::failure::Failure;
use crate::mode::{self, ModeChange};
use crate::paths;

/// Make directories
///
/// New directories belong to root, not to the user who runs the command.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  uext4 mkdir disk.img /srv
  uext4 mkdir -p disk.img /srv/www/html
  uext4 mkdir -m 1777 disk.img /tmp")]
pub struct MkdirArgs {
    /// Directories to make
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Create parent directories as needed; an existing directory is no error
    #[arg(short, long)]
    parents: bool,
    /// Permissions, as in chmod(1)
    #[arg(short, long, value_name = "MODE", default_value = "755", value_parser = mode::parse)]
    mode: ModeChange,
}

impl Operands for MkdirArgs {
    fn operands(&mut self) -> Vec<&mut PathBuf> {
        self.paths.iter_mut().collect()
    }
}

impl Operation for MkdirArgs {
    fn apply(&self, target: &mut Target<'_>) -> Result<(), Failure> {
        let mode = self.mode.apply(0o755, FileType::Directory);
        target.each(&self.paths, |target, path| {
            let fs = target.fs;
            let path = &*paths::meant_new(fs, path);
            let made = match self.parents {
                false => fs.create(path, NewInode::Directory, &by_root(mode)),
                true => match fs.open_parent(path) {
                    // Those on the way get the usual permissions.
                    Err(uext4::Error::NotFound) => {
                        let end = path.len() - trailing(path);
                        let above = path[..end].iter().rposition(|&b| b == b'/').unwrap_or(0);
                        fs.create_dir_all(&path[..above], &by_root(0o755))
                            .and_then(|_| fs.create_dir_all(path, &by_root(mode)))
                    }
                    _ => fs.create_dir_all(path, &by_root(mode)),
                },
            };
            made.map(|_| ()).map_err(|error| match error {
                uext4::Error::NotFound => {
                    about(path)(error).hint("-p makes the directories on the way too")
                }
                error => about(path)(error),
            })
        })
    }
}

/// Slashes at the end.
fn trailing(path: &[u8]) -> usize {
    path.iter().rev().take_while(|&&b| b == b'/').count()
}
