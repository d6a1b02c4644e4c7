//! Runs of bits in an array of 64-bit words, bit 0 of word 0 first.
//!
//! All positions are in bits and must lie within the words; ranges are half open.

/// True if bit `at` is set.
pub(crate) fn get(words: &[u64], at: u32) -> bool {
    words[(at / 64) as usize] >> (at % 64) & 1 != 0
}

/// Sets bit `at`.
pub(crate) fn set(words: &mut [u64], at: u32) {
    words[(at / 64) as usize] |= 1 << (at % 64);
}

/// Clears bit `at`.
pub(crate) fn clear(words: &mut [u64], at: u32) {
    words[(at / 64) as usize] &= !(1 << (at % 64));
}

/// Sets (`value`) or clears bits `start` to `end`.
pub(crate) fn fill(words: &mut [u64], start: u32, end: u32, value: bool) {
    let mut at = start;
    while at < end {
        let upto = (at / 64 + 1).saturating_mul(64).min(end);
        let mask = (!0u64 >> (64 - (upto - at))) << (at % 64);
        let word = &mut words[(at / 64) as usize];
        if value {
            *word |= mask;
        } else {
            *word &= !mask;
        }
        at = upto;
    }
}

/// First bit equal to `value` in `start..end`, or `end`.
pub(crate) fn next(words: &[u64], start: u32, end: u32, value: bool) -> u32 {
    if start >= end {
        return end;
    }
    let flip = if value { 0 } else { !0 };
    let mut index = (start / 64) as usize;
    let mut word = (words[index] ^ flip) & (!0 << (start % 64));
    while word == 0 {
        index += 1;
        if index as u32 * 64 >= end {
            return end;
        }
        word = words[index] ^ flip;
    }
    (index as u32 * 64 + word.trailing_zeros()).min(end)
}

/// Start of the run of clear bits that ends with the clear bit `at`.
pub(crate) fn run_start(words: &[u64], at: u32) -> u32 {
    let mut index = (at / 64) as usize;
    // Set bits below or at `at`, moved up so that the nearest one is the highest bit.
    let mut word = words[index] << (63 - at % 64);
    let mut top = at;
    while word == 0 {
        if index == 0 {
            return 0;
        }
        index -= 1;
        top = index as u32 * 64 + 63;
        word = words[index];
    }
    top - word.leading_zeros() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fill_and_find_across_words() {
        let mut words = [0u64; 4];
        fill(&mut words, 60, 131, true);
        assert_eq!(next(&words, 0, 256, true), 60);
        assert_eq!(next(&words, 60, 256, false), 131);
        assert_eq!(next(&words, 131, 256, true), 256);
        assert_eq!(next(&words, 61, 100, false), 100);
        fill(&mut words, 64, 128, false);
        assert!(get(&words, 63) && !get(&words, 64) && !get(&words, 127) && get(&words, 128));
        assert_eq!(words.iter().map(|w| w.count_ones()).sum::<u32>(), 7);
    }

    #[test]
    fn run_start_stops_at_the_nearest_set_bit() {
        let mut words = [0u64; 3];
        assert_eq!(run_start(&words, 191), 0);
        set(&mut words, 5);
        assert_eq!(run_start(&words, 191), 6);
        assert_eq!(run_start(&words, 6), 6);
        set(&mut words, 127);
        assert_eq!(run_start(&words, 128), 128);
        assert_eq!(run_start(&words, 130), 128);
        clear(&mut words, 127);
        assert_eq!(run_start(&words, 130), 6);
    }
}
