//! The shrinker of mainline Linux since 3.19: round robin over trees, budget by extents *looked at*.
//!
//! Source: the published descriptions of "ext4: extents status tree shrinker improvement" (Zheng
//! Liu, then Jan Kara, 2014), which replaced a list sorted by last use.
//!
//! - A tree is on the list only while it holds something to drop. Look-ups never touch the list.
//! - A scan goes round the trees from where the last one stopped. Each extent it looks at costs one
//!   of the budget, also those it must keep: so a scan's time is bounded, and among many delayed
//!   extents it frees little. That is its known weakness.
//! - In a tree it goes on after the extent where it last stopped, and round to there.
//! - An extent asked for since the last visit loses that mark and stays: a second chance, one bit.
//! - A tree in use is passed over. If a round dropped nothing and passed over some, there is one more.
//!
//! Differences: the list is ordered by a number drawn when a tree enters it, with a cursor, where
//! the kernel moves each visited tree to the tail; the order of visits is the same round. There are
//! no trees loaded in advance by request, so none are spared in the first round.
//!
//! Tunables: none.

use crate::room::Room;

/// What one scan did, in extents where nothing else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scan {
    pub(crate) freed: usize,
    pub(crate) visited: usize,
    pub(crate) delayed_seen: usize,
    /// Trees in use, passed over.
    pub(crate) trylock_failed: u64,
    /// Went round twice.
    pub(crate) second_round: bool,
}

/// Looks at up to `nr` extents and drops what may go.
pub(crate) fn scan(room: &Room, nr: usize) -> Scan {
    let mut scan = Scan::default();
    while !round(room, nr, &mut scan) && !scan.second_round {
        scan.second_round = true;
    }
    scan
}

/// Once over all trees, as many as there are at the start. Answers false if it is worth another:
/// nothing was dropped, something was in use, and budget is left.
fn round(room: &Room, nr: usize, scan: &mut Scan) -> bool {
    let mut in_use = false;
    for _ in 0..room.listed() {
        if scan.visited >= nr {
            return true;
        }
        // None: it left the list meanwhile.
        let Some(tree) = room.next_tree() else {
            continue;
        };
        match tree.try_reclaim(room, nr - scan.visited) {
            Some(pass) => {
                scan.freed += pass.freed;
                scan.visited += pass.visited;
                scan.delayed_seen += pass.delayed_seen;
            }
            None => {
                scan.trylock_failed += 1;
                in_use = true;
            }
        }
    }
    scan.freed > 0 || !in_use || scan.visited >= nr
}
