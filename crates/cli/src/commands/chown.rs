//! `chown`: owners and groups.

use std::path::PathBuf;

use clap::Args;
use uext4::{FollowLast, SetAttributes};
use uext4_remote::Node;

use super::change::{Operands, Operation, Target, Which};
use crate::args::long_help;
use crate::failure::Failure;
use crate::owner::{self, Owner};

/// Change owner and group
///
/// Owners are numbers, because names differ from image to image. Files lose set-user-id and
/// set-group-id, as with the kernel. Symbolic links are followed; with -R, links below a directory
/// are changed themselves.
#[derive(Args, Clone, Debug)]
#[command(disable_help_flag = true, arg = long_help())]
#[command(after_help = "Examples:
  uext4 chown disk.img 33:33 /srv/www
  uext4 chown -R disk.img :100 /home/shared")]
pub struct ChownArgs {
    /// New owner and group
    #[arg(value_name = "UID[:GID]", value_parser = owner::parse)]
    owner: Owner,
    /// Files to change
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Change everything below directories too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Change a symbolic link itself
    #[arg(short = 'h', long)]
    no_dereference: bool,
}

impl Operands for ChownArgs {
    fn operands(&mut self) -> Vec<&mut PathBuf> {
        self.paths.iter_mut().collect()
    }
}

impl Operation for ChownArgs {
    fn apply(&self, target: &mut Target<'_>) -> Result<(), Failure> {
        let last = match self.no_dereference {
            true => FollowLast::No,
            false => FollowLast::Yes,
        };
        let which = Which {
            paths: &self.paths,
            last,
            recursive: self.recursive,
        };
        target.each_inode(&which, |inode| self.change(inode))
    }
}

impl ChownArgs {
    fn change(&self, inode: &Node) -> uext4::Result<()> {
        inode.set_attributes(&SetAttributes {
            uid: self.owner.uid,
            gid: self.owner.gid,
            ..SetAttributes::default()
        })
    }
}
