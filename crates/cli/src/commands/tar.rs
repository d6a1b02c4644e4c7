//! `tar`: writes a tree as a tar archive to standard output.
//!
//! The archive is in pax format, where nothing is lost: nanoseconds, times before 1970, long names,
//! large ids, xattrs, holes. Left out: sockets, which tar cannot hold.

mod header;

use std::io::{self, IsTerminal, Write};
use std::ops::Range;
use std::path::PathBuf;

use clap::Args;
use uext4::{Error, FollowLast, Image, Inode};
use uext4_ondisk::inode::FileType;

use self::header::{Header, Pax, padding};
use super::{Output, bytes};
use crate::args::ImageArgs;
use crate::failure::{Complaints, Exit, Failure};
use crate::messages;
use crate::missing::Missing;
use crate::open;
use crate::paths;
use crate::progress::Progress;
use crate::show::escaped;
use uext4_image::Unreadable;
use uext4_image::budget::Budget;
use uext4_image::links::Links;
use uext4_image::readable::{Part, read_parts};
use uext4_image::walk::{Entry, Order, Step, Walk};

/// Bytes read at once.
const PIECE: usize = 1 << 20;
/// In place of what cannot be read.
const ZEROES: [u8; 4096] = [0; 4096];
/// Runs of data in a file with holes; one with more is stored without its holes. With the map's
/// last entry it is the million that `build` reads.
const RANGES_MAX: usize = (1 << 20) - 1;

/// Write a tree as a tar archive to standard output
///
/// The archive has xattrs and ACLs, hard links, holes, devices and nanoseconds. GNU tar restores
/// them with `tar -x --xattrs --xattrs-include='*' --acls`. Names begin with "./".
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 tar disk.img > disk.tar
  uext4 tar disk.img /etc | tar -tv
  uext4 tar disk.img | zstd > disk.tar.zst")]
pub struct TarArgs {
    #[command(flatten)]
    image: ImageArgs,
    /// Directory or file in the image
    #[arg(value_name = "PATH", default_value = "/", hide_default_value = true)]
    path: PathBuf,
}

/// Writes the archive.
pub fn run(args: &TarArgs, out: &mut Output) -> Result<Exit, Failure> {
    if io::stdout().is_terminal() {
        let what = "an archive is not written to a terminal";
        return Err(Failure::new(Exit::Usage, what)
            .hint("`uext4 tar IMAGE > FILE` stores it, and `uext4 tar IMAGE | tar -t` lists it"));
    }
    let fs = open::open(&args.image)?;
    let path = &*paths::meant(&fs, bytes(args.path.as_os_str()));
    let top = paths::resolve(&fs, path, FollowLast::Yes)?;
    let is_dir = top.file_type == FileType::Directory;
    let name = path
        .rsplit(|&b| b == b'/')
        .find(|part| !part.is_empty())
        .unwrap_or(b"file");
    let prefix = if is_dir { b"." } else { name };
    let what = Tree {
        top,
        prefix,
        unreadable: Unreadable::LeaveOut,
    };
    write_tree(&fs, what, &mut Missing::default(), out)
}

/// What is written.
pub struct Tree<'a> {
    /// Its top.
    pub top: Inode,
    /// What stands before its names.
    pub prefix: &'a [u8],
    /// What becomes of files whose map cannot be read wholly. Data that cannot be read are zeroes.
    pub unreadable: Unreadable,
}

/// Writes a tree as an archive; what cannot be read is reported, and left out or noted as missing.
///
/// # Errors
/// Those of writing.
pub fn write_tree(
    fs: &Image,
    what: Tree<'_>,
    missing: &mut Missing,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let Tree {
        top,
        prefix,
        unreadable,
    } = what;
    let mut archive = Archive::new(fs, out, missing, Complaints::new());
    archive.unreadable = unreadable;
    let mut progress = Progress::new("archived", fs, &top);
    let mut walk = Walk::new(fs, top, Order::Nested);
    while let Some(step) = walk.step() {
        let Step::Entry(entry) = step else {
            continue;
        };
        let mut path = prefix.to_vec();
        if !walk.path().is_empty() {
            path.push(b'/');
            path.extend_from_slice(walk.path());
        }
        progress.add(entry.inode.as_ref().map_or(0, |inode| inode.size));
        archive.entry(&entry, path)?;
    }
    archive.end()
}

/// An archive under way.
pub struct Archive<'a> {
    fs: &'a Image,
    out: &'a mut Output,
    missing: &'a mut Missing,
    unreadable: Unreadable,
    /// The first paths of the files that it has.
    pub links: Links,
    /// What could not be archived.
    pub complaints: Complaints,
    piece: Vec<u8>,
    budget: Budget,
}

impl<'a> Archive<'a> {
    /// Nothing is written yet. Files that cannot be read wholly are left out, and reported to
    /// `complaints`.
    pub fn new(
        fs: &'a Image,
        out: &'a mut Output,
        missing: &'a mut Missing,
        complaints: Complaints,
    ) -> Self {
        Self {
            fs,
            out,
            missing,
            unreadable: Unreadable::LeaveOut,
            links: Links::default(),
            complaints,
            piece: vec![0; PIECE],
            budget: Budget::new(fs),
        }
    }

    /// Writes the end of it.
    ///
    /// # Errors
    /// Those of writing.
    pub fn end(self) -> Result<Exit, Failure> {
        // Two blocks of zeroes end an archive; tar pads to twenty.
        self.out.write_all(&[0; 1024])?;
        Ok(self.complaints.exit())
    }

    /// Writes an empty file without an owner or times, which marks something.
    ///
    /// # Errors
    /// Those of writing.
    pub fn marker(&mut self, path: &[u8]) -> Result<(), Failure> {
        let mut pax = Pax::default();
        Header::marker(path, &mut pax).write(&pax, self.out)?;
        Ok(())
    }

    fn entry(&mut self, entry: &Entry, path: Vec<u8>) -> Result<(), Failure> {
        if let Some(problem) = &entry.problem {
            self.complaints
                .report(Exit::Damaged, format_args!("{}: {problem}", escaped(&path)));
        }
        if entry.is_unusable() {
            return Ok(());
        }
        let inode = match &entry.inode {
            Ok(inode) => inode,
            Err(error) => {
                self.complaints.engine(escaped(&path), error);
                return Ok(());
            }
        };
        let first = self.links.first(inode, &path);
        self.member(inode, path, first.as_deref())
    }

    /// Writes a file, or if `first` is a path a hard link to that. What cannot be read is reported.
    ///
    /// # Errors
    /// Those of writing.
    pub fn member(
        &mut self,
        inode: &Inode,
        mut path: Vec<u8>,
        first: Option<&[u8]>,
    ) -> Result<(), Failure> {
        if inode.file_type == FileType::Socket {
            messages::warning(format_args!("{}: a socket, left out", escaped(&path)));
            self.missing.leave_out(inode.ino);
            return Ok(());
        }
        if inode.file_type == FileType::Directory {
            path.push(b'/');
        }
        let mut pax = Pax::default();
        let mut header = Header::new(inode, &path, &mut pax);
        if let Some(first) = first {
            header.hard_link(first, &mut pax);
            return self.write_header(&header, &pax);
        }
        match self.fs.xattrs(inode) {
            Ok(xattrs) => xattrs.iter().for_each(|x| pax.xattr(&x.name, &x.value)),
            Err(error) => self.complaints.engine(escaped(&path), &error),
        }
        match inode.file_type {
            FileType::Regular => return self.file(inode, &path, header, pax),
            FileType::Symlink => match self.fs.read_link(inode) {
                Ok(target) => header.symlink(&target, &mut pax),
                Err(error) => {
                    self.missing.leave_out(inode.ino);
                    self.complaints.engine(escaped(&path), &error);
                    return Ok(());
                }
            },
            _ => {}
        }
        self.write_header(&header, &pax)
    }

    fn write_header(&mut self, header: &Header, pax: &Pax) -> Result<(), Failure> {
        header.write(pax, self.out)?;
        Ok(())
    }

    fn file(
        &mut self,
        inode: &Inode,
        path: &[u8],
        mut header: Header,
        mut pax: Pax,
    ) -> Result<(), Failure> {
        let mut ranges = Vec::new();
        match self.ranges(inode, &mut ranges) {
            Ok(()) => {}
            Err(error) if self.unreadable == Unreadable::Hole && !is_refused(&error) => {
                report(&mut self.complaints, self.unreadable, path, &error);
                self.rest(inode, &mut ranges);
            }
            Err(error) => {
                // Nothing of the file is written yet, so it can still be left out.
                self.links.forget(inode);
                self.missing.leave_out(inode.ino);
                self.complaints.engine(escaped(path), &error);
                return Ok(());
            }
        };
        let data: u64 = ranges.iter().map(|r| r.end - r.start).sum();
        let mut map = Vec::new();
        if data < inode.size {
            map = header::sparse_map(&ranges, inode.size);
            header.sparse(path, inode.size, &mut pax);
        }
        let stored = data + map.len() as u64;
        header.size(stored, &mut pax);
        self.write_header(&header, &pax)?;
        self.out.write_all(&map)?;
        for range in ranges {
            self.data(inode, path, &range)?;
        }
        self.out.write_all(padding(stored))?;
        Ok(())
    }

    /// The data of a file; all of it as one range if it has too many. After an error those before
    /// it.
    fn ranges(&mut self, inode: &Inode, ranges: &mut Vec<Range<u64>>) -> Result<(), Error> {
        for range in self.fs.data_ranges(inode)? {
            let range = range?;
            let range = range.start.min(inode.size)..range.end.min(inode.size);
            if range.is_empty() {
                continue;
            }
            self.budget.take(inode, &range)?;
            if ranges.len() >= RANGES_MAX {
                ranges.clear();
                ranges.push(0..inode.size);
                break;
            }
            ranges.push(range);
        }
        Ok(())
    }

    /// Adds what may follow where the map could not be read: each block is tried. What the file
    /// system cannot hold is missing.
    fn rest(&mut self, inode: &Inode, ranges: &mut Vec<Range<u64>>) {
        let rest = ranges.last().map_or(0, |last| last.end)..inode.size;
        match self.budget.take(inode, &rest) {
            _ if rest.is_empty() => {}
            Ok(()) => ranges.push(rest),
            Err(_) => self.missing.add(inode.ino, rest),
        }
    }

    /// Copies a range. The header states its length, so bytes that cannot be read become zeroes.
    fn data(&mut self, inode: &Inode, path: &[u8], range: &Range<u64>) -> Result<(), Failure> {
        let mut is_reported = false;
        let (out, missing) = (&mut *self.out, &mut *self.missing);
        let (complaints, unreadable) = (&mut self.complaints, self.unreadable);
        read_parts(self.fs, inode, range, &mut self.piece, |part| match part {
            Part::Data { bytes, .. } => out.write_all(bytes),
            Part::Missing { bytes, error } => {
                if let Some(error) = error
                    && !std::mem::replace(&mut is_reported, true)
                {
                    report(complaints, unreadable, path, &error);
                }
                let len = bytes.end - bytes.start;
                missing.add(inode.ino, bytes);
                write_zeroes(out, len)
            }
        })?;
        Ok(())
    }
}

/// Reports an error of reading. Where holes were asked for, it is no more than an incomplete copy.
fn report(complaints: &mut Complaints, unreadable: Unreadable, path: &[u8], error: &Error) {
    match unreadable {
        Unreadable::Hole => {
            complaints.report(Exit::Incomplete, format_args!("{}: {error}", escaped(path)));
        }
        Unreadable::LeaveOut => complaints.engine(escaped(path), error),
    }
}

/// Whether nothing of a file may be copied, whatever could be read.
fn is_refused(error: &Error) -> bool {
    matches!(error, Error::Encrypted | Error::Invalid { .. })
}

fn write_zeroes(out: &mut Output, mut len: u64) -> io::Result<()> {
    while len > 0 {
        let part = len.min(ZEROES.len() as u64);
        out.write_all(&ZEROES[..part as usize])?;
        len -= part;
    }
    Ok(())
}
