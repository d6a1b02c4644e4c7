//! A hash of all of a content, because the one on disk is too weak.
//!
//! Source: rapidhash, version 3 (Nicolas De Carli, after wyhash), of the crate of that name.

use std::ops::Range;

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

/// Bytes in which zeros are looked for.
const CHUNK: usize = 64;
const ZEROS: [u8; 4096] = [0; 4096];

/// What has to be equal, and where in it the caller knows to be zeros.
#[derive(Clone, Debug)]
pub struct Content<'a> {
    /// All of it.
    pub bytes: &'a [u8],
    /// A range of zeros, which need not be read to be hashed; empty if the caller knows of none. A
    /// range that is not within the bytes, or has others, gives another hash: that costs sharing.
    pub zeros: Range<usize>,
}

impl<'a> From<&'a [u8]> for Content<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self { bytes, zeros: 0..0 }
    }
}

impl<'a, const LEN: usize> From<&'a [u8; LEN]> for Content<'a> {
    fn from(bytes: &'a [u8; LEN]) -> Self {
        Self::from(&bytes[..])
    }
}

/// By words: a call of memcmp(3) costs more than the chunk.
fn is_zero(chunk: &[u8; CHUNK]) -> bool {
    let (words, _) = chunk.as_chunks();
    words
        .iter()
        .fold(0, |all, word| all | u64::from_le_bytes(*word))
        == 0
}

fn are_zeros(bytes: &[u8]) -> bool {
    bytes.chunks(ZEROS.len()).all(|c| c == &ZEROS[..c.len()])
}

/// The hash, the same whether the caller knows of zeros or not. A block of attributes has entries
/// at the start, values at the end and zeros, most of it, between: of these only the place and
/// the number are hashed.
pub(crate) fn content_hash(content: &Content<'_>, secrets: &RapidSecrets) -> u64 {
    let (body, zeros) = (content.bytes, &content.zeros);
    let (chunks, _) = body.as_chunks::<CHUNK>();
    let head = chunks.iter().take_while(|c| !is_zero(c)).count() * CHUNK;
    let (head, rest) = body.split_at(head);
    let (_, chunks) = rest.as_rchunks::<CHUNK>();
    let tail = chunks.iter().rev().take_while(|c| !is_zero(c)).count() * CHUNK;
    let (between, tail) = rest.split_at(rest.len() - tail);
    // There may be more between zeros that belong to a value.
    let known = zeros.start.saturating_sub(head.len()).min(between.len())
        ..zeros.end.saturating_sub(head.len()).min(between.len());
    let unknown = match known.is_empty() {
        true => [between, &[]],
        false => [&between[..known.start], &between[known.end..]],
    };
    if between.is_empty() || !unknown.into_iter().all(are_zeros) {
        return rapidhash_v3_seeded(body, secrets);
    }
    let mut parts = [0; 24];
    parts[..8].copy_from_slice(&rapidhash_v3_seeded(head, secrets).to_le_bytes());
    parts[8..16].copy_from_slice(&rapidhash_v3_seeded(tail, secrets).to_le_bytes());
    parts[16..].copy_from_slice(&(between.len() as u64).to_le_bytes());
    rapidhash_v3_seeded(&parts, secrets)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_byte_counts_and_its_place() {
        let secrets = RapidSecrets::seed(7);
        let hash = |body: &[u8]| content_hash(&body.into(), &secrets);
        let mut seen = HashSet::new();
        for len in [0, 1, 63, 64, 65, 4064] {
            let mut body = vec![0; len];
            assert!(seen.insert(hash(&body)), "{len}");
            for at in 0..len {
                body[at] = 1;
                assert!(seen.insert(hash(&body)), "{len} {at}");
                body[at] = 0;
            }
        }
        // The same bytes around the same number of zeros.
        for head in 0..10 {
            let mut body = [5; 4064];
            body[head * CHUNK..][..20 * CHUNK].fill(0);
            assert!(seen.insert(hash(&body)), "{head}");
        }
        let other = RapidSecrets::seed(8);
        let x = Content::from(b"x");
        assert_ne!(content_hash(&x, &secrets), content_hash(&x, &other));
    }

    #[test]
    fn known_zeros_do_not_change_the_hash() {
        let secrets = RapidSecrets::seed(7);
        for (head, tail) in [(40, 300), (64, 64), (1, 4000), (0, 300), (200, 0), (0, 0)] {
            let mut body = [0; 4064];
            body[..head].fill(3);
            body[4064 - tail..].fill(9);
            let zeros = head..4064 - tail;
            let plain = content_hash(&body[..].into(), &secrets);
            let bytes = &body[..];
            assert_eq!(content_hash(&Content { bytes, zeros }, &secrets), plain);
            // Zeros of a value, which lie outside of the range that the caller knows.
            if tail == 300 {
                body[3900..4000].fill(0);
                let plain = content_hash(&body[..].into(), &secrets);
                let (bytes, zeros) = (&body[..], head..4064 - tail);
                assert_eq!(content_hash(&Content { bytes, zeros }, &secrets), plain);
            }
        }
    }

    #[test]
    fn a_wrong_range_is_no_panic() {
        let secrets = RapidSecrets::seed(7);
        let body = [1; 500];
        for zeros in [
            0..9999,
            Range { start: 400, end: 3 },
            600..700,
            0..0,
            usize::MAX..usize::MAX,
        ] {
            let bytes = &body[..];
            content_hash(&Content { bytes, zeros }, &secrets);
        }
    }
}
