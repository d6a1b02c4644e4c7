//! `diff`: what differs between the trees of two images.
//!
//! Two walks are merged, a part of the pairs is compared by all processors, and the results are
//! shown in order. Names and attributes are compared as programs see them, so that neither inode
//! numbers nor how contents are stored makes a difference, and an ext2 image may equal an ext4 one.

mod change;
mod compare;
mod layer;
mod link_sets;
mod shown;
mod side;

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use uext4::FileType;
use uext4_blockdev::partition::Name;
use uext4_image::pairs::{Pair, Pairs};
use uext4_image::walk::Entry;

use self::change::{Change, Difference, Kind, What};
use self::compare::{Comparison, Found, Rules};
use self::layer::Layer;
use self::link_sets::LinkSets;
use self::shown::{Form, Shown};
use self::side::Side;
use super::{Output, bytes, output};
use crate::args::{ImageArgs, parse_size};
use crate::failure::{Complaints, Exit, Failure};
use crate::image_copy::NewFile;
use crate::missing::Missing;
use crate::progress::Progress;

/// Pairs that are compared together, at most.
const BATCH_MAX: usize = 512;
/// Bytes of paths and of files from which on no more pairs are taken.
const BATCH_PATHS: usize = 4 << 20;
const BATCH_DATA: u64 = 256 << 20;

/// Show what differs between the trees of two images
///
/// Prints a line for each entry that is added (A), removed (D) or changed (M) in NEW, or has
/// another type there (T), sorted by path, a directory before its contents; after a changed one,
/// what differs. Compared are the contents of files and symbolic links, modes, owners, device
/// numbers, extended attributes with ACLs, which names are hard links of one file, project ids, and
/// the flags that lsattr shows, but for those that state how contents are stored (e, I, N).
///
/// Not compared are inode numbers, sizes of directories, times of access and change, and, without
/// --times, modification times: as with diff(1), equal files are equal whenever they were written.
///
/// What cannot be read is reported and not compared, and the rest is. Below a directory that cannot
/// be read wholly, names that only the other image has are not shown.
///
/// --tar writes the difference as a layer of a container image: what is new or changed, with the
/// directories above it, whiteouts (.wh.NAME) for what is removed, and .wh..wh..opq in a directory
/// that holds none of its old names. Above IMAGE, `uext4 build` and container tools make NEW of it,
/// but for sockets, flags and project ids, which archives do not hold.
///
/// The exit codes are those of diff(1): 0 if nothing differs, 1 if something does, 2 after an
/// error, also one with a part of the work.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 diff old.img new.img
  uext4 diff old.img new.img /etc --ignore owner,mode
  uext4 diff disk.img disk.img --partition 2 --new-partition 3 --stat
  uext4 diff --json old.img new.img | jq -r 'select(.change == \"added\") | .path'
  uext4 diff --times --tar - old.img new.img | zstd > layer.tar.zst
  uext4 build --base old.img layer:layer.tar.zst -o same-as-new.img")]
pub struct DiffArgs {
    #[command(flatten)]
    image: ImageArgs,
    /// Image that IMAGE is compared with; options of the image hold for both
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// Directory or file to compare
    #[arg(value_name = "PATH", default_value = "/", hide_default_value = true)]
    path: PathBuf,
    /// Its path in NEW, if it has another one there
    #[arg(value_name = "NEW_PATH")]
    new_path: Option<PathBuf>,
    /// Use this partition of NEW, where --partition is that of IMAGE
    #[arg(long, value_name = "N|LABEL|UUID", conflicts_with = "new_offset")]
    new_partition: Option<Name>,
    /// In NEW, the file system starts this many bytes into the image
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    new_offset: Option<u64>,
    /// Compare modification times, too
    #[arg(short, long)]
    times: bool,
    /// Do not read files: those of the same size and modification time count as equal, as in rsync
    #[arg(long)]
    quick: bool,
    /// Do not compare: content, target, device, mode, owner, links, xattrs, flags, project
    #[arg(long, value_name = "WHAT,…", value_delimiter = ',', value_enum)]
    #[arg(hide_possible_values = true)]
    ignore: Vec<What>,
    /// Print nothing, and end at the first difference
    #[arg(short, long, conflicts_with_all = ["stat", "json", "tar"])]
    quiet: bool,
    /// Print only how many entries and bytes of files differ
    #[arg(long)]
    stat: bool,
    /// Print one JSON object a line, with the keys of `ls --json` for what is old and what is new
    #[arg(long)]
    json: bool,
    /// Write the difference as a layer to FILE, a new file that is there when it is whole, or to
    /// standard output (-)
    #[arg(long, value_name = "FILE")]
    tar: Option<PathBuf>,
}

/// Compares the images.
pub fn run(args: &DiffArgs, out: &mut Output) -> Result<Exit, Failure> {
    if args.writes_layer_to_output() && (args.stat || args.json) {
        let what = "standard output has the layer: give --tar a FILE, or omit --json and --stat";
        return Err(Failure::new(Exit::Usage, what));
    }
    let old = Side::open(&args.image, bytes(args.path.as_os_str()))?;
    let new_path = args.new_path.as_ref().unwrap_or(&args.path);
    let new = Side::open(&args.new_image(), bytes(new_path.as_os_str()))?;
    let Some(path) = &args.tar else {
        return Diff::new(args, &old, &new, (!args.quiet).then_some(out)).run(None);
    };
    if [&old, &new].map(|side| side.top.file_type) != [FileType::Directory; 2] {
        let what = "--tar: a layer is the difference of two directories";
        return Err(Failure::new(Exit::Usage, what));
    }
    let mut missing = Missing::default();
    if args.writes_layer_to_output() {
        let layer = Layer::new(&old, &new, out, &mut missing);
        let exit = Diff::new(args, &old, &new, None).run(Some(layer))?;
        // A layer that is cut off is a failure, whatever differs.
        out.flush()?;
        return Ok(exit);
    }
    let file = NewFile::begin(path)?;
    let mut written = output(Box::new(file.writer()?));
    let layer = Layer::new(&old, &new, &mut written, &mut missing);
    let exit = Diff::new(args, &old, &new, Some(out)).run(Some(layer))?;
    written.flush()?;
    file.finish()?;
    Ok(exit)
}

impl DiffArgs {
    /// Whether a layer is written.
    pub fn writes_layer(&self) -> bool {
        self.tar.is_some()
    }

    /// Whether a file gets the layer.
    pub fn writes_layer_to_file(&self) -> bool {
        self.writes_layer() && !self.writes_layer_to_output()
    }

    /// Whether standard output is the layer.
    fn writes_layer_to_output(&self) -> bool {
        self.tar.as_deref().is_some_and(|path| path == "-")
    }

    fn new_image(&self) -> ImageArgs {
        let mut image = self.image.clone();
        image.place.image.clone_from(&self.new);
        if self.new_partition.is_some() || self.new_offset.is_some() {
            image.place.partition.clone_from(&self.new_partition);
            image.place.offset = self.new_offset;
        }
        image
    }

    fn form(&self) -> Form {
        match (self.stat, self.json) {
            (true, true) => Form::StatJson,
            (true, false) => Form::Stat,
            (false, true) => Form::Json,
            (false, false) => Form::Lines,
        }
    }
}

/// Two trees under comparison.
struct Diff<'a> {
    old: &'a Side,
    new: &'a Side,
    rules: Rules<'a>,
    links: LinkSets,
    shown: Shown<'a>,
    complaints: Complaints,
    differs: bool,
    /// End at the first difference.
    is_quiet: bool,
}

impl<'a> Diff<'a> {
    fn new(args: &'a DiffArgs, old: &'a Side, new: &'a Side, out: Option<&'a mut Output>) -> Self {
        Self {
            old,
            new,
            rules: Rules {
                times: args.times,
                quick: args.quick,
                ignored: &args.ignore,
            },
            links: LinkSets::default(),
            shown: Shown::new(out, args.form(), [old, new]),
            complaints: Complaints::new(),
            differs: false,
            is_quiet: args.quiet,
        }
    }

    fn run(mut self, mut layer: Option<Layer<'_>>) -> Result<Exit, Failure> {
        let (old, new) = (self.old, self.new);
        let mut progress = Progress::new("compared", &old.fs, &old.top);
        let mut comparison = Comparison::new(&old.fs, &new.fs, self.rules);
        let mut pairs = Pairs::new(&old.fs, old.top.clone(), &new.fs, new.top.clone());
        loop {
            let batch = next_batch(&mut pairs, &mut progress);
            if batch.is_empty() || self.is_quiet && self.differs {
                break;
            }
            for (pair, found) in batch.iter().zip(comparison.of(&batch)) {
                match self.take(pair, found.as_deref(), layer.as_mut()) {
                    // Its reader has seen a difference.
                    Err(Failure::BrokenPipe) if layer.is_none() => {
                        return Ok(self.complaints.exit().max(Exit::Different));
                    }
                    taken => taken?,
                }
            }
        }
        self.shown.end()?;
        let archived = layer.map_or(Ok(Exit::Success), Layer::end)?;
        let ended = match self.differs {
            true => Exit::Different,
            false => Exit::Success,
        };
        if self.is_quiet && self.differs {
            return Ok(ended);
        }
        if self.links.is_full() {
            let what = "too many hard links: not all of them were compared";
            self.complaints.report(Exit::CouldNot, what);
        }
        Ok(self.complaints.exit().max(archived).max(ended))
    }

    /// Shows a pair if it differs.
    fn take(
        &mut self,
        pair: &Pair,
        found: Option<&Found>,
        layer: Option<&mut Layer<'_>>,
    ) -> Result<(), Failure> {
        self.report(self.old, &pair.path, pair.old.as_ref());
        self.report(self.new, &pair.path, pair.new.as_ref());
        for failed in found.iter().flat_map(|found| &found.failed) {
            let side = [self.old, self.new][usize::from(failed.is_new)];
            let what = format_args!("{}: {}", side.place(&pair.path), failed.error);
            self.complaints.report(failed.exit, what);
        }
        let mut entries = pair.old.iter().chain(&pair.new);
        if pair.is_unsure || entries.clone().any(Entry::is_unusable) {
            return Ok(());
        }
        let [old, new] = [&pair.old, &pair.new].map(|entry| entry.as_ref()?.inode.as_ref().ok());
        let mut differences = found.map_or(Vec::new(), |found| found.differences.clone());
        if let (Some(_), Some(old), Some(new)) = (found, old, new)
            && self.rules.compares(What::Links)
            && self.links.differ(old, new)
        {
            differences.push(Difference::new(What::Links, String::new()));
        }
        let kind = match (&pair.old, &pair.new) {
            (_, None) => Kind::Removed,
            (None, _) => Kind::Added,
            _ if !differences.is_empty() => Kind::Changed,
            // What cannot be read has no result either, which was reported.
            _ if found.is_none() && old.is_some() && new.is_some() => Kind::Type,
            _ => Kind::Same,
        };
        if kind == Kind::Same && found.is_some_and(|found| !found.failed.is_empty()) {
            // Whether it differs is not known.
            return Ok(());
        }
        self.differs |= kind != Kind::Same;
        let change = Change {
            kind,
            path: &pair.path,
            old,
            new,
            differences: &differences,
            is_whole: entries.all(|entry| entry.problem.is_none()),
        };
        self.shown.take(&change, &mut self.complaints)?;
        layer.map_or(Ok(()), |layer| layer.take(&change))
    }

    /// Reports what is wrong with an entry.
    fn report(&mut self, side: &Side, path: &[u8], entry: Option<&Entry>) {
        let Some(entry) = entry else {
            return;
        };
        if let Err(error) = &entry.inode {
            self.complaints.engine(side.place(path), error);
        } else if let Some(problem) = &entry.problem {
            let what = format_args!("{}: {problem}", side.place(path));
            self.complaints.report(Exit::Damaged, what);
        }
    }
}

/// The pairs that are compared next; none at the end.
fn next_batch(pairs: &mut Pairs<'_>, progress: &mut Progress) -> Vec<Pair> {
    let (mut paths, mut data) = (0, 0_u64);
    let mut batch = Vec::new();
    while batch.len() < BATCH_MAX && paths < BATCH_PATHS && data < BATCH_DATA {
        let Some(pair) = pairs.next() else {
            break;
        };
        let size = |entry: &Option<Entry>| Some(entry.as_ref()?.inode.as_ref().ok()?.size);
        progress.add(size(&pair.old).unwrap_or(0));
        paths += pair.path.len();
        data = data.saturating_add(size(&pair.new).unwrap_or(0));
        batch.push(pair);
    }
    batch
}
