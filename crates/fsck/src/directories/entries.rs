//! One entry: whether its name can be, whether its inode is one that a name may have, and whether
//! it says the type of that inode.
//!
//! `.` and `..` come first in block 0 and nowhere else. They are no entries that count: where they
//! are missing the directory is written anew, with both.

use uext4_ondisk::Ino;
use uext4_ondisk::dir_entry::{DIR_ENTRY_HEADER_LEN, file_type_code};
use uext4_ondisk::inode::{FileType, InodeFlags};
use uext4_ondisk::num::len32;

use super::encrypted::{Child, ENCRYPTED_NAME_MIN};
use super::index::{Index, Role};
use super::record::{Header, RECORD_MIN, header, put_ino, put_rec_len, put_unused};
use super::{At, Dir, Worker};
use crate::finding::Finding;
use crate::inode_map::{Kind, Known};
use crate::problem::DirectoryProblem;
use crate::report::Cause;

/// Offset of the type byte in a record.
const CODE_OFFSET: usize = 7;

/// A record of a block under examination.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub at: At,
    pub offset: usize,
    pub header: Header,
}

impl Entry {
    fn name<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        let from = self.offset.saturating_add(DIR_ENTRY_HEADER_LEN);
        let name = bytes.get(from..from.saturating_add(self.header.name_len));
        name.unwrap_or_default()
    }

    fn name_mut<'b>(&self, bytes: &'b mut [u8]) -> &'b mut [u8] {
        let from = self.offset.saturating_add(DIR_ENTRY_HEADER_LEN);
        let name = bytes.get_mut(from..from.saturating_add(self.header.name_len));
        name.unwrap_or_default()
    }
}

/// Whether a name is that of the directory itself or of its parent.
pub fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

impl Worker<'_, '_> {
    /// Reports a problem of an entry of the block in the buffer, which its remedy changes.
    #[cold]
    pub(super) fn report_entry(
        &mut self,
        dir: &Dir,
        entry: &Entry,
        bytes: &[u8],
        problem: DirectoryProblem,
        numbers: impl FnOnce(Finding) -> Finding,
    ) -> Cause {
        let place = dir.place(entry.at).offset(len32(entry.offset));
        let place = place.name(entry.name(bytes));
        let cause = self.state.report(numbers(Finding::new(problem, place)));
        self.causes.push(cause);
        cause
    }

    /// Reports an entry that cannot stay, and makes its record unused.
    #[cold]
    fn remove(&mut self, dir: &Dir, entry: &Entry, bytes: &mut [u8], problem: DirectoryProblem) {
        let number = match problem {
            DirectoryProblem::ShortEncryptedName => len32(entry.header.name_len),
            _ => entry.header.ino,
        };
        self.report_entry(dir, entry, bytes, problem, |finding| finding.found(number));
        put_ino(bytes, entry.offset, 0);
    }

    /// Examines `.` and `..`, and returns where the records behind them begin: with 0 or the
    /// second record if they are not there.
    pub(super) fn dots(&mut self, dir: &Dir, at: At, bytes: &mut [u8], room: usize) -> usize {
        if !self.dot(dir, at, bytes, room) {
            return self.lost_dots(dir, at, DirectoryProblem::DotMissing, 0);
        }
        let offset = RECORD_MIN;
        let found = header(bytes, offset).filter(|h| h.fits(room.saturating_sub(offset)));
        let entry = found.map(|header| Entry { at, offset, header });
        let Some(entry) = entry.filter(|entry| entry.name(bytes) == b"..") else {
            return self.lost_dots(dir, at, DirectoryProblem::DotDotMissing, offset);
        };
        self.state.tree.note_dotdot(dir.at, Ino(entry.header.ino));
        self.terminator(dir, &entry, bytes);
        self.file_type(dir, &entry, bytes, FileType::Directory);
        offset.saturating_add(entry.header.rec_len)
    }

    /// Examines `.`; false if the first record is something else.
    fn dot(&mut self, dir: &Dir, at: At, bytes: &mut [u8], room: usize) -> bool {
        let Some(header) = header(bytes, 0).filter(|h| h.fits(room)) else {
            return false;
        };
        let offset = 0;
        let mut entry = Entry { at, offset, header };
        if entry.name(bytes) != b"." {
            return false;
        }
        if header.ino != dir.ino.0 {
            let (found, right) = (header.ino, dir.ino.0);
            let numbers = |finding: Finding| finding.found(found).right(right);
            self.report_entry(dir, &entry, bytes, DirectoryProblem::DotInode, numbers);
            put_ino(bytes, 0, right);
        }
        if header.rec_len > RECORD_MIN {
            let rest = header.rec_len - RECORD_MIN;
            let number = u64::from(len32(header.rec_len));
            let numbers = |finding: Finding| finding.found(number);
            self.report_entry(dir, &entry, bytes, DirectoryProblem::DotTooBig, numbers);
            put_rec_len(bytes, 0, RECORD_MIN);
            entry.header.rec_len = RECORD_MIN;
            split(bytes, RECORD_MIN, rest, room);
        }
        self.terminator(dir, &entry, bytes);
        self.file_type(dir, &entry, bytes, FileType::Directory);
        true
    }

    #[cold]
    fn lost_dots(&mut self, dir: &Dir, at: At, problem: DirectoryProblem, next: usize) -> usize {
        let cause = self.state.report(Finding::new(problem, dir.place(at)));
        self.state.tree.rebuild(dir.ino, cause);
        self.dots_lost = true;
        next
    }

    /// Old readers compare the names of both with strings that end with a zero byte.
    fn terminator(&mut self, dir: &Dir, entry: &Entry, bytes: &mut [u8]) {
        let end = entry
            .offset
            .saturating_add(DIR_ENTRY_HEADER_LEN + entry.header.name_len);
        if bytes.get(end).is_some_and(|&byte| byte != 0) {
            let problem = DirectoryProblem::DotTerminator;
            self.report_entry(dir, entry, bytes, problem, |finding| finding);
            let to = entry.offset.saturating_add(RECORD_MIN);
            bytes.get_mut(end..to).unwrap_or_default().fill(0);
        }
    }

    /// Compares the type that a record says with that of its inode.
    fn file_type(&mut self, dir: &Dir, entry: &Entry, bytes: &mut [u8], file_type: FileType) {
        let right = match dir.filetype {
            true => file_type_code(file_type),
            false => 0,
        };
        let found = entry.header.code;
        if found == right {
            return;
        }
        let problem = match (dir.filetype, found) {
            (false, _) => DirectoryProblem::FileTypeWithoutFeature,
            (true, 0) => DirectoryProblem::FileTypeUnset,
            (true, _) => DirectoryProblem::FileType,
        };
        let numbers = |finding: Finding| finding.found(found).right(right);
        self.report_entry(dir, entry, bytes, problem, numbers);
        if let Some(place) = bytes.get_mut(entry.offset.saturating_add(CODE_OFFSET)) {
            *place = right;
        }
    }

    /// Examines a record in use, and counts its link if it stays.
    pub(super) fn entry(
        &mut self,
        dir: &Dir,
        index: &mut Index,
        role: Role,
        entry: Entry,
        bytes: &mut [u8],
    ) {
        let Header { ino, name_len, .. } = entry.header;
        let name = entry.name(bytes);
        if is_dot(name) {
            if !self.dots_lost {
                return self.remove(dir, &entry, bytes, DirectoryProblem::DotTwice);
            }
            if name.len() == 2 {
                self.state.tree.note_dotdot(dir.at, Ino(ino));
            }
            return;
        }
        let known = self.state.inodes.get(Ino(ino));
        let file_type = match self.fault(dir, &entry, known) {
            Ok(file_type) => file_type,
            Err(problem) => return self.remove(dir, &entry, bytes, problem),
        };
        self.file_type(dir, &entry, bytes, file_type);
        let is_mended = self.mend_name(dir, index, &entry, bytes);
        let from = entry.offset.saturating_add(DIR_ENTRY_HEADER_LEN);
        let end = entry.offset.saturating_add(entry.header.rec_len);
        let body = bytes.get(from..end).unwrap_or_default();
        let (name, suffix) = body.split_at_checked(name_len).unwrap_or_default();
        let key = index.key(dir, name, suffix);
        self.keys.push(key.key);
        if let (Some(hash), false) = (key.hash, is_mended) {
            index.check(self.state, dir, role, entry.at, hash);
        }
        self.state.inodes.count_link(Ino(ino));
        if file_type == FileType::Directory
            && let Some(at) = self.state.directories.position(Ino(ino))
        {
            self.state.tree.note_parent(at, Ino(ino), dir.ino);
        }
        if dir.has(InodeFlags::ENCRYPT) {
            self.children.push(Child::new(Ino(ino), file_type));
        }
    }

    /// The type of the inode that an entry names, or why there must be no such entry.
    #[inline]
    fn fault(&self, dir: &Dir, entry: &Entry, known: Known) -> Checked<FileType> {
        let Header { ino, name_len, .. } = entry.header;
        let geometry = self.state.geometry();
        if name_len == 0 {
            return Err(DirectoryProblem::EmptyName);
        }
        if ino == dir.ino.0 {
            return Err(DirectoryProblem::LinkToSelf);
        }
        if ino == Ino::ROOT.0 && known.kind != Kind::Unused {
            return Err(DirectoryProblem::LinkToRoot);
        }
        if ino < geometry.first_ino {
            return Err(DirectoryProblem::ReservedInode);
        }
        if dir.has(InodeFlags::ENCRYPT) && name_len < ENCRYPTED_NAME_MIN {
            return Err(DirectoryProblem::ShortEncryptedName);
        }
        match known.kind {
            Kind::File(_) if known.is_ea_inode && self.is_value(Ino(ino)) => {
                Err(DirectoryProblem::EaInode)
            }
            Kind::File(file_type) => Ok(file_type),
            Kind::Reserved if self.is_named_journal(Ino(ino)) => Ok(FileType::Regular),
            Kind::Reserved => Err(DirectoryProblem::ReservedInode),
            Kind::Unused if ino > geometry.inodes_count => Err(DirectoryProblem::NoSuchInode),
            Kind::Unused => Err(DirectoryProblem::UnusedInode),
        }
    }

    /// Whether an inode is the journal's: added to a file system that was mounted, it has a name.
    #[cold]
    fn is_named_journal(&self, ino: Ino) -> bool {
        self.state.volume.superblock().s_journal_inum.get() == ino.0
    }

    /// Whether an attribute has its value in an inode that is marked for it. If none has, the mark
    /// is wrong, not the name.
    #[cold]
    fn is_value(&self, ino: Ino) -> bool {
        self.state.ea_inodes.lock().contains_key(&ino)
    }

    /// Replaces the bytes of a name that no name may have; true if there were any.
    #[inline]
    fn mend_name(&mut self, dir: &Dir, index: &mut Index, entry: &Entry, bytes: &mut [u8]) -> bool {
        let name = entry.name(bytes);
        if dir.has(InodeFlags::ENCRYPT) {
            return false;
        }
        let is_legal = !name.iter().any(|byte| matches!(byte, 0 | b'/'));
        if is_legal && (!dir.strict || std::str::from_utf8(name).is_ok()) {
            return false;
        }
        self.mend_illegal(dir, index, entry, bytes, is_legal);
        true
    }

    #[cold]
    fn mend_illegal(
        &mut self,
        dir: &Dir,
        index: &Index,
        entry: &Entry,
        bytes: &mut [u8],
        is_legal: bool,
    ) {
        let problem = match is_legal {
            false => DirectoryProblem::IllegalName,
            true => DirectoryProblem::BadEncoding,
        };
        let cause = self.report_entry(dir, entry, bytes, problem, |finding| finding);
        let name = entry.name_mut(bytes);
        for byte in name.iter_mut().filter(|byte| matches!(byte, 0 | b'/')) {
            *byte = b'.';
        }
        while dir.strict
            && let Err(error) = std::str::from_utf8(name)
        {
            match name.get_mut(error.valid_up_to()) {
                Some(byte) => *byte = b'.',
                None => break,
            }
        }
        if is_dot(name) {
            name.fill(b'_');
        }
        // The new name has another hash.
        if index.is_there() {
            self.state.tree.rebuild(dir.ino, cause);
        }
    }
}

/// What an entry can be, or what is wrong with it.
type Checked<T> = Result<T, DirectoryProblem>;

/// Makes a record of the `rest` bytes at `offset` that were the end of the record before it: `..`
/// if it stands there, as long as it says if that leads to another record or to the end of the
/// room. A `..` right behind them comes forward.
fn split(bytes: &mut [u8], offset: usize, rest: usize, room: usize) {
    let is_dotdot = |bytes: &[u8], at: usize| {
        let found = header(bytes, at).filter(|h| h.name_len == 2 && h.ino != 0);
        let name = bytes.get(at.saturating_add(DIR_ENTRY_HEADER_LEN)..);
        found.filter(|_| name.is_some_and(|name| name.starts_with(b"..")))
    };
    if let Some(found) = is_dotdot(bytes, offset) {
        let left = room.saturating_sub(offset);
        let next = offset.saturating_add(found.rec_len);
        let leads = |h: Header| h.fits(room.saturating_sub(next));
        let is_whole = found.fits(left) && (next == room || header(bytes, next).is_some_and(leads));
        put_rec_len(bytes, offset, if is_whole { found.rec_len } else { rest });
        return;
    }
    let behind = offset.saturating_add(rest);
    match is_dotdot(bytes, behind).filter(|h| h.fits(room.saturating_sub(behind))) {
        Some(found) => {
            bytes.copy_within(behind..behind.saturating_add(RECORD_MIN), offset);
            put_rec_len(bytes, offset, found.rec_len.saturating_add(rest));
        }
        // Too short for a record: what is there goes with `.` missing.
        None if rest < RECORD_MIN => {}
        None => put_unused(bytes, offset, rest),
    }
}
