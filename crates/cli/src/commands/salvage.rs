//! `salvage`: reads out what can be read from a file system that is damaged.
//!
//! The repair is made on an overlay, and its result is read by the engine; the image is never
//! written. What the repair had to do to a file is what its record says about it.

mod deleted;

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use parking_lot::Mutex;
use uext4::{FollowLast, Image, Inode, OpenOptions as EngineOptions};
use uext4_blockdev::{Access, BlockDevice, CutDevice};
use uext4_fsck::{ClusterSet, Error, Finding, Loss, Observer, Problem, Progress};
use uext4_image::Existing;
use uext4_image::walk::{Order, Step, Walk};
use uext4_ondisk::Ino;
use uext4_ondisk::inode::FileType;

use super::{Output, get, output, tar};
use crate::examination::{ExamineArgs, Watching, counted};
use crate::extents::Runs;
use crate::failure::{Exit, Failure};
use crate::json::Json;
use crate::{interrupt, messages, open};

/// Bytes that the engine may cache.
const MEMORY: u64 = 96 << 20;

/// Read out what can be read from a damaged file system
///
/// The image is never written: what `repair` would do is done in memory, and the files of the
/// result are copied to a directory or a tar archive. `salvage.jsonl` in the directory, or
/// OUT.tar.jsonl next to the archive, has a line for each file: where its name comes from, whether
/// it is whole, and what was wrong with it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 salvage disk.img -o rescued
  uext4 salvage disk.img -o rescued.tar
  uext4 salvage --deleted disk.img -o rescued   # deleted files too, where they can be found
  jq -r 'select(.contents == \"partial\").path' rescued/salvage.jsonl")]
pub struct SalvageArgs {
    #[command(flatten)]
    examine: ExamineArgs,
    /// A new directory, or a new file whose name ends in .tar
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Also copy deleted files whose blocks are still free to OUT/deleted/#INODE
    #[arg(long)]
    deleted: bool,
    /// Print one JSON object about what was read
    #[arg(long)]
    json: bool,
}

/// Copies, and records.
pub fn run(args: &SalvageArgs, out: &mut Output) -> Result<Exit, Failure> {
    let is_tar = args
        .output
        .extension()
        .is_some_and(|extension| extension == "tar");
    if is_tar && args.deleted {
        let what = "--deleted needs a directory: give -o a name that does not end in .tar";
        return Err(Failure::new(Exit::Usage, what));
    }
    let device = open::to_examine(&args.examine.image, Access::ReadOnly)?;
    open::warn_if_mounted(&args.examine.image.place.image);
    let present = device.len();
    let deferred = interrupt::defer();
    let readable = examine(args, &device)?;
    drop(deferred);
    let (is_clean, problems) = (readable.is_clean, readable.problems);
    let mut options = EngineOptions::default();
    options.memory = Some(MEMORY);
    let opened = Image::open(readable.device, &options);
    let image = args.examine.image.place.image.display();
    let fs = opened.map_err(|error| Failure::engine(image, &error))?;
    let top = open::resolve(&fs, b"/", FollowLast::No)?;
    let (copied, record) = match is_tar {
        true => (
            to_tar(&fs, top.clone(), &args.output)?,
            args.output.with_added_extension("jsonl"),
        ),
        false => (
            to_directory(&fs, &top, &args.output)?,
            unused(&args.output, "salvage.jsonl"),
        ),
    };
    let lines = match readable.used {
        Some(used) if args.deleted => deleted::copy(&fs, &used, &args.output)?,
        None if args.deleted => {
            messages::warning(format_args!(
                "deleted files are not looked for: which blocks are free is not known"
            ));
            Vec::new()
        }
        _ => Vec::new(),
    };
    let counts = write_record(&fs, top, &problems, &record, present)?;
    let deleted = lines.len();
    append(&record, &lines.concat())?;
    if args.json {
        let mut json = Json::new();
        json.open_object();
        json.key("files").number(counts.files);
        json.key("partial").number(counts.partial);
        json.key("deleted").number(deleted as u64);
        json.key("consistent").value(is_clean);
        json.close_object();
        json.end_line();
        out.write_all(json.as_bytes())?;
    } else {
        writeln!(
            out,
            "{} read, {} of them in part, and {deleted} deleted; {} says how each was found",
            counted(counts.files, "file"),
            counts.partial,
            record.display()
        )?;
    }
    Ok(match counts.partial {
        0 => copied,
        _ => copied.max(Exit::Incomplete),
    })
}

/// What the engine can read, and what was wrong with it.
struct Readable {
    device: Arc<dyn BlockDevice>,
    problems: Problems,
    is_clean: bool,
    /// The clusters in use, where that is known.
    used: Option<ClusterSet>,
}

/// Repairs in memory. Where no repair can be made, the image is read as it is: the engine goes on
/// after damage.
fn examine(args: &SalvageArgs, device: &Arc<dyn BlockDevice>) -> Result<Readable, Failure> {
    let plan = |device: &Arc<dyn BlockDevice>| {
        let noting = Noting {
            progress: Watching::progress(),
            problems: Mutex::default(),
        };
        let outcome = uext4_fsck::plan(device, &args.examine.options(), &noting)?;
        Ok((outcome, noting.problems.into_inner()))
    };
    let image = args.examine.image.place.image.display();
    let mut cut_off = None;
    let mut planned = plan(device);
    if let Err(Error::CutOff { need, have }) = planned {
        messages::warning(format_args!(
            "{image}: {need} bytes belong to the file system, {have} are there: files that have \
             data beyond them are left out"
        ));
        let block_len = device.sector_size();
        let longer = Arc::new(CutDevice::new(Arc::clone(device), need, block_len));
        longer.read_zeroes(true);
        cut_off = Some(Arc::clone(&longer));
        let longer: Arc<dyn BlockDevice> = longer;
        planned = plan(&longer);
    }
    if let Some(device) = &cut_off {
        device.read_zeroes(false);
    }
    match planned {
        Ok((outcome, problems)) => Ok(Readable {
            problems,
            is_clean: outcome.is_clean,
            used: Some(outcome.used),
            device: Arc::new(outcome.overlay),
        }),
        Err(error @ Error::NoSpace { .. }) => {
            messages::warning(format_args!("{image}: {error}; it is read as it is"));
            Ok(Readable {
                problems: Problems::default(),
                is_clean: false,
                used: None,
                device: Arc::clone(device),
            })
        }
        Err(error) => Err(args.examine.failure(&error)),
    }
}

fn to_directory(fs: &Image, top: &Inode, path: &Path) -> Result<Exit, Failure> {
    fs::create_dir(path).map_err(|error| Failure::io(path.display(), &error))?;
    let (_, exit) = get::copy(fs, b"/", top, path, Existing::Refuse)?;
    Ok(exit)
}

fn to_tar(fs: &Image, top: Inode, path: &Path) -> Result<Exit, Failure> {
    let file = new_file(path)?;
    let mut archive = output(Box::new(file));
    let exit = tar::write_tree(fs, top, b".", &mut archive)?;
    archive.flush()?;
    Ok(exit)
}

/// A path in the directory that nothing copied has: `name`, or else a number before it.
fn unused(directory: &Path, name: &str) -> PathBuf {
    let mut path = directory.join(name);
    let mut number = 0_u64;
    while path.symlink_metadata().is_ok() {
        number += 1;
        path = directory.join(format!("{number}-{name}"));
    }
    path
}

fn new_file(path: &Path) -> Result<File, Failure> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    file.map_err(|error| Failure::io(path.display(), &error))
}

/// Adds lines to the record.
fn append(record: &Path, lines: &[u8]) -> Result<(), Failure> {
    let file = OpenOptions::new().append(true).open(record);
    let written = file.and_then(|mut file| file.write_all(lines));
    written.map_err(|error| Failure::io(record.display(), &error))
}

/// What was wrong, by inode: each kind of problem once, however many findings are shown.
#[derive(Default)]
struct Problems(HashMap<Ino, Vec<Problem>>);

impl Problems {
    fn add(&mut self, finding: &Finding) {
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
}

/// Shows progress, and notes what is wrong with each inode.
struct Noting {
    progress: Watching<fn(&Finding)>,
    problems: Mutex<Problems>,
}

impl Observer for Noting {
    fn finding(&self, _: &Finding) {}

    fn reported(&self, finding: &Finding) {
        self.problems.lock().add(finding);
    }

    fn memory(&self, bytes: u64) {
        self.progress.memory(bytes);
    }

    fn progress(&self, progress: Progress) {
        self.progress.progress(progress);
    }

    fn is_cancelled(&self) -> bool {
        self.progress.is_cancelled()
    }
}

#[derive(Default)]
struct Counts {
    files: u64,
    partial: u64,
}

/// Writes a line for each file of the tree.
fn write_record(
    fs: &Image,
    top: Inode,
    problems: &Problems,
    path: &Path,
    present: u64,
) -> Result<Counts, Failure> {
    let mut record = BufWriter::new(new_file(path)?);
    let mut counts = Counts::default();
    let mut walk = Walk::new(fs, top, Order::Nested);
    while let Some(step) = walk.step() {
        let Step::Entry(entry) = step else {
            continue;
        };
        let Ok(inode) = &entry.inode else {
            continue;
        };
        let wrong = problems.of(inode.ino);
        let is_partial = wrong
            .iter()
            .any(|problem| problem.info().loss >= Loss::Data)
            || is_beyond(fs, inode, present);
        if inode.file_type == FileType::Regular {
            counts.files += 1;
            counts.partial += u64::from(is_partial);
        }
        let line = line(walk.path(), inode, &wrong, is_partial);
        record
            .write_all(&line)
            .map_err(|error| Failure::io(path.display(), &error))?;
    }
    record
        .flush()
        .map_err(|error| Failure::io(path.display(), &error))?;
    Ok(counts)
}

/// Whether a part of the file's data lies past the bytes that are present.
fn is_beyond(fs: &Image, inode: &Inode, present: u64) -> bool {
    let geometry = fs.geometry();
    let present = present >> geometry.block_size.log2();
    if inode.file_type != FileType::Regular || geometry.blocks_count <= present {
        return false;
    }
    let mut runs = Runs::new(fs, inode);
    runs.any(|run| run.is_ok_and(|run| run.pblk.saturating_add(run.len) > present))
}

fn line(path: &[u8], inode: &Inode, wrong: &[Problem], is_partial: bool) -> Vec<u8> {
    let mut json = Json::new();
    json.open_object();
    json.key("path").text(path);
    json.key("inode").number(inode.ino.0);
    json.key("size").number(inode.size);
    let in_lost_found = path.starts_with(b"lost+found/#");
    json.key("name_from").string(match in_lost_found {
        true => "none: no directory had it",
        false => "directory",
    });
    json.key("contents").string(match is_partial {
        true => "partial",
        false => "whole",
    });
    json.key("problems").open_array();
    for problem in wrong {
        json.string(problem.info().name);
    }
    json.close_array();
    json.close_object();
    json.end_line();
    json.as_bytes().to_vec()
}
