//! `tar`: writes a tree as a tar archive to standard output.
//!
//! The archive is in pax format, where nothing is lost: nanoseconds, times before 1970, long names,
//! large ids, xattrs, holes. Left out: sockets, which tar cannot hold.

mod header;

use std::io::Write;
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
use crate::open;
use crate::progress::Progress;
use crate::show::escaped;
use uext4_image::budget::Budget;
use uext4_image::links::Links;
use uext4_image::walk::{Entry, Order, Step, Walk};

/// Bytes read at once.
const PIECE: usize = 1 << 20;
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
    let fs = open::open(&args.image)?;
    let path = &*open::meant(&fs, bytes(args.path.as_os_str()));
    let top = open::resolve(&fs, path, FollowLast::Yes)?;
    let is_dir = top.file_type == FileType::Directory;
    let name = path
        .rsplit(|&b| b == b'/')
        .find(|part| !part.is_empty())
        .unwrap_or(b"file");
    let prefix = if is_dir { b"." } else { name };
    write_tree(&fs, top, prefix, out)
}

/// Writes the tree below `top` as an archive, its names behind `prefix`.
///
/// # Errors
/// Those of writing; what cannot be read is reported, and left out.
pub fn write_tree(
    fs: &Image,
    top: Inode,
    prefix: &[u8],
    out: &mut Output,
) -> Result<Exit, Failure> {
    let mut archive = Archive {
        fs,
        out,
        links: Links::default(),
        complaints: Complaints::new(),
        piece: vec![0; PIECE],
        budget: Budget::new(fs),
    };
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
    // Two blocks of zeroes end an archive; tar pads to twenty.
    archive.out.write_all(&[0; 1024])?;
    Ok(archive.complaints.exit())
}

struct Archive<'a> {
    fs: &'a Image,
    out: &'a mut Output,
    links: Links,
    complaints: Complaints,
    piece: Vec<u8>,
    budget: Budget,
}

impl Archive<'_> {
    fn entry(&mut self, entry: &Entry, mut path: Vec<u8>) -> Result<(), Failure> {
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
        if inode.file_type == FileType::Socket {
            messages::warning(format_args!("{}: a socket, left out", escaped(&path)));
            return Ok(());
        }
        if inode.file_type == FileType::Directory {
            path.push(b'/');
        }
        let mut pax = Pax::default();
        let mut header = Header::new(inode, &path, &mut pax);
        if let Some(first) = self.links.first(inode, &path) {
            header.hard_link(&first, &mut pax);
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
        let ranges = match self.ranges(inode) {
            Ok(ranges) => ranges,
            Err(error) => {
                // Nothing of the file is written yet, so it can still be left out.
                self.links.forget(inode);
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
            self.data(inode, path, range)?;
        }
        self.out.write_all(padding(stored))?;
        Ok(())
    }

    /// The data of a file; all of it as one range if it has too many.
    fn ranges(&mut self, inode: &Inode) -> Result<Vec<Range<u64>>, Error> {
        let mut ranges = Vec::new();
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
        Ok(ranges)
    }

    /// Copies a range. The header states its length, so bytes that cannot be read become zeroes.
    fn data(&mut self, inode: &Inode, path: &[u8], range: Range<u64>) -> Result<(), Failure> {
        let mut at = range.start;
        let mut is_reported = false;
        while at < range.end {
            let want = self.piece.len().min((range.end - at) as usize);
            let piece = &mut self.piece[..want];
            let got = match self.fs.read_at(inode, at, piece) {
                Ok(got) if got > 0 => got,
                result => {
                    if let Err(error) = result
                        && !std::mem::replace(&mut is_reported, true)
                    {
                        self.complaints.engine(escaped(path), &error);
                    }
                    piece.fill(0);
                    want
                }
            };
            self.out.write_all(&self.piece[..got])?;
            at += got as u64;
        }
        Ok(())
    }
}
