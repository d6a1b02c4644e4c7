//! A hash of all of a content, because the one on disk is too weak.
//!
//! Source: rapidhash, version 3 (Nicolas De Carli, after wyhash), of the crate of that name.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

/// Bytes in which zeros are looked for.
const CHUNK: usize = 64;
const ZEROS: [u8; 4096] = [0; 4096];

/// The hash. A block of attributes has entries at the start, values at the end and zeros, most of
/// it, between: of these only the place and the number are hashed.
pub(crate) fn content_hash(body: &[u8], secrets: &RapidSecrets) -> u64 {
    let is_zero = |chunk: &[u8]| chunk == &ZEROS[..CHUNK];
    let head = body.chunks_exact(CHUNK).take_while(|c| !is_zero(c)).count() * CHUNK;
    let (head, rest) = body.split_at(head);
    let tail = rest
        .rchunks_exact(CHUNK)
        .take_while(|c| !is_zero(c))
        .count()
        * CHUNK;
    let (between, tail) = rest.split_at(rest.len() - tail);
    // There may be more between zeros that belong to a value.
    if between.is_empty() || !between.chunks(ZEROS.len()).all(|c| c == &ZEROS[..c.len()]) {
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
        let mut seen = HashSet::new();
        for len in [0, 1, 63, 64, 65, 4064] {
            let mut body = vec![0; len];
            assert!(seen.insert(content_hash(&body, &secrets)), "{len}");
            for at in 0..len {
                body[at] = 1;
                assert!(seen.insert(content_hash(&body, &secrets)), "{len} {at}");
                body[at] = 0;
            }
        }
        // The same bytes around the same number of zeros.
        for head in 0..10 {
            let mut body = [5; 4064];
            body[head * CHUNK..][..20 * CHUNK].fill(0);
            assert!(seen.insert(content_hash(&body, &secrets)), "{head}");
        }
        let other = RapidSecrets::seed(8);
        assert_ne!(content_hash(b"x", &secrets), content_hash(b"x", &other));
    }
}
