//! `lsattr`: prints inode flags.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use uext4::{Error, FileType, FollowLast, Image, Inode};
use uext4_image::walk::{Entry, joined};

use super::Output;
use super::listing::{Listing, Target, list, walk};
use crate::failure::{Complaints, Exit, Failure};
use crate::inode_flags::{letters, names, shown};
use crate::json::Json;
use crate::paths;
use crate::show::escaped;

/// Show inode flags and projects
///
/// Prints a line for each file, or for each name in a directory, with the letters of lsattr(1):
/// i immutable, a append-only, d no dump, A no access times, e extents, I indexed directory, N
/// inline data, P project hierarchy, V verity, E encrypted, and the others that chattr has. Names
/// are sorted. Only regular files and directories are shown.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  uext4 lsattr disk.img /etc
  uext4 lsattr -R disk.img / | grep '^....i'
  uext4 lsattr -pd disk.img /home/guest
  uext4 lsattr -R --json disk.img | jq -r '.[] | select(.project == 42).path'")]
pub struct LsattrArgs {
    /// Files and directories
    #[arg(value_name = "PATH", default_value = "/", hide_default_value = true)]
    paths: Vec<PathBuf>,
    /// List subdirectories recursively
    #[arg(short = 'R', long, conflicts_with = "directory")]
    recursive: bool,
    /// List names that begin with a dot, too
    #[arg(short, long)]
    all: bool,
    /// List a directory itself, not what is in it
    #[arg(short, long)]
    directory: bool,
    /// Print the names of flags instead of letters
    #[arg(short, long)]
    long: bool,
    /// Print the project
    #[arg(short, long)]
    project: bool,
    /// Print the generation
    #[arg(short, long)]
    version: bool,
    /// Print one JSON array of objects
    #[arg(long)]
    json: bool,
}

/// Prints them.
pub fn run(args: &LsattrArgs, fs: &Image, out: &mut Output) -> Result<Exit, Failure> {
    let target = Target {
        fs,
        out,
        json: Json::new(),
        complaints: Complaints::new(),
    };
    list(&mut List { args, to: target }, &args.paths, args.json)
}

struct List<'a> {
    args: &'a LsattrArgs,
    to: Target<'a>,
}

impl<'a> Listing<'a> for List<'a> {
    fn target(&mut self) -> &mut Target<'a> {
        &mut self.to
    }

    fn operand(&mut self, path: &[u8]) -> Result<(), Failure> {
        let top = paths::resolve(self.to.fs, path, FollowLast::No)?;
        if top.file_type == FileType::Directory && !self.args.directory {
            return walk(self, top, path);
        }
        if !has_flags(&top) {
            let what = "flags of what is no file and no directory".to_owned();
            return Err(Failure::engine(escaped(path), &Error::Unsupported { what }));
        }
        self.line(&top, path)
    }

    fn skips(&self, entry: &Entry) -> bool {
        entry.depth > 0 && (self.is_hidden(entry) || !self.args.recursive)
    }

    fn entry(&mut self, entry: &Entry, inode: &Inode, path: &[u8]) -> Result<(), Failure> {
        match entry.depth > 0 && !self.is_hidden(entry) && has_flags(inode) {
            true => self.line(inode, path),
            false => Ok(()),
        }
    }

    fn enter(&mut self, dir: &Inode, path: &[u8], depth: usize) -> Result<(), Failure> {
        if depth > 1 && !self.args.json {
            writeln!(self.to.out, "\n{}:", escaped(path))?;
        }
        match self.args.all {
            true => self.dots(dir, path),
            false => Ok(()),
        }
    }

    fn leave(&mut self, depth: usize) -> Result<(), Failure> {
        if depth > 0 && !self.args.json {
            writeln!(self.to.out)?;
        }
        Ok(())
    }
}

impl List<'_> {
    fn is_hidden(&self, entry: &Entry) -> bool {
        entry.name.starts_with(b".") && !self.args.all
    }

    /// The directory itself, and the one it is in.
    fn dots(&mut self, dir: &Inode, path: &[u8]) -> Result<(), Failure> {
        self.line(dir, &joined(path, b"."))?;
        let parent = self.to.fs.lookup(dir, b"..");
        match parent.and_then(|ino| self.to.fs.inode(ino)) {
            Ok(parent) => self.line(&parent, &joined(path, b"..")),
            Err(error) => {
                self.to.complaints.engine(escaped(path), &error);
                Ok(())
            }
        }
    }

    fn line(&mut self, inode: &Inode, path: &[u8]) -> Result<(), Failure> {
        let flags = shown(inode);
        if self.args.json {
            self.to.json.open_object();
            self.to.json.key("path").text(path);
            self.to
                .json
                .key("flags")
                .string(&format!("{:08x}", flags.bits()));
            self.to.json.key("names").open_array();
            for name in names(flags) {
                self.to.json.string(name);
            }
            self.to.json.close_array();
            self.to.json.key("project").number(inode.projid);
            self.to.json.key("version").number(inode.generation);
            self.to.json.close_object();
            self.to.out.write_all(self.to.json.as_bytes())?;
            self.to.json.continue_array();
            return Ok(());
        }
        if self.args.project {
            write!(self.to.out, "{:>5} ", inode.projid)?;
        }
        if self.args.version {
            write!(self.to.out, "{:<10} ", inode.generation)?;
        }
        let path = escaped(path);
        match self.args.long {
            true => {
                let names = names(flags);
                let names = if names.is_empty() { vec!["---"] } else { names };
                writeln!(self.to.out, "{path:<28} {}", names.join(", "))?;
            }
            false => writeln!(self.to.out, "{} {path}", letters(flags))?,
        }
        Ok(())
    }
}

/// Whether lsattr shows an inode.
fn has_flags(inode: &Inode) -> bool {
    matches!(inode.file_type, FileType::Directory | FileType::Regular)
}
