//! The replay of fast commits: changes that were committed behind the log of the journal.
//!
//! The log alone leaves a consistent file system. Its inodes and directories are examined first, so
//! that the replay works on what is right, and takes no block that anything owns; then the changes
//! are made, and all passes examine the result.
//!
//! ```text
//! superblock ─▶ inodes ─▶ directories ─▶ plan ─▶ claim ─▶ inodes, maps ─▶ names ─▶ ends ─▶ marks
//!               of the log's state       each inode: new, stays, dies      links    bitmaps
//! ```
//! Only the result of all records counts, so nothing depends on their order. Blocks that files map
//! now are claimed before any other block is allocated. A file whose last name is gone becomes an
//! orphan, as it does in the kernel. What does not fit is left out, with a finding, and loses no
//! more than itself: a block that is in use otherwise, a name for an inode that does not exist. A
//! new file whose directory is none is kept without a name, and connected later.
//!
//! Not done: times of directories, which are not recorded.

mod inodes;
mod maps;
mod names;
mod plan;

use uext4_ondisk::Ino;
use uext4_ondisk::fast_commit::End;
use uext4_ondisk::mapping::MapState;

use crate::clusters::ClusterSet;
use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::held::Held;
use crate::inode_map::Kind;
use crate::journal::FastCommits;
use crate::options::Options;
use crate::problem::JournalProblem;
use crate::report::{Cause, Findings};
use crate::state::State;
use crate::volume::Volume;
use crate::{bitmaps, directories, shared};
use plan::Plan;

/// What the replay of fast commits leaves.
#[derive(Debug)]
pub struct Replayed {
    /// The file system.
    pub volume: Volume,
    /// All clusters that had an owner before or have one now.
    pub used: ClusterSet,
    /// What orphans held, with the inodes whose last name is gone now.
    pub held: Held,
}

/// Replays fast commits; `held` is what orphans held before. Where clusters have several owners,
/// directories may lie in the data of others: so each owner gets its own first.
///
/// # Errors
/// Of the device and of the overlay; [`crate::Error::Cancelled`].
pub fn replay(
    options: &Options,
    findings: &Findings<'_>,
    volume: Volume,
    held: Held,
    fast_commits: &FastCommits,
) -> Result<Replayed> {
    let mut state = State::new(options, findings, volume);
    state.held = held.into();
    crate::inodes::run(&mut state)?;
    let mut parted = None;
    if !state.shared.is_empty() {
        let owned;
        (state, owned) = part_owners(options, findings, state, fast_commits)?;
        parted = Some(owned);
    }
    let parted = parted.as_ref();
    if !state.shared.is_empty() {
        findings.leave_fast_commits();
        state.finish_pass()?;
        return Ok(ended(state, parted));
    }
    directories::run(&state)?;
    // Orphans hold their blocks until the next mount: what is recorded lies in none of them.
    state.used.add_removed_and(state.held.lock().clusters());
    let before = ClusterSet::new(state.geometry(), &state.scratch);
    before.add_removed_and(Some(&state.used));
    let plan = Plan::new(&state, fast_commits)?;
    apply(&state, &plan, &before)?;
    state.finish_pass()?;
    Ok(ended(state, parted))
}

/// Gives each owner of a shared cluster its own, and examines the inodes anew. No copy takes the
/// blocks that the records map, as they belong to files that were synced there, nor those that
/// orphans hold. Returns the clusters that had an owner before, too: no log may go there.
fn part_owners<'s>(
    options: &'s Options,
    findings: &'s Findings<'_>,
    mut state: State<'s>,
    fast_commits: &FastCommits,
) -> Result<(State<'s>, ClusterSet)> {
    let used = &state.used;
    used.add_removed_and(state.held.lock().clusters());
    for changed in fast_commits.changes.all_inodes().values() {
        for range in changed.ranges() {
            let len = range.len.into();
            if range.state != MapState::Hole && state.geometry().contains(range.pblk, len) {
                used.add(used.of_blocks(range.pblk, len), |_| ());
            }
        }
    }
    shared::run(&mut state)?;
    state.finish_pass()?;
    state.used.add_removed_and(None);
    let (held, owned) = (state.held, state.used);
    let mut state = State::new(options, findings, state.volume);
    state.held = held;
    crate::inodes::run(&mut state)?;
    Ok((state, owned))
}

/// `parted` are clusters that had an owner before their owners were parted.
fn ended(state: State<'_>, parted: Option<&ClusterSet>) -> Replayed {
    state.used.add_removed_and(parted);
    Replayed {
        volume: state.volume,
        used: state.used,
        held: state.held.into_inner(),
    }
}

fn apply(state: &State<'_>, plan: &Plan<'_>, before: &ClusterSet) -> Result<()> {
    let mut claimed = Vec::new();
    for (ino, fate) in plan.fates() {
        claimed.push(maps::claim(state, plan, ino, fate)?);
    }
    let mut new = Vec::new();
    for ((ino, fate), claimed) in plan.fates().zip(claimed) {
        inodes::put(state, plan, ino, fate, claimed)?;
        let is_there = |kind| state.inodes.get(ino).kind == Kind::File(kind);
        if fate.end == End::New && fate.kind.is_some_and(is_there) {
            new.push((ino, fate.more_directories()));
        }
    }
    names::apply(state, plan)?;
    for (ino, fate) in plan.fates() {
        if fate.end == End::Dies {
            inodes::release(state, plan, ino, fate)?;
        }
    }
    bitmaps::note_replayed(state, before, &new, plan.cause())
}

/// Reports that a change of an inode is left out.
fn misfit(state: &State<'_>, ino: Ino) -> Cause {
    let place = Place::inode(ino);
    state.report(Finding::new(JournalProblem::FastCommitMisfit, place))
}

/// The same of a name in a directory.
fn misfit_name(state: &State<'_>, dir: Ino, name: &[u8]) -> Cause {
    let place = Place::inode(dir).name(name);
    state.report(Finding::new(JournalProblem::FastCommitMisfit, place))
}

#[cfg(test)]
mod tests;
