//! `find`: the paths of the files in images that meet conditions.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use uext4::{FollowLast, Image};
use uext4_image::walk::{Entry, Order, Step, Walk, joined};

use super::ls::{Named, object};
use super::{Output, bytes};
use crate::args::{ImageArgs, ImagesArgs};
use crate::color::{ColorArgs, Colors};
use crate::failure::{Complaints, Exit, Failure};
use crate::find_filter::{Filter, FilterArgs};
use crate::json::Json;
use crate::open;
use crate::paths;

/// Find files by name, type, size, time, owner, permissions or attributes
///
/// Prints the path of each file that meets all conditions, and each directory before its contents,
/// sorted by the bytes of their names. With several images, the name of the image stands before
/// the path: IMAGE:PATH. An image or directory that cannot be read is reported, and the search
/// goes on. Symbolic links are not followed.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 find disk.img --name '*.conf'
  uext4 find disk.img --in /usr --type f --perm -4000
  uext4 find disk.img --size +10M --changed-after 2026-01-01 --json
  uext4 find *.img --name shadow")]
pub struct FindArgs {
    #[command(flatten)]
    images: ImagesArgs,
    /// Start at PATH in the image
    #[arg(
        long = "in",
        value_name = "PATH",
        default_value = "/",
        hide_default_value = true
    )]
    start: PathBuf,
    /// Descend at most N directories
    #[arg(long, value_name = "N")]
    max_depth: Option<usize>,
    /// End each path with a zero byte in place of a line feed, and escape nothing
    #[arg(short = '0', long, conflicts_with = "json")]
    print0: bool,
    /// Print one JSON object a line, with the keys of `ls --json`
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    color: ColorArgs,
    #[command(flatten)]
    conditions: FilterArgs,
}

/// Prints what is found.
pub fn run(args: &FindArgs, out: &mut Output) -> Result<Exit, Failure> {
    let filter = Filter::new(&args.conditions);
    let filter = filter.map_err(|error| Failure::new(Exit::Usage, error))?;
    let mut search = Search {
        args,
        filter,
        colors: args.color.read(),
        out,
        json: Json::new(),
        complaints: Complaints::new(),
    };
    for image in args.images.each() {
        if let Err(failure) = search.image(&image) {
            search.complaints.failure(failure)?;
        }
    }
    Ok(search.complaints.exit())
}

struct Search<'a> {
    args: &'a FindArgs,
    filter: Filter<'a>,
    colors: Colors,
    out: &'a mut Output,
    json: Json,
    complaints: Complaints,
}

impl Search<'_> {
    fn image(&mut self, image: &ImageArgs) -> Result<(), Failure> {
        let prefix = self.args.images.prefix(image);
        let start = bytes(self.args.start.as_os_str());
        let fs = open::open(image)?;
        let top = paths::resolve(&fs, start, FollowLast::No)?;
        let mut walk = Walk::new(&fs, top, Order::Nested);
        while let Some(step) = walk.step() {
            let Step::Entry(entry) = step else {
                continue;
            };
            if self
                .args
                .max_depth
                .is_some_and(|depth| entry.depth >= depth)
            {
                walk.skip_contents(entry.ino);
            }
            let path = joined(start, walk.path());
            let named = Named {
                image: &prefix,
                path: &path,
            };
            let is_found = match &entry.inode {
                Ok(inode) => self.filter.holds(&fs, inode, &path),
                Err(_) => Ok(false),
            };
            if let Err(error) = is_found.as_ref().err().map_or(entry.inode.as_ref(), Err) {
                self.complaints.engine(named.escaped(), error);
            } else if let Some(problem) = &entry.problem {
                let what = format_args!("{}: {problem}", named.escaped());
                self.complaints.report(Exit::Damaged, what);
            }
            if is_found.unwrap_or(false) {
                self.print(&fs, named, &entry)?;
            }
        }
        Ok(())
    }

    fn print(&mut self, fs: &Image, named: Named<'_>, entry: &Entry) -> Result<(), Failure> {
        match &entry.inode {
            _ if self.args.json => {
                // What is wrong with the entry was reported.
                let mut reported = Complaints::new();
                self.json.clear();
                object(&mut self.json, fs, named, entry, &mut reported);
                self.json.end_line();
                self.out.write_all(self.json.as_bytes())?;
            }
            _ if self.args.print0 => {
                self.out.write_all(&named.whole())?;
                self.out.write_all(&[0])?;
            }
            Ok(inode) => writeln!(self.out, "{}", self.colors.paint(&named.whole(), inode))?,
            Err(_) => writeln!(self.out, "{}", named.escaped())?,
        }
        Ok(())
    }
}
