//! `manifest`: describes every file of a tree, one JSON object a line, sorted by path.

mod bodyfile;
mod sums;

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use uext4::{Error, FollowLast, Image, Inode};
use uext4_ondisk::inode::FileType;

use self::sums::Sums;
use super::{Output, bytes};
use crate::args::{ImageArgs, parse_size};
use crate::failure::{Exit, Failure, exit_of, note};
use crate::json::Json;
use crate::messages;
use crate::open;
use crate::paths;
use crate::progress::Progress;
use crate::record;
use uext4_image::walk::{Entry, Order, Problem, Step, Walk};

/// Describe every file: one JSON object a line, sorted by path
///
/// Keys: path (relative; "." is the top; names that are not UTF-8 or begin with "hex:" as "hex:…",
/// which all commands accept as a path), type (file dir symlink chr blk fifo sock), mode, uid, gid,
/// size, nlink, ino, blocks (of 512 bytes), atime_ns, mtime_ns, ctime_ns, the same as atime, mtime,
/// ctime in seconds with nine decimals as a string, crtime_ns and crtime where the inode has room
/// for them, dtime (seconds; only where it is not 0), rdev, target, sha256, xattrs (name to hex of
/// the value), flags (as lsattr), and error in place of what could not be read. Of files with far
/// more holes than data, sha256_omitted says why there is no sha256.
///
/// With --format bodyfile, a line for each file as fls(1) of The Sleuth Kit writes them for
/// mactime: no hash, name, inode, type and mode, owner, group, size, and times of access,
/// modification, change and birth in seconds.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 manifest disk.img > before.jsonl
  uext4 manifest --no-hash disk.img | jq -r 'select(.mode | startswith(\"4\")) | .path'
  uext4 manifest --format bodyfile disk.img | mactime -b - -d
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
    /// Leave out sha256 of files that are larger; without it, only of what has holes of more than
    /// 64 GiB in all
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "no_hash")]
    hash_max: Option<u64>,
    /// What is written: jsonl, or bodyfile
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Jsonl)]
    #[arg(hide_default_value = true, hide_possible_values = true)]
    format: Format,
    /// Accepted as in other commands; the output is always JSON
    #[arg(long, hide = true)]
    json: bool,
}

/// The form of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Jsonl,
    Bodyfile,
}

/// Prints the manifest.
pub fn run(args: &ManifestArgs, out: &mut Output) -> Result<Exit, Failure> {
    let fs = open::open(&args.image)?;
    let path = bytes(args.path.as_os_str());
    let top = paths::resolve(&fs, path, FollowLast::No)?;
    if args.format == Format::Bodyfile {
        return bodyfile::write(&fs, top, path, out);
    }
    let mut manifest = Manifest {
        fs: &fs,
        json: Json::new(),
        sums: (!args.no_hash).then(|| Sums::new(&fs, args.hash_max)),
        hash_max: args.hash_max.unwrap_or(u64::MAX),
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
    /// Size of the largest file that is hashed.
    hash_max: u64,
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
        if let Some(crtime) = inode.crtime {
            record::time(&mut self.json, "crtime_ns", "crtime", crtime);
        }
        if inode.dtime != 0 {
            self.json.key("dtime").number(inode.dtime);
        }
        let hashed = inode.file_type == FileType::Regular && inode.size <= self.hash_max;
        if let Some(sums) = self.sums.as_mut().filter(|_| hashed) {
            match sums.of(self.fs, inode) {
                Ok(Some(sum)) => self.json.key("sha256").hex(&sum),
                Ok(None) => {
                    let why = sums.too_many_holes();
                    self.json.key("sha256_omitted").string(&why);
                }
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
