//! Groups whose bitmaps were read and agreed with their descriptors: only what these have free is
//! sure to be there, and may be reserved.

use std::sync::atomic::Ordering::Relaxed;

use uext4_ondisk::GroupNr;

use crate::GroupBitmaps;
use crate::allocator::Allocator;
use crate::options::PREFETCH;

impl Allocator {
    /// Of [`Allocator::free_blocks`], those in groups whose bitmap was read, now or before its
    /// buddy was dropped, and agreed with its descriptor.
    pub fn checked_free_blocks(&self) -> u64 {
        self.groups().checked_free.load(Relaxed)
    }

    /// Reads bitmaps that were not read yet, first those of the first groups, until
    /// [`Allocator::checked_free_blocks`] are `wanted`, or no other group calls blocks free.
    /// Returns whether they are. A group that contradicts its bitmap, or has none to be read, is
    /// marked bad.
    ///
    /// Costs nothing but a look where enough was checked before, or all. No lock is held.
    pub fn check_more<B: GroupBitmaps>(&self, bitmaps: &B, wanted: u64) -> bool {
        let groups = self.groups();
        let mut asked_to = 0;
        for group in groups.checked_to.load(Relaxed)..groups.count() {
            let lacking = wanted.saturating_sub(self.checked_free_blocks());
            if lacking == 0 {
                return true;
            }
            if let Some(loads) = groups.unchecked(group) {
                if group >= asked_to {
                    asked_to = self.ask_for(bitmaps, group, lacking);
                }
                // One that cannot be read is bad from now on, which is all that matters here.
                _ = groups.load(self.space().io(bitmaps), group, loads);
            }
            // Only what this thread has been through itself: others may still be reading.
            groups.checked_to.fetch_max(group + 1, Relaxed);
        }
        self.checked_free_blocks() >= wanted
    }

    /// Asks for the bitmaps that are read next from `first` on, as far as it takes to find
    /// `lacking` blocks and at most [`PREFETCH`] groups. Returns the group behind the last.
    fn ask_for<B: GroupBitmaps>(&self, bitmaps: &B, first: u32, lacking: u64) -> u32 {
        let groups = self.groups();
        let (mut wanted, mut claimed) = (Vec::new(), 0);
        let mut next = first;
        while next < groups.count() && claimed < lacking && wanted.len() < PREFETCH as usize {
            if groups.unchecked(next).is_some() {
                wanted.push(GroupNr(next));
                claimed += u64::from(groups.state(next).free);
            }
            next += 1;
        }
        if wanted.len() > 1 {
            bitmaps.prefetch(&wanted);
        }
        next
    }
}
