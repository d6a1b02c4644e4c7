//! Names in encrypted directories, as the kernel shows them without the key.
//!
//! The no-key name is base64url, without padding, of
//! ```text
//! directory hash u32 | minor hash u32 | the stored name's first 149 bytes | sha256 of the rest
//! ```
//! (the hash only if the name is longer). Not implemented: keys, and all operations that need
//! them.

use sha2::{Digest, Sha256};
use uext4_ondisk::checksum::le32;
use uext4_ondisk::features::Compat;
use uext4_ondisk::hash::{DirHash, HashVersion, hash_name};
use uext4_ondisk::inode::InodeFlags;

use crate::dir::htree::root_info;
use crate::inode::Inode;
use crate::journal::sbi::Sbi;

/// Number of bytes of a stored name that a no-key name contains unhashed.
const NOKEY_BYTES: usize = 149;
/// The alphabet of base64url.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The form in which the names of one directory are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameForm {
    /// As stored.
    Stored,
    /// In the no-key form, with hashes of this kind; `None` for zero hashes.
    NoKey(Option<HashVersion>),
}

impl NameForm {
    /// Determines the form for a directory. If the root of its htree cannot be read, hashes are
    /// omitted.
    pub(crate) fn of(sbi: &Sbi, dir: &Inode) -> Self {
        if !dir.has(InodeFlags::ENCRYPT) {
            return Self::Stored;
        }
        let one_block = dir.size == sbi.block_len() as u64 || dir.has(InodeFlags::INLINE_DATA);
        let indexed = dir.has(InodeFlags::INDEX);
        let hashed = sbi.geometry().features.compat.contains(Compat::DIR_INDEX);
        if !hashed || !(indexed || one_block) {
            return Self::NoKey(None);
        }
        let code = if indexed {
            root_info(sbi, dir).ok().map(|info| info.hash_version)
        } else {
            Some(sbi.superblock().s_def_hash_version)
        };
        let sign = sbi.superblock().hash_sign();
        Self::NoKey(code.and_then(|code| HashVersion::from_disk(code, sign)))
    }

    /// The name to show for a stored one. `stored_hash` is the hash that entries contain in
    /// directories that are also case-insensitive.
    pub(crate) fn show(self, sbi: &Sbi, stored: &[u8], stored_hash: Option<DirHash>) -> Vec<u8> {
        let Self::NoKey(version) = self else {
            return stored.to_vec();
        };
        if stored == b"." || stored == b".." {
            return stored.to_vec();
        }
        let computed = || {
            let version = version?;
            Some(hash_name(version, sbi.superblock().hash_seed(), stored))
        };
        let hash = stored_hash.or_else(computed).unwrap_or_default();
        nokey_name(hash, stored)
    }
}

fn nokey_name(hash: DirHash, stored: &[u8]) -> Vec<u8> {
    let mut raw = Vec::with_capacity(8 + NOKEY_BYTES + 32);
    raw.extend_from_slice(&le32(hash.hash));
    raw.extend_from_slice(&le32(hash.minor_hash));
    let (whole, rest) = stored.split_at(stored.len().min(NOKEY_BYTES));
    raw.extend_from_slice(whole);
    if !rest.is_empty() {
        raw.extend_from_slice(&Sha256::digest(rest));
    }
    base64url(&raw)
}

fn base64url(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().enumerate().fold(0u32, |word, (i, &byte)| {
            word | u32::from(byte) << (16 - 8 * i)
        });
        // One character for each six bits, the last ones possibly incomplete.
        text.extend((0..=chunk.len()).map(|i| ALPHABET[(word >> (18 - 6 * i) & 63) as usize]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64url_of_known_strings() {
        // RFC 4648, section 10, without padding.
        for (plain, text) in [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64url(plain.as_bytes()), text.as_bytes());
        }
        assert_eq!(base64url(&[0xFB, 0xFF]), b"-_8");
    }

    #[test]
    fn long_names_are_summed() {
        let hash = DirHash::default();
        assert_eq!(
            nokey_name(hash, &[7; 149]).len(),
            (8 + 149usize) * 4 / 3 + 1
        );
        // The longest no-key name fits into a directory entry.
        let longest = nokey_name(hash, &[7; 255]);
        assert_eq!(longest.len(), 252);
        assert_ne!(longest, nokey_name(hash, &[&[7; 254][..], &[8]].concat()));
    }
}
