//! The attributes of one file in both trees.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use uext4_ondisk::Pblk;
use uext4_ondisk::inode::{GOOD_OLD_INODE_SIZE, InodeFlags, RawInode};
use uext4_ondisk::xattr::{
    EXT4_XATTR_MAGIC, INDEX_SYSTEM, INLINE_DATA_NAME, XATTR_BLOCK_HEADER_LEN, XattrPlace,
    XattrValue, parse_entries,
};

use super::pair::Pair;
use crate::error::Result;
use crate::state::State;

/// Flags that say how contents are stored: they are no attributes.
const STORED: InodeFlags = InodeFlags::EXTENTS
    .union(InodeFlags::INLINE_DATA)
    .union(InodeFlags::INDEX)
    .union(InodeFlags::HUGE_FILE)
    .union(InodeFlags::EA_INODE);

/// Whether any attribute of a file is not there any more, or another.
pub(super) fn are_lost(before: &State<'_>, after: &State<'_>, pair: &Pair<'_>) -> Result<bool> {
    if fields(&pair.was) != fields(&pair.is) {
        return Ok(true);
    }
    let flags = |raw: &RawInode| InodeFlags::from_bits_retain(raw.i_flags.get());
    let lost = flags(&pair.was)
        .difference(flags(&pair.is))
        .difference(STORED);
    if !lost.is_empty() {
        return Ok(true);
    }
    let was = extended(before, &pair.was, pair.was_bytes)?;
    let is = extended(after, &pair.is, pair.is_bytes)?;
    Ok(!was.is_subset(&is))
}

/// Permissions, owner, project and times.
fn fields(raw: &RawInode) -> [u64; 9] {
    let join = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    [
        u64::from(raw.i_mode.get() & 0o7777),
        join(raw.i_uid.get().into(), raw.i_uid_high.get().into()),
        join(raw.i_gid.get().into(), raw.i_gid_high.get().into()),
        raw.i_projid.get().into(),
        join(raw.i_atime.get(), raw.i_atime_extra.get()),
        join(raw.i_mtime.get(), raw.i_mtime_extra.get()),
        join(raw.i_ctime.get(), raw.i_ctime_extra.get()),
        join(raw.i_crtime.get(), raw.i_crtime_extra.get()),
        raw.i_generation.get().into(),
    ]
}

/// The block of extended attributes; 0 is none.
pub(super) fn block_of(raw: &RawInode) -> u64 {
    u64::from(raw.i_file_acl_high.get()) << 32 | u64::from(raw.i_file_acl_lo.get())
}

/// A key for each extended attribute that can be read, with its value.
fn extended(state: &State<'_>, raw: &RawInode, bytes: &[u8]) -> Result<BTreeSet<u64>> {
    let mut keys = BTreeSet::new();
    let start = GOOD_OLD_INODE_SIZE.saturating_add(raw.i_extra_isize.get().into());
    let body = bytes.get(start..).and_then(<[u8]>::split_first_chunk::<4>);
    if let Some((magic, body)) = body
        && raw.i_extra_isize.get() != 0
        && u32::from_le_bytes(*magic) == EXT4_XATTR_MAGIC
    {
        add(&mut keys, body, 0);
    }
    let block = Pblk(block_of(raw));
    let geometry = state.geometry();
    if block.0 != 0 && geometry.contains(block, 1) {
        let mut bytes = vec![0; geometry.block_size.len()];
        state.volume.overlay().read_block(block, &mut bytes)?;
        if bytes.starts_with(&EXT4_XATTR_MAGIC.to_le_bytes()) {
            add(&mut keys, &bytes, XATTR_BLOCK_HEADER_LEN);
        }
    }
    Ok(keys)
}

/// Adds the attributes of a list. No reader takes one with damage.
fn add(keys: &mut BTreeSet<u64>, region: &[u8], first: usize) {
    let entries = parse_entries(region, first, XattrPlace::Block(Pblk(0)));
    for entry in entries.into_iter().flatten() {
        if entry.index == INDEX_SYSTEM && entry.name == INLINE_DATA_NAME {
            continue;
        }
        let mut hasher = DefaultHasher::new();
        (entry.index, entry.name).hash(&mut hasher);
        match entry.value {
            XattrValue::Here(value) => value.hash(&mut hasher),
            XattrValue::Inode { ino, size } => (ino, size).hash(&mut hasher),
        }
        keys.insert(hasher.finish());
    }
}
