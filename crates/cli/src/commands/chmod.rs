//! `chmod`: permissions.

use std::path::PathBuf;

use clap::Args;
use uext4::{FileType, FollowLast, OpenInode, SetAttributes};

use super::change::{Operation, Target, about};
use crate::below::each_below;
use crate::failure::Failure;
use crate::mode::{self, ModeChange};
use crate::show::escaped;

/// Change permissions
///
/// MODE is octal, or letters as chmod takes them: u+x, go-w, a=rX,u+w. Symbolic links are followed,
/// below a directory left out.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 chmod disk.img 4755 /bin/su
  uext4 chmod -R disk.img a+rX,go-w /srv")]
pub struct ChmodArgs {
    /// New permissions
    #[arg(value_name = "MODE", value_parser = mode::parse, allow_hyphen_values = true)]
    mode: ModeChange,
    /// What to change
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// And everything below
    #[arg(short = 'R', long)]
    recursive: bool,
}

impl Operation for ChmodArgs {
    fn apply(&self, target: &mut Target<'_>) -> Result<(), Failure> {
        target.each(&self.paths, |target, path| {
            let top = target.inode(path, FollowLast::Yes)?;
            if !self.recursive {
                return self.change(&top).map_err(about(path));
            }
            let mut failures = Vec::new();
            each_below(
                &top,
                path,
                &mut |inode, path| {
                    if let Err(error) = self.change(inode) {
                        target.complaints.engine(escaped(path), &error);
                    }
                },
                &mut |path, error| failures.push(about_ref(path, error)),
            );
            tell_all(target, failures)
        })
    }
}

impl ChmodArgs {
    fn change(&self, inode: &OpenInode) -> uext4::Result<()> {
        let now = inode.inode();
        if now.file_type == FileType::Symlink {
            return Ok(());
        }
        let is_dir = now.file_type == FileType::Directory;
        inode.set_attributes(&SetAttributes {
            mode: Some(self.mode.apply(now.mode, is_dir)),
            ..SetAttributes::default()
        })
    }
}

/// An error about a path below.
pub fn about_ref(path: &[u8], error: &uext4::Error) -> Failure {
    Failure::engine(escaped(path), error)
}

/// Tells what could not be read below a directory.
///
/// # Errors
/// A broken pipe.
pub fn tell_all(target: &mut Target<'_>, failures: Vec<Failure>) -> Result<(), Failure> {
    for failure in failures {
        target.complaints.failure(failure)?;
    }
    Ok(())
}
