//! `chown`: owners and groups.

use std::path::PathBuf;

use clap::Args;
use uext4::{FollowLast, OpenInode, SetAttributes};

use super::change::{Operation, Target};
use crate::args::long_help;
use crate::failure::Failure;

/// Change owner and group
///
/// Numbers only: names mean something else in every image. Files lose set-user-id and
/// set-group-id, as with the kernel. Symbolic links are followed, below a directory changed
/// themselves.
#[derive(Args, Debug)]
#[command(disable_help_flag = true, arg = long_help())]
#[command(after_help = "Examples:
  uext4 chown disk.img 33:33 /srv/www
  uext4 chown -R disk.img :100 /home/shared")]
pub struct ChownArgs {
    /// New owner and group
    #[arg(value_name = "UID[:GID]", value_parser = parse_owner)]
    owner: Owner,
    /// What to change
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// And everything below
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Change a symbolic link itself
    #[arg(short = 'h', long)]
    no_dereference: bool,
}

/// What is given of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    uid: Option<u32>,
    gid: Option<u32>,
}

fn parse_owner(text: &str) -> Result<Owner, String> {
    let number = |text: &str| match text {
        "" => Ok(None),
        text => {
            let number = text.parse::<u32>().ok().filter(|id| *id != u32::MAX);
            number
                .map(Some)
                .ok_or_else(|| format!("{text:?} is no number of a user or group"))
        }
    };
    let (uid, gid) = text.split_once(':').unwrap_or((text, ""));
    let owner = Owner {
        uid: number(uid)?,
        gid: number(gid)?,
    };
    match owner {
        Owner {
            uid: None,
            gid: None,
        } => Err("neither owner nor group".to_owned()),
        owner => Ok(owner),
    }
}

impl Operation for ChownArgs {
    fn apply(&self, target: &mut Target<'_>) -> Result<(), Failure> {
        let last = match self.no_dereference {
            true => FollowLast::No,
            false => FollowLast::Yes,
        };
        target.each_inode(&self.paths, last, self.recursive, |inode| {
            self.change(inode)
        })
    }
}

impl ChownArgs {
    fn change(&self, inode: &OpenInode) -> uext4::Result<()> {
        inode.set_attributes(&SetAttributes {
            uid: self.owner.uid,
            gid: self.owner.gid,
            ..SetAttributes::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_numbers() {
        let owner = |uid, gid| Ok(Owner { uid, gid });
        assert_eq!(parse_owner("7"), owner(Some(7), None));
        assert_eq!(parse_owner("7:"), owner(Some(7), None));
        assert_eq!(parse_owner(":8"), owner(None, Some(8)));
        assert_eq!(parse_owner("0:70000"), owner(Some(0), Some(70_000)));
        for bad in ["", ":", "root", "1:x", "-1", "4294967295"] {
            assert!(parse_owner(bad).is_err(), "{bad}");
        }
    }
}
