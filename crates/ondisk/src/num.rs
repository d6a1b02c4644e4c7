//! Numbers of other widths, each conversion under the name of what it means: the only `as` on
//! integers in this crate.
#![allow(
    clippy::as_conversions,
    reason = "the casts that the rest of the crate must not write, each with its bound next to it"
)]

use zerocopy::little_endian::U32;

const _: () = assert!(usize::BITS >= u32::BITS && usize::BITS <= u64::BITS);

/// The low 16 bits of a number that the format splits.
pub const fn lo16(number: u32) -> u16 {
    number as u16
}

/// The high 16 bits of a number that the format splits.
pub const fn hi16(number: u32) -> u16 {
    (number >> 16) as u16
}

/// The low 32 bits of a number that the format splits.
pub const fn lo32(number: u64) -> u32 {
    number as u32
}

/// The high 32 bits of a number that the format splits.
pub const fn hi32(number: u64) -> u32 {
    (number >> 32) as u32
}

/// A number of which the format stores the halves, 16 bits each.
pub fn join16(lo: impl Into<u32>, hi: impl Into<u32>) -> u32 {
    hi.into() << 16 | lo.into()
}

/// A number of which the format stores the low 32 bits, and 16 or 32 high ones.
pub fn join32(lo: impl Into<u64>, hi: impl Into<u64>) -> u64 {
    hi.into() << 32 | lo.into()
}

/// An index or a length with 32 bits, which every machine can address.
pub const fn index(number: u32) -> usize {
    number as usize
}

/// A length or an offset in memory, as a 64-bit number.
pub const fn len64(len: usize) -> u64 {
    len as u64
}

/// A length or an offset as a 32-bit field or in an error; the largest number past that.
pub const fn len32(len: usize) -> u32 {
    saturate(len, u32::MAX)
}

/// A length or an offset as a 16-bit field; the largest number past that.
pub const fn len16(len: usize) -> u16 {
    saturate(len, u16::MAX as u32) as u16
}

/// A length as an 8-bit field; the largest number past that.
pub const fn len8(len: usize) -> u8 {
    saturate(len, u8::MAX as u32) as u8
}

const fn saturate(len: usize, max: u32) -> u32 {
    if len < max as usize { len as u32 } else { max }
}

/// The little-endian number at an offset of a structure; 0 past its end.
pub(crate) fn get32(bytes: &[u8], at: usize) -> u32 {
    let number = bytes.get(at..).and_then(<[u8]>::first_chunk);
    number.map_or(0, |number| U32::from_bytes(*number).get())
}

/// Stores a little-endian number at an offset of a structure, unless that is past its end.
pub(crate) fn put32(bytes: &mut [u8], at: usize, number: u32) {
    let place = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut);
    if let Some(place) = place {
        *place = U32::new(number).to_bytes();
    }
}
