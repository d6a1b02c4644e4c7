//! The map that ddrescue writes next to an image: which of its areas were read from the disk.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use uext4_blockdev::{BadAreas, BlockDevice};

use crate::args::ImageArgs;
use crate::failure::{Exit, Failure};
use crate::part::part;
use crate::still::Still;
use crate::{identify, open};

/// Most lines that are read.
const LINES_MAX: usize = 4 << 20;
/// Largest file, in bytes.
const LEN_MAX: u64 = 256 << 20;

/// The file system of an image to be salvaged, in which the areas that a map does not call rescued
/// cannot be read.
///
/// # Errors
/// As [`open::to_salvage`]; exit 2 if the map is none.
pub fn open(args: &ImageArgs, map: &Path) -> Result<Arc<dyn BlockDevice>, Failure> {
    let bad = read(map)?;
    let still = Still::open(&args.place)?;
    let whole = Arc::new(BadAreas::new(still.whole, bad));
    let device = part(whole, &still.place)?;
    match args.superblock.is_some() || open::may_hold_ext(&*device) {
        true => Ok(device),
        false => Err(identify::not_ext(&args.place.image, &device)),
    }
}

/// The areas that were not rescued, in bytes.
fn read(path: &Path) -> Result<Vec<Range<u64>>, Failure> {
    let failed = |error| Failure::io(path.display(), &error);
    if fs::metadata(path).map_err(failed)?.len() > LEN_MAX {
        return Err(Failure::new(
            Exit::Usage,
            format_args!("{}: too long", path.display()),
        ));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    parse(&text).map_err(|line| {
        let what = format_args!(
            "{}: line {line} is none of a map of ddrescue",
            path.display()
        );
        Failure::new(Exit::Usage, what)
            .hint("each line has a position, a size and a status: 0x00000000  0x1000  +")
    })
}

/// The areas, or the number of a line that makes no sense.
fn parse(text: &str) -> Result<Vec<Range<u64>>, usize> {
    let mut areas = Vec::new();
    let lines = text.lines().zip(1..=LINES_MAX);
    let lines = lines.map(|(line, number)| (line.trim(), number));
    let mut lines = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
    // Where ddrescue was when it wrote the map.
    let (status, at) = lines.next().ok_or(1_usize)?;
    let mut words = status.split_whitespace();
    words.next().and_then(number).ok_or(at)?;
    for (line, at) in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [from, len, status] = words[..] else {
            return Err(at);
        };
        let from = number(from).ok_or(at)?;
        let end = number(len)
            .and_then(|len| from.checked_add(len))
            .ok_or(at)?;
        match status {
            "+" => {}
            // Not tried, not trimmed, not scraped, bad.
            "?" | "*" | "/" | "-" => areas.push(from..end),
            _ => return Err(at),
        }
    }
    Ok(areas)
}

/// A number in C's notation.
fn number(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    match digits {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if text.starts_with('0') => u64::from_str_radix(text, 8).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "# Mapfile. Created by GNU ddrescue version 1.27\n\
        # current_pos  current_status  current_pass\n\
        0x00120000     ?               1\n\
        #      pos        size  status\n\
        0x00000000  0x00117000  +\n\
        0x00117000  0x00000200  -\n\
        0x00117200  0x00001000  *\n\
        1200000 512 /\n\
        0x00200000  0x00100000  ?\n";

    #[test]
    fn what_was_not_rescued_is_bad() {
        let bad = [
            0x11_7000..0x11_7200,
            0x11_7200..0x11_8200,
            1_200_000..1_200_512,
            0x20_0000..0x30_0000,
        ];
        assert_eq!(parse(MAP).unwrap(), bad);
    }

    #[test]
    fn what_is_no_map_is_refused_by_its_line() {
        assert_eq!(parse(""), Err(1));
        assert_eq!(parse("no map"), Err(1));
        assert_eq!(parse("0 +\n0 1\n"), Err(2));
        assert_eq!(parse("0 +\n0 1 x\n"), Err(2));
        assert_eq!(parse("0 +\n# more\n0xFFFFFFFFFFFFFFFF 1 -\n"), Err(3));
    }
}
