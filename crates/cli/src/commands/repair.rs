//! `repair`: makes a damaged file system consistent, after showing how.

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use uext4_blockdev::partition::Name;
use uext4_blockdev::{Access, BlockDevice};
use uext4_fsck::plan_file::{self, Recorded, WriteLine};
use uext4_fsck::{
    Error, Loss, Observer, Outcome, Record, SharedBlocks, UnfinishedRepair, When, Writes, apply,
};

use super::Output;
use crate::args::PlaceArgs;
use crate::examination::{self, ExamineArgs, Watching, counted};
use crate::failure::{Exit, Failure};
use crate::guarded::Guarded;
use crate::image_copy::{Copy, must_not_exist};
use crate::losses;
use crate::messages;
use crate::said_waits::pause;
use crate::show::{escaped, for_shell};
use crate::{identify, interrupt, kernel_mount, open, still};

/// Repair a damaged file system, after showing what will be done
///
/// The whole repair is worked out first, on a copy of the changed blocks in memory, and the result
/// is examined again; only then is a byte of the image written. If the power fails while it is
/// written, the next run completes the repair. Exit codes are those of fsck(8): 0 clean, 1
/// repaired, 4 left damaged (also --plan with something to repair, and -y where --accept-loss is
/// needed), 8 failed, 16 wrong usage, 32 interrupted.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 repair --plan disk.img                 # what would be written, and why
  uext4 repair --undo disk.undo disk.img       # ask, keep what is overwritten, repair
  uext4 repair -y --into fixed.img disk.img    # leave the image as it is
  uext4 repair --plan --json disk.img > plan   # to be read, and written later:
  uext4 repair --apply plan disk.img")]
pub struct RepairArgs {
    #[command(flatten)]
    pub examine: ExamineArgs,
    #[command(flatten)]
    pub how: How,
    /// Print all findings and all writes, and change nothing
    #[arg(short = 'n', long)]
    #[arg(conflicts_with_all = ["apply", "yes", "preen", "undo", "into", "drop_verity"])]
    pub plan: bool,
    /// Write the plan in this file, made by `--plan --json`; refused if the image has changed since
    #[arg(long, value_name = "PLAN", conflicts_with_all = ["preen", "into"])]
    pub apply: Option<PathBuf>,
    /// Print the plan as lines of JSON
    #[arg(long)]
    pub json: bool,
}

/// How a plan is decided on and written.
#[derive(Args, Clone, Debug, Default)]
pub struct How {
    /// Do not ask
    #[arg(short = 'y', long)]
    pub yes: bool,
    /// Do without asking what is safe, and nothing if there is more to do
    #[arg(short = 'p', long, conflicts_with = "yes")]
    pub preen: bool,
    /// First keep what is overwritten in this new file; `uext4 undo` puts it back
    #[arg(long, value_name = "FILE", conflicts_with = "into")]
    pub undo: Option<PathBuf>,
    /// Write the repaired file system to this new file, and leave the image as it is
    #[arg(long, value_name = "FILE")]
    pub into: Option<PathBuf>,
    /// What becomes of blocks that more than one file claims
    #[arg(long, value_name = "WHAT", default_value = "clone")]
    pub dup: Dup,
    /// Build the indexes of all directories anew
    #[arg(short = 'D', long)]
    pub rebuild_directories: bool,
    /// With -y, lose at most N names (any number if none is said) with inode tables or a root
    /// directory that are found nowhere and made anew, empty [default: 0]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "18446744073709551615")]
    pub accept_loss: Option<u64>,
}

/// What becomes of blocks that more than one file claims.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum Dup {
    /// Each file gets its own copy
    #[default]
    Clone,
    /// The file that was changed first keeps them
    KeepOldest,
    /// All read zeroes there
    Zero,
}

/// Plans, asks, and writes.
pub fn run(args: &RepairArgs, out: &mut Output) -> Result<Exit, Failure> {
    let access = match args.plan || args.how.into.is_some() {
        true => Access::ReadOnly,
        false => Access::ReadWrite,
    };
    let image = &args.examine.image.place.image;
    for made in args.how.into.iter().chain(&args.how.undo) {
        must_not_exist(made)?;
    }
    let guarded = Guarded::open(open::to_salvage, &args.examine.image, access)?;
    let device = Arc::clone(guarded.device());
    match args.how.into {
        Some(_) => {
            still::must_not_be_mounted(image)?;
            open::must_not_be_served(&args.examine.image.place)?;
        }
        None => kernel_mount::warn(image),
    }
    let _deferred = interrupt::defer();
    if let Some(path) = &args.apply {
        return apply_plan(args, path, &guarded, out);
    }
    let mut finished = false;
    if access == Access::ReadWrite && !guarded.is_protected() {
        finished = finish_repair(&args.examine, &args.how, &device)?;
    }
    // A plan that may be kept says what it was made from.
    let examined = args.json.then(|| Recorded::new(Arc::clone(&device)));
    let source = match &examined {
        Some(examined) => Arc::clone(examined) as _,
        None => Arc::clone(&device),
    };
    let mut outcome = make_plan(&args.examine, &args.how, &source, &Watching::progress())?;
    let recorded = outcome.record(When::WithRepairs, examination::now());
    recorded.map_err(|error| args.examine.failure(&error))?;
    let writes = Writes::new(&outcome.overlay, &outcome.used);
    let writes = writes.map_err(|error| args.examine.failure(&error))?;
    print(args, &outcome, &writes, examined.as_deref(), out)?;
    if args.plan && outcome.was_clean && outcome.record != Record::Unclean {
        return Ok(Exit::Success);
    }
    if args.plan {
        if !args.json {
            writeln!(out, "{}", after_plan(&outcome))?;
        }
        return Ok(Exit::Damaged);
    }
    // A copy that was asked for is made even if there is nothing to repair.
    if writes.count() == 0 && (args.how.into.is_none() || !outcome.is_clean) {
        return Ok(unchanged(&outcome, finished));
    }
    out.flush()?;
    guarded.refuse_writing(&args.examine.image.place)?;
    decide(image, &args.how, &outcome, &writes)?;
    carry_out(&args.examine, &args.how, &guarded, &outcome, &writes)?;
    if writes.count() == 0 {
        return Ok(Exit::Success);
    }
    if !args.json {
        writeln!(
            out,
            "repaired: {} written; the file system is clean",
            counted(writes.count(), "block")
        )?;
    }
    Ok(Exit::Repaired)
}

/// What can be done with a plan that was only shown.
fn after_plan(outcome: &Outcome) -> &'static str {
    match outcome.is_clean {
        true => {
            "nothing was written: `uext4 repair IMAGE` asks and writes this, `--undo FILE` keeps \
             what it overwrites"
        }
        false => {
            "nothing was written, and nothing can be: the remedies do not lead to a consistent \
             file system; `uext4 salvage IMAGE -o DIR` reads out what can be read"
        }
    }
}

/// How a repair that has nothing to write ends; `finished` is whether it completed an earlier one.
pub fn unchanged(outcome: &Outcome, finished: bool) -> Exit {
    match (outcome.is_clean, finished) {
        (false, _) => Exit::Damaged,
        (true, true) => Exit::Repaired,
        (true, false) => Exit::Success,
    }
}

/// Completes a repair that was cut off: its plan was decided on before.
///
/// # Errors
/// Exit 8 if an undo file is asked for: this would overwrite what the file is to keep.
pub fn finish_repair(
    args: &ExamineArgs,
    how: &How,
    device: &Arc<dyn BlockDevice>,
) -> Result<bool, Failure> {
    let found = UnfinishedRepair::find(&**device).map_err(|error| args.failure(&error.into()))?;
    let Some(repair) = found else {
        return Ok(false);
    };
    let image = args.image.place.image.display();
    if how.undo.is_some() {
        let failure = Failure::new(
            Exit::CouldNot,
            format_args!("{image}: a repair was cut off, and must be finished before another"),
        );
        return Err(failure.hint(
            "`uext4 repair -y IMAGE` without an undo file finishes it; `uext4 undo` takes it back \
             if it was made with one",
        ));
    }
    let blocks = counted(repair.blocks(), "block");
    messages::warning(format_args!(
        "{image}: a repair was cut off: it is finished first, writing {blocks}"
    ));
    apply::finish(&**device, &repair, &pause).map_err(|error| args.failure(&error))?;
    Ok(true)
}

/// Examines the image and what the remedies make of it.
///
/// # Errors
/// Exit 4 if no consistent file system came of it; 8 if it could not be examined.
pub fn make_plan(
    args: &ExamineArgs,
    how: &How,
    device: &Arc<dyn BlockDevice>,
    observer: &dyn Observer,
) -> Result<Outcome, Failure> {
    let mut options = args.options();
    options.rebuild_directories = how.rebuild_directories;
    options.loss_max = how.accept_loss.unwrap_or(options.loss_max);
    options.remake = !how.preen && open::may_hold_ext(&**device);
    options.shared_blocks = match how.dup {
        Dup::Clone => SharedBlocks::Clone,
        Dup::KeepOldest => SharedBlocks::KeepOldest,
        Dup::Zero => SharedBlocks::Zero,
    };
    if !device.is_read_only() {
        let number = apply::abandoned_number(&**device, &pause);
        options.abandoned_mmp = number.map_err(|error| args.failure(&error))?;
    }
    uext4_fsck::plan(device, &options, observer).map_err(|error| match error {
        Error::NotExt4 { .. } if options.superblock.is_none() && !open::holds_ext(&**device) => {
            identify::nothing_found(&args.image.place.image, device)
        }
        error => args.failure(&error),
    })
}

/// Returns if the plan is to be written: because the options say so, or because the user does.
///
/// # Errors
/// Exit 4 if it is not, 8 if the user cannot be asked.
pub fn decide(image: &Path, how: &How, outcome: &Outcome, writes: &Writes) -> Result<(), Failure> {
    let image = image.display();
    let left = |why: &str| Failure::new(Exit::Damaged, format_args!("{image}: {why}"));
    if !outcome.is_clean {
        return Err(left(
            "the remedies do not lead to a consistent file system: nothing was written",
        )
        .hint("`uext4 salvage IMAGE -o DIR` reads out what can be read"));
    }
    if writes.count() == 0 {
        return Ok(());
    }
    if how.yes {
        return match outcome.loses_too_much() {
            Some(lost) if how.into.is_none() => {
                Err(left(&losses::refusal(lost)).hint(losses::REFUSED_HINT))
            }
            _ => Ok(()),
        };
    }
    if how.preen {
        return match outcome.has_damage {
            false => Ok(()),
            true => Err(
                left("damage that a human should decide on: nothing was written")
                    .hint("`uext4 repair --plan IMAGE` shows it, `uext4 repair IMAGE` asks"),
            ),
        };
    }
    if !std::io::stdin().is_terminal() {
        let failure = Failure::new(
            Exit::CouldNot,
            format_args!("{image}: standard input is no terminal, so no question can be asked"),
        );
        return Err(failure.hint("-y repairs without asking, --plan only shows"));
    }
    let mut stderr = std::io::stderr();
    let count = counted(writes.count(), "block");
    // Not an error of standard output: nothing may be taken for done because it is not asked.
    let lost = losses::in_words(outcome.lost.as_ref());
    let asked = write!(stderr, "{image}: repair it, writing {count}{lost}? [y/N] ");
    let asked = asked.and_then(|()| stderr.flush());
    asked.map_err(|error| Failure::new(Exit::CouldNot, format_args!("standard error: {error}")))?;
    let mut answer = String::new();
    let read = interrupt::while_asking(|| std::io::stdin().lock().read_line(&mut answer))?;
    read.map_err(|error| Failure::io("standard input", &error))?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(left("nothing was written, as you answered")),
    }
}

/// Writes a plan in the way that was asked for.
pub fn carry_out(
    args: &ExamineArgs,
    how: &How,
    guarded: &Guarded,
    outcome: &Outcome,
    writes: &Writes,
) -> Result<(), Failure> {
    let place = &args.image.place;
    let image = &place.image;
    interrupt::stop_if_requested()?;
    let Some(into) = &how.into else {
        let device = guarded.to_write(place, &outcome.overlay)?;
        let undo = how.undo.as_deref();
        let is_record = matches!(outcome.record, Record::Alone | Record::Unclean);
        let done = match is_record && undo.is_none() {
            true => outcome.write_record(&*device, &pause),
            false => apply::in_place(&*device, &outcome.overlay, writes, undo, &pause).map(drop),
        };
        return done.map_err(|error| {
            let failure = args.failure(&error);
            match error {
                Error::NoLogRoom { .. } => failure.hint(without_log(place)),
                _ => failure,
            }
        });
    };
    let copy = Copy::of(image, None, into, |_| interrupt::stop_if_requested())?;
    if writes.count() == 0 {
        return copy.finish();
    }
    let part = open::part_to_write(Arc::new(copy.device()?), place)?;
    let done = apply::to_copy(&*part, &outcome.overlay, writes);
    done.map_err(|error| args.failure(&error))?;
    drop(part);
    copy.finish()
}

/// The two ways to repair an image that has no room for a log.
fn without_log(place: &PlaceArgs) -> String {
    let name = |end: &str| {
        let mut name = place.image.as_os_str().to_owned();
        name.push(end);
        for_shell(&name)
    };
    let (image, undo, new) = (name(""), name(".undo"), name(".repaired"));
    let at = match (place.offset, &place.partition) {
        (Some(offset), _) => format!("--offset {offset} "),
        (None, Some(Name::Number(number))) => format!("--partition {number} "),
        (None, Some(Name::Text(name))) => format!("--partition {} ", for_shell(name.as_ref())),
        (None, None) => String::new(),
    };
    format!(
        "`uext4 repair -y {at}--undo {undo} {image}` repairs it in place, and `uext4 undo \
         {at}{undo} {image}` takes that back, also after a power cut; `uext4 repair -y {at}--into \
         {new} {image}` leaves it as it is"
    )
}

fn apply_plan(
    args: &RepairArgs,
    path: &Path,
    guarded: &Guarded,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let failed = |error| args.examine.failure(&error);
    let place = &args.examine.image.place;
    let file = File::open(path).map_err(|error| Failure::io(path.display(), &error))?;
    let memory = args.examine.options().memory;
    let plan = plan_file::read(&mut BufReader::new(file), guarded.device(), memory);
    let plan = plan.map_err(failed)?;
    let undo = args.how.undo.as_deref();
    interrupt::stop_if_requested()?;
    if plan.writes.count() == 0 {
        writeln!(out, "the plan writes nothing")?;
        return Ok(Exit::Success);
    }
    let device = guarded.to_write(place, &plan.overlay)?;
    let count = apply::in_place(&*device, &plan.overlay, &plan.writes, undo, &pause);
    let count = count.map_err(failed)?;
    if !args.json {
        writeln!(out, "repaired: {} written", counted(count, "block"))?;
    }
    Ok(Exit::Repaired)
}

fn print(
    args: &RepairArgs,
    outcome: &Outcome,
    writes: &Writes,
    examined: Option<&Recorded>,
    out: &mut Output,
) -> Result<(), Failure> {
    let failed = |error| args.examine.failure(&error);
    if let Some(examined) = examined {
        let planned = plan_file::Planned {
            findings: &outcome.findings,
            consistent: outcome.is_clean,
            lost: outcome.lost.as_ref(),
            examined,
        };
        return plan_file::write(out, &outcome.overlay, writes, &planned).map_err(failed);
    }
    for (number, (_, finding)) in (1..).zip(&outcome.findings) {
        let info = finding.problem.info();
        let text = finding.to_string();
        let text = escaped(text.as_bytes());
        write!(out, "{number}: {text}: {}", finding.remedy())?;
        match info.loss {
            Loss::Nothing => writeln!(out)?,
            loss => writeln!(out, " (loses: {})", loss.name())?,
        }
    }
    examination::print_hidden(outcome, outcome.findings.len(), out)?;
    losses::print_names(outcome.lost.as_ref(), out)?;
    if args.plan {
        let each = |line: WriteLine| print_write(out, &line).map_err(Error::Output);
        plan_file::for_each_write(&outcome.overlay, &outcome.findings, each).map_err(failed)?;
    }
    print_summary(outcome, writes, out)
}

/// Prints what a block becomes.
pub fn print_write(out: &mut Output, line: &WriteLine) -> std::io::Result<()> {
    let causes: Vec<String> = line.causes.iter().map(u32::to_string).collect();
    match causes.is_empty() {
        // What the superblock says of the examination, or more findings than are shown.
        true => writeln!(out, "block {}:", line.write)?,
        false => writeln!(out, "block {} (for {}):", line.write, causes.join(", "))?,
    }
    for change in &line.changes {
        writeln!(
            out,
            "  byte {}: {} -> {}",
            change.at, change.was, change.becomes
        )?;
    }
    Ok(())
}

fn print_summary(outcome: &Outcome, writes: &Writes, out: &mut Output) -> Result<(), Failure> {
    if outcome.summary.findings == 0 && outcome.record == Record::Unclean {
        writeln!(out, "clean, but not marked so: 1 block to write")?;
        return Ok(());
    }
    if outcome.summary.findings == 0 {
        writeln!(out, "clean: nothing to repair")?;
        return Ok(());
    }
    write!(
        out,
        "{}, {} to write",
        counted(outcome.summary.findings, "finding"),
        counted(writes.count(), "block")
    )?;
    writeln!(out, "{}", losses::in_words(outcome.lost.as_ref()))?;
    Ok(())
}
