//! The tree of a quota file, read as far as it leads anywhere.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;
use uext4_ondisk::num::len64;
use uext4_ondisk::pack::quota::QuotaGrace;
use uext4_ondisk::quota::{
    QUOTA_BLOCK_LEN, QUOTA_ENTRIES_PER_LEAF, QUOTA_TREE_DEPTH, QUOTA_TREE_ROOT, QUOTA_VERSION_R1,
    QuotaHeader, QuotaKind, QuotaLeafHeader, RawQuotaEntry,
};
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

use super::file::QuotaFile;
use super::{Contents, is_needed};
use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::problem::QuotaProblem;
use crate::state::State;

/// An entry that the tree leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Led {
    leaf: u32,
    id: u32,
}

/// Reads all entries that the tree leads to, and reports what leads nowhere.
pub fn read(state: &State<'_>, kind: QuotaKind, file: &QuotaFile<'_>) -> Result<Contents> {
    let mut contents = Contents::default();
    let place = || Place::inode(file.ino);
    let mut block = [0; QUOTA_BLOCK_LEN];
    file.read(0, &mut block)?;
    let report = |finding: Finding, contents: &mut Contents| {
        let cause = state.report(finding);
        contents.cause.get_or_insert(cause);
    };
    let mut blocks = file.blocks;
    if let Ok((header, _)) = QuotaHeader::read_from_prefix(&block) {
        let magic = [header.dqh_magic.get(), header.dqh_version.get()];
        let right = [kind.magic(), QUOTA_VERSION_R1];
        if let Some((&found, right)) = magic.iter().zip(right).find(|&(&f, r)| f != r) {
            let finding = Finding::new(QuotaProblem::Header, place().name(b"dqh_magic"));
            report(finding.found(found).right(right), &mut contents);
        } else {
            contents.grace = QuotaGrace {
                blocks: header.dqi_bgrace.get(),
                inodes: header.dqi_igrace.get(),
            };
            let stored = header.dqi_blocks.get();
            if stored > blocks {
                let finding = Finding::new(QuotaProblem::Header, place().name(b"dqi_blocks"));
                report(finding.found(stored).right(blocks), &mut contents);
            }
            blocks = blocks.min(stored);
            let free = [
                (b"dqi_free_blk".as_slice(), header.dqi_free_blk.get()),
                (b"dqi_free_entry".as_slice(), header.dqi_free_entry.get()),
            ];
            if let Some((name, found)) = free.into_iter().find(|&(_, free)| free >= blocks.max(1)) {
                let finding = Finding::new(QuotaProblem::Header, place().name(name));
                report(finding.found(found).right(0_u32), &mut contents);
            }
        }
    }
    let mut walk = Walk {
        file,
        blocks,
        visited: FxHashSet::default(),
        led: Vec::new(),
        nowhere: 0,
    };
    walk.tree(QUOTA_TREE_ROOT, 0, 0)?;
    let Walk {
        mut led,
        mut nowhere,
        ..
    } = walk;
    let at_leaves = leaves(file, &mut led, &mut contents.entries)?;
    nowhere += at_leaves.nowhere;
    if nowhere > 0 {
        let finding = Finding::new(QuotaProblem::Tree, place()).found(nowhere);
        report(finding, &mut contents);
    }
    let strays = adopt(&mut contents.entries, at_leaves.strays);
    if strays > 0 {
        let finding = Finding::new(QuotaProblem::Stray, place());
        report(finding.found(strays), &mut contents);
    }
    Ok(contents)
}

/// Takes in entries that the tree does not lead to, of owners that have no other: a branch was
/// lost, and not their limits. Returns how many there are, without those that say nothing of
/// anybody, which are as good as free ones.
fn adopt(entries: &mut BTreeMap<u32, RawQuotaEntry>, mut strays: Vec<RawQuotaEntry>) -> u64 {
    strays.retain(|stray| is_needed(stray) || entries.contains_key(&stray.dqb_id.get()));
    for stray in &strays {
        entries.entry(stray.dqb_id.get()).or_insert(*stray);
    }
    len64(strays.len())
}

struct Walk<'a, 'f> {
    file: &'a QuotaFile<'f>,
    /// Blocks that may be referred to.
    blocks: u32,
    /// Blocks of the tree seen: each has one parent, so the walk ends.
    visited: FxHashSet<u32>,
    led: Vec<Led>,
    nowhere: u64,
}

impl Walk<'_, '_> {
    /// Walks a block of the tree: `level` of it and the bytes of ids above are given.
    fn tree(&mut self, block: u32, level: u32, above: u32) -> Result<()> {
        let mut bytes = [0; QUOTA_BLOCK_LEN];
        self.file.read(block, &mut bytes)?;
        let numbers = bytes.chunks_exact(4).map(|number| {
            let number = number.first_chunk().copied().unwrap_or_default();
            U32::from_bytes(number).get()
        });
        for (slot, number) in (0..).zip(numbers) {
            let id = above << 8 | slot;
            if number == 0 {
                continue;
            }
            if number <= QUOTA_TREE_ROOT || number >= self.blocks {
                self.nowhere += 1;
            } else if level + 1 == QUOTA_TREE_DEPTH {
                self.led.push(Led { leaf: number, id });
            } else if self.visited.insert(number) {
                self.tree(number, level + 1, id)?;
            } else {
                self.nowhere += 1;
            }
        }
        Ok(())
    }
}

/// What of the leaves and the tree does not match.
#[derive(Default)]
struct AtLeaves {
    /// Entries that the tree leads to and that are not there.
    nowhere: u64,
    /// Entries that it does not lead to.
    strays: Vec<RawQuotaEntry>,
}

/// Reads the entries that the tree leads to, each leaf once.
fn leaves(
    file: &QuotaFile<'_>,
    led: &mut [Led],
    entries: &mut BTreeMap<u32, RawQuotaEntry>,
) -> Result<AtLeaves> {
    led.sort_unstable();
    let mut at_leaves = AtLeaves::default();
    let mut bytes = [0; QUOTA_BLOCK_LEN];
    for of_leaf in led.chunk_by(|a, b| a.leaf == b.leaf) {
        let Some(leaf) = of_leaf.first().map(|led| led.leaf) else {
            continue;
        };
        file.read(leaf, &mut bytes)?;
        let slots = bytes
            .get(size_of::<QuotaLeafHeader>()..)
            .unwrap_or_default();
        let slots = <[RawQuotaEntry]>::ref_from_prefix_with_elems(slots, QUOTA_ENTRIES_PER_LEAF);
        let slots = slots.map_or(&[][..], |(slots, _)| slots);
        let mut taken: Vec<_> = slots.iter().filter(|slot| is_taken(slot)).collect();
        for led in of_leaf {
            match taken.iter().position(|slot| slot.dqb_id.get() == led.id) {
                Some(slot) => {
                    entries.insert(led.id, *taken.remove(slot));
                }
                None => at_leaves.nowhere += 1,
            }
        }
        at_leaves.strays.extend(taken);
    }
    Ok(at_leaves)
}

fn is_taken(entry: &RawQuotaEntry) -> bool {
    *entry != RawQuotaEntry::read_from_bytes(&[0; size_of::<RawQuotaEntry>()]).unwrap_or(*entry)
}
