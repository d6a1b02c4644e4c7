//! `salvage.jsonl`: a line for each file, which says where all of it comes from.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, ErrorKind, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use uext4::{Image, Inode};
use uext4_blockdev::BlockDevice;
use uext4_fsck::problem::{InodeProblem, JournalProblem};
use uext4_fsck::{Finding, Loss, Problem};
use uext4_image::walk::{Order, Step, Walk};
use uext4_ondisk::Ino;
use uext4_ondisk::inode::{FileType, RawInode, inode_checksum, stored_checksum};

use crate::deleted::place;
use crate::failure::Failure;
use crate::json::Json;
use crate::missing::Missing;

/// What was wrong, by inode: each kind of problem once, however many findings are shown.
#[derive(Default)]
pub struct Problems(HashMap<Ino, Vec<Problem>>);

impl Problems {
    /// Notes a finding about an inode.
    pub fn add(&mut self, finding: &Finding) {
        let Some(ino) = finding.place.ino else {
            return;
        };
        let kinds = self.0.entry(ino).or_default();
        if !kinds.contains(&finding.problem) {
            kinds.push(finding.problem);
        }
    }

    /// In the order of the table.
    fn of(&self, ino: Ino) -> Vec<Problem> {
        let mut kinds = self.0.get(&ino).cloned().unwrap_or_default();
        kinds.sort_unstable();
        kinds
    }

    fn has(&self, ino: Ino, problem: JournalProblem) -> bool {
        let kinds = self.0.get(&ino);
        kinds.is_some_and(|kinds| kinds.contains(&problem.into()))
    }
}

/// Where the lines come from.
pub struct Known<'a> {
    /// The file system as it was read.
    pub fs: &'a Image,
    /// Whether the shape of the file system was guessed: an inode may then be another one.
    pub is_guessed: bool,
    /// The directory that the files were copied to; `None` for an archive.
    pub directory: Option<&'a Path>,
    /// The image as it is, before the repair in memory.
    pub found: &'a dyn BlockDevice,
    /// What the repair found.
    pub problems: &'a Problems,
    /// What could not be read.
    pub missing: &'a Missing,
}

impl Known<'_> {
    /// Whether something of this path is in the result.
    fn is_copied(&self, path: &[u8], inode: &Inode) -> bool {
        let Some(directory) = self.directory else {
            return !self.missing.is_left_out(inode.ino);
        };
        let place = directory.join(OsStr::from_bytes(path));
        // A path may be too long, or its directory closed by now: that says nothing.
        place.symlink_metadata().map_or_else(
            |error| !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
            |_| true,
        )
    }
}

/// How many files were read.
#[derive(Default)]
pub struct Counts {
    /// Regular files of which there is a copy.
    pub files: u64,
    /// Of them, those that may not be whole.
    pub partial: u64,
}

/// Writes a line for each file of the tree.
///
/// # Errors
/// Of the file that is written.
pub fn write(known: &Known<'_>, top: Inode, path: &Path) -> Result<Counts, Failure> {
    let mut record = BufWriter::new(new_file(path)?);
    let mut counts = Counts::default();
    let mut walk = Walk::new(known.fs, top, Order::Nested);
    // Whether names of the directories that the walk is in come from the journal.
    let mut older = Vec::new();
    while let Some(step) = walk.step() {
        let entry = match step {
            Step::Entry(entry) => entry,
            Step::Enter(dir) => {
                older.push(known.problems.has(dir.ino, JournalProblem::OlderNames));
                continue;
            }
            Step::Leave => {
                older.pop();
                continue;
            }
        };
        let Ok(inode) = &entry.inode else {
            continue;
        };
        let mut origin = Origin::of(known, walk.path(), inode);
        if older.last() == Some(&true) {
            origin.name_from = "journal";
        }
        if entry.is_unusable() || !known.is_copied(walk.path(), inode) {
            origin.contents = "none";
        }
        if inode.file_type == FileType::Regular && origin.contents != "none" {
            counts.files += 1;
            counts.partial += u64::from(origin.contents == "partial");
        }
        record
            .write_all(&line(walk.path(), inode, &origin))
            .map_err(|error| Failure::io(path.display(), &error))?;
    }
    record
        .flush()
        .map_err(|error| Failure::io(path.display(), &error))?;
    Ok(counts)
}

/// Where the parts of a file come from, and what is known of them.
pub struct Origin<'a> {
    /// Of its name.
    pub name_from: &'static str,
    /// Of its size.
    pub size_from: &'static str,
    /// Of the map of its blocks.
    pub blocks_from: &'static str,
    /// Whether the inode's checksum was right before the repair.
    pub checksum: &'static str,
    /// Whether its contents are complete, as far as that is known.
    pub contents: &'static str,
    /// Bytes that could not be read.
    pub missing: &'a [Range<u64>],
    /// When it was deleted, if it was.
    pub deleted_at: Option<u32>,
    /// What was wrong with it.
    pub problems: Vec<Problem>,
}

impl<'a> Origin<'a> {
    fn of(known: &Known<'a>, path: &[u8], inode: &Inode) -> Self {
        let problems = known.problems.of(inode.ino);
        let missing = known.missing.of(inode.ino);
        let is_partial = !missing.is_empty()
            || problems
                .iter()
                .any(|problem| problem.info().loss >= Loss::Data);
        let inode_from = match known.problems.has(inode.ino, JournalProblem::OlderInode) {
            true => "journal",
            false => "inode",
        };
        let checksum = checksum(known.fs, known.found, inode.ino);
        let is_certain = inode_from == "inode" && (!known.is_guessed || checksum == "verified");
        let is_size_repaired = SIZES.iter().any(|&size| problems.contains(&size.into()));
        Self {
            name_from: match path.starts_with(b"lost+found/#") {
                true => "none: no directory had it",
                false => "directory",
            },
            size_from: match is_size_repaired {
                true => "repair",
                false => inode_from,
            },
            blocks_from: inode_from,
            checksum,
            contents: match (is_partial, is_certain) {
                (true, _) => "partial",
                (_, true) => "whole",
                _ => "unverified",
            },
            missing,
            deleted_at: None,
            problems,
        }
    }
}

/// The problems whose remedy computes the size.
const SIZES: [InodeProblem; 5] = [
    InodeProblem::Size,
    InodeProblem::InlineSize,
    InodeProblem::SpecialSize,
    InodeProblem::SymlinkSize,
    InodeProblem::DirectorySizeHigh,
];

/// Whether the checksum of an inode is right, as the image has it.
pub fn checksum(fs: &Image, found: &dyn BlockDevice, ino: Ino) -> &'static str {
    let Some(seed) = fs.geometry().csum_seed else {
        return "none";
    };
    let is_right = inode_bytes(fs, found, ino).is_some_and(|bytes| {
        let raw = RawInode::parse(&bytes, ino);
        raw.is_ok_and(|raw| {
            let generation = raw.i_generation.get();
            inode_checksum(&bytes, seed, ino, generation) == stored_checksum(&bytes)
        })
    });
    match is_right {
        true => "verified",
        false => "wrong",
    }
}

/// The bytes of an inode on the device; `None` if they cannot be read.
fn inode_bytes(fs: &Image, found: &dyn BlockDevice, ino: Ino) -> Option<Vec<u8>> {
    let geometry = fs.geometry();
    let (block, within) = place(fs, ino)?;
    let offset = geometry.block_size.byte_offset(block)?;
    let offset = offset.checked_add(within as u64)?;
    let mut bytes = vec![0; usize::from(geometry.inode_size)];
    found.read_at(offset, &mut bytes).ok()?;
    Some(bytes)
}

/// A line of the record.
pub fn line(path: &[u8], inode: &Inode, origin: &Origin<'_>) -> Vec<u8> {
    let mut json = Json::new();
    json.open_object();
    json.key("path").text(path);
    json.key("inode").number(inode.ino.0);
    json.key("size").number(inode.size);
    json.key("name_from").string(origin.name_from);
    json.key("size_from").string(origin.size_from);
    json.key("blocks_from").string(origin.blocks_from);
    json.key("checksum").string(origin.checksum);
    json.key("contents").string(origin.contents);
    if !origin.missing.is_empty() {
        json.key("missing").open_array();
        for bytes in origin.missing {
            json.open_array();
            json.number(bytes.start);
            json.number(bytes.end - bytes.start);
            json.close_array();
        }
        json.close_array();
    }
    if let Some(time) = origin.deleted_at {
        json.key("deleted_at").number(time);
    }
    json.key("problems").open_array();
    for problem in &origin.problems {
        json.string(problem.info().name);
    }
    json.close_array();
    json.close_object();
    json.end_line();
    json.as_bytes().to_vec()
}

/// A path in the directory that nothing copied has: `name`, or else a number before it.
pub fn unused(directory: &Path, name: &str) -> PathBuf {
    let mut path = directory.join(name);
    let mut number = 0_u64;
    while path.symlink_metadata().is_ok() {
        number += 1;
        path = directory.join(format!("{number}-{name}"));
    }
    path
}

/// A file that is new.
///
/// # Errors
/// Of its directory; that it exists.
pub fn new_file(path: &Path) -> Result<File, Failure> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    file.map_err(|error| Failure::io(path.display(), &error))
}

/// Adds lines to the record.
///
/// # Errors
/// Of the file.
pub fn append(record: &Path, lines: &[u8]) -> Result<(), Failure> {
    let file = OpenOptions::new().append(true).open(record);
    let written = file.and_then(|mut file| file.write_all(lines));
    written.map_err(|error| Failure::io(record.display(), &error))
}
