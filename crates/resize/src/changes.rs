//! Blocks as they will be: those that are part of the file system already, and those that become
//! part of it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use uext4_ondisk::group_desc::{DescChecksum, GroupDesc, bitmap_checksum};
use uext4_ondisk::{Geometry, GroupNr, Pblk};
use uext4_support::bits;

use crate::Result;
use crate::state::State;

/// What changes.
pub struct Changes<'a> {
    pub state: &'a State,
    /// The shape that results.
    pub geometry: &'a Geometry,
    /// Blocks of the file system as it is.
    pub inside: BTreeMap<Pblk, Vec<u8>>,
    /// Blocks behind it.
    pub behind: BTreeMap<Pblk, Vec<u8>>,
    /// Descriptors that change or are new.
    pub descs: BTreeMap<GroupNr, GroupDesc>,
    /// Blocks that become free, of a file system that is in use: it changes their bitmaps itself.
    pub freed: Vec<Range<u64>>,
}

impl<'a> Changes<'a> {
    /// Nothing yet.
    pub fn new(state: &'a State, geometry: &'a Geometry) -> Self {
        Self {
            state,
            geometry,
            inside: BTreeMap::new(),
            behind: BTreeMap::new(),
            descs: BTreeMap::new(),
            freed: Vec::new(),
        }
    }

    /// Puts a whole block.
    pub fn put(&mut self, block: Pblk, bytes: Vec<u8>) {
        let is_inside = block.0 < self.state.geometry.blocks_count;
        let map = match is_inside {
            true => &mut self.inside,
            false => &mut self.behind,
        };
        map.insert(block, bytes);
    }

    /// A block of the file system as it will be, to be changed.
    pub fn edit(&mut self, block: Pblk) -> Result<&mut Vec<u8>> {
        match self.inside.entry(block) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => Ok(entry.insert(self.state.block(block)?)),
        }
    }

    /// A group's descriptor as it will be, to be changed.
    pub fn desc(&mut self, group: GroupNr) -> Result<&mut GroupDesc> {
        match self.descs.entry(group) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => Ok(entry.insert(self.state.desc(group)?)),
        }
    }

    /// Frees the clusters `from..to` of a group, counted from its start, of those that the bitmap
    /// calls used; those from `end` on are padding. The bitmap is written in any case.
    pub fn free_clusters(&mut self, group: GroupNr, from: u32, to: u32, end: u32) -> Result<()> {
        if self.state.is_mounted() {
            // Clusters are blocks: none is mounted for writing where they are not.
            let start = self.geometry.group_start(group).0;
            let freed = start + u64::from(from)..start + u64::from(to);
            self.freed.extend((!freed.is_empty()).then_some(freed));
            return Ok(());
        }
        let at = self.desc(group)?.block_bitmap;
        if !self.inside.contains_key(&at) {
            // One that was never written is made up.
            let bitmap = self.state.image.block_bitmap(group)?;
            self.inside.insert(at, bitmap.to_vec());
        }
        let geometry = self.geometry;
        let bitmap = self.edit(at)?;
        let used = (from..to).filter(|&bit| bits::get(bitmap, bit)).count();
        bits::set_range(bitmap, from, to.saturating_sub(from), false);
        bits::pad(bitmap, end);
        let checksum = geometry.csum_seed.map(|seed| {
            let len = geometry.clusters_per_group.get() as usize / 8;
            let summed = bitmap.get(..len).unwrap_or_default();
            bitmap_checksum(seed, summed, geometry.desc_size.into())
        });
        let desc = self.desc(group)?;
        desc.free_clusters = desc.free_clusters.saturating_add(used as u32);
        if geometry.desc_checksum != DescChecksum::None {
            desc.flags &= !uext4_ondisk::group_desc::BG_BLOCK_UNINIT;
        }
        if let Some(checksum) = checksum {
            desc.block_bitmap_csum = checksum;
        }
        Ok(())
    }
}
