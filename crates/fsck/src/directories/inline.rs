//! Directories within their inodes: the parent and records in `i_block`, further records in the
//! value of `system.data`. There are no `.`, `..`, checksums or indexes.

use uext4_ondisk::dir_block::{INLINE_PARENT_LEN, inline_parent};
use uext4_ondisk::extent::empty_extent_root;
use uext4_ondisk::features::Incompat;
use uext4_ondisk::inode::{GOOD_OLD_INODE_SIZE, I_BLOCK_LEN, InodeFlags, RawInode};
use uext4_ondisk::num::len32;
use uext4_ondisk::xattr::{
    INDEX_SYSTEM, INLINE_DATA_NAME, XATTR_ENTRY_LEN, XATTR_IBODY_HEADER_LEN, XattrEntry,
    XattrPlace, XattrValue, entry_len, pack_body, parse_disjoint_entries, parse_entries,
};
use uext4_ondisk::{Ino, Lblk};

use super::index::{Index, Role};
use super::record::RECORD_MIN;
use super::{At, Dir, Worker};
use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::problem::DirectoryProblem;
use crate::report::Cause;
use crate::state::State;

/// Offset of `i_block` in an inode.
const I_BLOCK_OFFSET: usize = 40;

/// The records of a directory within its inode.
#[derive(Clone, Debug)]
pub struct InlineRecords {
    /// What `..` is.
    pub parent: Ino,
    /// The records in `i_block` and in the attribute.
    pub regions: [Vec<u8>; 2],
    /// Where the regions begin in the inode.
    starts: [usize; 2],
    /// Where the hash of the attribute is.
    hash: Option<usize>,
}

impl InlineRecords {
    /// Reads them; `None` if the inode cannot be read as one.
    ///
    /// # Errors
    /// Of the device and of the overlay.
    pub fn read(state: &State<'_>, ino: Ino) -> Result<Option<Self>> {
        let Some(bytes) = state.volume.read_inode(ino)? else {
            return Ok(None);
        };
        let Ok(raw) = RawInode::parse(&bytes, ino) else {
            return Ok(None);
        };
        let list = list_start(&bytes);
        let region = bytes.get(list..).unwrap_or_default();
        let value = parse_entries(region, 0, XattrPlace::Inode(ino))
            .ok()
            .and_then(|entries| entries.iter().find_map(inline_value));
        let start = value.map_or(bytes.len(), |value| {
            // The value is a part of the inode's bytes.
            (value.as_ptr() as usize).saturating_sub(bytes.as_ptr() as usize)
        });
        Ok(Some(Self {
            parent: inline_parent(&raw.i_block),
            regions: [
                raw.i_block
                    .get(INLINE_PARENT_LEN..)
                    .unwrap_or_default()
                    .to_vec(),
                value.unwrap_or_default().to_vec(),
            ],
            starts: [I_BLOCK_OFFSET + INLINE_PARENT_LEN, start],
            hash: hash_place(&bytes, list),
        }))
    }

    /// Stores how long the value of the attribute is, and the size of the directory.
    fn store_length(&self, state: &State<'_>, ino: Ino, cause: Cause) -> Result<()> {
        let len = len32(self.regions[1].len());
        state.volume.update_inode(ino, cause, |bytes| {
            // The hash stands behind the length.
            let place = self.hash.and_then(|at| bytes.get_mut(at.checked_sub(4)?..));
            if let Some(place) = place.and_then(|rest| rest.first_chunk_mut::<4>()) {
                *place = len.to_le_bytes();
            }
            if let Ok(mut raw) = RawInode::parse(bytes, ino) {
                raw.i_size_lo = len32(I_BLOCK_LEN).saturating_add(len).into();
                raw.store(bytes);
            }
        })
    }

    /// Writes the records back.
    ///
    /// # Errors
    /// Of the device and of the overlay.
    pub fn store(&self, state: &State<'_>, ino: Ino, cause: Cause) -> Result<()> {
        state.volume.update_inode(ino, cause, |bytes| {
            let mut put = |start: usize, new: &[u8]| {
                let end = start.saturating_add(new.len());
                match bytes.get_mut(start..end) {
                    Some(place) if place != new => {
                        place.copy_from_slice(new);
                        true
                    }
                    _ => false,
                }
            };
            let [first, second] = &self.regions;
            let [at, value] = self.starts;
            put(at, first);
            put(I_BLOCK_OFFSET, &self.parent.0.to_le_bytes());
            // No hash is better than one of another value: readers skip it then.
            if put(value, second)
                && let Some(at) = self.hash
            {
                put(at, &[0; 4]);
            }
        })
    }
}

/// Makes an inode with data within one that maps no blocks.
///
/// # Errors
/// Of the device and of the overlay.
pub fn clear(state: &State<'_>, ino: Ino, cause: Cause) -> Result<()> {
    let has_extents = state
        .geometry()
        .features
        .incompat
        .contains(Incompat::EXTENTS);
    state.volume.update_inode(ino, cause, |bytes| {
        drop_value(bytes, ino);
        let Ok(mut raw) = RawInode::parse(bytes, ino) else {
            return;
        };
        let mut flags = InodeFlags::from_bits_retain(raw.i_flags.get());
        flags.remove(InodeFlags::INLINE_DATA);
        raw.i_block = [0; I_BLOCK_LEN];
        if has_extents {
            flags |= InodeFlags::EXTENTS;
            raw.i_block = empty_extent_root();
        }
        raw.i_flags = flags.bits().into();
        raw.store(bytes);
    })
}

/// Takes the attribute `system.data` away.
fn drop_value(bytes: &mut [u8], ino: Ino) {
    let list = list_start(bytes);
    let Some(region) = bytes.get_mut(list.saturating_sub(XATTR_IBODY_HEADER_LEN)..) else {
        return;
    };
    let before = region.to_vec();
    let entries = before.get(XATTR_IBODY_HEADER_LEN..).unwrap_or_default();
    if let Ok(mut entries) = parse_disjoint_entries(entries, 0, XattrPlace::Inode(ino)) {
        entries.retain(|entry| inline_value(entry).is_none());
        // What is left of a list that fitted fits.
        let _ = pack_body(region, &entries);
    }
}

/// Where the entries of the attributes in an inode begin.
fn list_start(bytes: &[u8]) -> usize {
    let extra = bytes
        .get(GOOD_OLD_INODE_SIZE..)
        .and_then(|rest| rest.first_chunk::<2>())
        .map_or(0, |extra| u16::from_le_bytes(*extra));
    GOOD_OLD_INODE_SIZE + usize::from(extra) + XATTR_IBODY_HEADER_LEN
}

/// Where the hash of the attribute `system.data` is in an inode whose attributes were parsed.
fn hash_place(bytes: &[u8], list: usize) -> Option<usize> {
    let mut at = list;
    loop {
        let raw = bytes.get(at..)?.first_chunk::<XATTR_ENTRY_LEN>()?;
        let (name_len, index) = (usize::from(raw[0]), raw[1]);
        if raw.starts_with(&[0; 4]) {
            return None;
        }
        let name = at.saturating_add(XATTR_ENTRY_LEN);
        let name = bytes.get(name..name.saturating_add(name_len))?;
        if index == INDEX_SYSTEM && name == INLINE_DATA_NAME {
            return Some(at.saturating_add(XATTR_ENTRY_LEN - 4));
        }
        at = at.saturating_add(entry_len(name_len));
    }
}

fn inline_value<'a>(entry: &XattrEntry<'a>) -> Option<&'a [u8]> {
    match entry.value {
        XattrValue::Here(value) if entry.index == INDEX_SYSTEM => {
            (entry.name == INLINE_DATA_NAME).then_some(value)
        }
        _ => None,
    }
}

impl Worker<'_, '_> {
    /// Examines a directory within its inode.
    pub(super) fn inline(&mut self, dir: &Dir, index: &mut Index) -> Result<()> {
        let Some(mut inline) = InlineRecords::read(self.state, dir.ino)? else {
            return Ok(());
        };
        self.state.tree.note_dotdot(dir.at, inline.parent);
        self.causes.clear();
        if dir.has(InodeFlags::INDEX) {
            self.no_index(dir)?;
        }
        let at = At {
            lblk: Lblk(0),
            pblk: None,
        };
        let len = inline.regions[1].len();
        // Records have lengths that are multiples of four; what is behind them is no record.
        let records = len & !3;
        if len != records {
            let place = Place::inode(dir.ino);
            let finding = Finding::new(DirectoryProblem::InlineRecord, place);
            let cause = self
                .state
                .report(finding.found(len as u64).right(records as u64));
            self.causes.push(cause);
            inline.regions[1].truncate(records);
            inline.store_length(self.state, dir.ino, cause)?;
        }
        for region in &mut inline.regions {
            let room = region.len();
            if room >= RECORD_MIN {
                self.records(dir, index, Role::Names, at, region, room);
            }
        }
        match self.causes.first() {
            Some(&cause) => inline.store(self.state, dir.ino, cause),
            None => Ok(()),
        }
    }

    /// An index has blocks.
    fn no_index(&mut self, dir: &Dir) -> Result<()> {
        let finding = Finding::new(DirectoryProblem::IndexFlag, Place::inode(dir.ino));
        let cause = self.state.report(finding);
        self.state.volume.update_raw_inode(dir.ino, cause, |raw| {
            let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
            raw.i_flags = flags.difference(InodeFlags::INDEX).bits().into();
        })
    }
}
