//! `fsck`: what fsck(8), systemd and the initial RAM disks call, with the flags of e2fsck.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use uext4_blockdev::Access;
use uext4_fsck::{FoundLog, Outcome, Record, When, Writes};
use uext4_ondisk::features::Incompat;
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};

use super::Output;
use super::repair::{self, How};
use super::sync;
use crate::args::{ImageArgs, PlaceArgs, WriteArgs};
use crate::examination::{self, ExamineArgs};
use crate::failure::{Exit, Failure};
use crate::fsck_progress::Reporting;
use crate::guarded::Guarded;
use crate::show::escaped;
use crate::{interrupt, kernel_mount, losses, open};

/// Check and repair a file system, with the flags and exit codes of e2fsck
///
/// A file system that was left clean, or has no more than a journal to be replayed, is not examined
/// unless -f is given. Exit codes are those of
/// fsck(8): 0 clean, 1 repaired, 4 left damaged, 8 failed, 16 wrong usage, 32 interrupted.
#[derive(Args, Debug)]
#[command(disable_help_flag = true, disable_version_flag = true)]
#[command(after_help = "Examples:
  uext4 fsck -p /dev/vdb1          # as the system does it when it starts
  uext4 fsck -fn disk.img          # examine only
  uext4 fsck -fy -z disk.undo disk.img")]
pub struct FsckArgs {
    /// Image file or block device
    #[arg(value_name = "DEVICE", required_unless_present = "version")]
    device: Option<PathBuf>,
    /// Repair without asking what is safe; end with 4 if there is more to do
    #[arg(short = 'p', conflicts_with_all = ["yes", "no"])]
    preen: bool,
    /// The same as -p
    #[arg(short = 'a', conflicts_with_all = ["yes", "no"])]
    automatic: bool,
    /// Only examine; the image is not changed
    #[arg(short = 'n', conflicts_with_all = ["yes", "rebuild_directories"])]
    no: bool,
    /// Repair all without asking
    #[arg(short = 'y')]
    yes: bool,
    /// Examine the file system even if it was left clean
    #[arg(short = 'f')]
    force: bool,
    /// Use the superblock in this block
    #[arg(short = 'b', value_name = "BLOCK")]
    superblock: Option<u64>,
    /// Bytes of a block, to find the superblock that -b names
    #[arg(short = 'B', value_name = "BYTES")]
    block_size: Option<u32>,
    /// Write the progress to this file descriptor, as fsck(8) reads it; 0 shows a bar
    #[arg(short = 'C', value_name = "FD", allow_hyphen_values = true)]
    progress: Option<i32>,
    /// Rebuild the indexes of all directories
    #[arg(short = 'D')]
    rebuild_directories: bool,
    /// Extended options: journal_only replays the journal and does no more
    #[arg(short = 'E', value_name = "OPTION,…", value_delimiter = ',')]
    extended: Vec<String>,
    /// First save what is overwritten to this new file; `uext4 undo` puts it back
    #[arg(short = 'z', value_name = "FILE")]
    undo: Option<PathBuf>,
    /// With -y, lose at most N names (any number if none is said) with structures that are found
    /// nowhere and made anew, empty [default: 0]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "18446744073709551615")]
    accept_loss: Option<u64>,
    /// Print more
    #[arg(short = 'v')]
    verbose: bool,
    /// Print how long it took
    #[arg(short = 't', action = clap::ArgAction::Count)]
    timing: u8,
    /// Print the version
    #[arg(short = 'V')]
    version: bool,
    /// Ignored: for e2fsck, how it asks, caches and debugs
    #[arg(short = 'r', short_aliases = ['F', 'k', 'd'], hide = true, action = clap::ArgAction::Count)]
    ignored: u8,
    /// Print this help
    #[arg(short = 'h', long = "help", action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Refused: bad blocks are the device's business
    #[arg(short = 'c', hide = true, action = clap::ArgAction::Count)]
    bad_blocks: u8,
    /// Refused: a list of bad blocks
    #[arg(short = 'l', short_alias = 'L', hide = true, value_name = "FILE")]
    bad_block_list: Option<OsString>,
    /// Refused: external journals
    #[arg(short = 'j', hide = true, value_name = "JOURNAL")]
    external_journal: Option<OsString>,
}

/// The extended options. All but the first have no effect: a repair does no more than it must, and
/// discards nothing.
const KNOWN: [&str; 6] = [
    "journal_only",
    "fixes_only",
    "optimize_extents",
    "no_optimize_extents",
    "discard",
    "nodiscard",
];

impl FsckArgs {
    /// It is missing only where it is not asked for.
    fn device(&self) -> &Path {
        self.device.as_deref().unwrap_or(Path::new(""))
    }

    /// The device as messages name it.
    fn shown(&self) -> String {
        escaped(self.device().as_os_str().as_bytes())
    }

    fn journal_only(&self) -> bool {
        self.extended.iter().any(|option| option == "journal_only")
    }

    fn place(&self) -> PlaceArgs {
        PlaceArgs::of(self.device().to_owned())
    }

    fn to_write(&self) -> WriteArgs {
        WriteArgs {
            place: self.place(),
            options: Vec::new(),
            trace: Vec::new(),
            wait: None,
        }
    }

    fn examine(&self) -> ExamineArgs {
        ExamineArgs {
            image: ImageArgs {
                place: self.place(),
                superblock: self.superblock,
                no_replay: false,
            },
            block_size: self.block_size,
            max_findings: 10_000,
            memory: None,
            threads: None,
        }
    }

    fn how(&self) -> How {
        How {
            yes: self.yes,
            preen: self.preen || self.automatic,
            undo: self.undo.clone(),
            rebuild_directories: self.rebuild_directories,
            accept_loss: self.accept_loss,
            ..How::default()
        }
    }

    /// # Errors
    /// Exit 16 for what is not done here.
    fn validate(&self) -> Result<(), Failure> {
        let refused = |what: &str| Err(Failure::new(Exit::Usage, what));
        if self.bad_blocks > 0 || self.bad_block_list.is_some() {
            return refused(
                "-c, -l and -L are not supported: a device with bad blocks is copied to a sound \
                 one first (`ddrescue`), and the copy is examined",
            );
        }
        if self.external_journal.is_some() {
            return refused(
                "-j is not supported: mount a file system with an external journal once",
            );
        }
        if self.journal_only() && self.undo.is_some() {
            return refused("-z does not go with -E journal_only: no undo file would be written");
        }
        for option in &self.extended {
            let known = KNOWN.contains(&option.as_str());
            let ignored = option.starts_with("readahead_kb=");
            if !known && !ignored {
                return refused(&format!(
                    "-E {option}: no such option; known are {}",
                    KNOWN.join(", ")
                ));
            }
        }
        Ok(())
    }
}

/// Examines, and repairs as far as the flags say.
pub fn run(args: &FsckArgs, out: &mut Output) -> Result<Exit, Failure> {
    if args.version {
        writeln!(out, "fsck.uext4 {}", env!("CARGO_PKG_VERSION"))?;
        return Ok(Exit::Success);
    }
    args.validate()?;
    let began = std::time::Instant::now();
    let exit = match args.journal_only() {
        true => replay(args, out)?,
        false => examine(args, out)?,
    };
    if args.timing > 0 {
        let took = began.elapsed().as_secs_f64();
        writeln!(out, "{}: {took:.2} s", args.shown())?;
    }
    Ok(exit)
}

/// Replays the journal and does no more.
fn replay(args: &FsckArgs, out: &mut Output) -> Result<Exit, Failure> {
    let device = args.shown();
    if args.no {
        writeln!(out, "{device}: -n: the journal is not replayed")?;
        return Ok(Exit::Success);
    }
    let (exit, done) = match sync::replay(&args.to_write())? {
        true => (Exit::Success, "the journal is empty"),
        false => (Exit::Repaired, "journal replayed"),
    };
    writeln!(out, "{device}: {done}")?;
    Ok(exit)
}

fn examine(args: &FsckArgs, out: &mut Output) -> Result<Exit, Failure> {
    let examine = args.examine();
    let clean = match left_clean(args, &examine, MayHaveJournal::No)? {
        None if replay_alone(args, &examine)? => {
            writeln!(out, "{}: recovering journal", args.shown())?;
            left_clean(args, &examine, MayHaveJournal::No)?
        }
        clean => clean,
    };
    if let Some(line) = clean {
        writeln!(out, "{line}")?;
        return Ok(Exit::Success);
    }
    let access = match args.no {
        true => Access::ReadOnly,
        false => Access::ReadWrite,
    };
    let guarded = match args.no || args.preen || args.automatic {
        true => Guarded::open(open::to_examine, &examine.image, access)?,
        false => Guarded::open(open::to_salvage, &examine.image, access)?,
    };
    let device = guarded.device();
    kernel_mount::warn(args.device());
    let _deferred = interrupt::defer();
    let how = args.how();
    let may_finish = !args.no && !guarded.is_protected();
    let finished = may_finish && repair::finish_repair(&examine, &how, device)?;
    let reporting = Reporting::new(args.progress, args.device())?;
    let mut outcome = repair::make_plan(&examine, &how, device, &reporting)?;
    reporting.end();
    if !args.no {
        let recorded = outcome.record(when_recorded(&guarded), examination::now());
        recorded.map_err(|error| examine.failure(&error))?;
    }
    let writes = Writes::new(&outcome.overlay, &outcome.used);
    let writes = writes.map_err(|error| examine.failure(&error))?;
    print(args, &outcome, out)?;
    if args.no {
        return Ok(match outcome.was_clean {
            true => Exit::Success,
            false => Exit::Damaged,
        });
    }
    if writes.count() == 0 {
        return Ok(repair::unchanged(&outcome, finished));
    }
    out.flush()?;
    guarded.refuse_writing(&examine.image.place)?;
    if matches!(outcome.record, Record::Alone | Record::Unclean) {
        repair::carry_out(&examine, &how, &guarded, &outcome, &writes)?;
        return Ok(match outcome.record {
            Record::Unclean => Exit::Repaired,
            _ => repair::unchanged(&outcome, finished),
        });
    }
    repair::decide(args.device(), &how, &outcome, &writes)?;
    repair::carry_out(&examine, &how, &guarded, &outcome, &writes)?;
    writeln!(
        out,
        "{}: ***** FILE SYSTEM WAS MODIFIED *****",
        args.shown()
    )?;
    Ok(Exit::Repaired)
}

/// That it was examined is not worth a write to what is protected.
fn when_recorded(guarded: &Guarded) -> When {
    match guarded.is_protected() {
        true => When::WithRepairs,
        false => When::Always,
    }
}

fn print(args: &FsckArgs, outcome: &Outcome, out: &mut Output) -> Result<(), Failure> {
    let device = args.shown();
    for (_, finding) in &outcome.findings {
        let text = finding.to_string();
        write!(out, "{device}: {}", escaped(text.as_bytes()))?;
        match args.verbose {
            true => writeln!(out, ": {}", finding.remedy())?,
            false => writeln!(out)?,
        }
    }
    examination::print_hidden(outcome, outcome.findings.len(), out)?;
    if !outcome.was_clean && !args.no {
        losses::print_names(outcome.lost.as_ref(), out)?;
        writeln!(
            out,
            "{device}: {}{}",
            examination::counted(outcome.summary.findings, "finding"),
            losses::in_words(outcome.lost.as_ref())
        )?;
    }
    let summary = &outcome.summary;
    writeln!(
        out,
        "{device}: {} inodes, {} directories, {} blocks in use",
        summary.inodes, summary.directories, summary.blocks_used
    )?;
    Ok(())
}

/// Replays the journal where nothing but that it must be replayed speaks for an examination, and
/// returns whether it did. As with the next mount, no question is needed; what the journal says of
/// errors is seen by asking again. A journal that is damaged, or a file system that the engine does
/// not change, is left to the examination.
fn replay_alone(args: &FsckArgs, examine: &ExamineArgs) -> Result<bool, Failure> {
    if args.no || args.undo.is_some() || left_clean(args, examine, MayHaveJournal::Yes)?.is_none() {
        return Ok(false);
    }
    let read = open::open(&examine.image);
    if !read.is_ok_and(|fs| fs.replayed().is_some_and(|it| it.failed_commit.is_none())) {
        return Ok(false);
    }
    Ok(sync::replay(&args.to_write()).is_ok_and(|was_clean| !was_clean))
}

/// Whether a file system counts as left clean although its journal must be replayed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MayHaveJournal {
    Yes,
    No,
}

/// The line for a file system that need not be examined: it was left clean, and neither its count
/// of mounts nor the time since the last examination says that it is due. It is only read for
/// this, so that a root file system which is mounted read-only already gets its answer, too.
fn left_clean(
    args: &FsckArgs,
    examine: &ExamineArgs,
    journal: MayHaveJournal,
) -> Result<Option<String>, Failure> {
    if args.force || args.superblock.is_some() {
        return Ok(None);
    }
    let device = open::to_examine(&examine.image, Access::ReadOnly)?;
    let mut bytes = [0; 1024];
    if device.read_at(SUPERBLOCK_OFFSET, &mut bytes).is_err() {
        return Ok(None);
    }
    let Ok(superblock) = SuperBlock::parse(&bytes) else {
        return Ok(None);
    };
    let log = FoundLog::find(&*device).map_err(|error| examine.failure(&error.into()))?;
    if log.is_some() || is_due(&superblock, journal) {
        return Ok(None);
    }
    let inodes = superblock.s_inodes_count.get();
    let blocks = superblock.blocks_count();
    Ok(Some(format!(
        "{}: clean, {}/{inodes} files, {}/{blocks} blocks",
        args.shown(),
        inodes.saturating_sub(superblock.s_free_inodes_count.get()),
        blocks.saturating_sub(superblock.free_blocks_count()),
    )))
}

/// Whether a file system must be examined before it is used.
fn is_due(superblock: &SuperBlock, journal: MayHaveJournal) -> bool {
    let clean = superblock.was_left_clean();
    let recover = superblock.features().incompat.contains(Incompat::RECOVER);
    let half_deleted = superblock.s_last_orphan.get() != 0;
    let needs_mount = (recover || half_deleted) && journal == MayHaveJournal::No;
    let max = superblock.s_max_mnt_count.get().cast_signed();
    let mounts = max > 0 && superblock.s_mnt_count.get() >= max.cast_unsigned();
    let interval = superblock.s_checkinterval.get();
    let since = examination::now().saturating_sub(superblock.s_lastcheck.get());
    let time = interval > 0 && since >= interval;
    !clean || needs_mount || mounts || time
}
