//! A set of inode numbers, as a bitmap in pages that come when needed.

use std::collections::HashMap;

use uext4_ondisk::Ino;

/// Inode numbers of a page.
const PAGE_BITS: u32 = 15;

/// The set. Takes about a bit for every number between those of one neighbourhood.
#[derive(Debug, Default)]
pub struct InodeSet {
    pages: HashMap<u32, Box<[u64; 1 << (PAGE_BITS - 6)]>>,
}

impl InodeSet {
    /// Adds a number; false if it was there already.
    pub fn insert(&mut self, ino: Ino) -> bool {
        let page = self.pages.entry(ino.0 >> PAGE_BITS);
        let page = page.or_insert_with(|| Box::new([0; 1 << (PAGE_BITS - 6)]));
        let (word, bit) = place(ino);
        let was = page[word] & bit != 0;
        page[word] |= bit;
        !was
    }

    /// Whether it is there.
    pub fn contains(&self, ino: Ino) -> bool {
        let (word, bit) = place(ino);
        let page = self.pages.get(&(ino.0 >> PAGE_BITS));
        page.is_some_and(|page| page[word] & bit != 0)
    }
}

fn place(ino: Ino) -> (usize, u64) {
    let index = ino.0 & ((1 << PAGE_BITS) - 1);
    ((index >> 6) as usize, 1 << (index & 63))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_once_inserted() {
        let mut set = InodeSet::default();
        for ino in [0, 2, 63, 64, 32_767, 32_768, u32::MAX] {
            assert!(!set.contains(Ino(ino)));
            assert!(set.insert(Ino(ino)));
            assert!(!set.insert(Ino(ino)));
            assert!(set.contains(Ino(ino)));
        }
        assert!(!set.contains(Ino(1)));
    }
}
