//! Lines of a body file, version 3, as The Sleuth Kit writes them and its mactime(1) reads them:
//! `MD5|name|inode|mode|UID|GID|size|atime|mtime|ctime|crtime`.

use std::io::Write;

use uext4::{Image, Inode};
use uext4_image::walk::{Entry, Order, Step, Walk, joined};
use uext4_ondisk::inode::FileType;

use crate::commands::Output;
use crate::failure::{Complaints, Exit, Failure};
use crate::progress::Progress;
use crate::record::stat_size;
use crate::show::{escaped, mode_text};

/// Writes a line for each file from `top`, whose path is `path`, on.
///
/// # Errors
/// Those of `out`.
pub fn write(fs: &Image, top: Inode, path: &[u8], out: &mut Output) -> Result<Exit, Failure> {
    let mut complaints = Complaints::new();
    let mut progress = Progress::new("described", fs, &top);
    let mut walk = Walk::new(fs, top, Order::Sorted);
    while let Some(step) = walk.step() {
        let Step::Entry(entry) = step else {
            continue;
        };
        let path = absolute(&joined(path, walk.path()));
        progress.add(0);
        report(&entry, &path, &mut complaints);
        if let Ok(inode) = &entry.inode {
            let target = match inode.file_type {
                FileType::Symlink => fs.read_link(inode).unwrap_or_else(|error| {
                    complaints.engine(escaped(&path), &error);
                    Vec::new()
                }),
                _ => Vec::new(),
            };
            out.write_all(line(&path, &target, inode).as_bytes())?;
        }
    }
    Ok(complaints.exit())
}

fn absolute(path: &[u8]) -> Vec<u8> {
    match path.strip_prefix(b"/") {
        Some(_) => path.to_vec(),
        None => [b"/", path].concat(),
    }
}

fn report(entry: &Entry, path: &[u8], complaints: &mut Complaints) {
    if let Some(problem) = &entry.problem {
        complaints.report(Exit::Damaged, format_args!("{}: {problem}", escaped(path)));
    }
    if let Err(error) = &entry.inode {
        complaints.engine(escaped(path), error);
    }
}

/// A line. There is no hash: mactime takes 0 for that.
fn line(path: &[u8], target: &[u8], inode: &Inode) -> String {
    let mut name = field(path);
    if !target.is_empty() {
        name = format!("{name} -> {}", field(target));
    }
    let (of_name, of_inode) = kind(inode.file_type);
    // The first letter is that of ls, which is not always that of The Sleuth Kit.
    let mode = mode_text(inode.file_type, inode.mode);
    let mode = mode.get(1..).unwrap_or_default();
    format!(
        "0|{name}|{}|{of_name}/{of_inode}{mode}|{}|{}|{}|{}|{}|{}|{}\n",
        inode.ino.0,
        inode.uid,
        inode.gid,
        stat_size(inode),
        inode.atime.sec,
        inode.mtime.sec,
        inode.ctime.sec,
        inode.crtime.map_or(0, |time| time.sec),
    )
}

/// A name in which no character ends a field or a line.
fn field(bytes: &[u8]) -> String {
    escaped(bytes).replace('|', "\\174")
}

/// The letters for a type, in names and in inodes.
fn kind(file_type: FileType) -> (char, char) {
    match file_type {
        FileType::Regular => ('r', 'r'),
        FileType::Directory => ('d', 'd'),
        FileType::Symlink => ('l', 'l'),
        FileType::CharDevice => ('c', 'c'),
        FileType::BlockDevice => ('b', 'b'),
        FileType::Fifo => ('p', 'p'),
        FileType::Socket => ('s', 'h'),
    }
}
