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

/// The areas that were not rescued, in bytes; what the map does not name was not.
fn read(path: &Path) -> Result<Vec<Range<u64>>, Failure> {
    let failed = |error| Failure::io(path.display(), &error);
    if fs::metadata(path).map_err(failed)?.len() > LEN_MAX {
        return Err(Failure::new(
            Exit::Usage,
            format_args!("{}: too long", path.display()),
        ));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    parse(&text).map_err(|wrong| {
        let shown = path.display();
        match wrong {
            Wrong::Line(line) => {
                let what = format_args!("{shown}: line {line} is none of a map of ddrescue");
                Failure::new(Exit::Usage, what)
                    .hint("each line has a position, a size and a status: 0x00000000  0x1000  +")
            }
            Wrong::Long => {
                let what = format_args!("{shown}: has more than {LINES_MAX} lines");
                Failure::new(Exit::Usage, what).hint(
                    "`ddrescue` with a larger --sector-size or --cluster-size makes a shorter one",
                )
            }
        }
    })
}

/// Why a text is no map.
#[derive(Debug, PartialEq, Eq)]
enum Wrong {
    /// The line of this number makes no sense.
    Line(usize),
    /// There are more than are read.
    Long,
}

/// The areas that were not rescued: those that have another status, and all that is not named.
fn parse(text: &str) -> Result<Vec<Range<u64>>, Wrong> {
    let mut areas = Vec::new();
    let mut rescued: Vec<Range<u64>> = Vec::new();
    let lines = text.lines().zip(1..);
    let lines = lines.map(|(line, number)| (line.trim(), number));
    let mut lines = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
    // Where ddrescue was when it wrote the map.
    let (status, at) = lines.next().ok_or(Wrong::Line(1))?;
    let mut words = status.split_whitespace();
    words.next().and_then(number).ok_or(Wrong::Line(at))?;
    for (line, at) in lines {
        if at > LINES_MAX {
            return Err(Wrong::Long);
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let [from, len, status] = words[..] else {
            return Err(Wrong::Line(at));
        };
        let from = number(from).ok_or(Wrong::Line(at))?;
        let end = number(len)
            .and_then(|len| from.checked_add(len))
            .ok_or(Wrong::Line(at))?;
        match status {
            "+" => rescued.push(from..end),
            // Not tried, not trimmed, not scraped, bad.
            "?" | "*" | "/" | "-" => areas.push(from..end),
            _ => return Err(Wrong::Line(at)),
        }
    }
    rescued.sort_unstable_by_key(|area| area.start);
    let mut known = 0;
    for area in rescued {
        if area.start > known {
            areas.push(known..area.start);
        }
        known = known.max(area.end);
    }
    areas.push(known..u64::MAX);
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

    /// The bad areas of a map, as the device has them.
    fn bad(map: &str) -> Vec<Range<u64>> {
        let mut areas = parse(map).unwrap();
        areas.sort_unstable_by_key(|area| area.start);
        areas.dedup_by(|next, last| {
            let meets = next.start <= last.end;
            last.end = if meets {
                last.end.max(next.end)
            } else {
                last.end
            };
            meets
        });
        areas
    }

    #[test]
    fn what_was_not_rescued_is_bad() {
        let all = 0x11_7000..u64::MAX;
        assert_eq!(bad(MAP), std::slice::from_ref(&all));
        let more = format!("{MAP}0x00118200  0x000E0000  +\n0x00300000  0x10000  +\n");
        let expected = [
            0x11_7000..0x11_8200,
            1_200_000..1_200_512,
            0x1F_8200..0x30_0000,
            0x31_0000..u64::MAX,
        ];
        assert_eq!(bad(&more), expected);
    }

    #[test]
    fn what_the_map_does_not_name_is_bad() {
        let map = "0 +\n0x1000 0x1000 +\n0x4000 0x1000 +\n0x3000 0x1000 +\n";
        assert_eq!(bad(map), [0..0x1000, 0x2000..0x3000, 0x5000..u64::MAX]);
        let all = 0..u64::MAX;
        assert_eq!(bad("0 +\n"), std::slice::from_ref(&all));
    }

    #[test]
    fn a_map_that_is_too_long_is_no_shorter_one() {
        let line = "0 1 -\n";
        let map = format!("0 +\n{}", line.repeat(LINES_MAX));
        assert_eq!(parse(&map), Err(Wrong::Long));
        assert!(parse(&map[..map.len() - line.len()]).is_ok());
    }

    #[test]
    fn what_is_no_map_is_refused_by_its_line() {
        assert_eq!(parse(""), Err(Wrong::Line(1)));
        assert_eq!(parse("no map"), Err(Wrong::Line(1)));
        assert_eq!(parse("0 +\n0 1\n"), Err(Wrong::Line(2)));
        assert_eq!(parse("0 +\n0 1 x\n"), Err(Wrong::Line(2)));
        let passing = "0 +\n# more\n0xFFFFFFFFFFFFFFFF 1 -\n";
        assert_eq!(parse(passing), Err(Wrong::Line(3)));
    }
}
