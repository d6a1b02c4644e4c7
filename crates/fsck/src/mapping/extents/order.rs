//! The entries of an extent node that are not in order.
//!
//! One wrong number puts an extent before or behind its neighbours. If the entries were taken as
//! they stand, one that jumped ahead would leave no place for all that follow, and one that became
//! too long would take it. So most of them decide: those that ascend as they stand keep their
//! places, the others go where their numbers say if nothing is there and the file has such a block
//! by its size, and a length ends where the next extent begins.

use uext4_ondisk::Lblk;
use uext4_ondisk::extent::{Extent, RawExtent};
use uext4_ondisk::num::{lo16, lo32};

/// Where the first extent begins that does not lie behind the one before it, and where that ends.
pub fn first_wrong(extents: &[RawExtent]) -> Option<(Lblk, u64)> {
    extents.windows(2).find_map(|pair| {
        let (end, next) = (end_of(&pair[0].get()), pair[1].get().lblk);
        (end > next.0.into()).then_some((next, end))
    })
}

/// The extents that can be used, in order and without overlap, as far as `is_inside` says that
/// they can be at all; the others are left as they are. `end` is the end of the file in logical
/// blocks, by its size.
pub fn settled(
    extents: &[RawExtent],
    end: u64,
    is_inside: impl Fn(&Extent) -> bool,
) -> Vec<Extent> {
    let all = extents.iter().map(|raw| raw.get());
    // One without blocks takes no place.
    let all: Vec<Extent> = all.filter(|extent| extent.len != 0).collect();
    let ascending = longest_ascent(&all, &is_inside);
    let mut kept: Vec<Extent> = ascending
        .iter()
        .filter_map(|&at| all.get(at))
        .copied()
        .collect();
    let mut next = ascending.iter().copied().peekable();
    for (at, extent) in all.iter().enumerate() {
        if next.next_if_eq(&at).is_some() || end_of(extent) > end {
            continue;
        }
        let place = kept.partition_point(|other| other.lblk < extent.lblk);
        let is_behind = place
            .checked_sub(1)
            .and_then(|before| kept.get(before))
            .is_none_or(|before| before.lblk.0 < extent.lblk.0);
        let is_before = kept
            .get(place)
            .is_none_or(|after| end_of(extent) <= after.lblk.0.into());
        if is_behind && is_before {
            kept.insert(place, *extent);
        }
    }
    let mut starts: Vec<u64> = kept.iter().map(|extent| extent.pblk.0).collect();
    starts.sort_unstable();
    for at in 0..kept.len() {
        let Some(next) = kept.get(at.saturating_add(1)).map(|next| next.lblk.0) else {
            break;
        };
        let Some(extent) = kept.get_mut(at).filter(|extent| is_inside(extent)) else {
            continue;
        };
        if end_of(extent) <= next.into() {
            continue;
        }
        // The blocks behind its own are most often those of the next extent.
        let first = extent.pblk.0;
        let other = starts.partition_point(|&start| start <= first);
        let blocks = starts.get(other).map_or(u64::MAX, |&start| start - first);
        let room = u64::from(next.saturating_sub(extent.lblk.0)).min(blocks);
        extent.len = extent.len.min(lo16(lo32(room.min(u16::MAX.into()))));
    }
    kept.retain(|extent| extent.len != 0);
    kept
}

/// The logical block behind an extent.
fn end_of(extent: &Extent) -> u64 {
    u64::from(extent.lblk.0).saturating_add(extent.len.into())
}

/// Which extents to take so that most of them begin each behind the one before. Of two that begin
/// in one place it is the first, if that can be.
fn longest_ascent(extents: &[Extent], is_inside: impl Fn(&Extent) -> bool) -> Vec<usize> {
    // Of the ascents of each length the one with the lowest end, and what comes before each.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = vec![None; extents.len()];
    let start = |at: usize| extents.get(at).map_or(0, |extent| extent.lblk.0);
    let is_before = |at: usize, extent: &Extent| {
        let other = extents.get(at).filter(|other| other.lblk == extent.lblk);
        other.is_some_and(&is_inside)
    };
    for (at, extent) in extents.iter().enumerate() {
        let len = ends.partition_point(|&end| start(end) < extent.lblk.0);
        before[at] = len.checked_sub(1).and_then(|len| ends.get(len)).copied();
        match ends.get_mut(len) {
            Some(end) if is_before(*end, extent) => {}
            Some(end) => *end = at,
            None => ends.push(at),
        }
    }
    let mut chosen = Vec::with_capacity(ends.len());
    let mut last = ends.last().copied();
    while let Some(at) = last {
        chosen.push(at);
        last = before[at];
    }
    chosen.reverse();
    chosen
}

#[cfg(test)]
mod tests {
    use uext4_ondisk::Pblk;
    use uext4_ondisk::extent::leaf_entry;
    use zerocopy::{FromBytes, IntoBytes};

    use super::*;

    /// Logical block, length, physical block.
    type Entry = (u32, u16, u64);

    fn settle(entries: &[Entry], end: u64) -> Vec<Entry> {
        let raw = entries.iter().map(|&(lblk, len, pblk)| {
            let extent = Extent {
                lblk: Lblk(lblk),
                len,
                pblk: Pblk(pblk),
                unwritten: false,
            };
            let bytes = leaf_entry(extent);
            RawExtent::read_from_bytes(bytes.as_bytes()).unwrap()
        });
        let raw: Vec<RawExtent> = raw.collect();
        assert!(first_wrong(&raw).is_some());
        let extents = settled(&raw, end, |_| true);
        let entry = |extent: &Extent| (extent.lblk.0, extent.len, extent.pblk.0);
        extents.iter().map(entry).collect()
    }

    #[test]
    fn extents_that_changed_places_are_all_kept() {
        let entries = [(0, 2, 10), (9, 2, 20), (4, 2, 30), (6, 2, 40), (2, 2, 50)];
        let right = [(0, 2, 10), (2, 2, 50), (4, 2, 30), (6, 2, 40), (9, 2, 20)];
        assert_eq!(settle(&entries, 11), right);
    }

    #[test]
    fn an_extent_that_jumped_ahead_leaves_the_others_their_places() {
        let entries = [(0, 2, 10), (900, 2, 20), (4, 2, 30), (6, 2, 40)];
        assert_eq!(settle(&entries, 8), [(0, 2, 10), (4, 2, 30), (6, 2, 40)]);
    }

    #[test]
    fn an_extent_that_is_too_long_ends_where_the_next_one_begins() {
        let entries = [(0, 900, 10), (4, 2, 12), (8, 2, 5)];
        assert_eq!(settle(&entries, 10), [(0, 2, 10), (4, 2, 12), (8, 2, 5)]);
        let entries = [(0, 900, 10), (4, 2, 600), (8, 2, 5)];
        assert_eq!(settle(&entries, 10), [(0, 4, 10), (4, 2, 600), (8, 2, 5)]);
    }

    #[test]
    fn what_a_count_that_is_too_large_adds_takes_no_place() {
        assert_eq!(settle(&[(0, 1, 10), (0, 0, 0)], 1), [(0, 1, 10)]);
        assert_eq!(
            settle(&[(0, 2, 10), (2, 1, 20), (1, 0, 0)], 3),
            [(0, 2, 10), (2, 1, 20)]
        );
        let left_behind = [(0, 2, 10), (2, 2, 20), (2, 2, 90)];
        assert_eq!(settle(&left_behind, 4), [(0, 2, 10), (2, 2, 20)]);
    }

    #[test]
    fn of_two_extents_in_one_place_one_is_kept() {
        let entries = [(0, 2, 10), (2, 2, 20), (2, 2, 20), (4, 2, 30)];
        assert_eq!(settle(&entries, 6), [(0, 2, 10), (2, 2, 20), (4, 2, 30)]);
    }
}
