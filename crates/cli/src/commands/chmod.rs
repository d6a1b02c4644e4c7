//! `chmod`: permissions.

use std::path::PathBuf;

use clap::Args;
use uext4::{FileType, FollowLast, SetAttributes};
use uext4_remote::Node;

use super::change::{Operands, Operation, Target, Which};
use crate::failure::Failure;
use crate::mode::{self, ModeChange};

/// Change permissions
///
/// MODE is octal, or symbolic as in chmod(1): u+x, go-w, a=rX,u+w. Symbolic links are followed;
/// with -R, links below a directory are skipped.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  uext4 chmod disk.img 4755 /bin/su
  uext4 chmod -R disk.img a+rX,go-w /srv")]
pub struct ChmodArgs {
    /// New permissions
    #[arg(value_name = "MODE", value_parser = mode::parse, allow_hyphen_values = true)]
    mode: ModeChange,
    /// Files to change
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Change everything below directories too
    #[arg(short = 'R', long)]
    recursive: bool,
}

impl Operands for ChmodArgs {
    fn operands(&mut self) -> Vec<&mut PathBuf> {
        self.paths.iter_mut().collect()
    }
}

impl Operation for ChmodArgs {
    fn apply(&self, target: &mut Target<'_>) -> Result<(), Failure> {
        let which = Which {
            paths: &self.paths,
            last: FollowLast::Yes,
            recursive: self.recursive,
        };
        target.each_inode(&which, |inode| self.change(inode))
    }
}

impl ChmodArgs {
    fn change(&self, inode: &Node) -> uext4::Result<()> {
        let now = inode.view()?;
        if now.file_type() == FileType::Symlink {
            return Ok(());
        }
        inode.set_attributes(&SetAttributes {
            mode: Some(self.mode.apply(now.mode, now.file_type())),
            ..SetAttributes::default()
        })
    }
}
