//! The head of a record, read and changed whatever it says.

use uext4_ondisk::dir_entry::{DIR_ENTRY_HEADER_LEN, decode_rec_len, encode_rec_len, rec_len_for};

/// Length of the shortest record.
pub const RECORD_MIN: usize = rec_len_for(1);

/// What the first eight bytes of a record say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// 0: unused.
    pub ino: u32,
    /// Its whole length in bytes, decoded.
    pub rec_len: usize,
    /// Bytes of its name.
    pub name_len: usize,
    /// The byte of the file type.
    pub code: u8,
}

/// Reads the header of the record at `offset` of a block; `None` if it does not fit.
#[inline]
pub fn header(bytes: &[u8], offset: usize) -> Option<Header> {
    let raw = bytes.get(offset..)?.first_chunk::<DIR_ENTRY_HEADER_LEN>()?;
    let [a, b, c, d, e, f, name_len, code] = *raw;
    Some(Header {
        ino: u32::from_le_bytes([a, b, c, d]),
        rec_len: decode_rec_len(u16::from_le_bytes([e, f]), bytes.len()),
        name_len: name_len.into(),
        code,
    })
}

impl Header {
    /// Whether a record can be like this, `left` bytes before the end of the room.
    #[inline]
    pub fn fits(&self, left: usize) -> bool {
        self.rec_len >= RECORD_MIN
            && self.rec_len.is_multiple_of(4)
            && self.rec_len <= left
            && self.name_len.saturating_add(DIR_ENTRY_HEADER_LEN) <= self.rec_len
    }
}

/// Stores the length of a record.
pub fn put_rec_len(bytes: &mut [u8], offset: usize, rec_len: usize) {
    let code = encode_rec_len(rec_len, bytes.len()).to_le_bytes();
    let place = bytes.get_mut(offset.saturating_add(4)..);
    if let Some(place) = place.and_then(|rest| rest.first_chunk_mut::<2>()) {
        *place = code;
    }
}

/// Writes an unused record over `rec_len` bytes.
pub fn put_unused(bytes: &mut [u8], offset: usize, rec_len: usize) {
    let end = offset.saturating_add(DIR_ENTRY_HEADER_LEN);
    if let Some(place) = bytes.get_mut(offset..end) {
        place.fill(0);
    }
    put_rec_len(bytes, offset, rec_len);
}

/// Makes a record name another inode; 0 makes it unused.
pub fn put_ino(bytes: &mut [u8], offset: usize, ino: u32) {
    if let Some(place) = bytes
        .get_mut(offset..)
        .and_then(|rest| rest.first_chunk_mut::<4>())
    {
        *place = ino.to_le_bytes();
    }
}
