//! One change of one structure: a field that gets another value, bits and bytes, or all of it that
//! becomes a copy of another.

use std::fmt;

use zerocopy::{big_endian, little_endian};

use super::fields::Order;
use super::pieces::{Piece, pieces};
use super::places::{Atlas, Place};
use crate::damage::{Sums, Target};
use crate::random::SplitMix64;

/// What was done to an image, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The structure.
    pub place: String,
    /// What became of it.
    pub what: String,
    /// What became of its checksum.
    pub sums: Sums,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)?;
        match self.sums {
            Sums::Right => Ok(()),
            Sums::Stale => f.write_str(", sum stale"),
        }
    }
}

/// Makes one change.
pub fn change(t: &mut Target<'_>, atlas: &Atlas) -> Change {
    let sums = match t.random.below(4) {
        0 => Sums::Stale,
        _ => Sums::Right,
    };
    t.set_sums(sums);
    let place = atlas.any(t);
    let what = match t.random.below(24) {
        0 => flip(t, place),
        1 => wipe(t, place),
        2 => noise(t, place),
        3 | 4 => copy(t, place, atlas),
        5 => exchange(t, place, atlas),
        6 | 7 => own_number(t, place),
        8 | 9 => crossed(t, place, atlas),
        _ => set(t, place, atlas),
    };
    Change {
        place: place.to_string(),
        what: what.unwrap_or_else(|| "nothing".to_owned()),
        sums,
    }
}

/// The bytes of a structure as they are.
fn bytes_of(t: &Target<'_>, place: Place) -> Vec<u8> {
    t.bytes[place.range(t.clean)].to_vec()
}

/// Turns one bit over.
fn flip(t: &mut Target<'_>, place: Place) -> Option<String> {
    let len = place.range(t.clean).len();
    // Most structures have their heads at the beginning.
    let room = match t.random.below(2) {
        0 => len.min(64),
        _ => len,
    };
    let (at, bit) = (t.random.index(room), t.random.below(8));
    place.change(t, &mut |bytes| bytes[at] ^= 1 << bit)?;
    Some(format!("bit {bit} of byte {at} is flipped"))
}

/// Wipes a run of bytes.
fn wipe(t: &mut Target<'_>, place: Place) -> Option<String> {
    let (first, end) = run(t, place);
    let with = [0, 0, 0xFF][t.random.index(3)];
    place.change(t, &mut |bytes| bytes[first..end].fill(with))?;
    Some(format!("bytes {first} to {end} become {with:#x}"))
}

/// Puts random bytes over a run.
fn noise(t: &mut Target<'_>, place: Place) -> Option<String> {
    let (first, end) = run(t, place);
    let mut random = SplitMix64::new(t.random.next_u64());
    place.change(t, &mut |bytes| {
        bytes[first..end].fill_with(|| random.next_u64() as u8)
    })?;
    Some(format!("bytes {first} to {end} become noise"))
}

/// A run of bytes of a structure: all, a half, or a few.
fn run(t: &mut Target<'_>, place: Place) -> (usize, usize) {
    let len = place.range(t.clean).len();
    let first = match t.random.below(3) {
        0 => 0,
        _ => t.random.index(len) & !3,
    };
    let end = match t.random.below(3) {
        0 => len,
        _ => first + 1 + t.random.index((len - first).min(64)),
    };
    (first, end)
}

/// Makes it a copy of another of its kind, whole.
fn copy(t: &mut Target<'_>, place: Place, atlas: &Atlas) -> Option<String> {
    let other = atlas.like(place, t);
    let from = bytes_of(t, other);
    place.change(t, &mut |bytes| put(bytes, &from))?;
    Some(format!("becomes a copy of {other}"))
}

/// Exchanges it with another of its kind.
fn exchange(t: &mut Target<'_>, place: Place, atlas: &Atlas) -> Option<String> {
    let other = atlas.like(place, t);
    let (here, there) = (bytes_of(t, place), bytes_of(t, other));
    place.change(t, &mut |bytes| put(bytes, &there))?;
    other.change(t, &mut |bytes| put(bytes, &here))?;
    Some(format!("is exchanged with {other}"))
}

fn put(bytes: &mut [u8], from: &[u8]) {
    let len = bytes.len().min(from.len());
    bytes[..len].copy_from_slice(&from[..len]);
}

/// One of the fields of a structure, cut to a number.
fn any_piece(t: &mut Target<'_>, place: Place) -> Option<Piece> {
    let all = pieces(&place, t.clean, &bytes_of(t, place));
    let mut piece = t.one_of(&all)?;
    if piece.len > 8 || !piece.len.is_power_of_two() {
        let len = if piece.len.is_multiple_of(4) { 4 } else { 1 };
        let word = t.random.index(piece.len / len);
        piece.name = format!("{}[{word}]", piece.name);
        piece.at += word * len;
        piece.len = len;
    }
    Some(piece)
}

/// Sets a field to the number of the structure itself: what should lead elsewhere leads back.
fn own_number(t: &mut Target<'_>, place: Place) -> Option<String> {
    let piece = any_piece(t, place)?;
    let number = place.own_number(t.clean);
    store(t, place, &piece, number)
}

/// Sets a field to what another structure of the kind has there.
fn crossed(t: &mut Target<'_>, place: Place, atlas: &Atlas) -> Option<String> {
    let piece = any_piece(t, place)?;
    let other = atlas.like(place, t);
    let other = bytes_of(t, other);
    let number = load(&other, &piece)?;
    store(t, place, &piece, number)
}

/// Sets a field to another value.
fn set(t: &mut Target<'_>, place: Place, atlas: &Atlas) -> Option<String> {
    let Some(piece) = any_piece(t, place) else {
        return flip(t, place);
    };
    let old = load(&bytes_of(t, place), &piece)?;
    let bits = 8 * piece.len as u32;
    let max = u64::MAX >> (64 - bits);
    let geometry = t.geometry();
    let number = match t.random.below(20) {
        0 | 1 => 0,
        2 => 1,
        3 => old.wrapping_add(1),
        4 => old.wrapping_sub(1),
        5 => max,
        6 => max - t.random.below(4),
        7 => 1 << (bits - 1),
        8..=10 => old ^ 1 << t.random.below(bits.into()),
        11 => old.wrapping_mul(2),
        12 => old / 2,
        13 => t.random.below(300),
        14 => t.random.next_u64(),
        15 => geometry.blocks_count - t.random.below(2),
        16 => u64::from(geometry.inodes_count) + t.random.below(2),
        17 => atlas.any(t).own_number(t.clean),
        // The type of an inode is the high part of its mode.
        18 => old & !(0xF << (bits - 4)) | t.random.below(16) << (bits - 4),
        _ => t.random.below(geometry.blocks_count),
    };
    store(t, place, &piece, number & max)
}

fn store(t: &mut Target<'_>, place: Place, piece: &Piece, number: u64) -> Option<String> {
    let old = load(&bytes_of(t, place), piece)?;
    let mut bytes = match piece.order {
        Order::Little => little_endian::U64::new(number).to_bytes(),
        Order::Big => {
            let high = 64 - 8 * piece.len as u32;
            big_endian::U64::new(number << high).to_bytes()
        }
    };
    let new = &mut bytes[..piece.len];
    place.change(t, &mut |all| {
        all[piece.at..piece.at + piece.len].copy_from_slice(new)
    })?;
    let number = load(
        new,
        &Piece {
            at: 0,
            ..piece.clone()
        },
    )?;
    Some(format!("{} {old:#x} becomes {number:#x}", piece.name))
}

/// The number in a field.
fn load(bytes: &[u8], piece: &Piece) -> Option<u64> {
    let field = bytes.get(piece.at..piece.at + piece.len)?;
    let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    Some(match piece.order {
        Order::Little => field.iter().rev().fold(0, add),
        Order::Big => field.iter().fold(0, add),
    })
}
