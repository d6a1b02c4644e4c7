//! `du`: the space that files and directories take.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use uext4::{FollowLast, Image, Inode};
use uext4_image::walk::{InodeSet, Order, Step, Walk, joined};
use uext4_ondisk::inode::FileType;

use super::{Output, bytes};
use crate::args::long_help;
use crate::failure::{Complaints, Exit, Failure};
use crate::json::Json;
use crate::paths;
use crate::show::{escaped, size_short};

/// Show how much space directories take
///
/// Each directory is printed after those below it, with the space that its files, and all
/// directories below it, take: blocks of data, of maps and of extended attributes, in KiB rounded
/// up. A file with several names counts once.
#[derive(Args, Clone, Debug)]
#[command(disable_help_flag = true, arg = long_help())]
#[command(after_help = "Examples:
  uext4 du -sh disk.img
  uext4 du -h -d 1 disk.img /var
  uext4 du -ab disk.img /etc | sort -n
  uext4 du --json disk.img | jq -r 'select(.disk_bytes > 1e6) | .path'")]
pub struct DuArgs {
    /// Directories or files in the image
    #[arg(value_name = "PATH", default_value = "/", hide_default_value = true)]
    paths: Vec<PathBuf>,
    /// Print only the sum of each PATH
    #[arg(short, long, conflicts_with_all = ["all", "max_depth"])]
    summarize: bool,
    /// Print files, too
    #[arg(short, long)]
    all: bool,
    /// Print what is at most N directories below a PATH
    #[arg(short = 'd', long, value_name = "N")]
    max_depth: Option<usize>,
    /// Print sizes in K, M, G and T, rounded up
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Add up the sizes of files and symbolic links, not the blocks that they take
    #[arg(long)]
    apparent_size: bool,
    /// Print the apparent size in bytes
    #[arg(short, long)]
    bytes: bool,
    /// Print the sum of all PATHs at the end
    #[arg(short = 'c', long)]
    total: bool,
    /// Print one JSON object a line, with both sizes in bytes
    #[arg(long)]
    json: bool,
}

/// What files take, together.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    /// Units of 512 bytes.
    blocks: u64,
    /// The sizes of files and symbolic links.
    apparent: u64,
}

impl Usage {
    fn of(inode: &Inode) -> Self {
        let has_size = matches!(inode.file_type, FileType::Regular | FileType::Symlink);
        Self {
            blocks: inode.blocks,
            apparent: if has_size { inode.size } else { 0 },
        }
    }

    fn add(&mut self, other: Self) {
        self.blocks = self.blocks.saturating_add(other.blocks);
        self.apparent = self.apparent.saturating_add(other.apparent);
    }
}

/// Prints the sums.
pub fn run(args: &DuArgs, fs: &Image, out: &mut Output) -> Result<Exit, Failure> {
    let mut sums = Sums {
        fs,
        args,
        out,
        json: Json::new(),
        counted: InodeSet::default(),
        complaints: Complaints::new(),
    };
    let mut total = Usage::default();
    for path in &args.paths {
        let path = bytes(path.as_os_str());
        match paths::resolve(fs, path, FollowLast::Yes) {
            Ok(top) => total.add(sums.tree(path, top)?),
            Err(failure) => sums.complaints.failure(failure)?,
        }
    }
    if args.total {
        sums.print(b"total", "total", total)?;
    }
    Ok(sums.complaints.exit())
}

struct Sums<'a> {
    fs: &'a Image,
    args: &'a DuArgs,
    out: &'a mut Output,
    json: Json,
    /// Files with several names that were counted.
    counted: InodeSet,
    complaints: Complaints,
}

impl Sums<'_> {
    fn tree(&mut self, start: &[u8], top: Inode) -> Result<Usage, Failure> {
        let mut walk = Walk::new(self.fs, top, Order::Nested);
        // What each open directory takes so far, itself included; first what all take.
        let mut open = vec![Usage::default()];
        // A directory that was shown, and is entered by the next step, if at all.
        let mut shown: Option<(Usage, Vec<u8>)> = None;
        while let Some(step) = walk.step() {
            let path = joined(start, walk.path());
            let shown_before = shown.take();
            match step {
                Step::Enter(_) => {
                    open.push(shown_before.map_or_else(Usage::default, |(usage, _)| usage));
                    continue;
                }
                Step::Leave => {
                    self.end_without_contents(shown_before, &mut open)?;
                    let usage = open.pop().unwrap_or_default();
                    self.directory(&path, open.len() - 1, usage)?;
                    add_to_last(&mut open, usage);
                }
                Step::Entry(entry) => {
                    self.end_without_contents(shown_before, &mut open)?;
                    if let Some(problem) = &entry.problem {
                        let what = format_args!("{}: {problem}", escaped(&path));
                        self.complaints.report(Exit::Damaged, what);
                    }
                    let inode = match &entry.inode {
                        Ok(inode) => inode,
                        Err(error) => {
                            self.complaints.engine(escaped(&path), error);
                            continue;
                        }
                    };
                    if inode.file_type == FileType::Directory {
                        shown = Some((Usage::of(inode), path));
                    } else if inode.links < 2 || self.counted.insert(inode.ino) {
                        self.file(&path, entry.depth, Usage::of(inode))?;
                        add_to_last(&mut open, Usage::of(inode));
                    }
                }
            }
        }
        self.end_without_contents(shown, &mut open)?;
        Ok(open.pop().unwrap_or_default())
    }

    /// Counts a directory that was shown and not entered.
    fn end_without_contents(
        &mut self,
        shown: Option<(Usage, Vec<u8>)>,
        open: &mut [Usage],
    ) -> Result<(), Failure> {
        if let Some((usage, path)) = shown {
            self.directory(&path, open.len() - 1, usage)?;
            add_to_last(open, usage);
        }
        Ok(())
    }

    fn directory(&mut self, path: &[u8], depth: usize, usage: Usage) -> Result<(), Failure> {
        match self.is_shown(depth) {
            true => self.print(path, "path", usage),
            false => Ok(()),
        }
    }

    /// A file is printed with `-a`, or where it was named.
    fn file(&mut self, path: &[u8], depth: usize, usage: Usage) -> Result<(), Failure> {
        match depth == 0 || self.args.all && self.is_shown(depth) {
            true => self.print(path, "path", usage),
            false => Ok(()),
        }
    }

    fn is_shown(&self, depth: usize) -> bool {
        let most = match self.args.summarize {
            true => Some(0),
            false => self.args.max_depth,
        };
        most.is_none_or(|most| depth <= most)
    }

    fn print(&mut self, name: &[u8], key: &str, usage: Usage) -> Result<(), Failure> {
        let disk_bytes = usage.blocks.saturating_mul(512);
        if self.args.json {
            let json = &mut self.json;
            json.clear();
            json.open_object();
            match key {
                "total" => json.key(key).value(true),
                _ => json.key(key).text(name),
            }
            json.key("disk_bytes").number(disk_bytes);
            json.key("apparent_bytes").number(usage.apparent);
            json.close_object();
            json.end_line();
            return Ok(self.out.write_all(json.as_bytes())?);
        }
        let is_apparent = self.args.apparent_size || self.args.bytes;
        let bytes = if is_apparent {
            usage.apparent
        } else {
            disk_bytes
        };
        let size = match self.args {
            DuArgs { human_readable, .. } if *human_readable => size_short(bytes),
            DuArgs { bytes: true, .. } => bytes.to_string(),
            _ => bytes.div_ceil(1024).to_string(),
        };
        writeln!(self.out, "{size}\t{}", escaped(name))?;
        Ok(())
    }
}

fn add_to_last(open: &mut [Usage], usage: Usage) {
    if let Some(above) = open.last_mut() {
        above.add(usage);
    }
}
