//! A set of blocks of one folio: 256 bits, no allocation.

use std::ops::Range;

/// Blocks a folio may have at most.
pub(crate) const BLOCKS_MAX: usize = 256;
const WORD: u32 = u64::BITS;

/// Which blocks of a folio are in some state. Numbers are relative to the folio; those past
/// [`BLOCKS_MAX`] are never in the set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockSet([u64; 4]);

impl BlockSet {
    /// The words that a range touches, each with the bits of the range in it.
    fn masks(range: &Range<u32>) -> impl Iterator<Item = (usize, u64)> + use<> {
        let Range { start, end } = *range;
        (0u32..4).filter_map(move |word| {
            let low = start.max(word * WORD);
            let high = end.min((word + 1) * WORD);
            let count = high.checked_sub(low).filter(|count| *count > 0)?;
            let ones = u64::MAX >> (WORD - count);
            Some((word as usize, ones << (low - word * WORD)))
        })
    }

    /// Puts the range in; returns how many were not in before.
    pub(crate) fn insert(&mut self, range: &Range<u32>) -> u32 {
        let mut added = 0;
        for (word, mask) in Self::masks(range) {
            added += (mask & !self.0[word]).count_ones();
            self.0[word] |= mask;
        }
        added
    }

    /// Takes the range out; returns how many were in before.
    pub(crate) fn remove(&mut self, range: &Range<u32>) -> u32 {
        let mut removed = 0;
        for (word, mask) in Self::masks(range) {
            removed += (mask & self.0[word]).count_ones();
            self.0[word] &= !mask;
        }
        removed
    }

    /// How many are in.
    pub(crate) fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// True if none is in.
    pub(crate) fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    /// True if the block is in.
    pub(crate) fn contains(&self, block: u32) -> bool {
        self.0
            .get((block / WORD) as usize)
            .is_some_and(|word| word >> (block % WORD) & 1 == 1)
    }

    /// The first block of the range that is in (`wanted`), or that is not.
    fn first(&self, range: &Range<u32>, wanted: bool) -> Option<u32> {
        Self::masks(range).find_map(|(word, mask)| {
            let bits = if wanted { self.0[word] } else { !self.0[word] } & mask;
            // The word's number is below 4.
            (bits != 0).then(|| word as u32 * WORD + bits.trailing_zeros())
        })
    }

    /// The first run of blocks that are in, cut to the range.
    pub(crate) fn run(&self, range: &Range<u32>) -> Option<Range<u32>> {
        let start = self.first(range, true)?;
        let end = self.first(&(start..range.end), false);
        Some(start..end.unwrap_or(range.end))
    }

    /// The first run of blocks that are not in, cut to the range.
    pub(crate) fn gap(&self, range: &Range<u32>) -> Option<Range<u32>> {
        let start = self.first(range, false)?;
        let end = self.first(&(start..range.end), true);
        Some(start..end.unwrap_or(range.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn is_a_set(changes in prop::collection::vec((any::<bool>(), 0u32..=256, 0u32..=256), 1..20)) {
            let mut set = BlockSet::default();
            let mut model = [false; 256];
            for (add, a, b) in changes {
                let range = a.min(b)..a.max(b);
                let slice = &mut model[range.start as usize..range.end as usize];
                let changed = slice.iter().filter(|bit| **bit != add).count();
                slice.fill(add);
                let got = if add { set.insert(&range) } else { set.remove(&range) };
                prop_assert_eq!(got as usize, changed);
            }
            prop_assert_eq!(set.count() as usize, model.iter().filter(|bit| **bit).count());
            prop_assert_eq!(set.is_empty(), !model.contains(&true));
            for start in [0u32, 1, 63, 64, 65, 130, 255] {
                prop_assert_eq!(set.contains(start), model[start as usize]);
                for (run, wanted) in [(set.run(&(start..250)), true), (set.gap(&(start..250)), false)] {
                    let first = (start..250).find(|i| model[*i as usize] == wanted);
                    let expected = first.map(|first| {
                        let end = (first..250).find(|i| model[*i as usize] != wanted);
                        first..end.unwrap_or(250)
                    });
                    prop_assert_eq!(run, expected);
                }
            }
        }
    }

    #[test]
    fn knows_its_bounds() {
        let mut set = BlockSet::default();
        assert_eq!(set.insert(&(0..256)), 256);
        assert!(!set.contains(256));
        assert_eq!(set.gap(&(0..256)), None);
        assert_eq!(set.run(&(0..256)), Some(0..256));
    }
}
