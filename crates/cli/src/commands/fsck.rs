//! `fsck`: what fsck(8), systemd and the initial RAM disks call, with the flags of e2fsck.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use uext4_blockdev::{Access, BlockDevice};
use uext4_fsck::Writes;
use uext4_ondisk::features::Incompat;
use uext4_ondisk::superblock::{STATE_ERROR, STATE_VALID, SUPERBLOCK_OFFSET, SuperBlock};

use super::Output;
use super::repair::{self, How};
use crate::args::{ImageArgs, PlaceArgs};
use crate::examination::ExamineArgs;
use crate::failure::{Exit, Failure};
use crate::messages;
use crate::open;
use crate::show::escaped;

/// Check and repair a file system, with the flags and exit codes of e2fsck
///
/// A file system that was left clean is not examined unless -f is given. Exit codes are those of
/// fsck(8): 0 clean, 1 repaired, 4 left damaged, 8 failed, 16 wrong usage, 32 interrupted.
#[derive(Args, Debug)]
#[command(disable_help_flag = true, disable_version_flag = true)]
#[command(after_help = "Examples:
  fsck.uext4 -p /dev/vdb1          # as the system does it when it starts
  uext4 fsck -fn disk.img          # examine only
  uext4 fsck -fy -z disk.undo disk.img")]
pub struct FsckArgs {
    /// Image file or block device
    #[arg(value_name = "DEVICE")]
    device: PathBuf,
    /// Do without asking what is safe; end with 4 if there is more to do
    #[arg(short = 'p', alias = "a", conflicts_with_all = ["yes", "no"])]
    preen: bool,
    /// The same as -p
    #[arg(short = 'a', conflicts_with_all = ["yes", "no"])]
    automatic: bool,
    /// Only examine; the image is not changed
    #[arg(short = 'n', conflicts_with = "yes")]
    no: bool,
    /// Do not ask
    #[arg(short = 'y')]
    yes: bool,
    /// Examine also what was left clean
    #[arg(short = 'f')]
    force: bool,
    /// Use the superblock in this block
    #[arg(short = 'b', value_name = "BLOCK")]
    superblock: Option<u64>,
    /// Bytes of a block, to find the superblock that -b names
    #[arg(short = 'B', value_name = "BYTES")]
    block_size: Option<u32>,
    /// Write the progress to this open file, as fsck(8) reads it; 0 shows a bar
    #[arg(short = 'C', value_name = "FD", allow_hyphen_values = true)]
    progress: Option<i32>,
    /// Build the indexes of all directories anew
    #[arg(short = 'D')]
    rebuild_directories: bool,
    /// Extended options: journal_only, fixes_only, no_optimize_extents, …
    #[arg(short = 'E', value_name = "OPTION,…", value_delimiter = ',')]
    extended: Vec<String>,
    /// First keep what is overwritten in this new file; `uext4 undo` puts it back
    #[arg(short = 'z', value_name = "FILE")]
    undo: Option<PathBuf>,
    /// Print more
    #[arg(short = 'v')]
    verbose: bool,
    /// Print how long it took
    #[arg(short = 't', action = clap::ArgAction::Count)]
    timing: u8,
    /// Print the version
    #[arg(short = 'V')]
    version: bool,
    /// Ignored: no line is buffered
    #[arg(short = 'r', hide = true)]
    interactive: bool,
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

impl FsckArgs {
    fn examine(&self) -> ExamineArgs {
        ExamineArgs {
            image: ImageArgs {
                place: PlaceArgs {
                    image: self.device.clone(),
                    offset: None,
                    partition: None,
                },
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
            ..How::default()
        }
    }

    /// # Errors
    /// Exit 16 for what is not done here.
    fn validate(&self) -> Result<(), Failure> {
        let refused = |what: &str| Err(Failure::new(Exit::Usage, what));
        if self.bad_blocks > 0 || self.bad_block_list.is_some() {
            return refused(
                "-c, -l, -L: lists of bad blocks are not supported: copy the image to a \
                            sound device",
            );
        }
        if self.external_journal.is_some() {
            return refused("-j: external journals are not supported");
        }
        for option in &self.extended {
            let known = [
                "journal_only",
                "fixes_only",
                "no_optimize_extents",
                "optimize_extents",
            ];
            let known = known.contains(&option.as_str());
            let tuning = ["readahead_kb", "unshare_blocks", "discard", "nodiscard"];
            let ignored = tuning
                .iter()
                .any(|name| option.split('=').next() == Some(*name));
            if !known && !ignored {
                return refused(&format!("-E {option}: no such option"));
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
    let exit = examine(args, out)?;
    if args.timing > 0 {
        let took = began.elapsed().as_secs_f64();
        writeln!(out, "{}: {took:.2} s", args.device.display())?;
    }
    Ok(exit)
}

fn examine(args: &FsckArgs, out: &mut Output) -> Result<Exit, Failure> {
    let examine = args.examine();
    let journal_only = args.extended.iter().any(|option| option == "journal_only");
    let access = match args.no {
        true => Access::ReadOnly,
        false => Access::ReadWrite,
    };
    let device = open::to_examine(&examine.image, access)?;
    let finished = !args.no && repair::finish_repair(&examine, &device)?;
    if let Some(line) = left_clean(args, &*device).filter(|_| !args.force && !journal_only) {
        writeln!(out, "{line}")?;
        return Ok(if finished {
            Exit::Repaired
        } else {
            Exit::Success
        });
    }
    let how = args.how();
    let outcome = repair::make_plan(&examine, &how, &device)?;
    let writes = Writes::new(&outcome.overlay, &outcome.used);
    let writes = writes.map_err(|error| examine.failure(&error))?;
    for (_, finding) in &outcome.findings {
        let text = finding.to_string();
        writeln!(
            out,
            "{}: {}",
            args.device.display(),
            escaped(text.as_bytes())
        )?;
    }
    let summary = &outcome.summary;
    writeln!(
        out,
        "{}: {} inodes, {} directories, {} blocks in use",
        args.device.display(),
        summary.inodes,
        summary.directories,
        summary.blocks_used
    )?;
    tell_progress(args.progress);
    if args.no {
        return Ok(match outcome.was_clean {
            true => Exit::Success,
            false => Exit::Damaged,
        });
    }
    if writes.count() == 0 {
        return Ok(match (outcome.is_clean, finished) {
            (false, _) => Exit::Damaged,
            (true, true) => Exit::Repaired,
            (true, false) => Exit::Success,
        });
    }
    out.flush()?;
    repair::decide(&args.device, &how, &outcome, &writes)?;
    repair::carry_out(&examine, &how, &device, &outcome, &writes)?;
    writeln!(
        out,
        "{}: ***** FILE SYSTEM WAS MODIFIED *****",
        args.device.display()
    )?;
    Ok(Exit::Repaired)
}

/// The line for a file system that need not be examined: it was left clean, and neither its count
/// of mounts nor the time since the last examination says that it is due.
fn left_clean(args: &FsckArgs, device: &dyn BlockDevice) -> Option<String> {
    let mut bytes = [0; 1024];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).ok()?;
    let superblock = SuperBlock::parse(&bytes).ok()?;
    let clean = superblock.s_state.get() & (STATE_VALID | STATE_ERROR) == STATE_VALID;
    let recover = superblock.features().incompat.contains(Incompat::RECOVER);
    let max = superblock.s_max_mnt_count.get().cast_signed();
    let due = max > 0 && superblock.s_mnt_count.get() >= max.cast_unsigned();
    if !clean || recover || due || superblock.s_last_orphan.get() != 0 {
        return None;
    }
    let inodes = superblock.s_inodes_count.get();
    let blocks = superblock.blocks_count();
    Some(format!(
        "{}: clean, {}/{inodes} files, {}/{blocks} blocks",
        args.device.display(),
        inodes.saturating_sub(superblock.s_free_inodes_count.get()),
        blocks.saturating_sub(superblock.free_blocks_count()),
    ))
}

/// The end of the last pass, for who reads the progress of e2fsck from an open file.
fn tell_progress(fd: Option<i32>) {
    let Some(fd) = fd.filter(|fd| *fd > 0) else {
        return;
    };
    let file = File::options()
        .append(true)
        .open(format!("/proc/self/fd/{fd}"));
    let told = file.and_then(|mut file| writeln!(file, "5 100 100"));
    if let Err(error) = told {
        messages::warning(format_args!("-C {fd}: {error}"));
    }
}
