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

/// Parses a number, a hexadecimal one behind `0x`, with an optional suffix: `s` (512-byte sectors),
/// `k`, `m`, `g` or `t` (powers of 1,024), either case. `flag` names the flag in errors.
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
    let (radix, rest) = hex.map_or((10, text), |digits| (16, digits));
    let is_digit = |byte: &u8| char::from(*byte).is_digit(radix);
    let digits = rest.bytes().take_while(is_digit).count();
    // OK to index: the bytes counted are ASCII digits.
    let number = u64::from_str_radix(&rest[..digits], radix)
        .map_err(|_| bad("not a number that fits 64 bits"))?;
    let shift = match &rest[digits..] {
        "" => return Ok(Size::Plain(number)),
        "s" | "S" => 9,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        _ => return Err(bad("unknown suffix: one of s, k, m, g, t")),
    };
    number
        .checked_mul(1 << shift)
        .map(Size::Bytes)
        .ok_or_else(|| bad("more than 2^64 bytes"))
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
        assert_eq!(parse("0xbdc00"), Size::Plain(777_216));
        assert_eq!(parse("0X800s"), Size::Bytes(1 << 20));
        for text in [
            "0x",
            "x10",
            "0x1g0",
            "",
            "M",
            "1x",
            "-1",
            "16777216t",
            "99999999999999999999",
        ] {
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
