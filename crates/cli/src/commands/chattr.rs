//! `chattr`: changes inode flags, projects and generations.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use uext4::{Error, FileType, FollowLast, InodeFlags, SetAttributes};
use uext4_remote::Node;

use super::bytes;
use super::change::{Operation, Target, Which};
use crate::failure::{Exit, Failure};
use crate::inode_flags::FlagChange;
use crate::show::escaped;

/// Change inode flags and projects
///
/// MODE is + - or = and letters as in chattr(1), such as +i (immutable) or -a (append-only); = sets
/// the flags named and removes others, but leaves e. Letters that can be changed: s u S D i a d A c
/// j t T x P, on directories and regular files; with -R, others are left out, and so are D, T and P
/// of files. E, I, N, V, C, F and m cannot be changed.
///
/// All commands honour i and a as the kernel does: `uext4 chattr -i` comes before a change. Within
/// one chattr their place among the words does not matter: they are removed before all else is
/// changed, and set after it, so that `+A -i` and `-i +A` do the same.
///
/// Files and directories below one with P (project hierarchy) are created with its project;
/// `chattr -R -p ID IMAGE +P DIR` gives a whole tree a project that `uext4 quota` counts, and
/// `lsattr -p` shows it.
#[derive(Args, Clone, Debug)]
#[command(override_usage = "uext4 chattr [OPTIONS] IMAGE [MODE]... PATH...")]
#[command(after_help = "Examples:
  uext4 chattr disk.img +i /etc/resolv.conf
  uext4 chattr -R disk.img -i +A /srv
  uext4 chattr -R -p 42 disk.img +P /home/guest")]
pub struct ChattrArgs {
    /// Flags to change (+i, -a, =A), then files
    #[arg(value_name = "PATH", required = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
    /// Change everything below directories too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Set the project
    #[arg(short, long, value_name = "ID")]
    project: Option<u32>,
    /// Set the generation; not where checksums of metadata contain it (metadata_csum)
    #[arg(short, long, value_name = "NUMBER")]
    version: Option<u32>,
}

impl Operation for ChattrArgs {
    fn apply(&self, target: &mut Target<'_>) -> Result<(), Failure> {
        let is_mode = |word: &&OsString| matches!(bytes(word), [b'+' | b'-' | b'=', ..]);
        let (modes, paths) = self
            .words
            .split_at(self.words.iter().take_while(is_mode).count());
        let mut change = FlagChange::default();
        for mode in modes {
            let read = change.read(&mode.to_string_lossy());
            read.map_err(|what| {
                let what = format_args!("{}: {what}", escaped(bytes(mode)));
                Failure::new(Exit::Usage, what).hint("other options come before the flags")
            })?;
        }
        let wants_nothing = change.is_empty() && self.project.is_none() && self.version.is_none();
        if paths.is_empty() || wants_nothing {
            let what = "give what to change (+i, -a, =A, -p or -v), and a path";
            return Err(Failure::new(Exit::Usage, what));
        }
        let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        let which = Which {
            paths: &paths,
            last: FollowLast::No,
            recursive: self.recursive,
        };
        target.each_inode(&which, |inode| self.change(change, inode))
    }
}

impl ChattrArgs {
    fn change(&self, change: FlagChange, inode: &Node) -> uext4::Result<()> {
        let now = inode.view()?;
        let is_dir = now.file_type() == FileType::Directory;
        if !is_dir && now.file_type() != FileType::Regular {
            return match self.recursive {
                true => Ok(()),
                false => Err(unsupported("flags of what is no file and no directory")),
            };
        }
        let mut wanted = change.apply(now.flags());
        let of_dirs = InodeFlags::TOPDIR | InodeFlags::PROJINHERIT;
        if !is_dir {
            wanted.remove(InodeFlags::DIRSYNC);
            if self.recursive {
                wanted.remove(of_dirs);
            } else if wanted.intersects(of_dirs) {
                return Err(unsupported("the flags T and P of what is no directory"));
            }
        }
        let fixing = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
        let with = |flags| SetAttributes {
            flags: Some(flags),
            ..SetAttributes::default()
        };
        let rest = SetAttributes {
            projid: self.project,
            generation: self.version,
            ..SetAttributes::default()
        };
        // What makes an inode immutable is the last to be set, and the first to be removed.
        let is_all = rest == SetAttributes::default();
        let steps = [with(wanted - fixing), rest, with(wanted)];
        let needed = match (now.flags().intersects(fixing), wanted.intersects(fixing)) {
            _ if is_all => &steps[2..],
            (false, true) => &steps[1..],
            (_, false) => &steps[..2],
            (true, true) => &steps[..],
        };
        let mut steps = needed.iter().filter(|step| match step.flags {
            Some(_) => !change.is_empty(),
            None => **step != SetAttributes::default(),
        });
        steps.try_for_each(|step| inode.set_attributes(step))
    }
}

fn unsupported(what: &str) -> Error {
    Error::Unsupported {
        what: what.to_owned(),
    }
}
