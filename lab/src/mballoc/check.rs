//! Whether a volume contradicts itself: extents and metadata = bitmaps = buddies.

use uext4_ondisk::GroupNr;

use crate::experiment::Failure;
use crate::mballoc::volume::Volume;

impl Volume {
    /// Checks the whole volume, which must have been synced.
    ///
    /// # Errors
    /// [`Failure::Run`] with the first contradiction.
    pub fn check(&mut self) -> Result<(), Failure> {
        let wrong = |what: String| {
            Err(Failure::Run(format!(
                "the volume contradicts itself: {what}"
            )))
        };
        if self.refused > 0 {
            return wrong(format!(
                "{} runs could not be allocated or freed",
                self.refused
            ));
        }
        let mut owned: Vec<(u64, u64)> = Vec::new();
        for file in self.files.values() {
            let extents = file.extents.iter();
            owned.extend(extents.map(|(_, extent)| (extent.pblk, extent.len.into())));
            owned.extend(file.tree.iter().map(|run| (run.start.0, run.len.into())));
        }
        let directories = self.directories.iter();
        owned.extend(directories.map(|run| (run.start.0, run.len.into())));
        owned.sort_unstable();
        for pair in owned.windows(2) {
            if pair[0].0 + pair[0].1 > pair[1].0 {
                return wrong(format!("block {} belongs to two", pair[1].0));
            }
        }
        // Nothing is owned twice and every mark was checked: equal sums are equal sets.
        let sum: u64 = owned.iter().map(|(_, len)| len).sum();
        let used = self.geometry.blocks_count - self.bitmaps.free_blocks_in_all();
        if sum + self.metadata_blocks != used {
            return wrong(format!(
                "{sum} blocks are mapped and {} are metadata, but {used} are used",
                self.metadata_blocks
            ));
        }
        let mut free_runs = self.bitmaps.free_runs().into_iter().peekable();
        for (start, len) in owned {
            while free_runs.next_if(|run| run.0 + run.1 <= start).is_some() {}
            if free_runs.peek().is_some_and(|run| run.0 < start + len) {
                return wrong(format!("a block of {len} from {start} is mapped and free"));
            }
        }
        let kept = self.allocator.preallocated();
        let kept: Vec<_> = kept
            .iter()
            .flat_map(|run| self.bitmaps.pieces(run.start.0, run.len.into()))
            .collect();
        (0..self.geometry.groups_count.get())
            .find_map(|group| self.check_buddy(group, &kept).err())
            .map_or(Ok(()), wrong)
    }

    /// Whether the buddy of a group is its bitmap less what is preallocated of it for files.
    fn check_buddy(&self, group: u32, kept: &[(u32, u32, u32)]) -> Result<(), String> {
        let Some(info) = self.allocator.group_info(GroupNr(group)) else {
            return Ok(());
        };
        let mut runs = self.bitmaps.free_runs_of(group);
        for &(_, start, len) in kept.iter().filter(|piece| piece.0 == group) {
            let end = start + len;
            let inside = runs
                .iter()
                .position(|run| run.0 <= start && end <= run.0 + run.1);
            let Some(at) = inside else {
                return Err(format!(
                    "group {group}: {len} blocks from {start} are preallocated, not free"
                ));
            };
            let (run_start, run_len) = runs.swap_remove(at);
            let parts = [(run_start, start), (end, run_start + run_len)];
            runs.extend(
                parts
                    .iter()
                    .filter(|(a, b)| a < b)
                    .map(|(a, b)| (*a, b - a)),
            );
        }
        let mut counters = vec![0u32; info.counters.len()];
        for &(start, len) in &runs {
            let (mut at, end) = (start, start + len);
            while at < end {
                let largest = counters.len() as u32 - 1;
                let order = at.trailing_zeros().min((end - at).ilog2()).min(largest);
                counters[order as usize] += 1;
                at += 1 << order;
            }
        }
        let free: u32 = runs.iter().map(|(_, len)| len).sum();
        let seen = (info.free, info.fragments, &info.counters);
        let expected = (free, runs.len() as u32, &counters);
        if seen != expected {
            return Err(format!(
                "group {group}: the buddy has {seen:?}, the bitmap {expected:?}"
            ));
        }
        Ok(())
    }
}
