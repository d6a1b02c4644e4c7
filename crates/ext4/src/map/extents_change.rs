//! Changes of extent trees: mapping, unmapping, marking as written or not, moving along the file.
//!
//! Every step walks from the root to one leaf, changes that leaf, and leaves a valid tree behind; a
//! change of many leaves may stop after any step. Extents are joined with their neighbours in the
//! leaf where they can be.

use std::ops::Range;

use uext4_ondisk::extent::{EXT_INIT_MAX_LEN, EXT_UNWRITTEN_MAX_LEN, Extent, RawExtent};
use uext4_ondisk::{Lblk, Pblk};

use crate::base::error::{Error, Result};
use crate::base::invalid::Invalid;
use crate::base::mapping::{LblkRun, MapState};
use crate::inode::Inode;
use crate::journal::handle::Handle;
use crate::journal::sbi::Sbi;
use crate::map::extent_path::{NEW_MAX, Path, credits_of_change, shrink};
use crate::map::file_blocks::{
    Progress, add_blocks, afford, check_countable, credits_anywhere, credits_revoke, free_data,
    freed_by, groups_of_run, range_end,
};
use crate::map::map_blocks;

/// Extents that are to stand next to one another in a leaf, joined as they come.
struct Pieces {
    list: [Extent; NEW_MAX],
    len: usize,
}

impl Pieces {
    fn new() -> Self {
        let nothing = Extent {
            lblk: Lblk(0),
            len: 0,
            pblk: Pblk(0),
            unwritten: false,
        };
        Self {
            list: [nothing; NEW_MAX],
            len: 0,
        }
    }

    fn push(&mut self, extent: Extent) {
        if let Some(last) = self.len.checked_sub(1).map(|i| &mut self.list[i])
            && let Some(joined) = join(*last, extent)
        {
            *last = joined;
        } else if let Some(place) = self.list.get_mut(self.len) {
            *place = extent;
            self.len += 1;
        }
    }

    fn list(&self) -> &[Extent] {
        &self.list[..self.len]
    }
}

fn longest(unwritten: bool) -> u16 {
    if unwritten {
        EXT_UNWRITTEN_MAX_LEN
    } else {
        EXT_INIT_MAX_LEN
    }
}

fn end(extent: Extent) -> u64 {
    u64::from(extent.lblk.0) + u64::from(extent.len)
}

/// Both as one extent, if `second` follows `first` in the file and on the device.
fn join(first: Extent, second: Extent) -> Option<Extent> {
    let len = first.len.checked_add(second.len)?;
    let joins = first.unwritten == second.unwritten
        && end(first) == u64::from(second.lblk.0)
        && first.pblk.0.checked_add(first.len.into()) == Some(second.pblk.0)
        && len <= longest(first.unwritten);
    joins.then_some(Extent { len, ..first })
}

/// The part of an extent within `from..until`, if there is one.
fn part(extent: Extent, from: u64, until: u64) -> Option<Extent> {
    let start = from.max(extent.lblk.0.into());
    let len = until.min(end(extent)).checked_sub(start)?;
    let skip = start - u64::from(extent.lblk.0);
    (len > 0).then_some(Extent {
        // OK to truncate: within the extent.
        lblk: Lblk(start as u32),
        len: len as u16,
        pblk: Pblk(extent.pblk.0.saturating_add(skip)),
        unwritten: extent.unwritten,
    })
}

/// Puts `new` in the place of the leaf's extents with the indices `replaced`, joined with
/// neighbours.
fn rewrite(
    handle: &Handle<'_>,
    inode: &mut Inode,
    path: Path,
    mut replaced: Range<usize>,
    new: impl IntoIterator<Item = Extent>,
) -> Result<()> {
    let (before, after) = path.leaf(inode, |leaf| {
        let before = replaced.start.checked_sub(1).and_then(|i| leaf.get(i));
        let after = leaf.get(replaced.end);
        (before.map(RawExtent::get), after.map(RawExtent::get))
    })?;
    let mut pieces = Pieces::new();
    if let Some(before) = before {
        pieces.push(before);
        replaced.start -= 1;
    }
    for extent in new {
        pieces.push(extent);
    }
    if let Some(after) = after {
        pieces.push(after);
        replaced.end += 1;
    }
    let goal = pieces.list().last().map_or(Pblk(0), |e| e.pblk);
    path.replace(handle, inode, replaced, pieces.list(), goal)
}

/// Maps blocks that are not mapped yet.
///
/// Fails with [`Error::Invalid`] if one is, or the extent is empty or too long;
/// [`Error::FileTooBig`]; [`Error::NoSpace`] for the map itself. Nothing was changed then. Damage,
/// device errors.
pub(crate) fn insert(handle: &Handle<'_>, inode: &mut Inode, extent: Extent) -> Result<()> {
    let sbi = handle.sbi();
    sbi.check_range("extent", extent.pblk, extent.len.into())?;
    if extent.len == 0 || extent.len > longest(extent.unwritten) {
        return Err(Error::Invalid(Invalid::Extent {
            lblk: extent.lblk,
            len: extent.len.into(),
        }));
    }
    if end(extent) > range_end(Lblk(0), u32::MAX) {
        return Err(Error::FileTooBig);
    }
    check_countable(sbi, inode, extent.len.into())?;
    let path = Path::find(sbi, inode, extent.lblk)?;
    let (at, free) = path.leaf(inode, |leaf| {
        let at = leaf.partition_point(|e| e.ee_block.get() <= extent.lblk.0);
        let before = at.checked_sub(1).and_then(|i| leaf.get(i));
        let begins = before.is_none_or(|e| end(e.get()) <= extent.lblk.0.into());
        let next = leaf
            .get(at)
            .map_or(path.until(), |e| e.ee_block.get().into());
        (at, begins && end(extent) <= next)
    })?;
    if !free {
        return Err(Error::Invalid(Invalid::Mapped {
            lblk: extent.lblk,
            len: extent.len.into(),
        }));
    }
    rewrite(handle, inode, path, at..at, [extent])?;
    add_blocks(handle, inode, extent.len.into());
    Ok(())
}

/// Unmaps and frees `len` blocks from `lblk` on, the last ones first.
///
/// Fails with [`Error::NoSpace`] if an extent had to be split and nothing was changed by this call,
/// damage, device errors.
pub(crate) fn remove(
    handle: &Handle<'_>,
    inode: &mut Inode,
    lblk: Lblk,
    len: u32,
) -> Result<Progress> {
    let sbi = handle.sbi();
    let from = u64::from(lblk.0);
    let mut until = range_end(lblk, len);
    while until > from {
        // OK to truncate: below `range_end`.
        let path = Path::find(sbi, inode, Lblk((until - 1) as u32))?;
        match cut(handle, inode, path, from, until)? {
            Some(at) => until = at,
            None => return Ok(Progress::rest(from, until)),
        }
    }
    if afford(handle, credits_of_change(sbi, inode)) {
        shrink(handle, inode)?;
    }
    Ok(Progress::Done)
}

/// What of a leaf is to be unmapped at once.
struct Cut {
    /// The first and last extent that are touched.
    first: usize,
    last: usize,
    extents: Vec<Extent>,
    /// Where the removed part begins.
    from: u64,
}

/// Unmaps what the leaf has in `from..until`, or as much as the credits allow, and returns what
/// is left: everything before that block. None if the credits do not allow anything.
fn cut(
    handle: &Handle<'_>,
    inode: &mut Inode,
    path: Path,
    from: u64,
    until: u64,
) -> Result<Option<u64>> {
    let sbi = handle.sbi();
    let own = credits_of_change(sbi, inode);
    if !afford(handle, own) {
        return Ok(None);
    }
    let left = path.from();
    let (is_empty, cut) = path.leaf(inode, |leaf| {
        (
            leaf.is_empty(),
            plan_cut(handle, inode, leaf, own, from, until),
        )
    })?;
    let Some(cut) = cut else {
        if is_empty && !path.is_root() {
            path.replace(handle, inode, 0..0, &[], Pblk(0))?;
        }
        return Ok(Some(left));
    };
    if cut.extents.is_empty() {
        return Ok(None);
    }
    for extent in &cut.extents {
        sbi.check_range("extent", extent.pblk, extent.len.into())?;
    }
    let (first, last) = (cut.extents[0], cut.extents[cut.extents.len() - 1]);
    let kept = [part(first, 0, cut.from), part(last, until, 1 << 32)];
    let mut pieces = Pieces::new();
    kept.into_iter().flatten().for_each(|p| pieces.push(p));
    let replaced = cut.first..cut.last + 1;
    path.replace(handle, inode, replaced, pieces.list(), first.pblk)?;
    for extent in cut.extents.iter().rev() {
        if let Some(gone) = part(*extent, cut.from, until) {
            free_data(handle, inode, gone.pblk, gone.len.into())?;
        }
    }
    Ok(Some(cut.from))
}

/// Chooses what to unmap; None if there is nothing in the range. `extents` is empty if there are no
/// credits for it.
fn plan_cut(
    handle: &Handle<'_>,
    inode: &Inode,
    leaf: &[RawExtent],
    own: u32,
    from: u64,
    until: u64,
) -> Option<Cut> {
    let sbi = handle.sbi();
    let first = leaf.partition_point(|e| end(e.get()) <= from);
    let past = leaf.partition_point(|e| u64::from(e.ee_block.get()) < until);
    let last = past.checked_sub(1).filter(|last| *last >= first)?;
    let (mut groups, mut blocks) = (0, 0);
    let mut cut = Cut {
        first: past,
        last,
        extents: Vec::new(),
        from: until,
    };
    for (i, raw) in leaf.iter().enumerate().take(past).skip(first).rev() {
        let extent = raw.get();
        let gone = part(extent, from, until)?;
        groups += groups_of_run(sbi, gone.len.into());
        blocks += u64::from(gone.len);
        let revokes = credits_revoke(handle, inode, blocks);
        if !afford(handle, own + credits_anywhere(sbi, groups) + revokes) {
            break;
        }
        cut.extents.push(extent);
        (cut.first, cut.from) = (i, gone.lblk.0.into());
    }
    if cut.extents.is_empty() {
        // Not even one: as much of it as may lie in two groups, and can be revoked.
        let extent = leaf.get(last)?.get();
        let gone = part(extent, from, until)?;
        let len = u64::from(gone.len).min(sbi.geometry().blocks_per_group.get().into());
        let bare = own + credits_anywhere(sbi, 2);
        if afford(handle, bare + credits_revoke(handle, inode, 1)) {
            let len = len.min(freed_by(handle, inode, handle.credits() - bare));
            cut.extents.push(extent);
            (cut.first, cut.from) = (last, end(gone) - len);
        }
    }
    cut.extents.reverse();
    Some(cut)
}

/// Marks the blocks of `run`, all of them mapped, as unwritten or written.
///
/// Fails with [`Error::Invalid`] for a block that is not mapped, [`Error::NoSpace`] if an extent
/// had to be split; those before it are marked then. Damage, device errors.
pub(crate) fn mark(
    handle: &Handle<'_>,
    inode: &mut Inode,
    run: LblkRun,
    unwritten: bool,
) -> Result<Progress> {
    let sbi = handle.sbi();
    let (mut at, until) = (u64::from(run.start.0), range_end(run.start, run.len));
    while at < until {
        if !afford(handle, credits_of_change(sbi, inode)) {
            return Ok(Progress::rest(at, until));
        }
        // OK to truncate: below `range_end`.
        let path = Path::find(sbi, inode, Lblk(at as u32))?;
        let Some((index, extent)) = covering(&path, inode, at)? else {
            // OK to truncate: below `range_end`.
            return Err(Invalid::NotMapped(Lblk(at as u32)).into());
        };
        // A written extent may be longer than an unwritten one.
        let stop = until
            .min(end(extent))
            .min(at + u64::from(longest(unwritten)));
        if extent.unwritten != unwritten {
            let marked = part(extent, at, stop).map(|e| Extent { unwritten, ..e });
            let pieces = [part(extent, 0, at), marked, part(extent, stop, 1 << 32)];
            let pieces = pieces.into_iter().flatten();
            rewrite(handle, inode, path, index..index + 1, pieces)?;
        }
        at = stop;
    }
    if afford(handle, credits_of_change(sbi, inode)) {
        shrink(handle, inode)?;
    }
    Ok(Progress::Done)
}

/// The extent that has block `at`, and its place in the leaf.
fn covering(path: &Path, inode: &Inode, at: u64) -> Result<Option<(usize, Extent)>> {
    path.leaf(inode, |leaf| {
        let after = leaf.partition_point(|e| u64::from(e.ee_block.get()) <= at);
        let index = after.checked_sub(1)?;
        let extent = leaf.get(index)?.get();
        (at < end(extent)).then_some((index, extent))
    })
}

/// Moves what is mapped in `run` by `by` blocks along the file.
///
/// Fails with [`Error::Invalid`] if something is mapped where it would go, [`Error::FileTooBig`],
/// [`Error::NoSpace`] if an extent had to be split. Nothing was changed then. Damage, device
/// errors.
pub(crate) fn shift(
    handle: &Handle<'_>,
    inode: &mut Inode,
    run: LblkRun,
    by: i64,
) -> Result<Progress> {
    let sbi = handle.sbi();
    let (from, until) = (u64::from(run.start.0), range_end(run.start, run.len));
    let distance = by.unsigned_abs();
    if by == 0 || from >= until {
        return Ok(Progress::Done);
    }
    if by < 0 {
        let room = from.checked_sub(distance).ok_or(Invalid::Shift {
            lblk: run.start,
            by: distance,
        })?;
        check_room(sbi, inode, room, from)?;
    } else {
        let end = range_end(Lblk(0), u32::MAX);
        let last = end.checked_sub(distance).ok_or(Error::FileTooBig)?;
        if !is_hole(sbi, inode, last.clamp(from, until), until)? {
            return Err(Error::FileTooBig);
        }
        check_room(sbi, inode, until, until.saturating_add(distance).min(end))?;
    }
    for edge in [from, until] {
        if !afford(handle, credits_of_change(sbi, inode)) {
            return Ok(Progress::rest(from, until));
        }
        split_at(handle, inode, edge)?;
    }
    let progress = if by < 0 {
        shift_left(handle, inode, from..until, by)?
    } else {
        shift_right(handle, inode, from..until, by)?
    };
    let seam = if by < 0 {
        from - distance
    } else {
        until + distance
    };
    if progress == Progress::Done && afford(handle, credits_of_change(sbi, inode)) {
        join_at(handle, inode, seam)?;
    }
    Ok(progress)
}

/// Fails with [`Error::Invalid`] if a block in `from..until` is mapped.
fn check_room(sbi: &Sbi, inode: &Inode, from: u64, until: u64) -> Result<()> {
    if is_hole(sbi, inode, from, until)? {
        return Ok(());
    }
    // OK to truncate: both are at most 2^32 - 1.
    let (lblk, len) = (Lblk(from as u32), (until - from) as u32);
    Err(Invalid::Mapped { lblk, len }.into())
}

fn is_hole(sbi: &Sbi, inode: &Inode, from: u64, until: u64) -> Result<bool> {
    let mut at = from;
    while at < until && at <= Lblk::LAST.0.into() {
        // OK to truncate: as just compared.
        let mapping = map_blocks(sbi, inode, Lblk(at as u32), (until - at) as u32)?;
        if mapping.state != MapState::Hole {
            return Ok(false);
        }
        at += u64::from(mapping.len);
    }
    Ok(true)
}

/// Makes an extent begin at `at` if one has blocks on both sides of it.
fn split_at(handle: &Handle<'_>, inode: &mut Inode, at: u64) -> Result<()> {
    let Ok(lblk) = u32::try_from(at) else {
        return Ok(());
    };
    let path = Path::find(handle.sbi(), inode, Lblk(lblk))?;
    let Some((index, extent)) = covering(&path, inode, at)? else {
        return Ok(());
    };
    if let (Some(left), Some(right)) = (part(extent, 0, at), part(extent, at, 1 << 32)) {
        let replaced = index..index + 1;
        path.replace(handle, inode, replaced, &[left, right], extent.pblk)?;
    }
    Ok(())
}

/// Joins what ends before `at` with what begins there, if they are in one leaf.
fn join_at(handle: &Handle<'_>, inode: &mut Inode, at: u64) -> Result<()> {
    let Ok(lblk) = u32::try_from(at) else {
        return Ok(());
    };
    let path = Path::find(handle.sbi(), inode, Lblk(lblk))?;
    let pair = path.leaf(inode, |leaf| {
        let index = leaf.partition_point(|e| e.ee_block.get() < lblk);
        let (left, right) = (
            leaf.get(index.checked_sub(1)?)?.get(),
            leaf.get(index)?.get(),
        );
        Some((index - 1, join(left, right)?))
    })?;
    match pair {
        Some((at, joined)) => path.replace(handle, inode, at..at + 2, &[joined], joined.pblk),
        None => Ok(()),
    }
}

/// Indices in the leaf of the extents that begin in a range of logical blocks.
fn begin_within(path: &Path, inode: &Inode, range: Range<u64>) -> Result<Range<usize>> {
    path.leaf(inode, |leaf| {
        let first = leaf.partition_point(|e| u64::from(e.ee_block.get()) < range.start);
        let past = leaf.partition_point(|e| u64::from(e.ee_block.get()) < range.end);
        first..past
    })
}

/// Moves towards the beginning, the first leaf first.
fn shift_left(
    handle: &Handle<'_>,
    inode: &mut Inode,
    range: Range<u64>,
    by: i64,
) -> Result<Progress> {
    let sbi = handle.sbi();
    let Range {
        start: mut at,
        end: until,
    } = range;
    while at < until {
        if !afford(handle, credits_of_change(sbi, inode)) {
            return Ok(Progress::rest(at, until));
        }
        // OK to truncate: below `range_end`.
        let path = Path::find(sbi, inode, Lblk(at as u32))?;
        let moved = begin_within(&path, inode, at..until)?;
        if !moved.is_empty() {
            path.shift(handle, inode, moved, by);
        }
        at = path.until().max(at + 1);
    }
    Ok(Progress::Done)
}

/// Moves towards the end, the last leaf first.
fn shift_right(
    handle: &Handle<'_>,
    inode: &mut Inode,
    range: Range<u64>,
    by: i64,
) -> Result<Progress> {
    let sbi = handle.sbi();
    let Range {
        start: from,
        end: mut until,
    } = range;
    while from < until {
        if !afford(handle, credits_of_change(sbi, inode)) {
            return Ok(Progress::rest(from, until));
        }
        // OK to truncate: below `range_end`.
        let path = Path::find(sbi, inode, Lblk((until - 1) as u32))?;
        let moved = begin_within(&path, inode, from..until)?;
        if !moved.is_empty() {
            path.shift(handle, inode, moved, by);
        }
        until = path.from().min(until - 1);
    }
    Ok(Progress::Done)
}
