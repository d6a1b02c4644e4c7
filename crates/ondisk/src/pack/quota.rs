//! A new quota file: the usage of all its ids, known before, in ascending order.
//!
//! ```text
//! 0 header │ 1 root │ 2, 3, 4 tree of the first id │ 5 leaf │ 6 … tree of the next, or a leaf …
//! ```
//! Blocks are numbered in the order in which ids need them, first those of the tree and then the
//! leaf. Leaves are filled one after the other, whatever the ids in them.

use std::collections::BTreeMap;

use zerocopy::little_endian::U32;
use zerocopy::{FromZeros, IntoBytes};

use crate::num::{index, len16};
use crate::quota::{
    QUOTA_BLOCK_LEN, QUOTA_ENTRIES_PER_LEAF, QUOTA_TREE_DEPTH, QUOTA_TREE_ROOT, QUOTA_VERSION_R1,
    QuotaHeader, QuotaKind, QuotaLeafHeader, RawQuotaEntry, tree_slot,
};

/// Seconds of grace beyond a soft limit: a week.
const GRACE: u32 = 7 * 24 * 60 * 60;

/// What an id has, without limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaUsage {
    /// Inodes.
    pub inodes: u64,
    /// Bytes of blocks.
    pub bytes: u64,
}

/// Blocks of [`QUOTA_BLOCK_LEN`] bytes that a file with these ids has, which are ascending.
pub fn quota_blocks(ids: impl IntoIterator<Item = u32>) -> u64 {
    let mut path = Path::default();
    for id in ids {
        path.lead_to(id);
    }
    path.blocks
}

/// The bytes of a file that counts `used`, without limits. Returns `None` if it has more blocks
/// than can be numbered.
pub fn pack_quota(kind: QuotaKind, used: &BTreeMap<u32, QuotaUsage>) -> Option<Vec<u8>> {
    let entries = used.iter().map(|(&id, usage)| {
        let mut entry = RawQuotaEntry::new_zeroed();
        entry.dqb_id = id.into();
        entry.dqb_curinodes = usage.inodes.into();
        entry.dqb_curspace = usage.bytes.into();
        entry
    });
    pack_quota_entries(kind, QuotaGrace::default(), entries)
}

/// Seconds of grace beyond soft limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaGrace {
    /// Of blocks.
    pub blocks: u32,
    /// Of inodes.
    pub inodes: u32,
}

impl Default for QuotaGrace {
    /// A week each.
    fn default() -> Self {
        Self {
            blocks: GRACE,
            inodes: GRACE,
        }
    }
}

/// The bytes of a file with these entries, whose ids ascend. Returns `None` if it has more blocks
/// than can be numbered.
pub fn pack_quota_entries(
    kind: QuotaKind,
    grace: QuotaGrace,
    entries: impl Iterator<Item = RawQuotaEntry> + Clone,
) -> Option<Vec<u8>> {
    let blocks = quota_blocks(entries.clone().map(|entry| entry.dqb_id.get()));
    let count = u32::try_from(blocks).ok()?;
    let len = usize::try_from(blocks).ok()?.checked_mul(QUOTA_BLOCK_LEN)?;
    let mut file = File(vec![0; len]);
    let mut path = Path::default();
    for entry in entries {
        let id = entry.dqb_id.get();
        path.lead_to(id);
        for (level, pair) in (0..).zip(path.tree.windows(2)) {
            file.put(
                pair[0],
                tree_slot(id, level).saturating_mul(4),
                &U32::new(pair[1]).to_bytes(),
            );
        }
        let leaf = path.tree[index(QUOTA_TREE_DEPTH)];
        file.put(
            leaf,
            entry_offset(path.entries.checked_sub(1)?),
            entry.as_bytes(),
        );
        let mut header = QuotaLeafHeader::new_zeroed();
        header.dqdh_entries = len16(path.entries).into();
        file.put(leaf, 0, header.as_bytes());
    }
    let header = QuotaHeader {
        dqh_magic: kind.magic().into(),
        dqh_version: QUOTA_VERSION_R1.into(),
        dqi_bgrace: grace.blocks.into(),
        dqi_igrace: grace.inodes.into(),
        dqi_flags: 0.into(),
        dqi_blocks: count.into(),
        dqi_free_blk: 0.into(),
        dqi_free_entry: path.leaf_with_room().into(),
    };
    file.put(0, 0, header.as_bytes());
    Some(file.0)
}

const fn entry_offset(slot: usize) -> usize {
    size_of::<QuotaLeafHeader>().saturating_add(slot.saturating_mul(size_of::<RawQuotaEntry>()))
}

/// The way to the last id, and how many blocks there are until then.
struct Path {
    /// The blocks from the root to the leaf.
    tree: [u32; index(QUOTA_TREE_DEPTH) + 1],
    /// Entries of the leaf.
    entries: usize,
    last: Option<u32>,
    blocks: u64,
}

impl Default for Path {
    fn default() -> Self {
        let mut tree = [0; index(QUOTA_TREE_DEPTH) + 1];
        tree[0] = QUOTA_TREE_ROOT;
        Self {
            tree,
            // There is no leaf yet: as if it were full.
            entries: QUOTA_ENTRIES_PER_LEAF,
            last: None,
            blocks: u64::from(QUOTA_TREE_ROOT).saturating_add(1),
        }
    }
}

impl Path {
    /// Goes on to an id: new blocks from where its bytes differ from those of the last one, and a
    /// new leaf if that is full.
    fn lead_to(&mut self, id: u32) {
        let mut is_new = false;
        for level in 1..QUOTA_TREE_DEPTH {
            let slot = level.saturating_sub(1);
            let is_same = |last: u32| tree_slot(last, slot) == tree_slot(id, slot);
            is_new |= !self.last.is_some_and(is_same);
            if is_new {
                self.tree[index(level)] = self.take();
            }
        }
        if self.entries >= QUOTA_ENTRIES_PER_LEAF {
            self.tree[index(QUOTA_TREE_DEPTH)] = self.take();
            self.entries = 0;
        }
        self.entries = self.entries.saturating_add(1);
        self.last = Some(id);
    }

    /// The number of a new block; those that have none are counted, and the file is refused.
    fn take(&mut self) -> u32 {
        let number = u32::try_from(self.blocks).unwrap_or(u32::MAX);
        self.blocks = self.blocks.saturating_add(1);
        number
    }

    /// The leaf that the next id goes to; 0 if there is none.
    fn leaf_with_room(&self) -> u32 {
        match self.entries < QUOTA_ENTRIES_PER_LEAF {
            true => self.tree[index(QUOTA_TREE_DEPTH)],
            false => 0,
        }
    }
}

/// All blocks, one after the other.
struct File(Vec<u8>);

impl File {
    /// Stores bytes in a block.
    fn put(&mut self, block: u32, at: usize, bytes: &[u8]) {
        let start = index(block)
            .saturating_mul(QUOTA_BLOCK_LEN)
            .saturating_add(at);
        let end = start.saturating_add(bytes.len());
        if let Some(place) = self.0.get_mut(start..end) {
            place.copy_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::quota::{parse_leaf, parse_tree_block};

    fn block(bytes: &[u8], number: u32) -> &[u8] {
        &bytes[index(number) * QUOTA_BLOCK_LEN..][..QUOTA_BLOCK_LEN]
    }

    /// What is found on the way to an id.
    fn find(bytes: &[u8], kind: QuotaKind, id: u32) -> Option<RawQuotaEntry> {
        let blocks = QuotaHeader::parse(bytes, kind).unwrap().dqi_blocks.get();
        let mut at = QUOTA_TREE_ROOT;
        for level in 0..QUOTA_TREE_DEPTH {
            let slots = parse_tree_block(block(bytes, at), blocks).unwrap();
            at = slots[tree_slot(id, level)].get();
            if at == 0 {
                return None;
            }
        }
        let entries = parse_leaf(block(bytes, at)).unwrap();
        entries.into_iter().find(|entry| entry.dqb_id.get() == id)
    }

    #[test]
    fn the_file_of_one_id_is_that_of_an_empty_file_system() {
        let used = BTreeMap::from([(
            0,
            QuotaUsage {
                inodes: 2,
                bytes: 20480,
            },
        )]);
        let bytes = pack_quota(QuotaKind::Group, &used).unwrap();
        assert_eq!(bytes.len(), 6 * QUOTA_BLOCK_LEN);
        let header = QuotaHeader::parse(&bytes, QuotaKind::Group).unwrap();
        assert_eq!(
            (header.dqi_blocks.get(), header.dqi_free_entry.get()),
            (6, 5)
        );
        let tree: Vec<u8> = (1..5).map(|number| block(&bytes, number)[0]).collect();
        assert_eq!(tree, [2, 3, 4, 5]);
    }

    #[test]
    fn a_full_leaf_has_no_room() {
        let ids = |count| {
            (0..count)
                .map(|id| {
                    (
                        id,
                        QuotaUsage {
                            inodes: 1,
                            bytes: 0,
                        },
                    )
                })
                .collect()
        };
        for (count, blocks, room) in [(13, 6, 5), (14, 6, 0), (15, 7, 6)] {
            let bytes = pack_quota(QuotaKind::User, &ids(count)).unwrap();
            let header = QuotaHeader::parse(&bytes, QuotaKind::User).unwrap();
            let found = (header.dqi_blocks.get(), header.dqi_free_entry.get());
            assert_eq!(found, (blocks, room), "{count}");
        }
    }

    proptest! {
        #[test]
        fn every_id_is_found_and_no_other(
            ids in prop::collection::btree_set(prop_oneof![0u32..2000, any::<u32>()], 0..200),
            other: u32,
        ) {
            let usage = |id: u32| QuotaUsage {
                inodes: u64::from(id) + 1,
                bytes: u64::from(id) << 12,
            };
            let used: BTreeMap<_, _> = ids.iter().map(|&id| (id, usage(id))).collect();
            let bytes = pack_quota(QuotaKind::Project, &used).unwrap();
            for (&id, usage) in &used {
                let entry = find(&bytes, QuotaKind::Project, id).unwrap();
                prop_assert_eq!(entry.dqb_curinodes.get(), usage.inodes);
                prop_assert_eq!(entry.dqb_curspace.get(), usage.bytes);
            }
            let found = find(&bytes, QuotaKind::Project, other);
            prop_assert_eq!(found.is_some(), ids.contains(&other));
            let count = bytes.len() / QUOTA_BLOCK_LEN;
            prop_assert_eq!(quota_blocks(ids), count as u64);
        }
    }
}
