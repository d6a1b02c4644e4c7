//! `ln`: makes hard and symbolic links.

use std::borrow::Cow;
use std::path::PathBuf;

use clap::Args;
use uext4::{Error, NewInode};

use super::bytes;
use super::change::{Operands, Operation, Target, about, by_root, last_name};
use crate::failure::Failure;
use crate::paths;

/// Make links
///
/// Without -s, makes another name for the file TARGET; a symbolic link is linked itself. With -s,
/// makes a symbolic link that holds TARGET as it is given. If PATH is a directory, the link is
/// made in it.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  uext4 ln -s disk.img ../usr/lib/os-release /etc/os-release
  uext4 ln disk.img /bin/busybox /bin/sh")]
pub struct LnArgs {
    /// Target of the link
    #[arg(value_name = "TARGET")]
    target: PathBuf,
    /// Path of the link, or the directory to make it in
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Make a symbolic link
    #[arg(short, long)]
    symbolic: bool,
    /// Replace a file that has the name, but not a directory
    #[arg(short, long)]
    force: bool,
}

impl Operands for LnArgs {
    fn operands(&mut self) -> Vec<&mut PathBuf> {
        vec![&mut self.target, &mut self.path]
    }
}

impl Operation for LnArgs {
    fn apply(&self, target: &mut Target<'_>) -> Result<(), Failure> {
        let to = bytes(self.target.as_os_str());
        let to = &*match self.symbolic {
            true => Cow::Borrowed(to),
            false => paths::meant(target.fs, to),
        };
        let path = paths::meant_new(target.fs, bytes(self.path.as_os_str()));
        let path = target.inside(&path, last_name(to));
        let made = match self.make(target, to, &path) {
            Err(Error::Exists) if self.force => self.replace(target, to, &path),
            made => made,
        };
        made.map_err(|error| match error {
            Error::NotFound | Error::IsDirectory if !self.symbolic => about(to)(error),
            error => about(&path)(error),
        })
    }
}

impl LnArgs {
    fn make(&self, target: &Target<'_>, to: &[u8], path: &[u8]) -> uext4::Result<()> {
        match self.symbolic {
            true => {
                let made = target
                    .fs
                    .create(path, NewInode::Symlink(to), &by_root(0o777));
                made.map(|_| ())
            }
            false => target.fs.link(to, path),
        }
    }

    fn replace(&self, target: &Target<'_>, to: &[u8], path: &[u8]) -> uext4::Result<()> {
        let (dir, name) = target.fs.open_parent(path)?;
        let linked = match self.symbolic {
            true => dir.create_unnamed(NewInode::Symlink(to), &by_root(0o777))?,
            false => target.fs.open_path(to, uext4::FollowLast::No)?,
        };
        linked.link_over(&dir, name)
    }
}
