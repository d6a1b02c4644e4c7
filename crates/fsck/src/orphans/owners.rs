//! Blocks of orphans that anything else owns, too. The next mount would free them with the orphan,
//! and give them to the next file.

use std::collections::BTreeMap;

use uext4_ondisk::Ino;
use uext4_ondisk::features::RoCompat;

use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::problem::JournalProblem;
use crate::state::State;

/// Runs of which it is said whose they are; the others are counted together.
const RUNS_NAMED: u64 = 1024;

/// Clusters of an orphan that have another owner.
#[derive(Clone, Copy, Debug)]
struct Shared {
    first: u64,
    count: u64,
}

/// Reports what orphans held and another owner holds: the file system itself, or an inode in use.
/// Once all owners are known, and before any pass takes blocks that are free.
///
/// # Errors
/// [`crate::Error::Spill`].
pub fn others(state: &State<'_>) -> Result<()> {
    let held = state.held.lock();
    let features = state.geometry().features.ro_compat;
    let Some(clusters) = held.clusters() else {
        return Ok(());
    };
    clusters.check()?;
    if features.contains(RoCompat::SHARED_BLOCKS) {
        return Ok(());
    }
    let mut shared: BTreeMap<Option<Ino>, Shared> = BTreeMap::new();
    let mut named = 0;
    clusters.each_common(&state.used, |run| {
        let mut at = run.start;
        while at < run.end {
            named += 1;
            let owner = held.owner_of(at).filter(|_| named <= RUNS_NAMED);
            let end = owner.map_or(run.end, |(_, end)| end.min(run.end));
            let entry = shared.entry(owner.map(|(ino, _)| ino));
            let entry = entry.or_insert(Shared {
                first: at,
                count: 0,
            });
            entry.count = entry.count.saturating_add(end.saturating_sub(at));
            at = end;
        }
    });
    for (ino, Shared { first, count }) in shared {
        let place = ino.map_or_else(Place::whole, Place::inode);
        let place = place.block(clusters.first_block(first));
        let finding = Finding::new(JournalProblem::OrphanShared, place);
        state.report(finding.found(count << state.geometry().cluster_bits));
    }
    Ok(())
}
