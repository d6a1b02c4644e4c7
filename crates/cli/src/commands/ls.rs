//! `ls`: the names in a directory, alone or with the columns of `ls -l`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use uext4::{FollowLast, Image, Inode};
use uext4_ondisk::inode::FileType;

use super::{Output, bytes};
use crate::args::long_help;
use crate::color::{ColorArgs, Colors};
use crate::failure::{Complaints, Exit, Failure};
use crate::json::Json;
use crate::paths;
use crate::record;
use crate::show::{escaped, mode_text, size_short, time_short};
use uext4_image::walk::{Entry, Order, Step, Walk, joined};

/// List a directory
///
/// All names are listed, including those that begin with a dot, sorted by their bytes. Control
/// characters are escaped as `ls -b` does. Times are UTC.
#[derive(Args, Clone, Debug)]
#[command(disable_help_flag = true, arg = long_help())]
#[command(after_help = "Examples:
  uext4 ls disk.img
  uext4 ls -l disk.img /etc /srv
  uext4 ls -lR disk.img / | grep rws
  uext4 ls --json disk.img /etc | jq -r '.[].path'")]
pub struct LsArgs {
    /// Directories or files in the image
    #[arg(value_name = "PATH", default_value = "/", hide_default_value = true)]
    paths: Vec<PathBuf>,
    /// Print type, mode, links, owner, group, size, modification time and link target
    #[arg(short)]
    long: bool,
    /// As -l; owners and groups are always shown as numbers
    #[arg(short, long)]
    numeric_uid_gid: bool,
    /// List subdirectories recursively
    #[arg(short = 'R')]
    recursive: bool,
    /// Print inode numbers
    #[arg(short)]
    inode: bool,
    /// List a directory or a symbolic link itself, not its contents or target
    #[arg(short = 'd', long, conflicts_with = "recursive")]
    directory: bool,
    /// With -l, print sizes in K, M, G and T, rounded up
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// List names that begin with a dot; this is always done
    #[arg(short = 'a', long)]
    all: bool,
    /// Print one name on each line; this is always done
    #[arg(short = '1')]
    one: bool,
    /// Print one JSON array of objects
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    color: ColorArgs,
}

/// Prints the list.
pub fn run(args: &LsArgs, fs: &Image, out: &mut Output) -> Result<Exit, Failure> {
    let mut list = List {
        fs,
        args,
        colors: args.color.read(),
        out,
        json: Json::new(),
        complaints: Complaints::new(),
        is_begun: false,
    };
    if args.json {
        list.json.open_array();
    }
    for path in &args.paths {
        match (list.operand(bytes(path.as_os_str())), &args.paths[..]) {
            (Err(failure), [_]) => return Err(failure),
            (Err(failure), _) => list.complaints.failure(failure)?,
            (Ok(()), _) => {}
        }
    }
    if args.json {
        list.json.print_array(list.out)?;
    }
    Ok(list.complaints.exit())
}

struct List<'a> {
    fs: &'a Image,
    args: &'a LsArgs,
    colors: Colors,
    out: &'a mut Output,
    json: Json,
    complaints: Complaints,
    /// Something was listed before.
    is_begun: bool,
}

impl List<'_> {
    /// Lists one of the paths.
    fn operand(&mut self, path: &[u8]) -> Result<(), Failure> {
        let args = self.args;
        let last = match args.directory {
            true => FollowLast::No,
            false => FollowLast::Yes,
        };
        let top = paths::resolve(self.fs, path, last)?;
        let is_dir = top.file_type == FileType::Directory && !args.directory;
        let mut walk = Walk::new(self.fs, top, Order::Listing);
        while let Some(step) = walk.step() {
            let path = joined(path, walk.path());
            match step {
                Step::Entry(entry) => {
                    if let Some(problem) = &entry.problem {
                        let what = format_args!("{}: {problem}", escaped(&path));
                        self.complaints.report(Exit::Damaged, what);
                    }
                    if entry.depth > 0 || !is_dir {
                        self.entry(&entry, &path)?;
                    }
                }
                Step::Enter(_) if args.directory => break,
                Step::Enter(_) if walk.depth() > 1 && !args.recursive => break,
                Step::Enter(_) => self.heading(&path)?,
                Step::Leave => {}
            }
        }
        Ok(())
    }

    fn heading(&mut self, path: &[u8]) -> Result<(), Failure> {
        let is_wanted = self.args.recursive || self.args.paths.len() > 1;
        if is_wanted && !self.args.json {
            let gap = if self.is_begun { "\n" } else { "" };
            writeln!(self.out, "{gap}{}:", escaped(path))?;
            self.is_begun = true;
        }
        Ok(())
    }

    fn entry(&mut self, entry: &Entry, path: &[u8]) -> Result<(), Failure> {
        self.is_begun = true;
        if self.args.json {
            return self.object(entry, path);
        }
        if self.args.inode {
            write!(self.out, "{:>10} ", entry.ino.0)?;
        }
        let name = if entry.depth == 0 { path } else { &entry.name };
        match &entry.inode {
            Err(error) => {
                self.complaints.engine(escaped(path), error);
                let unknown = if self.is_long() { "?????????? " } else { "" };
                writeln!(self.out, "{unknown}{}", escaped(name))?;
            }
            Ok(inode) if self.is_long() => self.line(inode, name, path)?,
            Ok(inode) => writeln!(self.out, "{}", self.colors.paint(name, inode))?,
        }
        Ok(())
    }

    fn is_long(&self) -> bool {
        self.args.long || self.args.numeric_uid_gid
    }

    fn line(&mut self, inode: &Inode, name: &[u8], path: &[u8]) -> Result<(), Failure> {
        let size = match inode.rdev {
            Some(rdev) => format!("{}, {}", rdev.major, rdev.minor),
            None if self.args.human_readable => size_short(inode.size),
            None => inode.size.to_string(),
        };
        write!(
            self.out,
            "{} {:>3} {:>5} {:>5} {size:>12} {} {}",
            mode_text(inode.file_type, inode.mode),
            inode.links,
            inode.uid,
            inode.gid,
            time_short(inode.mtime.sec),
            self.colors.paint(name, inode)
        )?;
        if inode.file_type == FileType::Symlink {
            match self.fs.read_link(inode) {
                Ok(target) => write!(self.out, " -> {}", escaped(&target))?,
                Err(error) => self.complaints.engine(escaped(path), &error),
            }
        }
        writeln!(self.out)?;
        Ok(())
    }

    fn object(&mut self, entry: &Entry, path: &[u8]) -> Result<(), Failure> {
        object(
            &mut self.json,
            self.fs,
            Named { image: b"", path },
            entry,
            &mut self.complaints,
        );
        self.out.write_all(self.json.as_bytes())?;
        self.json.continue_array();
        Ok(())
    }
}

/// What an entry is called.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// The image and a colon, where there are several; else nothing.
    pub image: &'a [u8],
    /// Its path in the image.
    pub path: &'a [u8],
}

impl Named<'_> {
    /// Both, as `grep` writes them.
    pub fn whole(&self) -> Vec<u8> {
        [self.image, self.path].concat()
    }

    /// The same for a line of text.
    pub fn escaped(&self) -> String {
        escaped(&self.whole())
    }
}

/// One entry as a JSON object.
pub fn object(
    json: &mut Json,
    fs: &Image,
    named: Named<'_>,
    entry: &Entry,
    complaints: &mut Complaints,
) {
    json.open_object();
    if let Some(image) = named.image.strip_suffix(b":") {
        json.key("image").text(image);
    }
    json.key("path").text(named.path);
    let result = match &entry.inode {
        Ok(inode) => record::write(json, fs, inode).map_err(|e| e.to_string()),
        Err(error) => {
            json.key("ino").number(entry.ino.0);
            Err(error.to_string())
        }
    };
    let problem = entry.problem.as_ref().map(ToString::to_string);
    if let Some(error) = result.err().or(problem) {
        complaints.report(
            Exit::Incomplete,
            format_args!("{}: {error}", named.escaped()),
        );
        json.key("error").string(&error);
    }
    json.close_object();
}
