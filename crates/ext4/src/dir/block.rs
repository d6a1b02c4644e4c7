//! The records of one block of a directory: finding a name, and changing them in place.
//!
//! Everything here works on bytes. Records fill the block up to its *room*: the whole of it, or what
//! the checksum leaves. A search walks unused records too, as they are the room that is free.

use std::ops::ControlFlow;

use uext4_ondisk::dir_entry::{
    DIR_ENTRY_HEADER_LEN, DIR_TAIL_LEN, DirEntryHeader, decode_rec_len, encode_rec_len,
    file_type_code, file_type_from_code, put, put_tail, rec_len_for,
};
use uext4_ondisk::features::Incompat;
use uext4_ondisk::inode::FileType;
use uext4_ondisk::{Damage, Ino, Pblk};
use zerocopy::FromBytes;

use crate::journal::sbi::Sbi;

/// A name to be put into a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewEntry<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) ino: Ino,
    /// `None` on a file system whose records tell no types.
    pub(crate) file_type: Option<FileType>,
}

/// A record as it lies there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) offset: usize,
    pub(crate) rec_len: usize,
    /// 0: unused.
    pub(crate) ino: Ino,
    pub(crate) name: &'a [u8],
    /// Its type byte.
    code: u8,
}

/// Where a name was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) ino: Ino,
    pub(crate) offset: usize,
    /// Offset of the record before it, unless it is the first.
    before: Option<usize>,
}

/// What a search for a place finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    /// The name is there already.
    Exists,
    /// The record at this offset has room.
    Room(usize),
    Full,
}

/// Bytes of a block that records fill.
pub(crate) fn room(sbi: &Sbi) -> usize {
    let summed = sbi.geometry().csum_seed.is_some();
    sbi.block_len() - if summed { DIR_TAIL_LEN } else { 0 }
}

/// Goes over the records in the first `room` bytes of a block until `f` breaks.
#[inline]
pub(crate) fn walk<'a, B>(
    bytes: &'a [u8],
    at: impl Into<Option<Pblk>>,
    room: usize,
    mut f: impl FnMut(Record<'a>) -> ControlFlow<B>,
) -> Result<Option<B>, Damage> {
    let (at, block_len) = (at.into(), bytes.len());
    let mut rest = bytes.get(..room).unwrap_or(bytes);
    let end = rest.len();
    while !rest.is_empty() {
        let offset = end - rest.len();
        let Ok((header, body)) = DirEntryHeader::ref_from_prefix(rest) else {
            return Err(bad(at, offset, rest.len(), "record header past the end"));
        };
        let rec_len = decode_rec_len(header.rec_len.get(), block_len);
        let name_len = usize::from(header.name_len);
        let ino = Ino(header.inode.get());
        let shortest = rec_len_for(1).min(rest.len());
        if rec_len < shortest.max(DIR_ENTRY_HEADER_LEN) || !rec_len.is_multiple_of(4) {
            return Err(bad(at, offset, rec_len, "length of no record"));
        }
        let used = ino.0 != 0;
        let (Some(after), Some(name)) = (rest.get(rec_len..), body.get(..name_len)) else {
            return Err(bad(at, offset, rec_len, "record past the end of the block"));
        };
        if used && (name_len == 0 || DIR_ENTRY_HEADER_LEN + name_len > rec_len) {
            return Err(bad(at, offset, rec_len, "name does not fit its record"));
        }
        let record = Record {
            offset,
            rec_len,
            ino,
            name: if used { name } else { &[] },
            code: header.file_type,
        };
        if let ControlFlow::Break(found) = f(record) {
            return Ok(Some(found));
        }
        rest = after;
    }
    Ok(None)
}

#[cold]
fn bad(at: Option<Pblk>, offset: usize, rec_len: usize, why: &'static str) -> Damage {
    Damage::DirEntry {
        block: at,
        offset: offset as u32,
        why,
        rec_len: rec_len as u32,
    }
}

/// What a record tells of a file's type: nothing without `filetype`.
pub(crate) fn file_type(sbi: &Sbi, file_type: FileType) -> Option<FileType> {
    let incompat = sbi.geometry().features.incompat;
    incompat.contains(Incompat::FILETYPE).then_some(file_type)
}

impl<'a> Record<'a> {
    /// What it says; it is in use.
    pub(crate) fn entry(&self) -> NewEntry<'a> {
        NewEntry {
            name: self.name,
            ino: self.ino,
            file_type: file_type_from_code(self.code),
        }
    }

    /// Whether it has this name. Names of one directory often differ at their end alone.
    fn is(&self, name: &[u8]) -> bool {
        self.name.len() == name.len() && self.name.last() == name.last() && self.name == name
    }

    /// Bytes that a new record could have of it.
    fn free(&self) -> usize {
        match self.ino.0 {
            0 => self.rec_len,
            _ => self.rec_len - rec_len_for(self.name.len()).min(self.rec_len),
        }
    }
}

/// Looks for a name.
pub(crate) fn find(
    bytes: &[u8],
    at: impl Into<Option<Pblk>>,
    room: usize,
    name: &[u8],
) -> Result<Option<Found>, Damage> {
    let mut before = None;
    walk(bytes, at, room, |record| {
        if record.is(name) && record.ino.0 != 0 {
            return ControlFlow::Break(Found {
                ino: record.ino,
                offset: record.offset,
                before,
            });
        }
        before = Some(record.offset);
        ControlFlow::Continue(())
    })
}

/// Looks for room for a name, and whether it is there already.
pub(crate) fn scan(
    bytes: &[u8],
    at: impl Into<Option<Pblk>>,
    room: usize,
    name: &[u8],
) -> Result<Spot, Damage> {
    let need = rec_len_for(name.len());
    let mut spot = Spot::Full;
    let exists = walk(bytes, at, room, |record| {
        if record.is(name) {
            return ControlFlow::Break(());
        }
        if spot == Spot::Full && record.free() >= need {
            spot = Spot::Room(record.offset);
        }
        ControlFlow::Continue(())
    })?;
    Ok(exists.map_or(spot, |()| Spot::Exists))
}

fn header_mut(bytes: &mut [u8], offset: usize) -> Option<&mut DirEntryHeader> {
    let (header, _) = DirEntryHeader::mut_from_prefix(bytes.get_mut(offset..)?).ok()?;
    Some(header)
}

/// Puts a name where [`scan`] has found room.
pub(crate) fn insert(bytes: &mut [u8], offset: usize, new: &NewEntry<'_>) {
    let block_len = bytes.len();
    let Some(header) = header_mut(bytes, offset) else {
        return;
    };
    let rec_len = decode_rec_len(header.rec_len.get(), block_len);
    let used = match header.inode.get() {
        0 => 0,
        _ => rec_len_for(header.name_len.into()),
    };
    if used > 0 {
        header.rec_len = encode_rec_len(used, block_len).into();
    }
    put_entry(bytes, offset + used, rec_len - used, new);
}

/// Writes a record of `rec_len` bytes.
pub(crate) fn put_entry(bytes: &mut [u8], offset: usize, rec_len: usize, new: &NewEntry<'_>) {
    put(bytes, offset, rec_len, new.ino, new.name, new.file_type);
}

/// Takes a name out that [`find`] has found: its bytes go to the record before it.
pub(crate) fn remove(bytes: &mut [u8], found: &Found) {
    let block_len = bytes.len();
    let Some(header) = header_mut(bytes, found.offset) else {
        return;
    };
    let len = decode_rec_len(header.rec_len.get(), block_len);
    header.inode = 0.into();
    match found.before.and_then(|at| header_mut(bytes, at)) {
        None => {
            let name = found.offset + DIR_ENTRY_HEADER_LEN;
            wipe(bytes, name, found.offset + len);
            if let Some(header) = header_mut(bytes, found.offset) {
                (header.name_len, header.file_type) = (0, 0);
            }
        }
        Some(before) => {
            let whole = decode_rec_len(before.rec_len.get(), block_len) + len;
            before.rec_len = encode_rec_len(whole, block_len).into();
            wipe(bytes, found.offset, found.offset + len);
        }
    }
}

/// So that names which are gone cannot be read off the device.
fn wipe(bytes: &mut [u8], from: usize, to: usize) {
    if let Some(bytes) = bytes.get_mut(from..to) {
        bytes.fill(0);
    }
}

/// Gives the name that [`find`] has found another inode.
pub(crate) fn replace(bytes: &mut [u8], found: &Found, ino: Ino, file_type: Option<FileType>) {
    if let Some(header) = header_mut(bytes, found.offset) {
        header.inode = ino.0.into();
        header.file_type = file_type.map_or(0, file_type_code);
    }
}

/// Writes a new block of records, each as long as it must be and the last up to `room`; `bytes` has
/// room for them all. The checksum's place is made.
pub(crate) fn fill<'a>(bytes: &mut [u8], room: usize, records: impl Iterator<Item = NewEntry<'a>>) {
    let (mut at, mut last) = (0, None);
    for record in records {
        let len = rec_len_for(record.name.len());
        put_entry(bytes, at, len, &record);
        wipe(
            bytes,
            at + DIR_ENTRY_HEADER_LEN + record.name.len(),
            at + len,
        );
        last = Some(at);
        at += len;
    }
    wipe(bytes, at, room);
    stretch(bytes, last.unwrap_or(0), room);
}

/// Lets the last record of a block reach up to `room`, and makes the checksum's place.
pub(crate) fn stretch(bytes: &mut [u8], last: usize, room: usize) {
    let block_len = bytes.len();
    if let Some(header) = header_mut(bytes, last) {
        header.rec_len = encode_rec_len(room - last, block_len).into();
    }
    if room < block_len {
        put_tail(bytes, 0);
    }
}
