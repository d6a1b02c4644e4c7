//! The passes in their order, and the rounds of a repair.

use std::sync::Arc;

use uext4_blockdev::BlockDevice;
use uext4_redo::FoundLog;

use crate::account::{self, Lost};
use crate::clusters::ClusterSet;
use crate::error::{Error, Result};
use crate::finding::{Finding, Place};
use crate::mmp::{Pause, while_claimed};
use crate::options::Options;
use crate::overlay::Overlay;
use crate::problem::{Severity, SuperblockProblem};
use crate::record::{self, Record, When};
use crate::redo::{clear_pointer, read_through};
use crate::report::{Cause, Findings, Observer, Pass, Progress};
use crate::state::State;
use crate::summary::Summary;
use crate::superblock::{self, Opened};
use crate::{
    bitmaps, connect, directories, fast_commits, inodes, journal, links, make, memory, orphans,
    quota, resize_inode, shared, xattr,
};

/// Most rounds of a repair. Two are usual: one that mends and one that finds nothing more.
pub(crate) const ROUNDS_MAX: u32 = 8;

/// What an examination found, and the file system as its remedies make it.
#[derive(Debug)]
pub struct Outcome {
    /// Counts of the first round.
    pub summary: Summary,
    /// What was found, with the numbers that the changes name as their causes.
    pub findings: Vec<(Cause, Finding)>,
    /// Whether the first round found nothing that is more than a note.
    pub was_clean: bool,
    /// What the changes take out of the tree; `None` of an examination, of changes that do not lead
    /// to a consistent file system, and where the tree before cannot be read.
    pub lost: Option<Lost>,
    /// [`Options::loss_max`].
    loss_max: u64,
    /// Whether an inode table or the root directory was made anew, empty.
    is_emptied: bool,
    /// Whether a human should read the plan: something is [`crate::Severity::Damage`].
    pub has_damage: bool,
    /// The device with all changes.
    pub overlay: Overlay,
    /// The clusters in use once they are made, and those that anything had an owner for before:
    /// until the changes are durable, both are needed.
    pub used: ClusterSet,
    /// Whether the last round found nothing that is more than a note: the result of the changes is
    /// consistent. Of a check, which has one round, whether the file system is.
    pub is_clean: bool,
    /// Whether the changes note the examination; see [`Outcome::record`].
    pub record: Record,
}

impl Outcome {
    /// How many names would be lost with structures that are made anew, empty, if that is more
    /// than the options allow to be written without a question. `u64::MAX` where a structure is
    /// made anew, and nothing could be counted.
    pub fn loses_too_much(&self) -> Option<u64> {
        let lost = match &self.lost {
            Some(lost) => lost.with_structures,
            None if self.is_emptied => u64::MAX,
            None => 0,
        };
        (lost > self.loss_max).then_some(lost)
    }

    /// Adds a note to the changes: that the file system was unmounted without errors, that it was
    /// examined at `now`, in seconds since 1970, and not mounted since. Not if the changes do not
    /// lead to a consistent file system.
    ///
    /// # Errors
    /// Of the device and of the overlay.
    pub fn record(&mut self, when: When, now: u32) -> Result<()> {
        if self.is_clean {
            self.record = record::record(&self.overlay, when, now)?;
        }
        Ok(())
    }

    /// Writes this note to the device, where it is the only change: that needs no log. `pause`
    /// waits while multiple mount protection is claimed.
    ///
    /// # Errors
    /// [`crate::Error::Refused`] if another host has the file system; of the device.
    pub fn write_record(&self, device: &dyn BlockDevice, pause: &Pause<'_>) -> Result<()> {
        while_claimed(device, device, pause, || {
            record::write(&self.overlay, device)
        })
    }
}

/// Examines the file system on `device` once. The device is not changed.
///
/// # Errors
/// What is wrong with the file system is a finding; see [`crate::Error`] for the rest.
pub fn examine(
    device: &Arc<dyn BlockDevice>,
    options: &Options,
    observer: &dyn Observer,
) -> Result<Outcome> {
    rounds(device, options, observer, 1)
}

/// Examines the file system on `device`, and then what the remedies make of it, until nothing
/// more is found. The device is not changed.
///
/// # Errors
/// As [`examine`]; [`Error::FastCommits`] if they cannot be replayed.
pub fn plan(
    device: &Arc<dyn BlockDevice>,
    options: &Options,
    observer: &dyn Observer,
) -> Result<Outcome> {
    rounds(device, options, observer, ROUNDS_MAX)
}

/// What an examination with the default options finds that is more than a note: nothing, if the
/// file system on `device` is clean. For programs and tests that need no more than that.
///
/// # Errors
/// As [`examine`].
pub fn findings(device: &Arc<dyn BlockDevice>) -> Result<Vec<Finding>> {
    let outcome = examine(device, &Options::default(), &())?;
    let is_more = |f: &Finding| !outcome.is_clean && f.problem.info().severity > Severity::Note;
    let findings = outcome.findings.into_iter().map(|(_, finding)| finding);
    Ok(findings.filter(is_more).collect())
}

fn rounds(
    device: &Arc<dyn BlockDevice>,
    options: &Options,
    observer: &dyn Observer,
    rounds_max: u32,
) -> Result<Outcome> {
    let findings = Findings::new(observer, options.findings_max);
    let log = FoundLog::find(&**device)?;
    let block_size = match &log {
        Some(FoundLog::Unfinished(repair)) => Ok(repair.block_size()),
        _ => superblock::block_size(device, options),
    };
    let mut options = options.clone();
    let overlay = match block_size {
        Ok(size) => Overlay::new(Arc::clone(device), size, options.memory / 4),
        Err(error) => remade(device, &options, &findings, error)?,
    };
    // From here on it says that a superblock was made.
    options.remake = findings.count() > 0;
    if let Some(log) = log {
        settle(log, &overlay, &findings)?;
    }
    let first = round(overlay, &options, &findings);
    // What was found before an error is shown too.
    findings.finish_pass();
    let (summary, mut overlay, mut used) = first?;
    let was_clean = findings.count() == 0;
    let orphans = findings.orphans();
    if rounds_max > 1 && findings.has_left_fast_commits() {
        return Err(Error::FastCommits);
    }
    let mut is_clean = was_clean;
    // What was judged once is not judged again by what the passes made of it.
    let later = Options {
        older_copies: false,
        ..options.clone()
    };
    if !was_clean && rounds_max > 1 {
        (overlay, used, is_clean) = until_clean(overlay, used, &later, &findings, rounds_max - 1)?;
    }
    let mut lost = None;
    if was_clean {
        lost = Some(Lost::default());
    } else if is_clean && !options.older_copies {
        (lost, overlay) = account::compare(device, &later, overlay, &findings)?;
    }
    if rounds_max == 1 {
        used.set_spare(Vec::new());
    }
    overlay.settle()?;
    Ok(Outcome {
        summary: Summary {
            findings: findings.count() + findings.notes(),
            notes: findings.notes(),
            orphans,
            ..summary
        },
        was_clean,
        lost,
        loss_max: options.loss_max,
        is_emptied: !findings.emptied().is_nothing(),
        has_damage: findings.has_damage(),
        findings: findings.into_kept(),
        overlay,
        used,
        is_clean,
        record: Record::None,
    })
}

/// What rounds of the passes make of an overlay.
type Rounds = (Overlay, ClusterSet, bool);

/// Goes on until a round finds nothing more, at most so many times. Returns the overlay, the
/// clusters that are in use with it or were before, and whether the last round found nothing.
///
/// # Errors
/// As [`plan`].
pub(crate) fn until_clean(
    mut overlay: Overlay,
    mut used: ClusterSet,
    options: &Options,
    findings: &Findings<'_>,
    rounds_max: u32,
) -> Result<Rounds> {
    for _ in 0..rounds_max {
        findings.begin_round();
        let before = findings.count();
        let owned = used;
        (_, overlay, used) = round(overlay, options, findings)?;
        // A log takes blocks that hold nothing both before and after the changes.
        if used.spare() != owned.spare() {
            used.set_spare(Vec::new());
        }
        used.add_removed_and(Some(&owned));
        if findings.count() == before {
            return Ok((overlay, used, true));
        }
    }
    Ok((overlay, used, false))
}

/// The device with a superblock that was made anew, if that may and can be done; else the `error`
/// that there is none.
fn remade(
    device: &Arc<dyn BlockDevice>,
    options: &Options,
    findings: &Findings<'_>,
    error: Error,
) -> Result<Overlay> {
    let may = options.remake && options.superblock.is_none();
    if !may || !matches!(error, Error::NotExt4 { .. }) {
        return Err(error);
    }
    superblock::remake(device, options, findings)?.ok_or(error)
}

/// Reads through the log of a repair that was cut off, or drops one that cannot be used.
fn settle(log: FoundLog, overlay: &Overlay, findings: &Findings<'_>) -> Result<()> {
    let report = |problem, found: Option<u64>| {
        let mut finding = Finding::new(problem, Place::whole());
        finding.found = found;
        findings.report(finding)
    };
    match log {
        FoundLog::Unfinished(repair) => {
            let cause = report(SuperblockProblem::UnfinishedRepair, Some(repair.blocks()));
            read_through(&repair, overlay, cause)
        }
        FoundLog::OutOfDate => {
            clear_pointer(overlay, report(SuperblockProblem::RepairLogOutOfDate, None))
        }
        FoundLog::Damaged => {
            clear_pointer(overlay, report(SuperblockProblem::RepairLogDamaged, None))
        }
    }
}

/// All passes, once.
fn round(
    overlay: Overlay,
    options: &Options,
    findings: &Findings<'_>,
) -> Result<(Summary, Overlay, ClusterSet)> {
    findings.progress(Progress {
        pass: Pass::Super,
        done: 0,
        total: 1,
    })?;
    let Opened {
        mut volume,
        fast_commits,
        mut held,
    } = superblock::open(overlay, options, findings)?;
    findings.finish_pass();
    let mut summary = Summary {
        memory: memory::expected(&volume, options),
        ..Summary::default()
    };
    findings.state_memory(summary.memory);
    let mut owned = None;
    if let Some(fast_commits) = fast_commits {
        let replayed = fast_commits::replay(options, findings, volume, held, &fast_commits)?;
        volume = replayed.volume;
        owned = Some(replayed.used);
        held = replayed.held;
    }
    let mut state = State::new(options, findings, volume);
    state.held = held.into();
    inodes::run(&mut state)?;
    orphans::others(&state)?;
    state.finish_pass()?;
    shared::run(&mut state)?;
    journal::recreate(&state)?;
    resize_inode::recreate(&state)?;
    make::run(&state)?;
    state.finish_pass()?;
    directories::run(&state)?;
    state.finish_pass()?;
    connect::run(&state)?;
    state.finish_pass()?;
    xattr::references(&state)?;
    links::run(&state)?;
    state.finish_pass()?;
    quota::run(&state)?;
    bitmaps::run(&state, &mut summary)?;
    state.finish_pass()?;
    state.used.add_removed_and(owned.as_ref());
    if state.shared.is_empty() {
        let spare = journal::spare(&state.volume)?;
        state.used.set_spare(spare);
    }
    Ok((summary, state.volume.into_overlay(), state.used))
}
