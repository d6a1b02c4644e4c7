//! Sparse files: from the numbers of a map to pieces with their place in the archive.

use super::header::BLOCK;
use super::input::Input;
use super::pax::{SPARSE_NUMBERS_MAX, decimal, push_bounded};
use crate::error::{Error, TarDamage};
use crate::tree::DataRange;

/// Longest line of a map, its end included.
const LINE_MAX: usize = 24;

/// Reads the map GNU sparse format 1.0 puts before the contents: decimal lines, first how many
/// pieces, then offset and length of each, padded to a block. `stored` becomes what is left of the
/// member.
pub fn read_map(input: &mut Input, stored: &mut u64) -> Result<Vec<u64>, Error> {
    let at = input.position();
    let mut reader = Lines {
        input,
        stored,
        block: [0; BLOCK],
        next: BLOCK,
    };
    let count = reader.number(at)?;
    let numbers = count.checked_mul(2);
    let numbers = numbers.filter(|&n| n <= SPARSE_NUMBERS_MAX as u64);
    let Some(numbers) = numbers else {
        let why = "more than a million pieces";
        return Err(input.damage(at, TarDamage::Sparse { why }));
    };
    let mut map = Vec::new();
    for _ in 0..numbers {
        map.push(reader.number(at)?);
    }
    Ok(map)
}

struct Lines<'a> {
    input: &'a mut Input,
    stored: &'a mut u64,
    block: [u8; BLOCK],
    next: usize,
}

impl Lines<'_> {
    fn number(&mut self, at: u64) -> Result<u64, Error> {
        let mut line = Vec::with_capacity(LINE_MAX);
        loop {
            if self.next == BLOCK {
                let bad = TarDamage::Sparse {
                    why: "the map is longer than the member",
                };
                let left = self.stored.checked_sub(BLOCK as u64);
                *self.stored = left.ok_or_else(|| self.input.damage(at, bad))?;
                self.block = self.input.read_block("sparse map")?;
                self.next = 0;
            }
            let byte = self.block[self.next];
            self.next += 1;
            if byte == b'\n' {
                break;
            }
            if line.len() == LINE_MAX {
                break;
            }
            line.push(byte);
        }
        decimal(&line).map_err(|why| self.input.damage(at, TarDamage::Sparse { why }))
    }
}

/// Turns a map into pieces whose contents lie end to end from `at` on.
///
/// GNU tar begins every piece at a block of the archive and ends a file where its map ends; others
/// put the pieces end to end and go by the real size. Accepted are the maps that mean the same to
/// all: those of whole blocks, but for the last piece, up to the real size.
///
/// # Errors
/// What contradicts the sizes: `real_size` with holes, `stored` without. A map that readers take
/// differently.
pub fn pieces(
    map: &[u64],
    real_size: u64,
    at: u64,
    stored: u64,
) -> Result<Vec<DataRange>, &'static str> {
    if !map.len().is_multiple_of(2) {
        return Err("an offset without a length");
    }
    let (mut pieces, mut end, mut used) = (Vec::new(), 0u64, 0u64);
    for pair in map.chunks_exact(2) {
        let (offset, len) = (pair[0], pair[1]);
        if offset < end {
            return Err("pieces overlap or are out of order");
        }
        end = match offset.checked_add(len) {
            Some(end) if end <= real_size => end,
            _ => return Err("a piece passes the end of the file"),
        };
        if !used.is_multiple_of(BLOCK as u64) && len > 0 {
            return Err("a piece that is not the last is not of whole blocks");
        }
        let from = used;
        used = match used.checked_add(len) {
            Some(used) if used <= stored => used,
            _ => return Err("pieces are longer than what is stored"),
        };
        if len > 0 {
            let at = at.saturating_add(from);
            pieces.push(DataRange { offset, len, at });
        }
    }
    if end != real_size {
        return Err("the map ends before the file does");
    }
    match used == stored {
        true => Ok(pieces),
        false => Err("pieces are shorter than what is stored"),
    }
}

/// Collects the pairs of an old GNU header's further blocks, of which there is at least one.
pub fn read_extensions(input: &mut Input, map: &mut Vec<u64>) -> Result<(), Error> {
    loop {
        let at = input.position();
        let block = input.read_block("sparse map")?;
        let mut part = Vec::new();
        let has_more = super::header::sparse_extension(&block, &mut part)
            .map_err(|why| input.damage(at, why))?;
        for number in part {
            push_bounded(map, number).map_err(|why| input.damage(at, TarDamage::Sparse { why }))?;
        }
        if !has_more {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_lie_end_to_end() {
        let range = |offset, len, at| DataRange { offset, len, at };
        assert_eq!(
            pieces(&[0, 512, 1000, 5, 2000, 0], 2000, 1000, 517),
            Ok(vec![range(0, 512, 1000), range(1000, 5, 1512)])
        );
        assert_eq!(pieces(&[1 << 40, 0], 1 << 40, 0, 0), Ok(vec![]));
    }

    #[test]
    fn contradictions_are_named() {
        for (map, size, stored, why) in [
            (&[0][..], 9, 0, "without a length"),
            (&[5, 2, 6, 1], 9, 3, "overlap"),
            (&[5, 5], 9, 5, "passes"),
            (&[u64::MAX, 1], u64::MAX, 1, "passes"),
            (&[0, 5], 9, 4, "longer"),
            (&[0, 5, 9, 0], 9, 6, "shorter"),
            (&[0, 5], 9, 5, "ends before"),
            (&[0, 3, 5, 4], 9, 7, "whole blocks"),
        ] {
            assert!(pieces(map, size, 0, stored).unwrap_err().contains(why));
        }
    }
}
