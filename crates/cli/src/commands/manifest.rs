//! `manifest`: describes every file of a tree, one JSON object a line, sorted by path.

mod sums;

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use uext4::{Error, FollowLast, Image, Inode};
use uext4_ondisk::inode::FileType;

use self::sums::Sums;
use super::{Output, bytes};
use crate::args::ImageArgs;
use crate::failure::{Exit, Failure, exit_of, note};
use crate::json::Json;
use crate::messages;
use crate::open;
use crate::paths;
use crate::progress::Progress;
use crate::record;
use uext4_image::walk::{Entry, Order, Problem, Step, Walk};

/// Files up to this many bytes are hashed.
const HASHED_MAX: u64 = 64 << 20;

/// Describe every file: one JSON object a line, sorted by path
///
/// Keys: path (relative; "." is the top; names that are not UTF-8 or begin with "hex:" as
/// "hex:…", which all commands accept as a path), type (file dir symlink chr blk fifo sock),
/// mode, uid, gid, size, nlink, ino, blocks (of 512 bytes), atime_ns, mtime_ns, ctime_ns, the
/// same as atime, mtime, ctime in seconds with nine decimals as a string, rdev, target, sha256
/// (files up to 64 MiB), xattrs (name to hex of the value), flags (as lsattr), and error in place
/// of what could not be read.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 manifest disk.img > before.jsonl
  uext4 manifest --no-hash disk.img | jq -r 'select(.mode | startswith(\"4\")) | .path'
  diff <(uext4 manifest a.img) <(uext4 manifest b.img)")]
pub struct ManifestArgs {
    #[command(flatten)]
    image: ImageArgs,
    /// Directory or file to describe
    #[arg(value_name = "PATH", default_value = "/", hide_default_value = true)]
    path: PathBuf,
    /// Leave out sha256; no file data is read then
    #[arg(long)]
    no_hash: bool,
    /// Accepted as in other commands; the output is always JSON
    #[arg(long, hide = true)]
    json: bool,
}

/// Prints the manifest.
pub fn run(args: &ManifestArgs, out: &mut Output) -> Result<Exit, Failure> {
    let fs = open::open(&args.image)?;
    let top = paths::resolve(&fs, bytes(args.path.as_os_str()), FollowLast::No)?;
    let mut manifest = Manifest {
        fs: &fs,
        json: Json::new(),
        sums: (!args.no_hash).then(|| Sums::new(&fs)),
        failed: 0,
        worst: Exit::Success,
    };
    let mut progress = Progress::new("described", &fs, &top);
    let mut walk = Walk::new(&fs, top, Order::Sorted);
    while let Some(step) = walk.step() {
        if let Step::Entry(entry) = step {
            progress.add(entry.inode.as_ref().map_or(0, |inode| inode.size));
            manifest.line(walk.text_path(), &entry);
            out.write_all(manifest.json.as_bytes())?;
        }
    }
    if manifest.failed > 0 {
        messages::warning(format_args!(
            "{} of the files could not be read wholly (see their `error`)",
            manifest.failed
        ));
    }
    Ok(manifest.worst)
}

struct Manifest<'a> {
    fs: &'a Image,
    json: Json,
    /// None if files are not to be hashed.
    sums: Option<Sums>,
    failed: u64,
    worst: Exit,
}

impl Manifest<'_> {
    fn line(&mut self, path: &str, entry: &Entry) {
        self.json.clear();
        self.json.open_object();
        self.json.key("path").string(path);
        let mut errors = Vec::new();
        match &entry.inode {
            Ok(inode) => self.keys(inode, &mut errors),
            Err(error) => self.failed(error, &mut errors),
        }
        match &entry.problem {
            Some(Problem::Unreadable(error)) => self.failed(error, &mut errors),
            Some(problem) => {
                note(Exit::Damaged);
                self.worst = self.worst.max(Exit::Damaged);
                errors.push(problem.to_string());
            }
            None => {}
        }
        if !errors.is_empty() {
            self.failed += 1;
            self.json.key("error").string(&errors.join("; "));
        }
        self.json.close_object();
        self.json.end_line();
    }

    fn failed(&mut self, error: &Error, errors: &mut Vec<String>) {
        note(exit_of(error));
        self.worst = self.worst.max(exit_of(error));
        let text = error.to_string();
        if !errors.contains(&text) {
            errors.push(text);
        }
    }

    fn keys(&mut self, inode: &Inode, errors: &mut Vec<String>) {
        if let Err(error) = record::write(&mut self.json, self.fs, inode) {
            self.failed(&error, errors);
        }
        let hashed = inode.file_type == FileType::Regular && inode.size <= HASHED_MAX;
        if let Some(sums) = self.sums.as_mut().filter(|_| hashed) {
            match sums.of(self.fs, inode) {
                Ok(sum) => self.json.key("sha256").hex(&sum),
                Err(error) => self.failed(&error, errors),
            }
        }
        match self.fs.xattrs(inode) {
            Ok(xattrs) => {
                self.json.key("xattrs").open_object();
                for xattr in &xattrs {
                    self.json.key_text(&xattr.name).hex(&xattr.value);
                }
                self.json.close_object();
            }
            Err(error) => self.failed(&error, errors),
        }
    }
}
