//! The names of a directory in the order of their hashes.
//!
//! The work is cut into parts, which the caller may leave to several threads: each part is hashed
//! and sorted on its own, and merging them gives the same order however many there are.

use std::ops::Range;

use super::{DirShape, NameHash, check_unique};
use crate::hash::hash_name;
use crate::num::{index, len32, lo32};
use crate::pack::PackError;

/// A part of the names of a directory, hashed and sorted.
#[derive(Debug, Default)]
pub struct HashedNames {
    /// Of each name, its hash and, in the low half, its index: in ascending order.
    keys: Vec<u64>,
    /// Of each name by its index: the hash that orders names of equal hashes.
    minor: Vec<u32>,
    /// Of each name by its index: its length, 1 to 255 bytes.
    lens: Vec<u8>,
}

/// A name in the order of hashes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hashed {
    pub(super) hash: u32,
    /// Index of the name.
    pub(super) index: u32,
    /// Bytes of the name.
    pub(super) len: u8,
}

impl DirShape {
    /// Hashes the names of these indexes, which [`DirShape::is_indexed`] has accepted. Nothing is
    /// computed where directories have no index.
    pub fn hash<'a>(&self, indexes: Range<u32>, name: impl Fn(u32) -> &'a [u8]) -> HashedNames {
        let Some(NameHash { version, seed }) = self.index else {
            return HashedNames::default();
        };
        let mut part = HashedNames::default();
        let count = index(indexes.end.saturating_sub(indexes.start));
        part.keys.reserve_exact(count);
        part.minor.reserve_exact(count);
        part.lens.reserve_exact(count);
        for i in indexes {
            let name = name(i);
            let hash = hash_name(version, seed, name);
            part.keys.push(u64::from(hash.hash) << 32 | u64::from(i));
            part.minor.push(hash.minor_hash);
            // OK to saturate: longer names were refused.
            part.lens.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
        }
        part.keys.sort_unstable();
        part
    }
}

impl HashedNames {
    /// Joins the parts of a directory, which are in the order of indexes.
    ///
    /// Fails with [`PackError::SameName`].
    pub(super) fn join<'a>(
        parts: Vec<Self>,
        name: &impl Fn(u32) -> &'a [u8],
    ) -> Result<Self, PackError> {
        let mut parts = parts.into_iter();
        let mut all = parts.next().unwrap_or_default();
        let is_merged = parts.len() > 0;
        for part in parts {
            all.keys.extend(part.keys);
            all.minor.extend(part.minor);
            all.lens.extend(part.lens);
        }
        if is_merged {
            // This sort finds the ascending parts and merges them.
            all.keys.sort();
        }
        all.order_equals(name)?;
        Ok(all)
    }

    /// Names of equal hashes are ordered by the other one; equal names have both equal.
    fn order_equals<'a>(&mut self, name: &impl Fn(u32) -> &'a [u8]) -> Result<(), PackError> {
        let minor = |key: &u64| self.minor.get(index(lo32(*key))).copied();
        for group in self.keys.chunk_by_mut(|a, b| a >> 32 == b >> 32) {
            if group.len() > 1 {
                group.sort_unstable_by_key(|key| (minor(key), *key));
                for equal in group.chunk_by(|a, b| minor(a) == minor(b)) {
                    check_unique(equal.iter().map(|&key| lo32(key)), name)?;
                }
            }
        }
        Ok(())
    }

    /// Number of names.
    pub(super) fn count(&self) -> u32 {
        len32(self.keys.len())
    }

    /// The names in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Hashed> {
        self.keys.iter().map(|&key| {
            let at = lo32(key);
            Hashed {
                hash: lo32(key >> 32),
                index: at,
                // There is one of each name.
                len: self.lens.get(index(at)).copied().unwrap_or_default(),
            }
        })
    }
}
