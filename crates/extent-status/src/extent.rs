//! A run of blocks with one status.

use uext4_ondisk::{Lblk, Pblk};

/// Parts of a range that [`Tree::cache`](crate::Tree::cache) goes over, known ones and gaps.
pub const FILL_MAX: usize = 64;

/// What a logical block of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// On the device, with contents.
    Written,
    /// Has a place on the device, but reads as zeroes.
    Unwritten,
    /// Written to memory only: space is reserved, no place is chosen. Never forgotten by itself.
    Delayed,
    /// Nothing there; reads as zeroes.
    Hole,
}

impl Status {
    /// Every status there is.
    pub const ALL: [Status; 4] = [
        Status::Written,
        Status::Unwritten,
        Status::Delayed,
        Status::Hole,
    ];

    /// True if blocks of this status have a place on the device.
    pub const fn is_mapped(self) -> bool {
        matches!(self, Status::Written | Status::Unwritten)
    }

    /// True if the map on the device says the same, so that it may be forgotten here.
    pub const fn is_reclaimable(self) -> bool {
        !matches!(self, Status::Delayed)
    }
}

/// A run of adjacent logical blocks of one status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// The first block.
    pub lblk: Lblk,
    /// Blocks, from 1; cut where it passes [`Lblk::LAST`].
    pub len: u32,
    /// Where the first block lies on the device; 0 unless [`Status::is_mapped`].
    pub pblk: Pblk,
    /// What all its blocks are.
    pub status: Status,
}

impl Extent {
    /// Places there can be, 2^60: the kernel packs the status next to them into 64 bits, and so
    /// does this cache. ext4 itself has at most 2^48 blocks.
    pub const PLACES: u64 = 1 << 60;

    /// The block after the last one, at most `u32::MAX`.
    pub const fn end(&self) -> u32 {
        self.lblk.0.saturating_add(self.len)
    }

    /// Where `lblk` lies on the device; `None` outside the extent or if it has no place.
    pub fn pblk_at(&self, lblk: Lblk) -> Option<Pblk> {
        let skip = lblk.0.checked_sub(self.lblk.0)?;
        let inside = skip < self.len && self.status.is_mapped();
        inside.then(|| Pblk(self.pblk.0.saturating_add(u64::from(skip))))
    }

    /// The extent as trees keep it: cut at the last block there is, no place where there is none.
    /// `None` if nothing of it can be stored: no block, or a place beyond [`Extent::PLACES`].
    pub(crate) fn bounded(self) -> Option<Self> {
        let (lblk, len) = bounded(self.lblk, self.len)?;
        let pblk = if self.status.is_mapped() {
            let end = self.pblk.0.checked_add(u64::from(len))?;
            (end <= Self::PLACES).then_some(self.pblk)?
        } else {
            Pblk(0)
        };
        Some(Self {
            lblk,
            len,
            pblk,
            ..self
        })
    }

    /// True if `right` continues this extent, so that both may be one.
    pub fn joins(&self, right: &Self) -> bool {
        self.status == right.status
            && self.end() == right.lblk.0
            && (!self.status.is_mapped()
                || self.pblk.0.checked_add(u64::from(self.len)) == Some(right.pblk.0))
    }

    /// The part in `start..end`, which must lie inside the extent.
    pub fn part(&self, start: u32, end: u32) -> Self {
        let pblk = self.pblk_at(Lblk(start)).unwrap_or(Pblk(0));
        Self {
            lblk: Lblk(start),
            len: end - start,
            pblk,
            ..*self
        }
    }
}

/// Some of the statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusSet(u8);

impl StatusSet {
    /// Delayed alone.
    pub const DELAYED: Self = Self(1 << Status::Delayed as u8);

    /// Those that `is_in` names.
    pub fn of(is_in: impl Fn(Status) -> bool) -> Self {
        let bits = Status::ALL.into_iter().filter(|status| is_in(*status));
        Self(bits.fold(0, |set, status| set | 1 << status as u8))
    }

    /// Whether a status is one of them.
    pub const fn contains(self, status: Status) -> bool {
        self.0 & 1 << status as u8 != 0
    }

    /// Whether any status is in both.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// The range cut at [`Lblk::LAST`]; `None` if nothing remains.
pub(crate) fn bounded(lblk: Lblk, len: u32) -> Option<(Lblk, u32)> {
    let room = u32::MAX - lblk.0;
    let len = len.min(room);
    (len > 0).then_some((lblk, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(lblk: u32, len: u32, pblk: u64, status: Status) -> Extent {
        Extent {
            lblk: Lblk(lblk),
            len,
            pblk: Pblk(pblk),
            status,
        }
    }

    #[test]
    fn values_that_do_not_fit_are_truncated_or_refused() {
        assert_eq!(extent(5, 0, 1, Status::Written).bounded(), None);
        assert_eq!(extent(u32::MAX, 1, 1, Status::Written).bounded(), None);
        assert_eq!(extent(0, 2, u64::MAX - 1, Status::Written).bounded(), None);
        let beyond = Extent::PLACES - 1;
        assert_eq!(extent(0, 2, beyond, Status::Written).bounded(), None);
        assert!(extent(0, 1, beyond, Status::Written).bounded().is_some());
        let last = extent(u32::MAX - 1, 9, 7, Status::Delayed).bounded();
        assert_eq!(last, Some(extent(u32::MAX - 1, 1, 0, Status::Delayed)));
        let all = extent(0, u32::MAX, 0, Status::Hole);
        assert_eq!(all.bounded(), Some(all));
        assert_eq!(all.end(), Lblk::LAST.0 + 1);
    }

    #[test]
    fn places_are_found_inside_only() {
        let run = extent(10, 5, 100, Status::Unwritten);
        assert_eq!(run.pblk_at(Lblk(9)), None);
        assert_eq!(run.pblk_at(Lblk(10)), Some(Pblk(100)));
        assert_eq!(run.pblk_at(Lblk(14)), Some(Pblk(104)));
        assert_eq!(run.pblk_at(Lblk(15)), None);
        assert_eq!(extent(10, 5, 0, Status::Hole).pblk_at(Lblk(11)), None);
        assert_eq!(run.part(12, 14), extent(12, 2, 102, Status::Unwritten));
    }
}
