//! The records of one block of a directory: finding a name, changing records in place, and blocks
//! made anew.
//!
//! Records fill the block up to its *room*: the whole of it, or what the checksum leaves. A search
//! walks unused records too, as they are the room that is free. The region of records of a
//! directory within its inode is a block without a checksum here.

use std::ops::ControlFlow;

use zerocopy::FromBytes;

use crate::checksum::le32;
use crate::damage::Damage;
use crate::dir_entry::{
    DIR_ENTRY_HEADER_LEN, DIR_TAIL_LEN, DirEntryHeader, decode_rec_len, encode_rec_len,
    file_type_code, file_type_from_code, put, put_tail, rec_len_for,
};
use crate::features::Incompat;
use crate::geometry::Geometry;
use crate::inode::{FileType, I_BLOCK_LEN};
use crate::num::{len32, len64};
use crate::units::{Ino, Pblk};

/// Bytes of the "." and ".." records.
pub const DOTS_LEN: usize = rec_len_for(1) + rec_len_for(2);
/// Bytes before the records in a directory that lies within its inode: the inode that ".." names.
pub const INLINE_PARENT_LEN: usize = 4;
/// Largest directory without `large_dir`, in bytes: its size has 31 bits.
const SIZE_MAX: u64 = (1 << 31) - 1;
/// Logical blocks that an htree entry can name.
const BLOCKS_MAX: u64 = 1 << 28;

/// How directories are laid out in one file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirFormat {
    /// Bytes of a block.
    pub(crate) block_len: usize,
    /// Blocks end with a checksum.
    pub(crate) summed: bool,
    /// Records hold the type of the inode they name.
    filetype: bool,
    /// Directories may be larger than 2 GiB, and their htrees one level deeper.
    large_dir: bool,
}

impl DirFormat {
    /// Of this file system.
    #[inline]
    pub fn new(geometry: &Geometry) -> Self {
        let incompat = geometry.features.incompat;
        Self {
            block_len: geometry.block_size.len(),
            summed: geometry.csum_seed.is_some(),
            filetype: incompat.contains(Incompat::FILETYPE),
            large_dir: incompat.contains(Incompat::LARGEDIR),
        }
    }

    /// Of the records in a region of an inode: they fill all of it.
    pub(crate) fn region(self, len: usize) -> Self {
        Self {
            block_len: len,
            summed: false,
            ..self
        }
    }

    #[cfg(test)]
    pub(crate) fn for_tests(block_len: usize, large_dir: bool) -> Self {
        Self {
            block_len,
            summed: true,
            filetype: true,
            large_dir,
        }
    }

    /// Bytes of a block that records fill.
    #[inline]
    pub fn room(self) -> usize {
        self.block_len
            .saturating_sub(if self.summed { DIR_TAIL_LEN } else { 0 })
    }

    /// What a record says of a file's type: nothing without `filetype`.
    pub fn file_type(self, file_type: FileType) -> Option<FileType> {
        self.filetype.then_some(file_type)
    }

    /// Blocks of the largest directory.
    pub fn blocks_max(self) -> u64 {
        match self.large_dir {
            true => BLOCKS_MAX,
            false => BLOCKS_MAX.min(SIZE_MAX.checked_div(len64(self.block_len)).unwrap_or(0)),
        }
    }

    /// Levels of nodes that an htree may have between its root and its leaves.
    pub fn levels_max(self) -> u8 {
        if self.large_dir { 2 } else { 1 }
    }

    /// The records "." and "..".
    pub fn dots(self, ino: Ino, parent: Ino) -> [NewEntry<'static>; 2] {
        let file_type = self.file_type(FileType::Directory);
        [(&b"."[..], ino), (b"..", parent)].map(|(name, ino)| NewEntry {
            name,
            ino,
            file_type,
        })
    }

    /// Writes a block of records, each as long as its name needs and the last one up to the end of
    /// the room; without records, an unused one of that length. All must fit. There is a checksum
    /// record if there are checksums; its sum is to be computed.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "all records fit the block, so that its length bounds their offsets"
    )]
    pub fn fill<'a>(self, bytes: &mut [u8], records: impl Iterator<Item = NewEntry<'a>>) {
        let (mut at, mut last) = (0, None);
        for record in records {
            let len = rec_len_for(record.name.len());
            put_entry(bytes, at, len, &record);
            let name = at + DIR_ENTRY_HEADER_LEN;
            wipe(bytes, name + record.name.len(), at + len);
            last = Some(at);
            at += len;
        }
        wipe(bytes, at, self.room());
        self.stretch(bytes, last.unwrap_or(0));
    }

    /// Writes the block of a directory that was within its inode: "." and "..", then the records of
    /// its regions as they are, so that no record changes its place.
    ///
    /// # Errors
    /// Damage of the records, and if they are more than a block holds.
    pub fn fill_from_inline<'a>(
        self,
        bytes: &mut [u8],
        dots: [NewEntry<'_>; 2],
        regions: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), Damage> {
        let ino = dots[0].ino;
        self.fill(bytes, dots.into_iter());
        if let Some(header) = header_mut(bytes, rec_len_for(1)) {
            header.rec_len = encode_rec_len(rec_len_for(2), self.block_len).into();
        }
        let (mut at, mut last) = (DOTS_LEN, rec_len_for(1));
        for region in regions {
            walk(region, None::<Pblk>, region.len(), |record| {
                last = at.saturating_add(record.offset);
                ControlFlow::<()>::Continue(())
            })?;
            let end = at.saturating_add(region.len());
            let place = bytes.get_mut(at..end).filter(|_| end <= self.room());
            let why = "inline data larger than a block";
            let place = place.ok_or(Damage::Directory { ino, why })?;
            place.copy_from_slice(region);
            at = end;
        }
        self.stretch(bytes, last);
        Ok(())
    }

    /// Lets the last record of a block reach to the end of the room, and makes the checksum record.
    fn stretch(self, bytes: &mut [u8], last: usize) {
        if let Some(header) = header_mut(bytes, last) {
            header.rec_len =
                encode_rec_len(self.room().saturating_sub(last), self.block_len).into();
        }
        if self.summed {
            put_tail(bytes, 0);
        }
    }
}

/// What ".." names in a directory within its inode; `data` begins as `i_block` does.
pub fn inline_parent(data: &[u8]) -> Ino {
    let bytes = data.first_chunk::<INLINE_PARENT_LEN>();
    Ino(bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes)))
}

/// Makes ".." name another inode in a directory within its inode.
pub fn put_inline_parent(i_block: &mut [u8; I_BLOCK_LEN], parent: Ino) {
    i_block[..INLINE_PARENT_LEN].copy_from_slice(&le32(parent.0));
}

/// A name to be put into a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewEntry<'a> {
    /// At most 255 bytes.
    pub name: &'a [u8],
    /// The inode; 0 for an unused record.
    pub ino: Ino,
    /// As [`DirFormat::file_type`] gives it.
    pub file_type: Option<FileType>,
}

/// A record as it lies there.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// From the start of the block, in bytes.
    pub offset: usize,
    /// Its whole length.
    pub rec_len: usize,
    /// 0: unused.
    pub ino: Ino,
    /// Empty if it is unused.
    pub name: &'a [u8],
    /// Its type byte.
    code: u8,
}

/// Where a name was found.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// What it names.
    pub ino: Ino,
    /// From the start of the block, in bytes.
    pub offset: usize,
    /// Offset of the record before it, unless it is the first.
    before: Option<usize>,
}

/// What a search for a place finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spot {
    /// The name is there already.
    Exists,
    /// The record at this offset has room.
    Space(usize),
    /// No record has room.
    Full,
}

/// Goes over the records in the first `room` bytes of a block until `f` breaks. `at` names the
/// block in errors.
///
/// # Errors
/// [`Damage::DirEntry`] where a record cannot be.
#[inline]
pub fn walk<'a, B>(
    bytes: &'a [u8],
    at: impl Into<Option<Pblk>>,
    room: usize,
    mut f: impl FnMut(Record<'a>) -> ControlFlow<B>,
) -> Result<Option<B>, Damage> {
    let (at, block_len) = (at.into(), bytes.len());
    let mut rest = bytes.get(..room).unwrap_or(bytes);
    let end = rest.len();
    while !rest.is_empty() {
        #[expect(
            clippy::arithmetic_side_effects,
            reason = "`rest` is the end of the block"
        )]
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
        offset: len32(offset),
        why,
        rec_len: len32(rec_len),
    }
}

impl<'a> Record<'a> {
    /// What it says; it is in use.
    pub fn entry(&self) -> NewEntry<'a> {
        NewEntry {
            name: self.name,
            ino: self.ino,
            file_type: file_type_from_code(self.code),
        }
    }

    /// Whether it has this name. Names of one directory often differ at their end alone.
    #[inline]
    fn is(&self, name: &[u8]) -> bool {
        self.name.len() == name.len() && self.name.last() == name.last() && self.name == name
    }

    /// Bytes that a new record could have of it.
    #[inline]
    fn free(&self) -> usize {
        match self.ino.0 {
            0 => self.rec_len,
            _ => self.rec_len.saturating_sub(rec_len_for(self.name.len())),
        }
    }
}

/// Looks for a name; arguments as of [`walk`].
///
/// # Errors
/// As [`walk`].
#[inline]
pub fn find(
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

/// Looks for room for a name, and whether it is there already; arguments as of [`walk`].
///
/// # Errors
/// As [`walk`].
#[inline]
pub fn scan(
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
            spot = Spot::Space(record.offset);
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
pub fn insert(bytes: &mut [u8], offset: usize, new: &NewEntry<'_>) {
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
    let (at, free) = (offset.saturating_add(used), rec_len.saturating_sub(used));
    put_entry(bytes, at, free, new);
}

/// Writes a record of `rec_len` bytes.
fn put_entry(bytes: &mut [u8], offset: usize, rec_len: usize, new: &NewEntry<'_>) {
    put(bytes, offset, rec_len, new.ino, new.name, new.file_type);
}

/// Takes a name out that [`find`] has found: its bytes go to the record before it.
pub fn remove(bytes: &mut [u8], found: &Found) {
    let block_len = bytes.len();
    let Some(header) = header_mut(bytes, found.offset) else {
        return;
    };
    let len = decode_rec_len(header.rec_len.get(), block_len);
    let end = found.offset.saturating_add(len);
    header.inode = 0.into();
    match found.before.and_then(|at| header_mut(bytes, at)) {
        None => {
            let name = found.offset.saturating_add(DIR_ENTRY_HEADER_LEN);
            wipe(bytes, name, end);
            if let Some(header) = header_mut(bytes, found.offset) {
                (header.name_len, header.file_type) = (0, 0);
            }
        }
        Some(before) => {
            let whole = decode_rec_len(before.rec_len.get(), block_len).saturating_add(len);
            before.rec_len = encode_rec_len(whole, block_len).into();
            wipe(bytes, found.offset, end);
        }
    }
}

/// Overwrites names that are gone, so that they cannot be read off the device.
fn wipe(bytes: &mut [u8], from: usize, to: usize) {
    if let Some(bytes) = bytes.get_mut(from..to) {
        bytes.fill(0);
    }
}

/// Gives the name that [`find`] has found another inode.
pub fn replace(bytes: &mut [u8], found: &Found, ino: Ino, file_type: Option<FileType>) {
    if let Some(header) = header_mut(bytes, found.offset) {
        header.inode = ino.0.into();
        header.file_type = file_type.map_or(0, file_type_code);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dir_entry::{DirBlock, tail};

    fn format(summed: bool) -> DirFormat {
        DirFormat {
            summed,
            ..DirFormat::for_tests(1024, false)
        }
    }

    fn entry(name: &[u8], ino: u32) -> NewEntry<'_> {
        NewEntry {
            name,
            ino: Ino(ino),
            file_type: Some(FileType::Regular),
        }
    }

    /// Names and inodes of all records in use, read with the parser.
    fn read(bytes: &[u8]) -> Vec<(Vec<u8>, u32)> {
        let entries = DirBlock::new(bytes, None, Incompat::FILETYPE).map(|e| e.unwrap());
        entries.map(|e| (e.name.to_vec(), e.ino.0)).collect()
    }

    #[test]
    fn filled_structures_are_read_back() {
        for summed in [false, true] {
            let mut bytes = [0xAA; 1024];
            let names = [entry(b"a", 11), entry(b"longer", 12)];
            let dots = format(summed).dots(Ino(2), Ino(3));
            format(summed).fill(&mut bytes, dots.into_iter().chain(names));
            let expected = [(&b"."[..], 2), (b"..", 3), (b"a", 11), (b"longer", 12)];
            assert_eq!(
                read(&bytes),
                expected.map(|(name, ino)| (name.to_vec(), ino))
            );
            assert_eq!(tail(&bytes).is_some(), summed);
        }
    }

    #[test]
    fn an_empty_block_is_one_unused_record() {
        let mut bytes = [0xAA; 1024];
        format(true).fill(&mut bytes, std::iter::empty());
        assert_eq!(read(&bytes), []);
        let spot = scan(&bytes, None::<Pblk>, format(true).room(), b"new");
        assert_eq!(spot, Ok(Spot::Space(0)));
    }

    #[test]
    fn records_of_an_inode_keep_their_places() {
        let mut region = [0; 56];
        put_entry(&mut region, 0, 12, &entry(b"abc", 11));
        put_entry(&mut region, 12, 44, &entry(b"d", 12));
        let dots = format(true).dots(Ino(2), Ino(3));
        let mut bytes = [0; 1024];
        let regions = [&region[..], &[]];
        let filled = format(true).fill_from_inline(&mut bytes, dots, regions.into_iter());
        assert_eq!(filled, Ok(()));
        let names: Vec<_> = read(&bytes).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, [&b"."[..], b"..", b"abc", b"d"]);
        assert_eq!(bytes[DOTS_LEN..DOTS_LEN + 12], region[..12]);
        let large = [0; 1024];
        let mut one = [0; 1024];
        put_entry(&mut one, 0, 1024, &entry(b"a", 11));
        for region in [&large[..], &one[..]] {
            let regions = std::iter::once(region);
            assert!(
                format(true)
                    .fill_from_inline(&mut bytes, dots, regions)
                    .is_err()
            );
        }
    }

    #[test]
    fn the_parent_stands_before_the_records() {
        let mut i_block = [0xAA; I_BLOCK_LEN];
        put_inline_parent(&mut i_block, Ino(0x1234_5678));
        assert_eq!(inline_parent(&i_block), Ino(0x1234_5678));
        assert_eq!(i_block[INLINE_PARENT_LEN..], [0xAA; 56]);
        assert_eq!(inline_parent(&i_block[..3]), Ino(0));
    }

    #[test]
    fn names_come_and_go() {
        let room = format(true).room();
        let mut bytes = [0; 1024];
        format(true).fill(&mut bytes, format(true).dots(Ino(2), Ino(2)).into_iter());
        let names: Vec<Vec<u8>> = (0..9u8)
            .map(|i| vec![b'a' + i; 1 + usize::from(i)])
            .collect();
        for (name, ino) in names.iter().zip(11..) {
            let Ok(Spot::Space(offset)) = scan(&bytes, None::<Pblk>, room, name) else {
                panic!("no room");
            };
            insert(&mut bytes, offset, &entry(name, ino));
            assert_eq!(scan(&bytes, None::<Pblk>, room, name), Ok(Spot::Exists));
        }
        for name in &names[3..6] {
            let found = find(&bytes, None::<Pblk>, room, name).unwrap().unwrap();
            remove(&mut bytes, &found);
        }
        let found = find(&bytes, None::<Pblk>, room, &names[0])
            .unwrap()
            .unwrap();
        replace(&mut bytes, &found, Ino(99), None);
        let inos: Vec<_> = read(&bytes).into_iter().map(|(_, ino)| ino).collect();
        assert_eq!(inos, [2, 2, 99, 12, 13, 17, 18, 19]);
        assert!(tail(&bytes).is_some());
    }
}
