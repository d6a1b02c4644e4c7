//! Extent tree nodes: a header and then entries, in `i_block` (depth counts down to 0) or a block.
//!
//! ```text
//! header  entry[0] … entry[eh_max-1]  [tail, only in blocks, only with metadata_csum]
//! ```

use std::mem::size_of;
use std::ops::Range;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::CsumSeed;
use crate::damage::Damage;
use crate::inode::I_BLOCK_LEN;
use crate::num::{get32, hi32, join32, len16, lo16, lo32, put32};
use crate::units::{BlockSize, Lblk, Pblk};

/// `eh_magic`.
pub const EXT4_EXT_MAGIC: u16 = 0xF30A;
/// Deepest tree the format allows.
pub const EXT4_MAX_EXTENT_DEPTH: u16 = 5;
/// Longest written extent, in blocks; `ee_len` above this means unwritten.
pub const EXT_INIT_MAX_LEN: u16 = 1 << 15;
/// Longest unwritten extent, in blocks.
pub const EXT_UNWRITTEN_MAX_LEN: u16 = EXT_INIT_MAX_LEN - 1;
/// Length of the header and of every entry.
pub const EXTENT_ENTRY_LEN: usize = 12;
/// Length of the tail.
pub const EXTENT_TAIL_LEN: usize = 4;

/// First entry of a node.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct ExtentHeader {
    pub eh_magic: U16,
    pub eh_entries: U16,
    pub eh_max: U16,
    pub eh_depth: U16,
    pub eh_generation: U32,
}

/// Entry of an inner node.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct ExtentIdx {
    pub ei_block: U32,
    pub ei_leaf_lo: U32,
    pub ei_leaf_hi: U16,
    pub ei_unused: U16,
}

/// Entry of a leaf.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct RawExtent {
    pub ee_block: U32,
    pub ee_len: U16,
    pub ee_start_hi: U16,
    pub ee_start_lo: U32,
}

const _: () = {
    assert!(size_of::<ExtentHeader>() == EXTENT_ENTRY_LEN);
    assert!(size_of::<ExtentIdx>() == EXTENT_ENTRY_LEN);
    assert!(size_of::<RawExtent>() == EXTENT_ENTRY_LEN);
};

/// A leaf entry in host form: `len` blocks from `lblk` of the file lie at `pblk`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First logical block.
    pub lblk: Lblk,
    /// Blocks, 1 to 32,768 (32,767 if unwritten).
    pub len: u16,
    /// First physical block, 48 bits.
    pub pblk: Pblk,
    /// Allocated but never written: reads as zeroes.
    pub unwritten: bool,
}

impl RawExtent {
    /// Host form.
    pub fn get(&self) -> Extent {
        let raw = self.ee_len.get();
        let unwritten = raw > EXT_INIT_MAX_LEN;
        Extent {
            lblk: Lblk(self.ee_block.get()),
            len: if unwritten {
                raw & !EXT_INIT_MAX_LEN
            } else {
                raw
            },
            pblk: Pblk(join32(self.ee_start_lo, self.ee_start_hi)),
            unwritten,
        }
    }

    /// From host form.
    fn new(extent: Extent) -> Self {
        let mark = if extent.unwritten {
            EXT_INIT_MAX_LEN
        } else {
            0
        };
        Self {
            ee_block: extent.lblk.0.into(),
            ee_len: (extent.len | mark).into(),
            ee_start_hi: lo16(hi32(extent.pblk.0)).into(),
            ee_start_lo: lo32(extent.pblk.0).into(),
        }
    }
}

impl ExtentIdx {
    /// The child node covering `lblk` and up lies in `leaf`.
    pub(crate) fn new(lblk: Lblk, leaf: Pblk) -> Self {
        Self {
            ei_block: lblk.0.into(),
            ei_leaf_lo: lo32(leaf.0).into(),
            ei_leaf_hi: lo16(hi32(leaf.0)).into(),
            ei_unused: 0.into(),
        }
    }

    /// First logical block below the child.
    pub fn lblk(&self) -> Lblk {
        Lblk(self.ei_block.get())
    }

    /// Block of the child.
    pub fn leaf(&self) -> Pblk {
        Pblk(join32(self.ei_leaf_lo, self.ei_leaf_hi))
    }
}

/// A node whose header has been validated.
#[derive(Clone, Copy, Debug)]
pub enum ExtentNode<'a> {
    /// Depth 0.
    Leaf(&'a [RawExtent]),
    /// Depth 1 to 5; the children have one less.
    Index {
        /// Depth of this node.
        depth: u16,
        /// The children, ordered by `ei_block`.
        entries: &'a [ExtentIdx],
    },
}

/// Entries that a node of `len` bytes holds. Behind those of a block there is always room for the
/// tail, with checksums or without.
pub const fn max_entries(len: usize) -> u16 {
    len16(len.saturating_sub(EXTENT_ENTRY_LEN) / EXTENT_ENTRY_LEN)
}

const _: () = {
    let mut log2 = 10;
    while let Some(size) = BlockSize::from_log2(log2) {
        assert!(size.len() % EXTENT_ENTRY_LEN >= EXTENT_TAIL_LEN);
        log2 += 1;
    }
};

/// `i_block` of an inode that maps nothing yet.
pub fn empty_extent_root() -> [u8; I_BLOCK_LEN] {
    let mut root = [0; I_BLOCK_LEN];
    put_leaf(&mut root, max_entries(I_BLOCK_LEN), &[]);
    root
}

impl<'a> ExtentNode<'a> {
    /// Validates the node in `bytes` (`i_block`, or a whole block). `at` is the block it came
    /// from, `None` for the root; `depth` is what the parent states, `None` for the root.
    ///
    /// Also checked: entries strictly ascending and, in leaves, not overlapping and not empty.
    ///
    /// # Errors
    /// [`Damage::ExtentHeader`], [`Damage::ExtentOrder`].
    pub fn parse(bytes: &'a [u8], at: Option<Pblk>, depth: Option<u16>) -> Result<Self, Damage> {
        let (header, rest) = ExtentHeader::ref_from_prefix(bytes)
            .map_err(|_| Damage::truncated("extent node", EXTENT_ENTRY_LEN, bytes.len()))?;
        let bad = |why| Damage::ExtentHeader {
            block: at,
            why,
            magic: header.eh_magic.get(),
            entries: header.eh_entries.get(),
            max: header.eh_max.get(),
            depth: header.eh_depth.get(),
        };
        let entries = usize::from(header.eh_entries.get());
        if header.eh_magic.get() != EXT4_EXT_MAGIC {
            return Err(bad("magic"));
        }
        if header.eh_max.get() > max_entries(bytes.len()) {
            return Err(bad("more room than the node has"));
        }
        if header.eh_entries > header.eh_max {
            return Err(bad("more entries than room"));
        }
        if header.eh_depth.get() > EXT4_MAX_EXTENT_DEPTH
            || depth.is_some_and(|d| d != header.eh_depth.get())
        {
            return Err(bad("depth"));
        }
        // OK to unwrap: entries <= max, and max was just bounded by the node's length.
        let body = &rest[..entries * EXTENT_ENTRY_LEN];
        if header.eh_depth.get() == 0 {
            let leaf = <[RawExtent]>::ref_from_bytes(body).map_err(|_| bad("entries"))?;
            check_leaf_order(leaf, at)?;
            Ok(Self::Leaf(leaf))
        } else {
            let entries = <[ExtentIdx]>::ref_from_bytes(body).map_err(|_| bad("entries"))?;
            if entries.is_empty() {
                return Err(bad("inner node without children"));
            }
            let mut pairs = entries.windows(2).zip(1..);
            if let Some((pair, entry)) = pairs.find(|(w, _)| w[0].lblk() >= w[1].lblk()) {
                return Err(Damage::ExtentOrder {
                    block: at,
                    entry,
                    lblk: pair[1].lblk(),
                });
            }
            Ok(Self::Index {
                depth: header.eh_depth.get(),
                entries,
            })
        }
    }

    /// The same node again, for bytes that [`ExtentNode::parse`] has accepted: its entries are not
    /// walked a second time. `None` if they cannot be such bytes.
    pub fn of_verified(bytes: &'a [u8]) -> Option<Self> {
        let (header, rest) = ExtentHeader::ref_from_prefix(bytes).ok()?;
        let body = rest.get(..usize::from(header.eh_entries.get()) * EXTENT_ENTRY_LEN)?;
        Some(match header.eh_depth.get() {
            0 => Self::Leaf(<[RawExtent]>::ref_from_bytes(body).ok()?),
            depth => Self::Index {
                depth,
                entries: <[ExtentIdx]>::ref_from_bytes(body).ok()?,
            },
        })
    }
}

/// Writes a leaf with room for `max` entries (at least `extents.len()`) into `node`: `i_block`,
/// or a block. Bytes behind the entries are left as they are, the tail too.
pub(crate) fn put_leaf(node: &mut [u8], max: u16, extents: &[Extent]) {
    put_header(node, max, 0, extents.len());
    for (at, extent) in entries_mut(node, extents.len()).iter_mut().zip(extents) {
        *at = leaf_entry(*extent);
    }
}

/// Writes an inner node of `depth` 1 to 5, as [`put_leaf`] writes a leaf.
pub(crate) fn put_index(node: &mut [u8], max: u16, depth: u16, children: &[ExtentIdx]) {
    put_header(node, max, depth, children.len());
    for (at, child) in entries_mut(node, children.len()).iter_mut().zip(children) {
        at.copy_from_slice(child.as_bytes());
    }
}

fn put_header(node: &mut [u8], max: u16, depth: u16, entries: usize) {
    let header = ExtentHeader {
        eh_magic: EXT4_EXT_MAGIC.into(),
        eh_entries: len16(entries).into(),
        eh_max: max.into(),
        eh_depth: depth.into(),
        eh_generation: 0.into(),
    };
    node[..EXTENT_ENTRY_LEN].copy_from_slice(header.as_bytes());
}

/// The header of a node, as it stands there.
pub fn header(node: &[u8]) -> Option<ExtentHeader> {
    let (header, _) = ExtentHeader::read_from_prefix(node).ok()?;
    Some(header)
}

/// An entry of either kind as it lies in a node: both are twelve bytes and begin with a logical
/// block.
pub type NodeEntry = [u8; EXTENT_ENTRY_LEN];

/// The entry of an extent in a leaf.
pub fn leaf_entry(extent: Extent) -> NodeEntry {
    let mut entry = NodeEntry::default();
    entry.copy_from_slice(RawExtent::new(extent).as_bytes());
    entry
}

/// The entry of an inner node for a child in block `leaf`, whose first logical block is `lblk`.
pub fn index_entry(lblk: Lblk, leaf: Pblk) -> NodeEntry {
    let mut entry = NodeEntry::default();
    entry.copy_from_slice(ExtentIdx::new(lblk, leaf).as_bytes());
    entry
}

/// First logical block that an entry is about.
pub fn entry_lblk(entry: &NodeEntry) -> Lblk {
    let [a, b, c, d, ..] = *entry;
    Lblk(u32::from_le_bytes([a, b, c, d]))
}

/// Lets an entry be about another logical block.
pub fn set_entry_lblk(entry: &mut NodeEntry, lblk: Lblk) {
    entry[..4].copy_from_slice(&lblk.0.to_le_bytes());
}

/// The first `count` entries of a node, or as many as its bytes hold.
pub fn entries(node: &[u8], count: usize) -> &[NodeEntry] {
    let (all, _) = node.as_chunks::<EXTENT_ENTRY_LEN>();
    all.get(1..).map_or(&[], |all| &all[..count.min(all.len())])
}

/// As [`entries`], to be changed.
pub fn entries_mut(node: &mut [u8], count: usize) -> &mut [NodeEntry] {
    let (all, _) = node.as_chunks_mut::<EXTENT_ENTRY_LEN>();
    let all = all.get_mut(1..).unwrap_or_default();
    let count = count.min(all.len());
    &mut all[..count]
}

/// Writes a node of `depth` with room for `max` entries (at least as many as there are), of
/// whatever kind that depth has.
pub fn put_entries(node: &mut [u8], max: u16, depth: u16, new: &[NodeEntry]) {
    put_header(node, max, depth, new.len());
    let places = entries_mut(node, new.len());
    places.copy_from_slice(&new[..places.len()]);
}

/// Puts `new` in the place of the entries `replaced`, in a node of `count` entries that has room
/// for that. Does nothing if it has not.
pub fn splice_entries(node: &mut [u8], count: usize, replaced: Range<usize>, new: &[NodeEntry]) {
    let Some(behind) = count.checked_sub(replaced.end) else {
        return;
    };
    let end = replaced.start.saturating_add(new.len());
    let after = end.saturating_add(behind);
    let all = entries_mut(node, usize::MAX);
    if after > all.len() || count > all.len() {
        return;
    }
    all.copy_within(replaced.end..count, end);
    all[replaced.start..end].copy_from_slice(new);
    if let Ok((header, _)) = ExtentHeader::mut_from_prefix(node) {
        header.eh_entries = len16(after).into();
    }
}

fn check_leaf_order(leaf: &[RawExtent], at: Option<Pblk>) -> Result<(), Damage> {
    let mut next = 0u64;
    for (raw, entry) in leaf.iter().zip(0..) {
        let extent = raw.get();
        let end = u64::from(extent.lblk.0).saturating_add(extent.len.into());
        if extent.len == 0 || u64::from(extent.lblk.0) < next || end > u64::from(u32::MAX) {
            return Err(Damage::ExtentOrder {
                block: at,
                entry,
                lblk: extent.lblk,
            });
        }
        next = end;
    }
    Ok(())
}

/// Byte offset of the tail: right after the room for `eh_max` entries; `None` if it does not fit.
pub fn tail_offset(node: &[u8]) -> Option<usize> {
    let (header, _) = ExtentHeader::ref_from_prefix(node).ok()?;
    let entries = EXTENT_ENTRY_LEN.saturating_mul(header.eh_max.get().into());
    let at = entries.saturating_add(EXTENT_ENTRY_LEN);
    (at <= node.len().saturating_sub(EXTENT_TAIL_LEN)).then_some(at)
}

/// Verifies the tail of a node in a block; `seed` is the owning inode's.
///
/// # Errors
/// [`Damage::ExtentHeader`] if there is no room for a tail, [`Damage::BlockChecksum`].
pub fn verify_tail(node: &[u8], block: Pblk, seed: CsumSeed) -> Result<(), Damage> {
    let Some(at) = tail_offset(node) else {
        // Let the header check name the real reason where there is one.
        ExtentNode::parse(node, Some(block), None)?;
        return Err(Damage::truncated("extent tail", EXTENT_TAIL_LEN, 0));
    };
    Damage::check_sum(
        "extent node",
        block,
        get32(node, at),
        seed.over(&node[..at]),
    )
}

/// Computes and stores the tail of a node in a block; does nothing if it has no room.
pub fn update_tail(node: &mut [u8], seed: CsumSeed) {
    if let Some(at) = tail_offset(node) {
        let sum = seed.over(&node[..at]);
        put32(node, at, sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf_with(extents: &[Extent]) -> Vec<u8> {
        let mut node = vec![0; 1024];
        put_leaf(&mut node, max_entries(1024), extents);
        node
    }

    #[test]
    fn stored_entries_are_read_back() {
        let children = [(Lblk(0), Pblk(100)), (Lblk(70), Pblk(1 << 40))];
        let mut node = [0; 60];
        put_index(
            &mut node,
            4,
            2,
            &children.map(|(lblk, leaf)| ExtentIdx::new(lblk, leaf)),
        );
        match ExtentNode::parse(&node, None, None) {
            Ok(ExtentNode::Index { depth: 2, entries }) => {
                let read: Vec<_> = entries.iter().map(|e| (e.lblk(), e.leaf())).collect();
                assert_eq!(read, children);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn entries_are_replaced_where_there_is_room() {
        let entry = |lblk: u32| {
            let mut entry = NodeEntry::default();
            set_entry_lblk(&mut entry, Lblk(lblk));
            entry
        };
        let lblks = |node: &[u8]| {
            let count = usize::from(node[2]);
            let entries = entries(node, count).iter();
            entries.map(|e| entry_lblk(e).0).collect::<Vec<_>>()
        };
        let mut node = [0; 60];
        put_entries(&mut node, 4, 1, &[entry(1), entry(5)]);
        splice_entries(&mut node, 2, 1..1, &[entry(2), entry(3)]);
        assert_eq!(lblks(&node), [1, 2, 3, 5]);
        splice_entries(&mut node, 4, 0..2, &[entry(0)]);
        assert_eq!(lblks(&node), [0, 3, 5]);
        splice_entries(&mut node, 3, 3..3, &[entry(7), entry(8)]);
        assert_eq!(lblks(&node), [0, 3, 5]);
        splice_entries(&mut node, 3, 0..3, &[]);
        assert_eq!(lblks(&node), []);
    }

    #[test]
    fn room_in_root_and_block() {
        assert_eq!(max_entries(60), 4);
        assert_eq!(max_entries(4096), 340);
    }

    #[test]
    fn longest_extents_round_trip() {
        for (len, unwritten) in [(32768, false), (32767, true), (1, true), (1, false)] {
            let extent = Extent {
                lblk: Lblk(5),
                len,
                pblk: Pblk((1 << 48) - 1),
                unwritten,
            };
            assert_eq!(RawExtent::new(extent).get(), extent);
        }
    }

    #[test]
    fn overlap_is_named() {
        let a = Extent {
            lblk: Lblk(0),
            len: 4,
            pblk: Pblk(100),
            unwritten: false,
        };
        let b = Extent {
            lblk: Lblk(3),
            len: 4,
            pblk: Pblk(200),
            unwritten: false,
        };
        let node = leaf_with(&[a, b]);
        let err = ExtentNode::parse(&node, Some(Pblk(7)), Some(0)).unwrap_err();
        assert_eq!(
            err,
            Damage::ExtentOrder {
                block: Some(Pblk(7)),
                entry: 1,
                lblk: Lblk(3)
            }
        );
    }

    #[test]
    fn tail_round_trip_and_damage() {
        let a = Extent {
            lblk: Lblk(0),
            len: 4,
            pblk: Pblk(100),
            unwritten: false,
        };
        let mut node = leaf_with(&[a]);
        update_tail(&mut node, CsumSeed(1));
        assert_eq!(verify_tail(&node, Pblk(7), CsumSeed(1)), Ok(()));
        node[20] ^= 1;
        assert!(matches!(
            verify_tail(&node, Pblk(7), CsumSeed(1)),
            Err(Damage::BlockChecksum { .. })
        ));
    }
}
