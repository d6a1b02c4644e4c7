//! `lsattr`: prints inode flags.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use uext4::{Error, FileType, FollowLast, Image, Inode};
use uext4_image::walk::{Order, Step, Walk, joined};

use super::{Output, bytes};
use crate::failure::{Complaints, Exit, Failure};
use crate::inode_flags::{letters, names, shown};
use crate::json::Json;
use crate::open;
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
    let mut list = List {
        args,
        fs,
        out,
        json: Json::new(),
        complaints: Complaints::new(),
    };
    list.json.open_array();
    for path in &args.paths {
        if let Err(failure) = list.operand(bytes(path.as_os_str())) {
            list.complaints.failure(failure)?;
        }
    }
    if args.json {
        list.json.print_array(list.out)?;
    }
    Ok(list.complaints.exit())
}

struct List<'a> {
    args: &'a LsattrArgs,
    fs: &'a Image,
    out: &'a mut Output,
    json: Json,
    complaints: Complaints,
}

impl List<'_> {
    fn operand(&mut self, path: &[u8]) -> Result<(), Failure> {
        let top = open::resolve(self.fs, path, FollowLast::No)?;
        if top.file_type != FileType::Directory || self.args.directory {
            if !has_flags(&top) {
                let what = "flags of what is no file and no directory".to_owned();
                return Err(Failure::engine(escaped(path), &Error::Unsupported { what }));
            }
            return self.line(&top, path);
        }
        let mut walk = Walk::new(self.fs, top, Order::Nested);
        while let Some(step) = walk.step() {
            let path = joined(path, walk.path());
            match step {
                Step::Entry(entry) => {
                    if let Some(problem) = &entry.problem {
                        let what = format_args!("{}: {problem}", escaped(&path));
                        self.complaints.report(Exit::Damaged, what);
                    }
                    let is_hidden = entry.name.starts_with(b".") && !self.args.all;
                    if entry.depth > 0 && (is_hidden || !self.args.recursive) {
                        walk.skip_contents(entry.ino);
                    }
                    match &entry.inode {
                        Ok(inode) if entry.depth > 0 && !is_hidden && has_flags(inode) => {
                            self.line(inode, &path)?;
                        }
                        Ok(_) => {}
                        Err(error) => self.complaints.engine(escaped(&path), error),
                    }
                }
                Step::Enter(dir) => {
                    if walk.depth() > 1 && !self.args.json {
                        writeln!(self.out, "\n{}:", escaped(&path))?;
                    }
                    if self.args.all {
                        self.dots(&dir, &path)?;
                    }
                }
                Step::Leave if walk.depth() > 0 && !self.args.json => writeln!(self.out)?,
                Step::Leave => {}
            }
        }
        Ok(())
    }

    /// The directory itself, and the one it is in.
    fn dots(&mut self, dir: &Inode, path: &[u8]) -> Result<(), Failure> {
        self.line(dir, &joined(path, b"."))?;
        let parent = self.fs.lookup(dir, b"..");
        match parent.and_then(|ino| self.fs.inode(ino)) {
            Ok(parent) => self.line(&parent, &joined(path, b"..")),
            Err(error) => {
                self.complaints.engine(escaped(path), &error);
                Ok(())
            }
        }
    }

    fn line(&mut self, inode: &Inode, path: &[u8]) -> Result<(), Failure> {
        let flags = shown(inode);
        if self.args.json {
            self.json.open_object();
            self.json.key("path").text(path);
            self.json
                .key("flags")
                .string(&format!("{:08x}", flags.bits()));
            self.json.key("names").open_array();
            for name in names(flags) {
                self.json.string(name);
            }
            self.json.close_array();
            self.json.key("project").number(inode.projid);
            self.json.key("version").number(inode.generation);
            self.json.close_object();
            self.out.write_all(self.json.as_bytes())?;
            self.json.continue_array();
            return Ok(());
        }
        if self.args.project {
            write!(self.out, "{:>5} ", inode.projid)?;
        }
        if self.args.version {
            write!(self.out, "{:<10} ", inode.generation)?;
        }
        let path = escaped(path);
        match self.args.long {
            true => {
                let names = names(flags);
                let names = if names.is_empty() { vec!["---"] } else { names };
                writeln!(self.out, "{path:<28} {}", names.join(", "))?;
            }
            false => writeln!(self.out, "{} {path}", letters(flags))?,
        }
        Ok(())
    }
}

/// Whether lsattr shows an inode.
fn has_flags(inode: &Inode) -> bool {
    matches!(inode.file_type, FileType::Directory | FileType::Regular)
}
