//! `tune`: changes the name, the settings and the features of a file system.

mod parse;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use uext4_blockdev::Access;
use uext4_fsck::plan_file::{self, Planned, Recorded, WriteLine};
use uext4_fsck::tune::{self, Change, Reserved, Tuned};
use uext4_fsck::{Error, apply};

use super::info::{self, InfoArgs};
use super::{Output, repair};
use crate::args::parse_size;
use crate::examination::{ExamineArgs, Watching, counted, print_written};
use crate::failure::{Exit, Failure};
use crate::image_copy::must_not_exist;
use crate::said_waits::pause;
use crate::{interrupt, kernel_mount, open};

/// Change the label, UUID, settings and features of a file system, with the flags of tune2fs
///
/// The file system must be clean. What follows from a change is made in the same step: checksums,
/// quota files, indexes of directories, a journal. The result is examined before a byte is
/// written, and if the power fails meanwhile, the next run of `tune` or `repair` completes it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 tune -L root -U random disk.img
  uext4 tune -O metadata_csum,quota --plan disk.img    # what would be written
  uext4 tune -O ^has_journal --undo disk.undo disk.img # `uext4 undo` takes it back
  uext4 tune -m 1 -E mount_opts=discard disk.img
  uext4 tune -I 256 -O flex_bg,64bit old.img
`uext4 info IMAGE` shows what can be changed.")]
pub struct TuneArgs {
    #[command(flatten)]
    examine: ExamineArgs,
    /// Label: at most 16 bytes
    #[arg(short = 'L', long, value_name = "LABEL", value_parser = parse::label)]
    label: Option<[u8; 16]>,
    /// UUID, or: random, time, clear
    #[arg(short = 'U', long, value_name = "UUID", value_parser = parse::uuid)]
    uuid: Option<[u8; 16]>,
    /// Reserve this percentage of the blocks
    #[arg(
        short = 'm',
        long,
        value_name = "PERCENT",
        conflicts_with = "reserved_blocks"
    )]
    reserved_percent: Option<f64>,
    /// Reserve so many blocks
    #[arg(short = 'r', long, value_name = "BLOCKS")]
    reserved_blocks: Option<u64>,
    /// The user who may take reserved blocks, by number or by a name of this machine
    #[arg(short = 'u', long, value_name = "USER", value_parser = parse::user)]
    reserved_user: Option<u16>,
    /// The group that may take reserved blocks, by number or by a name of this machine
    #[arg(short = 'g', long, value_name = "GROUP", value_parser = parse::group)]
    reserved_group: Option<u16>,
    /// What the kernel does after an error: continue, remount-ro, panic
    #[arg(short = 'e', long, value_name = "WHAT", value_parser = parse::errors)]
    errors: Option<u16>,
    /// Check after so many mounts; 0 or -1 is never, random is 20 to 40
    #[arg(short = 'c', long, value_name = "N", allow_hyphen_values = true)]
    #[arg(value_parser = parse::max_mounts)]
    max_mounts: Option<i16>,
    /// How often it was mounted since the last check
    #[arg(short = 'C', long, value_name = "N")]
    mounts: Option<u16>,
    /// Check after so many days, or with d, w, m: days, weeks, months; 0 is never
    #[arg(short = 'i', long, value_name = "N[d|w|m]", value_parser = parse::interval)]
    check_interval: Option<u32>,
    /// When it was checked last, in UTC: now, YYYYMMDD[HH[MM[SS]]]
    #[arg(short = 'T', long, value_name = "TIME", value_parser = parse::checked)]
    checked: Option<u64>,
    /// Where it was mounted last
    #[arg(short = 'M', long, value_name = "DIRECTORY", value_parser = parse::text64)]
    last_mounted: Option<[u8; 64]>,
    /// Default mount options that are set, or cleared with ^
    #[arg(short = 'o', long, value_name = "[^]OPTION,...", value_parser = parse::mount_options)]
    mount_options: Option<parse::Changes>,
    /// mount_opts=, hash_alg=, hash_seed=, stride=, stripe_width=, mmp_update_interval=,
    /// orphan_file_size=, encoding=, encoding_flags=, force_fsck, [^]test_fs, clear_mmp
    #[arg(short = 'E', long, value_name = "NAME[=VALUE],...", value_parser = parse::extended)]
    extended: Vec<parse::Changes>,
    /// Features that are set, or cleared with ^
    #[arg(short = 'O', long, value_name = "[^]FEATURE,...", value_parser = parse::features)]
    features: Vec<parse::Changes>,
    /// Make a journal; as -O has_journal
    #[arg(short = 'j')]
    journal: bool,
    /// Make a journal: size= in MiB, location= as a block or with M, G as bytes; for
    /// -O fast_commit also fast_commit_size= in KiB, of a journal that is there, too
    #[arg(short = 'J', value_name = "NAME=N,...", value_parser = parse::journal)]
    journal_options: Vec<parse::Changes>,
    /// Quotas that are counted, or no longer with ^: usrquota, grpquota, prjquota
    #[arg(short = 'Q', long, value_name = "[^]QUOTA,...", value_parser = parse::quotas)]
    quotas: Vec<parse::Changes>,
    /// Bytes of an inode: as many as there are, or more
    #[arg(short = 'I', long, value_name = "BYTES", value_parser = parse_size)]
    inode_size: Option<u64>,
    /// Clear the mark of another host (-E clear_mmp), and give up a journal on another device
    /// (-O ^has_journal)
    #[arg(short = 'f')]
    force: bool,
    /// Then print what `uext4 info` prints
    #[arg(short = 'l')]
    list: bool,
    /// Print what would be written, and change nothing
    #[arg(short = 'n', long, alias = "dry-run", conflicts_with = "undo")]
    plan: bool,
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
    /// First keep what is overwritten in this new file; `uext4 undo` puts it back
    #[arg(short = 'z', long, value_name = "FILE")]
    undo: Option<PathBuf>,
}

impl TuneArgs {
    fn changes(&self) -> Vec<Change> {
        let reserved = self.reserved_percent.map(Reserved::Percent);
        let reserved = reserved.or_else(|| self.reserved_blocks.map(Reserved::Blocks));
        let fields = [
            self.label.map(Change::Label),
            reserved.map(Change::Reserved),
            self.reserved_user.map(Change::ReservedUser),
            self.reserved_group.map(Change::ReservedGroup),
            self.errors.map(Change::Errors),
            // -1 is stored as it is: never.
            self.max_mounts
                .map(|most| Change::MountsMax(most.cast_unsigned())),
            self.mounts.map(Change::Mounts),
            self.check_interval.map(Change::CheckInterval),
            self.checked.map(Change::CheckedAt),
            self.last_mounted.map(Change::LastMounted),
        ];
        let lists = self
            .features
            .iter()
            .chain(&self.quotas)
            .chain(&self.mount_options)
            .chain(&self.extended)
            .chain(&self.journal_options);
        let mut changes: Vec<Change> = fields.into_iter().flatten().collect();
        if self.force && !self.features.is_empty() {
            changes.push(Change::ForgetJournalDevice);
        }
        if self.journal && self.journal_options.is_empty() {
            changes.extend(Change::of_features("has_journal").unwrap_or_default());
        }
        changes.extend(lists.flat_map(|list| list.list.iter().cloned()));
        // With flex_bg, which may be set in the same step, inode tables may lie anywhere.
        changes.extend(self.inode_size.map(Change::InodeSize));
        // With metadata_csum_seed, which may be set in the same step, fewer checksums follow it.
        changes.extend(self.uuid.map(Change::Uuid));
        changes
    }
}

/// Makes the changes, and prints the superblock if that is wanted.
pub fn run(args: &TuneArgs, out: &mut Output) -> Result<Exit, Failure> {
    let changes = args.changes();
    let clears_mmp = args.extended.iter().any(|list| list.clears_mmp);
    let has_changes = !changes.is_empty() || clears_mmp;
    if clears_mmp && (!args.force || args.plan || args.undo.is_some()) {
        let failure = Failure::new(Exit::Usage, "clear_mmp needs -f, and writes at once");
        return Err(failure.hint(
            "be certain that no host has the file system; --plan and --undo are for what follows",
        ));
    }
    if has_changes || !args.list {
        change(args, &changes, clears_mmp, out)?;
    }
    match args.list {
        true => info::run(&InfoArgs::of(&args.examine.image, args.json), out),
        false => Ok(Exit::Success),
    }
}

/// Works out what the changes write, and writes it.
fn change(
    args: &TuneArgs,
    changes: &[Change],
    clears_mmp: bool,
    out: &mut Output,
) -> Result<(), Failure> {
    let image = &args.examine.image.place.image;
    if changes.is_empty() && !clears_mmp {
        let failure = Failure::new(Exit::Usage, "nothing is to be changed");
        return Err(failure.hint("`uext4 tune --help` lists what can be"));
    }
    if let Some(undo) = &args.undo {
        must_not_exist(undo)?;
    }
    let access = match args.plan {
        true => Access::ReadOnly,
        false => Access::ReadWrite,
    };
    let device = open::to_examine(&args.examine.image, access)?;
    kernel_mount::warn(image);
    let failed = |error: Error| args.examine.failure(&error);
    let _deferred = interrupt::defer();
    let cleared = clears_mmp && apply::clear_mark(&*device).map_err(failed)?;
    if !args.plan {
        let how = repair::How {
            undo: args.undo.clone(),
            ..repair::How::default()
        };
        repair::finish_repair(&args.examine, &how, &device)?;
    }
    let options = args.examine.options();
    let examined = Recorded::new(Arc::clone(&device));
    let source = match args.plan {
        true => Arc::clone(&examined) as _,
        false => Arc::clone(&device),
    };
    let tuned = tune::tune(&source, &options, changes, &Watching::progress()).map_err(failed)?;
    if args.plan {
        return print_plan(args, &tuned, &examined, out);
    }
    interrupt::stop_if_requested()?;
    let undo = args.undo.as_deref();
    let blocks = apply::in_place(&*device, &tuned.overlay, &tuned.writes, undo, &pause);
    let blocks = blocks.map_err(|error| match error {
        Error::NoLogRoom { .. } => failed(error).hint(
            "`--undo FILE` changes it all the same, and `uext4 undo FILE IMAGE` takes it back",
        ),
        error => failed(error),
    });
    let blocks = blocks? + u64::from(cleared);
    let said = format_args!("changed: {} written", counted(blocks, "block"));
    print_written(blocks, args.json, said, out)?;
    Ok(())
}

fn print_plan(
    args: &TuneArgs,
    tuned: &Tuned,
    examined: &Recorded,
    out: &mut Output,
) -> Result<(), Failure> {
    let failed = |error: Error| args.examine.failure(&error);
    if args.json {
        let planned = Planned {
            findings: &tuned.findings,
            consistent: true,
            lost: None,
            examined,
        };
        return plan_file::write(out, &tuned.overlay, &tuned.writes, &planned).map_err(failed);
    }
    let each = |line: WriteLine| repair::print_write(out, &line).map_err(Error::Output);
    plan_file::for_each_write(&tuned.overlay, &[], each).map_err(failed)?;
    writeln!(out, "{} to write", counted(tuned.writes.count(), "block"))?;
    Ok(())
}
