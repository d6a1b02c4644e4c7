//! Where each group's bitmaps and inode table go.
//!
//! Without `flex_bg` in the group itself, right after its copy of the superblock and descriptors.
//! With it, those of a whole flex group are packed into its first group:
//!
//! ```text
//! super, descriptors │ block bitmaps of all │ inode bitmaps of all │ inode tables of all │ …
//! ```
//! Where a backup stands in the way, the table that would hit it goes to the first gap of the flex
//! group that is long enough, and the next ones follow that.

use std::ops::Range;

use uext4_ondisk::GroupNr;
use uext4_ondisk::features::Incompat;

use crate::Error;
use crate::options::Options;
use crate::plan::Plan;
use crate::space::Run;

/// The three structures of a group.
#[derive(Clone, Copy, Debug)]
struct Places {
    block_bitmap: u64,
    inode_bitmap: u64,
    inode_table: u64,
}

/// Takes the superblock and descriptor copies of all groups, then places bitmaps and tables.
pub(crate) fn place(plan: &mut Plan, options: &Options) -> Result<(), Error> {
    let first_data_block = u64::from(plan.geometry.first_data_block);
    mark_copies(plan, 0);
    let flex = packs_flex_groups(plan);
    let occupied = occupy(plan, options, flex)?;
    if flex && options.extended.packed_meta_blocks || occupied.is_some() {
        pack_all(plan, occupied.unwrap_or(first_data_block))?;
    } else {
        place_each(plan, 0)?;
    }
    plan.count_in_clusters();
    let contents: u64 = options.occupied.iter().map(|run| run.end - run.start).sum();
    plan.overhead = plan.space.used_clusters() + first_data_block - contents;
    Ok(())
}

/// Places the bitmaps and tables of the groups from `first` on, which follow others: those and all
/// their blocks are taken already.
pub(crate) fn place_further(plan: &mut Plan, first: u32) -> Result<(), Error> {
    mark_copies(plan, first);
    place_each(plan, first)?;
    plan.count_in_clusters();
    Ok(())
}

/// Takes the superblock and descriptor copies of the groups from `first` on.
fn mark_copies(plan: &mut Plan, first: u32) {
    for group in (first..plan.geometry.groups_count.get()).map(GroupNr) {
        let start = plan.geometry.group_start(group).0;
        let len = plan.geometry.group_base_blocks(group).into();
        plan.space.mark(Run { start, len });
    }
}

fn packs_flex_groups(plan: &Plan) -> bool {
    plan.features().incompat.contains(Incompat::FLEX_BG) && plan.geometry.log_groups_per_flex > 0
}

/// Places bitmaps and tables, group by group from `first` on.
fn place_each(plan: &mut Plan, first: u32) -> Result<(), Error> {
    let flex = packs_flex_groups(plan);
    let mut previous = None;
    for group in first..plan.geometry.groups_count.get() {
        let places = if flex {
            in_flex_group(plan, group, previous)?
        } else {
            in_own_group(plan, group)?
        };
        let desc = &mut plan.groups[group as usize];
        desc.block_bitmap.0 = places.block_bitmap;
        desc.inode_bitmap.0 = places.inode_bitmap;
        desc.inode_table.0 = places.inode_table;
        previous = Some(places);
    }
    Ok(())
}

/// Takes the blocks that hold contents already; returns the block after the last of them.
fn occupy(plan: &mut Plan, options: &Options, flex: bool) -> Result<Option<u64>, Error> {
    let clusters = plan.geometry.cluster_bits > 0;
    for &Range { start, end } in &options.occupied {
        let run = Run {
            start,
            len: end.saturating_sub(start),
        };
        let inside =
            start >= plan.geometry.first_data_block.into() && end <= plan.geometry.blocks_count;
        if !flex || clusters || !inside || !plan.space.is_free(run) {
            return Err(Error::Occupied { start, end });
        }
        plan.take(run);
    }
    Ok(options.occupied.last().map(|last| last.end))
}

/// Everything from `goal` on: all block bitmaps, then all inode bitmaps, then all tables.
fn pack_all(plan: &mut Plan, goal: u64) -> Result<(), Error> {
    let table_len = u64::from(plan.geometry.itable_blocks());
    let end = plan.geometry.blocks_count;
    let mut goal = goal;
    for (what, len) in [
        ("block bitmap", 1),
        ("inode bitmap", 1),
        ("inode table", table_len),
    ] {
        for group in 0..plan.groups.len() {
            let at = take_at(plan, None, &[(goal, end)], what, len)?;
            let desc = &mut plan.groups[group];
            match what {
                "block bitmap" => desc.block_bitmap.0 = at,
                "inode bitmap" => desc.inode_bitmap.0 = at,
                _ => desc.inode_table.0 = at,
            }
            goal = at + len;
        }
    }
    Ok(())
}

fn no_space(what: &'static str, len: u64) -> Error {
    Error::NoSpace { what, len }
}

/// Takes `len` blocks at `at` or, if they are not free, where `search` starts.
fn take_at(
    plan: &mut Plan,
    at: Option<u64>,
    search: &[(u64, u64)],
    what: &'static str,
    len: u64,
) -> Result<u64, Error> {
    let (_, end) = search.first().copied().unwrap_or_default();
    let follow = at.filter(|&at| at + len <= end && plan.space.is_free(Run { start: at, len }));
    let start = follow
        .or_else(|| {
            search
                .iter()
                .find_map(|&(from, to)| plan.space.find(from, to, len))
        })
        .ok_or_else(|| no_space(what, len))?;
    plan.take(Run { start, len });
    Ok(start)
}

fn in_flex_group(plan: &mut Plan, group: u32, previous: Option<Places>) -> Result<Places, Error> {
    let geometry = &plan.geometry;
    let size = 1u64 << geometry.log_groups_per_flex;
    let first = u64::from(group) / size * size;
    let groups = u64::from(geometry.groups_count.get());
    // A flex group of one keeps room for the bitmaps of a whole one.
    let members = match size.min(groups - first) {
        1 => size,
        several => several,
    };
    let start = geometry.group_start(GroupNr(first as u32)).0;
    let after = (first + members).min(groups);
    let end = match u32::try_from(after) {
        Ok(next) if after < groups => geometry.group_start(GroupNr(next)).0,
        _ => geometry.blocks_count,
    };
    let table_len = u64::from(geometry.itable_blocks());
    let previous = previous.filter(|_| u64::from(group) != first);
    let whole = (start, end);
    let block_bitmap = take_at(
        plan,
        previous.map(|p| p.block_bitmap + 1),
        &[whole],
        "block bitmap",
        1,
    )?;
    let inode_bitmap = take_at(
        plan,
        previous.map(|p| p.inode_bitmap + 1),
        &[(block_bitmap + members, end), whole],
        "inode bitmap",
        1,
    )?;
    let inode_table = take_at(
        plan,
        previous.map(|p| p.inode_table + table_len),
        &[(inode_bitmap + members, end), whole],
        "inode table",
        table_len,
    )?;
    Ok(Places {
        block_bitmap,
        inode_bitmap,
        inode_table,
    })
}

/// With a RAID stride the bitmaps of each group lie one stride further on than those of the group
/// before, so that they do not all end up on one disk.
fn in_own_group(plan: &mut Plan, group: u32) -> Result<Places, Error> {
    let geometry = &plan.geometry;
    let start = geometry.group_start(GroupNr(group)).0;
    let end = start + u64::from(geometry.blocks_in_group(GroupNr(group)));
    let base = start + u64::from(geometry.group_base_blocks(GroupNr(group)));
    let table_len = u64::from(geometry.itable_blocks());
    let stride = u64::from(plan.superblock.s_raid_stride.get());
    let past_table = base + table_len;
    let bitmaps = if stride > 0 && past_table < end {
        past_table + stride * u64::from(group) % (end - past_table)
    } else {
        base
    };
    let mut find = |from, what, len| {
        // The last block is a place of last resort.
        let found = plan.space.find(from, end - 1, len);
        let found = found.or_else(|| plan.space.find(base, end, len));
        let at = found.ok_or_else(|| no_space(what, len))?;
        // Its own metadata does not make a group's bitmap be written.
        plan.space.mark(Run { start: at, len });
        Ok::<u64, Error>(at)
    };
    Ok(Places {
        block_bitmap: find(bitmaps, "block bitmap", 1)?,
        inode_bitmap: find(bitmaps, "inode bitmap", 1)?,
        inode_table: find(base, "inode table", table_len)?,
    })
}
