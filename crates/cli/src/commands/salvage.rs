//! `salvage`: reads out what can be read from a file system that is damaged.
//!
//! The repair is made on an overlay, and its result is read by the engine; the image is never
//! written. What the repair had to do to a file is what its record says about it. An image without
//! a superblock is repaired above a guess of one; what cannot be read is empty for the repair, and
//! missing for the copy.

mod deleted;
mod record;

use std::fmt::Display;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use parking_lot::Mutex;
use uext4::{FollowLast, Image, Inode, OpenOptions as EngineOptions};
use uext4_blockdev::{Access, BlockDevice, CutDevice, Error as DeviceError};
use uext4_fsck::{ClusterSet, Error, Finding, Observer, Options, Outcome, Progress};
use uext4_image::{Existing, Get, Unreadable};

use super::{Output, get, output, tar};
use crate::examination::{ExamineArgs, Watching, counted};
use crate::failure::{Exit, Failure};
use crate::json::Json;
use crate::missing::Missing;
use crate::{identify, interrupt, kernel_mount, memory, messages, open, paths, rescue_map};

use record::{Known, Problems, append, new_file, unused};

/// Bytes that the engine may cache.
const MEMORY: u64 = 96 << 20;

/// Read out what can be read from a damaged file system
///
/// The image is never written: what `repair` would do is done in memory, and the files of the
/// result are copied to a directory or a tar archive. Where no superblock is left, the shape of the
/// file system is guessed from its root directory. Damaged inodes and directories are taken from
/// older copies in the journal, if it has them. A file that can be read only in part has holes
/// where it cannot.
///
/// `salvage.jsonl` in the directory, or OUT.tar.jsonl next to the archive, has a line for each
/// file: where its name, size and blocks come from, whether it is whole, which bytes are missing,
/// and what was wrong with it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 salvage disk.img -o rescued
  uext4 salvage disk.img -o rescued.tar
  uext4 salvage --map disk.map disk.img -o rescued   # both made by ddrescue
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
    /// Take what this map of ddrescue does not call rescued for unreadable, not for zeroes
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
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
    let image = &args.examine.image;
    let device = match &args.map {
        Some(map) => rescue_map::open(image, map)?,
        None => open::to_salvage(image, Access::ReadOnly)?,
    };
    kernel_mount::warn(&args.examine.image.place.image);
    let deferred = interrupt::defer();
    let readable = examine(args, &device)?;
    drop(deferred);
    let mut options = EngineOptions::default();
    options.memory = Some(memory::of(memory::HALF, MEMORY));
    let opened = Image::open(readable.device, &options);
    let image = args.examine.image.place.image.display();
    let fs = opened.map_err(|error| Failure::engine(image, &error))?;
    let top = paths::resolve(&fs, b"/", FollowLast::No)?;
    let mut missing = Missing::default();
    let (copied, record) = match is_tar {
        true => to_tar(&fs, &top, &args.output, &mut missing)?,
        false => to_directory(&fs, &top, &args.output, &mut missing)?,
    };
    let known = Known {
        fs: &fs,
        is_guessed: readable.is_guessed,
        directory: (!is_tar).then_some(&*args.output),
        found: &*readable.found,
        problems: &readable.problems,
        missing: &missing,
    };
    let lines = match readable.used {
        Some(used) if args.deleted => deleted::copy(&known, &used, &args.output)?,
        None if args.deleted => {
            messages::warning(format_args!(
                "deleted files are not looked for: which blocks are free is not known"
            ));
            Vec::new()
        }
        _ => Vec::new(),
    };
    let counts = record::write(&known, top, &record)?;
    let deleted = lines.len();
    append(&record, &lines.concat())?;
    match args.json {
        true => out.write_all(counts_json(&counts, deleted, readable.is_clean).as_bytes())?,
        false => writeln!(
            out,
            "{} read, {} of them in part, and {deleted} deleted; {} says how each was found",
            counted(counts.files, "file"),
            counts.partial,
            record.display()
        )?,
    }
    Ok(match counts.partial {
        0 if !readable.is_incomplete => copied,
        _ => copied.max(Exit::Incomplete),
    })
}

/// How much was copied, as a line of JSON.
fn counts_json(counts: &record::Counts, deleted: usize, is_clean: bool) -> Json {
    let mut json = Json::new();
    json.open_object();
    json.key("files").number(counts.files);
    json.key("partial").number(counts.partial);
    json.key("deleted").number(deleted as u64);
    json.key("consistent").value(is_clean);
    json.close_object();
    json.end_line();
    json
}

/// What the engine can read, and what was wrong with it.
struct Readable {
    device: Arc<dyn BlockDevice>,
    /// The image without the repair.
    found: Arc<dyn BlockDevice>,
    problems: Problems,
    is_clean: bool,
    /// Whether the shape of the file system was guessed.
    is_guessed: bool,
    /// Whether metadata may have been missing.
    is_incomplete: bool,
    /// The clusters in use, where that is known.
    used: Option<ClusterSet>,
}

/// The repair in memory, and what was wrong.
fn plan(
    args: &SalvageArgs,
    device: &Arc<dyn BlockDevice>,
) -> uext4_fsck::Result<(Outcome, Problems)> {
    let noting = Noting {
        progress: Watching::progress(),
        problems: Mutex::default(),
    };
    let options = Options {
        older_copies: true,
        ..args.examine.options()
    };
    let outcome = uext4_fsck::plan(device, &options, &noting)?;
    Ok((outcome, noting.problems.into_inner()))
}

/// The image with a superblock that was guessed; `None` where too little is left.
fn guessed(
    args: &SalvageArgs,
    device: &Arc<dyn BlockDevice>,
) -> Result<Option<Arc<dyn BlockDevice>>, Failure> {
    let guess = uext4_fsck::guess(device, &args.examine.options(), &Watching::progress());
    let image = &args.examine.image.place.image;
    let Some(guess) = guess.map_err(|error| args.examine.failure(&error))? else {
        return Ok(None);
    };
    messages::warning(format_args!(
        "{}: no superblock can be used; the shape of the file system is guessed: {}",
        image.display(),
        guess.what
    ));
    Ok(Some(Arc::new(guess.device)))
}

/// Repairs in memory. Where no repair can be made, the image is read as it is: the engine goes on
/// after damage.
fn examine(args: &SalvageArgs, device: &Arc<dyn BlockDevice>) -> Result<Readable, Failure> {
    let path = &args.examine.image.place.image;
    let image = path.display();
    let mut base = Arc::clone(device);
    let mut found = Arc::clone(&base);
    let mut is_guessed = false;
    // Those that read zeroes; a guess may lie above one.
    let mut cuts: Vec<Arc<CutDevice>> = Vec::new();
    let mut planned = plan(args, &found);
    // At most once for a part that cannot be read, for a superblock that is lost, and for an end
    // that is missing.
    for _ in 0..3 {
        let Err(error) = &planned else {
            break;
        };
        // A guess reads all of the device: not what the superblock says that it misses.
        let can_guess = matches!(error, Error::NotExt4 { .. })
            && args.examine.image.superblock.is_none()
            && !is_guessed
            && found.len() == device.len();
        if let Some(len) = readable_len(error, base.len()) {
            warn_of_missing(&image, error);
            let cut = Arc::new(CutDevice::new(base.clone(), len, device.sector_size()));
            cut.read_zeroes(true);
            found = cut.clone();
            cuts.push(cut);
        } else if can_guess && let Some(guessed) = guessed(args, &found)? {
            base = guessed;
            found = Arc::clone(&base);
            is_guessed = true;
        } else if can_guess && cuts.is_empty() && !open::holds_ext(&**device) {
            return Err(identify::nothing_found(path, device));
        } else {
            break;
        }
        planned = plan(args, &found);
    }
    for cut in &cuts {
        cut.read_zeroes(false);
    }
    let is_incomplete = !cuts.is_empty();
    match planned {
        Ok((outcome, problems)) => Ok(Readable {
            problems,
            is_clean: outcome.is_clean,
            is_guessed,
            is_incomplete,
            used: Some(outcome.used),
            device: Arc::new(outcome.overlay),
            found,
        }),
        Err(error @ (Error::NoSpace { .. } | Error::FastCommits)) => {
            messages::warning(format_args!("{image}: {error}; it is read as it is"));
            Ok(Readable {
                problems: Problems::default(),
                is_clean: false,
                is_guessed,
                is_incomplete,
                used: None,
                device: Arc::clone(&base),
                found: base,
            })
        }
        Err(error) => Err(args.examine.failure(&error)),
    }
}

/// Warns of what an examination misses that ended with this error.
fn warn_of_missing(image: &dyn Display, error: &Error) {
    let what = match error {
        Error::CutOff { need, have } => {
            format!("{need} bytes belong to the file system, {have} are there")
        }
        error => error.to_string(),
    };
    messages::warning(format_args!(
        "{image}: {what}: metadata that cannot be read are taken for empty, and files have holes \
         where their data cannot be read"
    ));
}

/// How long the device is as an examination must see it that ended with this error because a part
/// of the device cannot be read; `None` if it ended for another reason.
fn readable_len(error: &Error, device_len: u64) -> Option<u64> {
    match error {
        Error::CutOff { need, .. } => Some(*need),
        Error::Device(DeviceError::Io { .. }) => Some(device_len),
        _ => None,
    }
}

/// Copies to a new directory; returns the place of the record, too.
fn to_directory(
    fs: &Image,
    top: &Inode,
    path: &Path,
    missing: &mut Missing,
) -> Result<(Exit, PathBuf), Failure> {
    fs::create_dir(path).map_err(|error| Failure::io(path.display(), &error))?;
    let what = Get {
        path: b"/",
        top,
        dest: path,
        existing: Existing::Refuse,
        unreadable: Unreadable::Hole,
    };
    let (_, exit) = get::copy(fs, &what, missing)?;
    Ok((exit, unused(path, "salvage.jsonl")))
}

/// Copies to a new archive; returns the place of the record, too.
fn to_tar(
    fs: &Image,
    top: &Inode,
    path: &Path,
    missing: &mut Missing,
) -> Result<(Exit, PathBuf), Failure> {
    let file = new_file(path)?;
    let mut archive = output(Box::new(file));
    let what = tar::Tree {
        top: top.clone(),
        prefix: b".",
        unreadable: Unreadable::Hole,
    };
    let exit = tar::write_tree(fs, what, missing, &mut archive)?;
    archive.flush()?;
    Ok((exit, path.with_added_extension("jsonl")))
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

#[cfg(test)]
mod tests;
