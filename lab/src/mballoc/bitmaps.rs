//! Block bitmaps and free counts in memory, group by group.

use std::sync::{Mutex, MutexGuard, PoisonError};

use uext4_mballoc::GroupBitmaps;
use uext4_ondisk::{Geometry, GroupNr};

/// The bitmaps of a file system.
#[derive(Debug)]
pub struct MemoryBitmaps {
    groups: Vec<Mutex<Group>>,
    first_data_block: u64,
    blocks_per_group: u64,
}

#[derive(Clone, Debug)]
struct Group {
    /// Bit set: used, or past the end of the group.
    bits: Vec<u64>,
    free: u32,
}

/// A mark that contradicts the bitmap: blocks were handed out twice, or freed twice.
#[derive(Debug, thiserror::Error)]
#[error("group {group}: {len} blocks from {start} are not all {state}")]
pub struct Contradiction {
    group: u32,
    start: u32,
    len: u32,
    state: &'static str,
}

impl MemoryBitmaps {
    /// All free but the runs of `used` (first block, length), which must not overlap.
    pub fn new(geometry: &Geometry, used: impl Iterator<Item = (u64, u64)>) -> Self {
        let words = geometry.blocks_per_group.get().div_ceil(64) as usize;
        let groups = (0..geometry.groups_count.get()).map(|group| {
            let blocks = geometry.blocks_in_group(GroupNr(group));
            let mut group = Group {
                bits: vec![0; words],
                free: words as u32 * 64,
            };
            group.mark(blocks, words as u32 * 64 - blocks, true);
            Mutex::new(group)
        });
        let bitmaps = Self {
            groups: groups.collect(),
            first_data_block: geometry.first_data_block.into(),
            blocks_per_group: geometry.blocks_per_group.get().into(),
        };
        for (start, len) in used {
            for (group, start, len) in bitmaps.pieces(start, len) {
                bitmaps.group(group).mark(start, len, true);
            }
        }
        bitmaps
    }

    /// Free blocks in all groups.
    pub fn free_blocks_in_all(&self) -> u64 {
        self.free_by_group().iter().sum()
    }

    /// Free blocks of every group.
    pub fn free_by_group(&self) -> Vec<u64> {
        let groups = 0..self.groups.len() as u32;
        groups.map(|group| self.group(group).free.into()).collect()
    }

    /// Free runs, across the bounds of groups: first block, length.
    pub fn free_runs(&self) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for index in 0..self.groups.len() as u32 {
            let group_start = self.first_data_block + u64::from(index) * self.blocks_per_group;
            for (start, len) in self.group(index).free_runs() {
                let start = group_start + u64::from(start);
                match runs.last_mut() {
                    Some((before, before_len)) if *before + *before_len == start => {
                        *before_len += u64::from(len);
                    }
                    _ => runs.push((start, len.into())),
                }
            }
        }
        runs
    }

    /// Free runs within one group: first block in it, length.
    pub fn free_runs_of(&self, group: u32) -> Vec<(u32, u32)> {
        self.group(group).free_runs()
    }

    /// A run of blocks, cut at the bounds of groups: group, first block in it, length.
    pub fn pieces(&self, start: u64, len: u64) -> Vec<(u32, u32, u32)> {
        // What lies before the first group belongs to none.
        let end = start + len;
        let mut at = start.max(self.first_data_block);
        let mut pieces = Vec::new();
        while at < end {
            let from_first = at - self.first_data_block;
            let group = from_first / self.blocks_per_group;
            let group_end = self.first_data_block + (group + 1) * self.blocks_per_group;
            let upto = end.min(group_end);
            let offset = from_first % self.blocks_per_group;
            pieces.push((group as u32, offset as u32, (upto - at) as u32));
            at = upto;
        }
        pieces
    }

    fn group(&self, group: u32) -> MutexGuard<'_, Group> {
        // A thread that panicked holding it has failed the run anyway.
        let guard = self.groups[group as usize].lock();
        guard.unwrap_or_else(PoisonError::into_inner)
    }

    fn change(
        &self,
        nr: GroupNr,
        (start, len): (u32, u32),
        used: bool,
    ) -> Result<(), Contradiction> {
        let mut group = self.group(nr.0);
        if !group.all(start, len, !used) {
            return Err(Contradiction {
                group: nr.0,
                start,
                len,
                state: if used { "free" } else { "used" },
            });
        }
        group.mark(start, len, used);
        Ok(())
    }
}

impl GroupBitmaps for MemoryBitmaps {
    type Error = Contradiction;

    fn free_blocks(&self, group: GroupNr) -> Result<u32, Contradiction> {
        Ok(self.group(group.0).free)
    }

    fn read_bitmap(&self, group: GroupNr, bitmap: &mut [u8]) -> Result<(), Contradiction> {
        let group = self.group(group.0);
        for (bytes, word) in bitmap.chunks_mut(8).zip(&group.bits) {
            let of_word = (0..8).map(|byte| (word >> (byte * 8)) as u8);
            bytes
                .iter_mut()
                .zip(of_word)
                .for_each(|(to, from)| *to = from);
        }
        Ok(())
    }

    fn mark_used(&self, group: GroupNr, start: u32, len: u32) -> Result<(), Contradiction> {
        self.change(group, (start, len), true)
    }

    fn mark_free(&self, group: GroupNr, start: u32, len: u32) -> Result<(), Contradiction> {
        self.change(group, (start, len), false)
    }
}

impl Group {
    /// The words that `start..start + len` touches, each with the bits concerned.
    fn masks(start: u32, len: u32) -> impl Iterator<Item = (usize, u64)> {
        let end = start + len;
        (start / 64..end.div_ceil(64)).map(move |word| {
            let from = start.max(word * 64) - word * 64;
            let upto = end.min((word + 1) * 64) - word * 64;
            (word as usize, (!0 >> (64 - (upto - from))) << from)
        })
    }

    /// Whether all of them are used (or free).
    fn all(&self, start: u32, len: u32, used: bool) -> bool {
        let want = |mask| if used { mask } else { 0 };
        Self::masks(start, len).all(|(word, mask)| self.bits[word] & mask == want(mask))
    }

    fn mark(&mut self, start: u32, len: u32, used: bool) {
        if len == 0 {
            return;
        }
        for (word, mask) in Self::masks(start, len) {
            if used {
                self.bits[word] |= mask;
            } else {
                self.bits[word] &= !mask;
            }
        }
        if used {
            self.free -= len;
        } else {
            self.free += len;
        }
    }

    fn free_runs(&self) -> Vec<(u32, u32)> {
        let mut runs = Vec::new();
        let end = self.bits.len() as u32 * 64;
        let mut at = self.next(0, false);
        while at < end {
            let upto = self.next(at, true);
            runs.push((at, upto - at));
            at = self.next(upto, false);
        }
        runs
    }

    /// First bit that is `used` at or after `from`; the number of bits if there is none.
    fn next(&self, from: u32, used: bool) -> u32 {
        let flip = if used { 0 } else { !0 };
        let mut word = (from / 64) as usize;
        let mut mask = !0u64 << (from % 64);
        while let Some(bits) = self.bits.get(word) {
            let found = (bits ^ flip) & mask;
            if found != 0 {
                return word as u32 * 64 + found.trailing_zeros();
            }
            mask = !0;
            word += 1;
        }
        self.bits.len() as u32 * 64
    }
}
