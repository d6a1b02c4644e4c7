//! Directory hashes: where in an htree a name belongs.
//!
//! A name becomes 32-bit words, its bytes pushed in from the right and missing ones filled with the
//! length, and those are mixed into a four-word state that starts from the superblock's seed. Bytes
//! from 0x80 up are added as negative numbers by the signed variants: early kernels used the
//! machine's `char`, so an image says which it was made with.
//!
//! Left out: SipHash of encrypted case-insensitive directories. It needs the key; the hash is
//! stored behind each name instead ([`crate::dir_entry::DIR_ENTRY_HASH_LEN`]).

use crate::num::len32;

/// `hash_version` of directories whose hashes are stored in their entries (SipHash).
pub const HASH_SIPHASH: u8 = 6;

/// A hash function for names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HashVersion {
    /// The first one, signed.
    Legacy,
    /// MD4 cut to three short rounds, signed: the default.
    HalfMd4,
    /// The TEA cipher, signed.
    Tea,
    /// The first one, unsigned.
    LegacyUnsigned,
    /// MD4 cut to three short rounds, unsigned.
    HalfMd4Unsigned,
    /// The TEA cipher, unsigned.
    TeaUnsigned,
}

/// How a byte of a name counts in a hash, as C's `char` differs from machine to machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CharSign {
    /// From -128 to 127.
    Signed,
    /// From 0 to 255.
    Unsigned,
}

impl CharSign {
    /// A byte of a name as the number that is added.
    #[inline]
    pub(crate) fn value(self, byte: u8) -> u32 {
        match self {
            Self::Signed => i32::from(byte.cast_signed()).cast_unsigned(),
            Self::Unsigned => byte.into(),
        }
    }
}

impl HashVersion {
    /// From `s_def_hash_version` or the `hash_version` of an htree root.
    ///
    /// 0 to 2 leave the sign of a byte to the superblock's flags (`sign`, see
    /// [`crate::superblock::SuperBlock::hash_sign`]), 3 to 5 are unsigned. `None` for
    /// [`HASH_SIPHASH`], which no name can be hashed with here, and for unknown codes.
    pub const fn from_disk(code: u8, sign: CharSign) -> Option<Self> {
        Some(match (code, sign) {
            (0, CharSign::Signed) => Self::Legacy,
            (1, CharSign::Signed) => Self::HalfMd4,
            (2, CharSign::Signed) => Self::Tea,
            (0 | 3, _) => Self::LegacyUnsigned,
            (1 | 4, _) => Self::HalfMd4Unsigned,
            (2 | 5, _) => Self::TeaUnsigned,
            _ => return None,
        })
    }

    /// The code for `s_def_hash_version` and htree roots, 0 to 2: there the sign is the
    /// superblock's business.
    pub const fn to_disk(self) -> u8 {
        match self {
            Self::Legacy | Self::LegacyUnsigned => 0,
            Self::HalfMd4 | Self::HalfMd4Unsigned => 1,
            Self::Tea | Self::TeaUnsigned => 2,
        }
    }

    const fn sign(self) -> CharSign {
        match self {
            Self::Legacy | Self::HalfMd4 | Self::Tea => CharSign::Signed,
            _ => CharSign::Unsigned,
        }
    }
}

/// Where a name belongs in a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirHash {
    /// Orders names over leaves. Bit 0 is clear, and it is never 0xFFFF_FFFE: that is the end.
    pub hash: u32,
    /// Orders names of equal `hash` when they are listed; not on disk.
    pub minor_hash: u32,
}

/// State of a seed that is all zero: the initial state of MD4.
const DEFAULT_SEED: [u32; 4] = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476];
/// The hash that stands for the end of a directory.
const HASH_END: u32 = 0xFFFF_FFFE;

/// Hashes a name with the superblock's seed; an all-zero seed stands for MD4's initial state.
pub fn hash_name(version: HashVersion, seed: [u32; 4], name: &[u8]) -> DirHash {
    let mut state = if seed == [0; 4] { DEFAULT_SEED } else { seed };
    let sign = version.sign();
    let (hash, minor_hash) = match version {
        HashVersion::Legacy | HashVersion::LegacyUnsigned => (legacy(name, sign), 0),
        HashVersion::HalfMd4 | HashVersion::HalfMd4Unsigned => {
            for at in (0..name.len()).step_by(32) {
                half_md4(&mut state, &words::<8>(&name[at..], sign));
            }
            (state[1], state[2])
        }
        HashVersion::Tea | HashVersion::TeaUnsigned => {
            for at in (0..name.len()).step_by(16) {
                tea(&mut state, &words::<4>(&name[at..], sign));
            }
            (state[0], state[1])
        }
    };
    let hash = match hash & !1 {
        HASH_END => HASH_END - 2,
        hash => hash,
    };
    DirHash { hash, minor_hash }
}

/// The first `4 × N` bytes of the rest of a name as words; what is missing is filled with the
/// length of that rest in every byte.
fn words<const N: usize>(rest: &[u8], sign: CharSign) -> [u32; N] {
    // Names have at most 255 bytes, so the length fits the byte that is repeated.
    let fill = len32(rest.len()).wrapping_mul(0x0101_0101);
    let mut words = [fill; N];
    for (word, bytes) in words.iter_mut().zip(rest.chunks(4)) {
        let push = |word: u32, &byte: &u8| (word << 8).wrapping_add(sign.value(byte));
        // Most words are whole: a loop of known length costs less.
        *word = match bytes.first_chunk::<4>() {
            Some(whole) => whole.iter().fold(fill, push),
            None => bytes.iter().fold(fill, push),
        };
    }
    words
}

fn legacy(name: &[u8], sign: CharSign) -> u32 {
    let (mut last, mut before) = (0x12A3_FE2D_u32, 0x37AB_E8F9_u32);
    for &byte in name {
        let mixed = last ^ sign.value(byte).wrapping_mul(7_152_373);
        let mut next = before.wrapping_add(mixed);
        if next & 0x8000_0000 != 0 {
            next = next.wrapping_sub(0x7FFF_FFFF);
        }
        before = last;
        last = next;
    }
    last << 1
}

/// One of MD4's three rounds, of which there are half the steps: `order` says which word each
/// step takes. Everything but the state and the words is constant where this is inlined.
#[inline(always)]
fn md4_round(
    state: [u32; 4],
    block: &[u32; 8],
    order: [usize; 8],
    rotations: [u32; 4],
    mix: impl Fn(u32, u32, u32) -> u32,
) -> [u32; 4] {
    let [mut a, mut b, mut c, mut d] = state;
    for (step, word) in order.into_iter().enumerate() {
        let sum = a.wrapping_add(mix(b, c, d)).wrapping_add(block[word]);
        (a, d, c, b) = (d, c, b, sum.rotate_left(rotations[step % 4]));
    }
    [a, b, c, d]
}

/// One block through the cut-down MD4 compression.
fn half_md4(state: &mut [u32; 4], block: &[u32; 8]) {
    let select = |b: u32, c: u32, d: u32| (b & c) | (!b & d);
    let majority = |b: u32, c: u32, d: u32| {
        let bits = (b & c) | (b & d) | (c & d);
        bits.wrapping_add(0x5A82_7999)
    };
    let parity = |b: u32, c: u32, d: u32| (b ^ c ^ d).wrapping_add(0x6ED9_EBA1);
    let mixed = md4_round(
        *state,
        block,
        [0, 1, 2, 3, 4, 5, 6, 7],
        [3, 7, 11, 19],
        select,
    );
    let mixed = md4_round(
        mixed,
        block,
        [1, 3, 5, 7, 0, 2, 4, 6],
        [3, 5, 9, 13],
        majority,
    );
    let mixed = md4_round(
        mixed,
        block,
        [3, 7, 2, 6, 1, 5, 0, 4],
        [3, 9, 11, 15],
        parity,
    );
    for (word, add) in state.iter_mut().zip(mixed) {
        *word = word.wrapping_add(add);
    }
}

/// Sixteen rounds of TEA over the first two words of the state, with the block as the key.
fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    let [mut x, mut y, ..] = *state;
    let half = |v: u32, sum: u32, k0: u32, k1: u32| {
        (v << 4).wrapping_add(k0) ^ v.wrapping_add(sum) ^ (v >> 5).wrapping_add(k1)
    };
    let mut sum = 0u32;
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9E37_79B9);
        x = x.wrapping_add(half(y, sum, key[0], key[1]));
        y = y.wrapping_add(half(x, sum, key[2], key[3]));
    }
    state[0] = state[0].wrapping_add(x);
    state[1] = state[1].wrapping_add(y);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_codes() {
        assert_eq!(
            HashVersion::from_disk(1, CharSign::Signed),
            Some(HashVersion::HalfMd4)
        );
        for code in [1, 4] {
            let version = HashVersion::from_disk(code, CharSign::Unsigned);
            assert_eq!(version, Some(HashVersion::HalfMd4Unsigned));
        }
        assert_eq!(
            HashVersion::from_disk(5, CharSign::Signed),
            Some(HashVersion::TeaUnsigned)
        );
        assert_eq!(HashVersion::from_disk(HASH_SIPHASH, CharSign::Signed), None);
        assert_eq!(HashVersion::from_disk(7, CharSign::Unsigned), None);
        assert_eq!(HashVersion::TeaUnsigned.to_disk(), 2);
    }

    #[test]
    fn sign_matters_from_0x80_up_only() {
        let seed = [1, 2, 3, 4];
        for (signed, unsigned) in [
            (HashVersion::Legacy, HashVersion::LegacyUnsigned),
            (HashVersion::HalfMd4, HashVersion::HalfMd4Unsigned),
            (HashVersion::Tea, HashVersion::TeaUnsigned),
        ] {
            let of = |version, name: &[u8]| hash_name(version, seed, name);
            assert_eq!(of(signed, b"plain"), of(unsigned, b"plain"));
            assert_ne!(of(signed, b"\xE4"), of(unsigned, b"\xE4"));
        }
    }

    #[test]
    fn bit_0_is_clear_and_no_length_panics() {
        for version in 0..6 {
            let version = HashVersion::from_disk(version, CharSign::Signed).unwrap();
            for len in 0..=300 {
                let hash = hash_name(version, [0; 4], &vec![0xFF; len]).hash;
                assert_eq!(hash & 1, 0);
                assert_ne!(hash, HASH_END);
            }
        }
    }
}
