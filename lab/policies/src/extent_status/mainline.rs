//! The shrinker of mainline Linux since 3.19: round robin over trees, budget by extents *looked
//! at*.
//!
//! Source: the published descriptions of "ext4: extents status tree shrinker improvement" (Zheng
//! Liu, then Jan Kara, 2014), which replaced a list sorted by last use.
//!
//! - A tree is on the list only while it holds something to drop. Lookups never touch the list.
//! - A scan goes round the trees from where the last one stopped. Each extent it looks at costs one
//!   of the budget, also those it must keep: so a scan's time is bounded, and among many delayed
//!   extents it frees little. That is its known weakness.
//! - In a tree it goes on after the extent where it last stopped, and round to there; where there
//!   is none behind, the next scan begins with the first.
//! - An extent asked for since the last visit loses that mark and stays: a second chance, one bit.
//! - A tree in use, or loaded in advance by request, is passed over. If a round dropped nothing and
//!   passed over some, there is one more, which takes the latter too.
//!
//! Differences: no tree has to be named that the caller holds, as none is waited for.

use super::list::List;
use super::map::Map;
use super::round_robin;
use uext4_extent_status::{Counters, Scan};

/// Looks at up to `nr` extents and drops what may go.
pub(crate) fn scan(counters: &Counters, list: &List, nr: usize) -> Scan {
    round_robin::in_turn(
        list,
        |scan| scan.visited >= nr,
        |tree, scan| {
            let left = nr - scan.visited;
            let work = |map: &mut Map, cursor: &mut u32| {
                let start = map.first_from(*cursor);
                let (mut pass, mut stop) = map.reclaim(start..u32::MAX, left);
                if stop == u32::MAX {
                    // The extent that contains the cursor is looked at again at the end of the
                    // round.
                    let begin = *cursor;
                    let (rest, end) = map.reclaim(0..begin, left - pass.visited);
                    pass.visited += rest.visited;
                    pass.freed += rest.freed;
                    pass.delayed_seen += rest.delayed_seen;
                    let is_last = end == begin && map.first_at(begin).is_none();
                    stop = if is_last { 0 } else { end };
                }
                *cursor = stop;
                pass
            };
            let pass = tree.try_reclaim(counters, work, |tree| list.unlink(counters, tree))?;
            Some(pass.note(scan))
        },
    )
}
