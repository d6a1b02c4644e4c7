//! `manifest`: everything a tree holds, one JSON object a line, sorted by path.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use sha2::{Digest, Sha256};
use uext4::{Error, Filesystem, FollowLast, Inode};
use uext4_ondisk::inode::FileType;

use super::{Output, bytes};
use crate::args::ImageArgs;
use crate::failure::{Exit, Failure, exit_of};
use crate::json::Json;
use crate::open;
use crate::record;
use crate::walk::{Entry, Order, Problem, Step, Walk};

/// Files up to this many bytes are hashed.
const HASHED_MAX: u64 = 64 << 20;
/// Bytes read at once.
const PIECE: usize = 1 << 20;

/// Describe every file: one JSON object a line, sorted by path
///
/// Keys: path (relative; "." is the top; names that are not UTF-8 as "hex:…"), type (file dir
/// symlink chr blk fifo sock), mode, uid, gid, size, nlink, ino, blocks (of 512 bytes), atime_ns,
/// mtime_ns, ctime_ns, rdev, target, sha256 (files up to 64 MiB), xattrs (name to hex of the
/// value), flags (as lsattr), and error in place of what could not be read.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 manifest disk.img > before.jsonl
  uext4 manifest --no-hash disk.img | jq -r 'select(.mode | startswith(\"4\")) | .path'
  diff <(uext4 manifest a.img) <(uext4 manifest b.img)")]
pub struct ManifestArgs {
    #[command(flatten)]
    image: ImageArgs,
    /// Directory or file to describe instead of everything
    #[arg(value_name = "PATH", default_value = "/", hide_default_value = true)]
    path: PathBuf,
    /// Leave out sha256, and so read no file data
    #[arg(long)]
    no_hash: bool,
    /// Accepted for likeness with the other commands; the output is JSON in any case
    #[arg(long, hide = true)]
    json: bool,
}

/// Prints the manifest.
pub fn run(args: &ManifestArgs, out: &mut Output) -> Result<Exit, Failure> {
    let fs = open::open(&args.image)?;
    let top = open::resolve(&fs, bytes(args.path.as_os_str()), FollowLast::No)?;
    let mut manifest = Manifest {
        fs: &fs,
        json: Json::new(),
        piece: if args.no_hash {
            Vec::new()
        } else {
            vec![0; PIECE]
        },
        hash: !args.no_hash,
        failed: 0,
        worst: Exit::Success,
    };
    let mut walk = Walk::new(&fs, top, Order::Sorted);
    while let Some(step) = walk.step() {
        if let Step::Entry(entry) = step {
            manifest.line(walk.text_path(), &entry);
            out.write_all(manifest.json.as_bytes())?;
        }
    }
    if manifest.failed > 0 {
        eprintln!(
            "uext4: {} of the files could not be read wholly (see their `error`)",
            manifest.failed
        );
    }
    Ok(manifest.worst)
}

struct Manifest<'a> {
    fs: &'a Filesystem,
    json: Json,
    piece: Vec<u8>,
    hash: bool,
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
        if hashed && self.hash {
            match sha256(self.fs, inode, &mut self.piece) {
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

/// The hash of a file's contents; holes are hashed without being read.
fn sha256(fs: &Filesystem, inode: &Inode, piece: &mut [u8]) -> Result<[u8; 32], Error> {
    let mut hasher = Sha256::new();
    let mut at = 0;
    for range in fs.data_ranges(inode)? {
        let range = range?;
        zeroes(&mut hasher, range.start.saturating_sub(at));
        at = range.start;
        while at < range.end {
            let want = piece.len().min((range.end - at) as usize);
            let got = fs.read_at(inode, at, &mut piece[..want])?;
            if got == 0 {
                break;
            }
            hasher.update(&piece[..got]);
            at += got as u64;
        }
    }
    zeroes(&mut hasher, inode.size.saturating_sub(at));
    Ok(hasher.finalize().into())
}

fn zeroes(hasher: &mut Sha256, mut count: u64) {
    const ZEROES: [u8; 4096] = [0; 4096];
    while count > 0 {
        let some = count.min(ZEROES.len() as u64);
        hasher.update(&ZEROES[..some as usize]);
        count -= some;
    }
}
