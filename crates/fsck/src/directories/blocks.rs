//! The records of one block: whether they follow each other up to the end of the block, and what
//! becomes of those that do not.
//!
//! A record that cannot be is the end of what can be trusted. The next record is looked for from
//! there on, at each multiple of four bytes: one that names an inode in use, by a name that can
//! be, with the type of that inode. What lies between is joined to the record before. So a torn
//! length costs the entry that holds it at most, and not even that if its name can still be read.

use uext4_ondisk::dir_entry::{
    DIR_ENTRY_HEADER_LEN, DIR_TAIL_LEN, file_type_code, rec_len_for, tail, update_tail,
};
use uext4_ondisk::num::len32;

use super::entries::Entry;
use super::index::{Index, Role};
use super::record::{Header, RECORD_MIN, header, put_rec_len, put_unused};
use super::{At, Dir, Worker};
use crate::error::Result;
use crate::finding::Finding;
use crate::inode_map::Kind;
use crate::problem::DirectoryProblem;

impl Worker<'_, '_> {
    /// Bytes of the block that records fill. Without a checksum record where there should be one
    /// that is all of it.
    pub(super) fn records_room(&self, dir: &Dir, role: Role, at: At, bytes: &[u8]) -> usize {
        let summed = dir.seed.is_some() && at.pblk.is_some();
        if summed && role != Role::Root && tail(bytes).is_some() {
            return bytes.len().saturating_sub(DIR_TAIL_LEN);
        }
        bytes.len()
    }

    /// Examines all records of a block.
    pub(super) fn records(
        &mut self,
        dir: &Dir,
        index: &mut Index,
        role: Role,
        at: At,
        bytes: &mut [u8],
        room: usize,
    ) {
        let mut offset = 0;
        let mut before = None;
        if at.lblk.0 == 0 && at.pblk.is_some() {
            offset = self.dots(dir, at, bytes, room);
            if role == Role::Root {
                return;
            }
            // With 0 records in front there is none; else the last is `.` or `..`.
            before = match offset {
                0 => None,
                RECORD_MIN => Some(0),
                _ => Some(RECORD_MIN),
            };
        }
        while offset < room {
            let found = header(bytes, offset).filter(|h| h.fits(room.saturating_sub(offset)));
            let Some(found) = found else {
                offset = self.salvage(dir, at, bytes, room, offset, before);
                continue;
            };
            if found.ino != 0 {
                let header = found;
                self.entry(dir, index, role, Entry { at, offset, header }, bytes);
            }
            before = Some(offset);
            offset = offset.saturating_add(found.rec_len);
        }
    }

    /// Mends the damage at `offset`, and returns where the next record is.
    #[cold]
    fn salvage(
        &mut self,
        dir: &Dir,
        at: At,
        bytes: &mut [u8],
        room: usize,
        offset: usize,
        before: Option<usize>,
    ) -> usize {
        let found = header(bytes, offset);
        let len = found.map_or(0, |found| found.rec_len);
        let place = dir.place(at).offset(len32(offset));
        let finding = Finding::new(DirectoryProblem::Record, place).found(u64::from(len32(len)));
        let cause = self.state.report(finding);
        self.causes.push(cause);
        let from = offset.saturating_add(RECORD_MIN);
        let starts = (from..room).step_by(4);
        let next = starts
            .into_iter()
            .find(|&start| self.is_likely(dir, bytes, room, start))
            .unwrap_or(room);
        let gap = next.saturating_sub(offset);
        let readable = found
            .filter(|h| rec_len_for(h.name_len) <= gap && self.is_live(dir, bytes, offset, *h));
        if readable.is_some() {
            // The name can be read, the length alone is wrong. It is read again only if it is
            // right then: else this would go on for ever.
            put_rec_len(bytes, offset, gap);
            if header(bytes, offset).is_some_and(|h| h.fits(gap)) {
                return offset;
            }
        }
        match before.and_then(|before| Some((before, header(bytes, before)?))) {
            Some((before, _)) => put_rec_len(bytes, before, next.saturating_sub(before)),
            None if gap >= RECORD_MIN => put_unused(bytes, offset, gap),
            // Less than a record at the beginning: there is no block as small as that.
            None => {}
        }
        next
    }

    /// Whether a record at `start` is one that was written there.
    fn is_likely(&self, dir: &Dir, bytes: &[u8], room: usize, start: usize) -> bool {
        header(bytes, start).is_some_and(|h| {
            h.fits(room.saturating_sub(start)) && self.is_live(dir, bytes, start, h)
        })
    }

    /// Whether the name of a record can be, and its inode is in use and of its type.
    fn is_live(&self, dir: &Dir, bytes: &[u8], start: usize, h: Header) -> bool {
        let from = start.saturating_add(DIR_ENTRY_HEADER_LEN);
        let Some(name) = bytes.get(from..from.saturating_add(h.name_len)) else {
            return false;
        };
        let is_name = !name.is_empty()
            && (dir.has(uext4_ondisk::inode::InodeFlags::ENCRYPT)
                || !name.iter().any(|b| matches!(b, 0 | b'/')));
        let known = self.state.inodes.get(uext4_ondisk::Ino(h.ino));
        let is_type = match known.kind {
            Kind::File(file_type) => !dir.filetype || file_type_code(file_type) == h.code,
            _ => false,
        };
        is_name && is_type
    }

    /// Checks the checksum of a block of records, or makes it new, and hands over what changed.
    pub(super) fn end_of_block(
        &mut self,
        dir: &Dir,
        role: Role,
        at: At,
        bytes: &mut [u8],
        room: usize,
    ) -> Result<()> {
        let Some(pblk) = at.pblk else {
            return Ok(());
        };
        match dir.seed.filter(|_| role != Role::Root) {
            Some(seed) if room == bytes.len() => {
                let finding = Finding::new(DirectoryProblem::NoBlockChecksum, dir.place(at));
                let cause = self.state.report(finding);
                self.causes.push(cause);
                if make_room(bytes) {
                    update_tail(bytes, seed);
                } else {
                    self.state.tree.rebuild(dir.ino, cause);
                }
            }
            Some(seed) => {
                let right = seed.over(bytes.get(..room).unwrap_or_default());
                let stored = tail(bytes).map_or(0, |tail| tail.det_checksum.get());
                // The sum of what was changed is not worth a finding of its own.
                if stored != right && self.causes.is_empty() {
                    let finding = Finding::new(DirectoryProblem::BlockChecksum, dir.place(at));
                    let cause = self.state.report(finding.found(stored).right(right));
                    self.causes.push(cause);
                }
                if stored != right {
                    update_tail(bytes, seed);
                }
            }
            None => {}
        }
        if self.causes.is_empty() {
            return Ok(());
        }
        let overlay = self.state.volume.overlay();
        if role == Role::Root
            && let Some(seed) = dir.seed
        {
            let offset = uext4_ondisk::htree::DX_ROOT_ENTRIES_OFFSET;
            uext4_ondisk::htree::update_tail(bytes, offset, seed);
        }
        overlay.replace_for(pblk, &self.causes, bytes)
    }
}

/// Shortens the last record of a block so that a checksum record fits; false if it is too long.
fn make_room(bytes: &mut [u8]) -> bool {
    let mut offset = 0;
    loop {
        let left = bytes.len().saturating_sub(offset);
        let Some(found) = header(bytes, offset).filter(|h| h.fits(left)) else {
            return false;
        };
        let end = offset.saturating_add(found.rec_len);
        if end < bytes.len() {
            offset = end;
            continue;
        }
        let need = match found.ino {
            0 => RECORD_MIN,
            _ => rec_len_for(found.name_len),
        };
        let len = found.rec_len.saturating_sub(DIR_TAIL_LEN);
        if len >= need {
            put_rec_len(bytes, offset, len);
        }
        return len >= need;
    }
}
