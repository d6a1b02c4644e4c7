//! Trees in turn, each with a queue of what may be dropped: no times, no sort.
//!
//! Source: the fourth patch of "ext4: extents status tree shrinker improvement", version 2 (Zheng
//! Liu after an idea of Jan Kara's, linux-ext4, April 2014), on top of the third (`lru`).
//!
//! - A scan takes the tree at the head of the list, moves it to the end and drops from its queue:
//!   so it continues where the last one stopped. The budget counts what is freed.
//! - At most one full turn: as many trees as were listed when it began.
//! - Trees in use or loaded in advance by request are passed over. If a turn frees nothing and
//!   passed over some, there is one more that takes the latter too.
//!
//! Differences: the patches as posted are lost; these are the rules their description gives. The
//! list is let go of while a tree is shrunk.

use super::list::List;
use super::listed_tree::ListedTree;
use super::map::Map;
use uext4_extent_status::{Counters, Scan};

/// Drops up to `nr` extents.
pub(crate) fn scan(counters: &Counters, list: &List, nr: usize) -> Scan {
    in_turn(
        list,
        |scan| scan.freed >= nr,
        |tree, scan| {
            let left = nr - scan.freed;
            let work = |map: &mut Map, _: &mut u32| map.reclaim_queued(left);
            let pass = tree.try_reclaim(counters, work, |tree| list.unlink(counters, tree))?;
            Some(pass.note(scan))
        },
    )
}

/// Takes trees in turn until `is_done`, one turn or two. `reclaim` answers its steps, or `None` if
/// the tree is in use.
pub(crate) fn in_turn(
    list: &List,
    is_done: impl Fn(&Scan) -> bool,
    reclaim: impl Fn(&ListedTree, &mut Scan) -> Option<u64>,
) -> Scan {
    let mut scan = Scan::default();
    loop {
        let mut passed_over = false;
        scan.list_locks += 1;
        for _ in 0..list.len() {
            if is_done(&scan) {
                return scan;
            }
            scan.list_locks += 1;
            scan.trees += 1;
            scan.held(1);
            // None: it left the list meanwhile.
            let Some(tree) = list.take_turn() else {
                continue;
            };
            if scan.second_rounds == 0 && tree.is_precached() {
                passed_over = true;
                continue;
            }
            match reclaim(&tree, &mut scan) {
                Some(steps) => scan.held(steps),
                None => {
                    scan.trylock_failed += 1;
                    passed_over = true;
                }
            }
        }
        if scan.freed > 0 || !passed_over || is_done(&scan) || scan.second_rounds > 0 {
            return scan;
        }
        scan.second_rounds = 1;
    }
}
