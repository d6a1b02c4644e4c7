//! Which bytes of which files could not be read, as a copy notes it.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use uext4_ondisk::Ino;

/// Most ranges of one file. The last one then reaches to the last byte that is missing.
const RANGES_MAX: usize = 1000;
/// Most ranges of all files; files past these have one range each.
const ALL_RANGES_MAX: usize = 1 << 20;

/// The bytes that are missing, by inode.
#[derive(Debug, Default)]
pub struct Missing {
    files: HashMap<Ino, Vec<Range<u64>>>,
    ranges: usize,
    /// Of these nothing was copied.
    left_out: HashSet<Ino>,
}

impl Missing {
    /// Adds bytes of a file, behind those that it has.
    pub fn add(&mut self, ino: Ino, bytes: Range<u64>) {
        let file = self.files.entry(ino).or_default();
        let is_full = file.len() >= RANGES_MAX || self.ranges >= ALL_RANGES_MAX;
        match file.last_mut() {
            Some(last) if is_full || last.end >= bytes.start => last.end = last.end.max(bytes.end),
            _ => {
                file.push(bytes);
                self.ranges += 1;
            }
        }
    }

    /// Notes that nothing of a file is in the copy.
    pub fn leave_out(&mut self, ino: Ino) {
        self.left_out.insert(ino);
    }

    /// Whether nothing of a file is in the copy.
    pub fn is_left_out(&self, ino: Ino) -> bool {
        self.left_out.contains(&ino)
    }

    /// The bytes that are missing of a file, in ascending order.
    pub fn of(&self, ino: Ino) -> &[Range<u64>] {
        self.files.get(&ino).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_and_their_number_is_bounded() {
        let mut missing = Missing::default();
        for block in [0, 1, 3] {
            missing.add(Ino(12), block * 10..block * 10 + 10);
        }
        assert_eq!(missing.of(Ino(12)), [0..20, 30..40]);
        assert!(missing.of(Ino(13)).is_empty());
        for block in 0..2000 {
            missing.add(Ino(13), block * 20..block * 20 + 10);
        }
        let of = missing.of(Ino(13));
        assert_eq!((of.len(), of[0].clone()), (RANGES_MAX, 0..10));
        assert_eq!(of[RANGES_MAX - 1], 999 * 20..1999 * 20 + 10);
    }
}
