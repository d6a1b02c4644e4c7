//! `tree`: draws a directory and everything below it.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use uext4::FollowLast;
use uext4_ondisk::inode::FileType;

use super::ls::{Named, object};
use super::{Output, bytes};
use crate::args::{ImageArgs, long_help};
use crate::color::ColorArgs;
use crate::failure::{Complaints, Exit, Failure};
use crate::json::Json;
use crate::open;
use crate::paths;
use crate::show::{escaped, size_short};
use uext4_image::walk::{Entry, Order, Step, Walk, joined};

/// Draw a directory and everything below it
#[derive(Args, Debug)]
#[command(disable_help_flag = true, arg = long_help())]
#[command(after_help = "Examples:
  uext4 tree disk.img | less
  uext4 tree -L 2 disk.img /usr
  uext4 tree --json disk.img /etc")]
pub struct TreeArgs {
    #[command(flatten)]
    image: ImageArgs,
    /// Directory in the image
    #[arg(value_name = "PATH", default_value = "/", hide_default_value = true)]
    path: PathBuf,
    /// Descend at most LEVELS directories
    #[arg(short = 'L', value_name = "LEVELS")]
    levels: Option<usize>,
    /// Print the size of each file, in K, M, G and T
    #[arg(short = 'h')]
    human_readable: bool,
    /// Print one JSON array of objects
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    color: ColorArgs,
}

/// Draws the tree.
pub fn run(args: &TreeArgs, out: &mut Output) -> Result<Exit, Failure> {
    let fs = open::open(&args.image)?;
    let path = bytes(args.path.as_os_str());
    let top = paths::resolve(&fs, path, FollowLast::Yes)?;
    let mut complaints = Complaints::new();
    let mut json = Json::new();
    if args.json {
        json.open_array();
    }
    let colors = args.color.read();
    let mut drawing = Drawing::default();
    let mut walk = Walk::new(&fs, top, Order::Nested);
    while let Some(step) = walk.step() {
        let Step::Entry(entry) = step else {
            continue;
        };
        if args.levels.is_some_and(|levels| entry.depth >= levels) {
            walk.skip_contents(entry.ino);
        }
        let full = joined(path, walk.path());
        if args.json {
            let named = Named {
                image: b"",
                path: &full,
            };
            object(&mut json, &fs, named, &entry, &mut complaints);
            out.write_all(json.as_bytes())?;
            json.continue_array();
            continue;
        }
        match (&entry.inode, &entry.problem) {
            (Err(error), _) => complaints.engine(escaped(&full), error),
            (_, Some(problem)) => {
                complaints.report(Exit::Damaged, format_args!("{}: {problem}", escaped(&full)));
            }
            _ => {}
        }
        let shown = if entry.depth == 0 { path } else { &entry.name };
        write!(out, "{}", drawing.lines(&entry))?;
        match &entry.inode {
            Ok(inode) if args.human_readable => {
                let size = size_short(inode.size);
                write!(out, "[{size:>4}]  {}", colors.paint(shown, inode))?;
            }
            Ok(inode) => write!(out, "{}", colors.paint(shown, inode))?,
            Err(_) => write!(out, "{}", escaped(shown))?,
        }
        if let Ok(inode) = &entry.inode
            && inode.file_type == FileType::Symlink
        {
            match fs.read_link(inode) {
                Ok(target) => write!(out, " -> {}", escaped(&target))?,
                Err(error) => complaints.engine(escaped(&full), &error),
            }
        }
        writeln!(out)?;
    }
    if args.json {
        json.print_array(out)?;
    } else {
        writeln!(
            out,
            "\n{} directories, {} other files",
            drawing.directories, drawing.others
        )?;
    }
    Ok(complaints.exit())
}

/// The lines left of the names.
#[derive(Default)]
struct Drawing {
    /// For each level above, whether its entry was the last of its directory.
    last: Vec<bool>,
    directories: u64,
    others: u64,
}

impl Drawing {
    fn lines(&mut self, entry: &Entry) -> String {
        match &entry.inode {
            Ok(inode) if inode.file_type == FileType::Directory => {
                // The top itself is not counted.
                self.directories += u64::from(entry.depth > 0);
            }
            _ => self.others += 1,
        }
        let Some(above) = entry.depth.checked_sub(1) else {
            return String::new();
        };
        self.last.truncate(above);
        let mut lines: String = self
            .last
            .iter()
            .map(|last| if *last { "    " } else { "│   " })
            .collect();
        lines.push_str(if entry.last {
            "└── "
        } else {
            "├── "
        });
        self.last.push(entry.last);
        lines
    }
}
