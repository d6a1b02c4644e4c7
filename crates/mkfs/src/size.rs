//! Sizes as mke2fs reads them.

use uext4_ondisk::BlockSize;

use crate::Error;

/// A size before the block size is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// It had a suffix.
    Bytes(u64),
    /// It had none: blocks where the block size was said, else KiB.
    Plain(u64),
}

impl Size {
    /// The number itself where a flag counts plain numbers in bytes.
    pub fn bytes_plain(self) -> u64 {
        match self {
            Size::Bytes(n) | Size::Plain(n) => n,
        }
    }

    /// Bytes, a plain number taken as blocks of `block_size` if that was said, else as KiB.
    ///
    /// `None` past 2⁶⁴ bytes.
    pub fn bytes(self, block_size: Option<BlockSize>) -> Option<u64> {
        match self {
            Size::Bytes(bytes) => Some(bytes),
            Size::Plain(n) => n.checked_mul(block_size.unwrap_or(BlockSize::MIN).bytes().into()),
        }
    }
}

/// Parses a number, a hexadecimal one behind `0x`, with an optional unit, in either case: `s`
/// (512-byte sectors); `k`, `m`, `g` or `t`, also as `KiB` or `Ki` (powers of 1,024); `kB`, `MB`,
/// `GB` or `TB` (powers of 1,000); `B`. A decimal number with a unit may have decimals. Errors name
/// `flag`.
///
/// # Errors
/// [`Error::Option`].
pub fn parse_size(flag: &'static str, text: &str) -> Result<Size, Error> {
    let bad = |why| Error::Option {
        flag,
        value: text.to_owned(),
        why,
    };
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let radix = hex.map_or(10, |_| 16);
    let (whole, rest) = split_digits(hex.unwrap_or(text), radix);
    let number =
        u64::from_str_radix(whole, radix).map_err(|_| bad("not a number that fits 64 bits"))?;
    let (decimals, suffix) = match rest.strip_prefix('.').filter(|_| radix == 10) {
        Some(rest) => split_digits(rest, 10),
        None => ("", rest),
    };
    let unit = match suffix.to_ascii_lowercase().as_str() {
        "" if rest.is_empty() => return Ok(Size::Plain(number)),
        "b" if decimals.is_empty() => 1,
        "" | "b" => return Err(bad("decimals need a unit, as in 1.5G")),
        "s" => 512,
        "k" | "ki" | "kib" => 1 << 10,
        "m" | "mi" | "mib" => 1 << 20,
        "g" | "gi" | "gib" => 1 << 30,
        "t" | "ti" | "tib" => 1 << 40,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => {
            return Err(bad(
                "unknown unit: s, K, M, G or T (KiB, …), KB, MB, GB, TB",
            ));
        }
    };
    let part = part_of(unit, decimals).filter(|_| !rest.starts_with('.') || !decimals.is_empty());
    let part = part.ok_or_else(|| bad("not a number: 1 to 18 decimals"))?;
    let bytes = number.checked_mul(unit).and_then(|n| n.checked_add(part));
    bytes
        .map(Size::Bytes)
        .ok_or_else(|| bad("more than 2^64 bytes"))
}

/// The digits that a text begins with, and the rest.
fn split_digits(text: &str, radix: u32) -> (&str, &str) {
    let is_digit = |byte: &u8| char::from(*byte).is_digit(radix);
    let count = text.bytes().take_while(is_digit).count();
    // Digits are ASCII, so that this is the boundary of a character.
    text.split_at(count)
}

/// The decimals of a unit, rounded down; `None` for more than 18 of them.
fn part_of(unit: u64, decimals: &str) -> Option<u64> {
    let count = u32::try_from(decimals.len()).ok().filter(|&n| n <= 18)?;
    let part: u128 = match count {
        0 => 0,
        _ => decimals.parse().ok()?,
    };
    // OK to multiply: below 10^18, times at most 2^40.
    u64::try_from(part * u128::from(unit) / 10_u128.pow(count)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes() {
        let parse = |text| parse_size("size", text).unwrap();
        assert_eq!(parse("64M"), Size::Bytes(64 << 20));
        assert_eq!(parse("1g"), Size::Bytes(1 << 30));
        assert_eq!(parse("10240k"), Size::Bytes(10 << 20));
        assert_eq!(parse("2048s"), Size::Bytes(1 << 20));
        assert_eq!(parse("16t"), Size::Bytes(16 << 40));
        assert_eq!(parse("7"), Size::Plain(7));
        for text in ["500MB", "500mb", "0.5gb"] {
            assert_eq!(parse(text), Size::Bytes(500_000_000), "{text}");
        }
        for text in ["1.5G", "1.5GiB", "1.500Gi", "1536M"] {
            assert_eq!(parse(text), Size::Bytes(3 << 29), "{text}");
        }
        assert_eq!(parse("12B"), Size::Bytes(12));
        assert_eq!(parse("1.3K"), Size::Bytes(1331));
        let many = "1.0000000000000000000K";
        for text in [
            "1.5", "1.G", "1.5.5G", ".5G", "1.5B", "1KM", "1iB", "1 G", "1é", many,
        ] {
            assert!(parse_size("size", text).is_err(), "{text}");
        }
        assert_eq!(parse("0xbdc00"), Size::Plain(777_216));
        assert_eq!(parse("0X800s"), Size::Bytes(1 << 20));
        for text in ["0x", "x10", "0x1g0", "0x1.5K"] {
            assert!(parse_size("size", text).is_err(), "{text}");
        }
        for text in ["", "M", "1x", "-1", "16777216t", "99999999999999999999"] {
            assert!(parse_size("size", text).is_err(), "{text}");
        }
    }

    #[test]
    fn plain_numbers_are_blocks_or_kib() {
        assert_eq!(Size::Plain(8).bytes(None), Some(8192));
        assert_eq!(
            Size::Plain(8).bytes(BlockSize::from_bytes(4096)),
            Some(32768)
        );
        assert_eq!(Size::Plain(u64::MAX).bytes(None), None);
    }
}
