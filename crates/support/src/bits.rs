//! Ranges of bits in a bitmap.

/// Marks all bits from `from` to the end of a bitmap used.
pub fn pad(bytes: &mut [u8], from: u32) {
    let end = bytes.len() as u32 * 8;
    set_range(bytes, from, end.saturating_sub(from), true);
}

/// A bit; one past the end counts as set.
pub fn get(bytes: &[u8], bit: u32) -> bool {
    bytes
        .get((bit / 8) as usize)
        .is_none_or(|byte| byte >> (bit % 8) & 1 != 0)
}

/// Sets or clears `len` bits from `start`; those past the end do not exist.
pub fn set_range(bytes: &mut [u8], start: u32, len: u32, value: bool) {
    let end = start.saturating_add(len).min(bytes.len() as u32 * 8);
    let mut bit = start;
    while bit < end {
        if bit.is_multiple_of(8) && end - bit >= 8 {
            let whole = (bit / 8) as usize..(end / 8) as usize;
            bytes[whole].fill(if value { 0xFF } else { 0 });
            bit = end / 8 * 8;
            continue;
        }
        let upto = (bit / 8 * 8).saturating_add(8).min(end);
        let mask = (0xFFu8 >> (8 - (upto - bit))) << (bit % 8);
        let byte = &mut bytes[(bit / 8) as usize];
        if value {
            *byte |= mask;
        } else {
            *byte &= !mask;
        }
        bit = upto;
    }
}

/// First clear bit in `from..end`.
pub fn next_zero(bytes: &[u8], from: u32, end: u32) -> Option<u32> {
    let mut bit = from;
    while bit < end {
        if bit.is_multiple_of(8) && bytes.get((bit / 8) as usize) == Some(&0xFF) {
            bit += 8;
        } else if get(bytes, bit) {
            bit += 1;
        } else {
            return Some(bit);
        }
    }
    None
}

/// Whether `len` bits from `start` are all `value`.
pub fn all_are(bytes: &[u8], start: u32, len: u32, value: bool) -> bool {
    let end = start.saturating_add(len);
    let whole = if value { 0xFF } else { 0 };
    let mut bit = start;
    while bit < end {
        if bit.is_multiple_of(8) && end - bit >= 8 && bytes.get((bit / 8) as usize) == Some(&whole)
        {
            bit += 8;
        } else if get(bytes, bit) == value {
            bit += 1;
        } else {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_bits() {
        let mut bytes = [0u8; 8];
        set_range(&mut bytes, 3, 20, true);
        assert_eq!(bytes, [0xF8, 0xFF, 0x7F, 0, 0, 0, 0, 0]);
        assert_eq!(next_zero(&bytes, 3, 64), Some(23));
        assert!(all_are(&bytes, 3, 20, true) && !all_are(&bytes, 3, 21, true));
        assert!(all_are(&bytes, 23, 41, false) && !all_are(&bytes, 22, 2, false));
        set_range(&mut bytes, 8, 8, false);
        assert_eq!(next_zero(&bytes, 3, 64), Some(8));
        pad(&mut bytes, 30);
        assert_eq!(bytes[3..], [0xC0, 0xFF, 0xFF, 0xFF, 0xFF]);
        assert_eq!(next_zero(&bytes, 30, 64), None);
        set_range(&mut bytes, 60, 100, false);
        assert_eq!(next_zero(&bytes, 30, 64), Some(60));
    }
}
