//! The blocks that hold metadata of fixed places: bitmaps and inode tables of all groups,
//! superblocks, descriptors and the journal. A block bitmap that calls one of them free is not
//! believed, nor is the map of a file that names one: what is written to the file would be written
//! over them.

use uext4_ondisk::{Damage, Geometry, GroupNr, Pblk};

use super::Groups;
use crate::base::error::{Error, Result};
use crate::base::mapping::{MapState, Mapping};
use uext4_support::bits::all_are;

/// Runs of blocks, sorted, joined where they touch.
#[derive(Debug, Default)]
pub(super) struct SystemZone {
    runs: Vec<(Pblk, u64)>,
}

impl SystemZone {
    /// Adds runs, in any order.
    fn add(&mut self, runs: impl Iterator<Item = (Pblk, u64)>) {
        let mut all = std::mem::take(&mut self.runs);
        all.extend(runs);
        all.sort_unstable();
        for (start, len) in all {
            match self.runs.last_mut() {
                Some(last) if last.0.0 + last.1 >= start.0 => {
                    last.1 = last.1.max(start.0 - last.0.0 + len);
                }
                _ => self.runs.push((start, len)),
            }
        }
    }

    /// The first of these blocks that it has.
    fn first_in(&self, start: u64, end: u64) -> Option<Pblk> {
        let first = self.runs.partition_point(|run| run.0.0 + run.1 <= start);
        let run = self.runs.get(first).filter(|run| run.0.0 < end)?;
        Some(Pblk(run.0.0.max(start)))
    }

    /// The first of these runs in a part of the file system that `bitmap` calls free in part.
    fn free_in(&self, bitmap: &[u8], start: u64, len: u32) -> Option<Pblk> {
        let end = start + u64::from(len);
        let first = self.runs.partition_point(|run| run.0.0 + run.1 <= start);
        let inside = self.runs[first..].iter().take_while(|run| run.0.0 < end);
        inside
            .map(|run| (run.0.0.max(start), (run.0.0 + run.1).min(end)))
            // OK to truncate: both lie in one group.
            .find(|(from, to)| !all_are(bitmap, (from - start) as u32, (to - from) as u32, true))
            .map(|(from, _)| Pblk(from))
    }
}

/// Blocks of the copies of superblock and descriptors that a group begins with.
fn copies_in(geometry: &Geometry, group: GroupNr) -> u32 {
    let reserved = u32::from(geometry.reserved_gdt_blocks);
    let base = geometry.group_base_blocks(group);
    // Blocks reserved for more descriptors may have been given up. Groups with the descriptors of
    // their meta group have no others than these, and the superblock.
    match base > reserved.saturating_add(1) {
        true => base - reserved,
        false => base,
    }
}

impl Groups {
    /// Takes in the places of bitmaps and inode tables of the groups from `first` on, and the
    /// copies of superblock and descriptors of all: a file system that grows has more of these.
    pub(super) fn find_system_zone(&self, geometry: &Geometry, first: usize) {
        let table_blocks = u64::from(geometry.itable_blocks());
        let slots = (first..self.slots.len()).map(|group| self.slots[group].lock().desc);
        let runs = slots.flat_map(|desc| {
            let bitmaps = [(desc.block_bitmap, 1), (desc.inode_bitmap, 1)];
            bitmaps
                .into_iter()
                .chain([(desc.inode_table, table_blocks)])
        });
        let all = (0..geometry.groups_count.get()).map(GroupNr);
        let copies = all.map(|group| {
            let len = copies_in(geometry, group).into();
            (geometry.group_start(group), len)
        });
        let runs: Vec<(Pblk, u64)> = runs.chain(copies.filter(|run| run.1 != 0)).collect();
        self.protect(runs.into_iter());
    }

    /// Takes in blocks that no file may get, the journal's for one.
    pub(crate) fn protect(&self, runs: impl Iterator<Item = (Pblk, u64)>) {
        self.system_zone.write().add(runs);
    }

    /// Leaves of these mappings those that name no metadata of a fixed place.
    pub(crate) fn keep_data(&self, mappings: &mut Vec<Mapping>) {
        let zone = self.system_zone.read();
        mappings.retain(|mapping| {
            let end = mapping.pblk.0.saturating_add(mapping.len.into());
            mapping.state == MapState::Hole || zone.first_in(mapping.pblk.0, end).is_none()
        });
    }

    /// Fails with [`Damage::Field`] if blocks of a file are metadata of a fixed place.
    pub(crate) fn refuse_metadata(&self, start: Pblk, len: u64) -> Result<()> {
        let end = start.0.saturating_add(len);
        let found = self.system_zone.read().first_in(start.0, end);
        match found {
            None => Ok(()),
            Some(block) => Err(Error::Corrupt(Damage::Field {
                structure: "map of a file",
                field: "block",
                value: block.0,
                why: "it holds metadata of the file system",
            })),
        }
    }

    /// Fails with [`Damage::Field`] if a group's block bitmap calls metadata free.
    pub(super) fn check_bitmap(
        &self,
        geometry: &Geometry,
        group: GroupNr,
        bitmap: &[u8],
    ) -> Result<()> {
        let start = geometry.group_start(group);
        let zone = self.system_zone.read();
        let free = zone.free_in(bitmap, start.0, geometry.blocks_in_group(group));
        match free {
            None => Ok(()),
            Some(block) => Err(Error::Corrupt(Damage::Field {
                structure: "block bitmap",
                field: "metadata at block",
                value: block.0,
                why: "the bitmap calls it free",
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_joined_and_found() {
        let mut zone = SystemZone::default();
        zone.add([(Pblk(20), 4), (Pblk(10), 1), (Pblk(11), 2)].into_iter());
        zone.add([(Pblk(22), 6), (Pblk(40), 1)].into_iter());
        assert_eq!(zone.runs, [(Pblk(10), 3), (Pblk(20), 8), (Pblk(40), 1)]);
        assert_eq!(zone.first_in(13, 20), None);
        assert_eq!(zone.first_in(11, 12), Some(Pblk(11)));
        assert_eq!(zone.first_in(13, 21), Some(Pblk(20)));
        assert_eq!(zone.first_in(41, 90), None);
        // Bits of blocks 8 to 31: all of the zone's set.
        let mut bitmap = [0b0001_1100, 0b1111_0000, 0b0000_1111];
        assert_eq!(zone.free_in(&bitmap, 8, 24), None);
        bitmap[2] = 0b0000_0111;
        assert_eq!(zone.free_in(&bitmap, 8, 24), Some(Pblk(20)));
        assert_eq!(zone.free_in(&bitmap, 8, 16), None);
        bitmap[0] = 0b0001_1000;
        assert_eq!(zone.free_in(&bitmap, 8, 24), Some(Pblk(10)));
    }
}
