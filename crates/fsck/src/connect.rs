//! The pass over the tree: whether each directory hangs from the root, once, and whether its `..`
//! says where.
//!
//! Of each directory the pass before noted one directory with an entry for it. So the tree is
//! walked upwards: from each directory until one that was walked before, which makes it linear.
//!
//! ```text
//! more than one entry    all but one are removed: `..` decides, else the first
//! no entry               to lost+found
//! a loop                 the entry for one of its directories is removed: to lost+found
//! `..` is not the parent mended, in the block or with the whole directory
//! ```
//! Then the links of all directories are counted, `.` and `..`, and what was found to need it is
//! written anew.

use std::collections::{BTreeMap, BTreeSet};

use uext4_ondisk::inode::{FileType, InodeFlags};
use uext4_ondisk::{Ino, Lblk};

use crate::directories::inline::InlineRecords;
use crate::directories::is_dot;
use crate::directories::record::RECORD_MIN;
use crate::directories::reread::{self, Source, Spot};
use crate::directory_list::Directory;
use crate::error::{Error, Result};
use crate::finding::{Finding, Place};
use crate::inode_map::Kind;
use crate::lost_found;
use crate::problem::DirectoryProblem;
use crate::rebuild::{self, Request};
use crate::report::{Pass, Progress};
use crate::state::State;

/// Permissions of a root directory that had to be made.
const ROOT_MODE: u16 = 0o755;

/// Connects what does not hang from the root to `lost+found`.
///
/// # Errors
/// Of the device and of the overlay; [`Error::NoSpace`].
pub fn run(state: &State<'_>) -> Result<()> {
    state.findings.progress(Progress {
        pass: Pass::Connected,
        done: 0,
        total: 1,
    })?;
    root(state)?;
    settle_claims(state)?;
    unconnected(state)?;
    let lost = lost_found(state)?;
    dot_dots(state, lost)?;
    rewrite(state, lost)
}

/// Makes a root directory if there is none.
fn root(state: &State<'_>) -> Result<()> {
    if state.inodes.get(Ino::ROOT).kind == Kind::File(FileType::Directory) {
        return Ok(());
    }
    let finding = Finding::new(DirectoryProblem::NoRoot, Place::inode(Ino::ROOT));
    let cause = state.report(finding);
    lost_found::make_directory(state, Ino::ROOT, Ino::ROOT, ROOT_MODE, cause)
}

/// Where the records of a directory of the list are.
fn source<'s>(state: &'s State<'_>, directory: &Directory) -> Source<'s> {
    let flags = InodeFlags::from_bits_retain(directory.flags);
    match flags.contains(InodeFlags::INLINE_DATA) {
        true => Source::Inline,
        false => Source::Blocks {
            runs: state.directories.runs(directory),
            blocks: state.geometry().block_size.blocks_for(directory.size),
        },
    }
}

/// An entry for a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Naming {
    child: Ino,
    parent: Ino,
    spot: Spot,
    name: Vec<u8>,
}

/// The entries for these directories in the directories that are said to have some.
fn namings(state: &State<'_>, wanted: &BTreeMap<Ino, BTreeSet<Ino>>) -> Result<Vec<Naming>> {
    let mut found = Vec::new();
    for (&parent, children) in wanted {
        let Some(directory) = state.directories.find(parent) else {
            continue;
        };
        reread::for_each(state, parent, source(state, directory), |seen| {
            if children.contains(&seen.ino) && !is_dot(seen.name) {
                found.push(Naming {
                    child: seen.ino,
                    parent,
                    spot: seen.spot,
                    name: seen.name.to_vec(),
                });
            }
            Ok(())
        })?;
    }
    found.sort_unstable();
    Ok(found)
}

/// Leaves one entry of those that name the same directory.
fn settle_claims(state: &State<'_>) -> Result<()> {
    let mut wanted: BTreeMap<Ino, BTreeSet<Ino>> = BTreeMap::new();
    let claims = state.tree.take_claims();
    for claim in &claims {
        wanted.entry(claim.parent).or_default().insert(claim.child);
        let at = state.directories.position(claim.child);
        if let Some(first) = at.and_then(|at| state.tree.parent(at)) {
            wanted.entry(first).or_default().insert(claim.child);
        }
    }
    for claim in &claims {
        if let Some(at) = state.directories.position(claim.child) {
            state.tree.set_parent(at, Ino(0));
        }
    }
    let namings = namings(state, &wanted)?;
    for same in namings.chunk_by(|a, b| a.child == b.child) {
        let Some(at) = same
            .first()
            .and_then(|n| state.directories.position(n.child))
        else {
            continue;
        };
        let dotdot = state.tree.dotdot(at);
        let right = same
            .iter()
            .position(|naming| naming.parent == dotdot)
            .unwrap_or(0);
        for (i, naming) in same.iter().enumerate() {
            if i == right {
                state.tree.set_parent(at, naming.parent);
            } else {
                let finding = Finding::new(DirectoryProblem::SecondParent, naming.place());
                remove(state, naming, finding.found(naming.child.0))?;
            }
        }
    }
    Ok(())
}

impl Naming {
    fn place(&self) -> Place {
        self.spot.place(self.parent).name(&self.name)
    }
}

/// Removes the entry for a directory, and returns the cause.
fn remove(state: &State<'_>, naming: &Naming, finding: Finding) -> Result<crate::Cause> {
    let cause = state.report(finding);
    let seed = state.geometry().csum_seed;
    let generation = state.directories.find(naming.parent).map(|d| d.generation);
    let seed = seed.map(|seed| seed.inode(naming.parent, generation.unwrap_or(0)));
    reread::remove(state, naming.parent, seed, &naming.spot, cause)?;
    state.inodes.uncount_link(naming.child);
    Ok(cause)
}

/// Finds the directories without a parent, and cuts each loop at one place.
fn unconnected(state: &State<'_>) -> Result<()> {
    let list = state.directories.directories();
    // The number of the walk, counted from 1, that came by first.
    let mut walked = vec![0_u32; list.len()];
    let mut loops = BTreeSet::new();
    for (walk, start) in (1..).zip(0..list.len()) {
        let mut at = start;
        while let (Some(place), Some(directory)) = (walked.get_mut(at), list.get(at)) {
            if *place != 0 || directory.ino == Ino::ROOT {
                if *place == walk {
                    loops.insert(lowest_of_loop(state, at));
                }
                break;
            }
            *place = walk;
            let parent = state.tree.parent(at);
            let Some(up) = parent.and_then(|parent| state.directories.position(parent)) else {
                if parent.is_none() {
                    let place = Place::inode(directory.ino);
                    let finding = Finding::new(DirectoryProblem::Unconnected, place);
                    let old = state.tree.dotdot(at);
                    let cause = state.report(finding.found(old.0));
                    state.tree.lose(directory.ino, cause);
                }
                break;
            };
            at = up;
        }
    }
    cut(state, &loops)
}

/// The lowest inode of the loop that the directory at this place of the list is in.
fn lowest_of_loop(state: &State<'_>, start: usize) -> Ino {
    let list = state.directories.directories();
    let mut lowest = Ino(u32::MAX);
    let mut at = start;
    for _ in 0..list.len() {
        lowest = lowest.min(list.get(at).map_or(lowest, |directory| directory.ino));
        let parent = state.tree.parent(at);
        match parent.and_then(|parent| state.directories.position(parent)) {
            Some(up) if up != start => at = up,
            _ => break,
        }
    }
    lowest
}

/// Removes the entries for these directories, which are within themselves.
fn cut(state: &State<'_>, loops: &BTreeSet<Ino>) -> Result<()> {
    let mut wanted: BTreeMap<Ino, BTreeSet<Ino>> = BTreeMap::new();
    for &ino in loops {
        let Some(at) = state.directories.position(ino) else {
            continue;
        };
        if let Some(parent) = state.tree.parent(at) {
            wanted.entry(parent).or_default().insert(ino);
        }
        state.tree.set_parent(at, Ino(0));
    }
    for naming in &namings(state, &wanted)? {
        let place = Place::inode(naming.child);
        let finding = Finding::new(DirectoryProblem::Loop, place).found(naming.parent.0);
        let cause = remove(state, naming, finding)?;
        state.tree.lose(naming.child, cause);
    }
    Ok(())
}

/// Where lost directories go, if there are any.
fn lost_found(state: &State<'_>) -> Result<Option<Ino>> {
    let Some(cause) = state.tree.first_lost() else {
        return Ok(None);
    };
    match lost_found::get(state, cause) {
        Ok(ino) => Ok(Some(ino)),
        // They stay where they are: the findings say so.
        Err(Error::NoSpace { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What `..` of the directory at this place of the list must name.
fn right_parent(state: &State<'_>, at: usize, ino: Ino, lost: Option<Ino>) -> Option<Ino> {
    match ino {
        Ino::ROOT => Some(Ino::ROOT),
        _ => state.tree.parent(at).or(lost),
    }
}

/// Compares each `..` with the parent, and counts `.` and `..`.
fn dot_dots(state: &State<'_>, lost: Option<Ino>) -> Result<()> {
    for (at, directory) in state.directories.directories().iter().enumerate() {
        let ino = directory.ino;
        state.inodes.count_link(ino);
        let Some(right) = right_parent(state, at, ino, lost) else {
            continue;
        };
        state.inodes.count_link(right);
        let found = state.tree.dotdot(at);
        if found == right || state.tree.is_rebuilt(ino) {
            continue;
        }
        let finding = Finding::new(DirectoryProblem::DotDot, Place::inode(ino));
        let cause = state.report(finding.found(found.0).right(right.0));
        if let Source::Inline = source(state, directory) {
            if let Some(mut inline) = InlineRecords::read(state, ino)? {
                inline.parent = right;
                inline.store(state, ino, cause)?;
            }
            continue;
        }
        let Some(run) = state.directories.runs(directory).first() else {
            continue;
        };
        let seed = state.geometry().csum_seed;
        let spot = Spot {
            lblk: Lblk(0),
            pblk: Some(run.pblk),
            region: 0,
            offset: RECORD_MIN,
        };
        let seed = seed.map(|seed| seed.inode(ino, directory.generation));
        reread::put_dot_dot(state, ino, seed, &spot, right, cause)?;
    }
    Ok(())
}

/// Writes directories anew: those that need it, and all if that was asked for.
fn rewrite(state: &State<'_>, lost: Option<Ino>) -> Result<()> {
    let rebuilds = state.tree.take_rebuilds();
    for (at, directory) in state.directories.directories().iter().enumerate() {
        let ino = directory.ino;
        let cause = rebuilds.get(&ino);
        if cause.is_none() && !state.options.rebuild_directories {
            continue;
        }
        let Some(parent) = right_parent(state, at, ino, lost) else {
            continue;
        };
        let request = Request {
            ino,
            parent,
            more: &[],
            keeps_blocks: false,
        };
        let result = match cause {
            Some(&cause) => rebuild::directory(state, request, cause),
            None => rebuild::optimize(state, request),
        };
        match result {
            // It stays as it is: the findings say so.
            Err(Error::NoSpace { .. }) => {}
            result => result?,
        }
    }
    state.tree.set_lost_found(lost);
    Ok(())
}
