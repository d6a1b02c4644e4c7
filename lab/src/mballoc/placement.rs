//! Which part of the disk a new file or directory is placed in: Orlov's rule, by flex group.
//!
//! Directories in the root are spread: of the parts with average or more free inodes and blocks,
//! the one with the fewest directories. Other directories stay with their parent as long as that
//! part has no less than three quarters of the average; files stay as long as it has an inode.

use uext4_testkit::SplitMix64;

/// What is known of every part.
#[derive(Clone, Debug)]
pub struct Placement {
    inodes: Vec<u64>,
    directories: Vec<u64>,
    random: SplitMix64,
}

impl Placement {
    /// Of so many parts with so many inodes each.
    pub fn new(parts: usize, inodes: u64, seed: u64) -> Self {
        Self {
            inodes: vec![inodes; parts.max(1)],
            directories: vec![0; parts.max(1)],
            random: SplitMix64::new(seed ^ 0x6f72_6c6f),
        }
    }

    /// Of a new directory; `parent` is `None` in the root. `free` are the free blocks of every
    /// part.
    pub fn directory(&mut self, parent: Option<usize>, free: &[u64]) -> usize {
        let parts = self.inodes.len();
        let mean = |values: &[u64]| values.iter().sum::<u64>() / parts as u64;
        let (inodes, blocks) = (mean(&self.inodes), mean(free));
        let chosen = match parent {
            None => {
                let first = self.random.below(parts as u64) as usize;
                (0..parts)
                    .map(|i| (first + i) % parts)
                    .filter(|&p| self.inodes[p] >= inodes.max(1) && free[p] >= blocks)
                    .min_by_key(|&p| self.directories[p])
            }
            Some(parent) => (0..parts)
                .map(|i| (parent + i) % parts)
                .find(|&p| self.inodes[p] > inodes / 4 * 3 && free[p] >= blocks / 4 * 3),
        };
        let part = chosen.unwrap_or_else(|| self.roomiest());
        self.directories[part] += 1;
        self.inodes[part] = self.inodes[part].saturating_sub(1);
        part
    }

    /// Of a new file in a directory placed at `parent`.
    pub fn file(&mut self, parent: usize) -> usize {
        let parts = self.inodes.len();
        let part = (0..parts)
            .map(|i| (parent + i) % parts)
            .find(|&p| self.inodes[p] > 0)
            .unwrap_or(parent);
        self.inodes[part] = self.inodes[part].saturating_sub(1);
        part
    }

    /// A file or directory of that part is gone.
    pub fn remove(&mut self, part: usize, directory: bool) {
        self.inodes[part] += 1;
        if directory {
            self.directories[part] = self.directories[part].saturating_sub(1);
        }
    }

    fn roomiest(&self) -> usize {
        let parts = 0..self.inodes.len();
        parts.max_by_key(|&p| self.inodes[p]).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_spreads_and_the_rest_stays() {
        let mut placement = Placement::new(4, 1000, 1);
        let free = [100; 4];
        let mut seen: Vec<_> = (0..4).map(|_| placement.directory(None, &free)).collect();
        let below = placement.directory(Some(seen[0]), &free);
        assert_eq!(below, seen[0]);
        assert_eq!(placement.file(below), below);
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3]);
    }

    #[test]
    fn a_full_part_is_left() {
        let mut placement = Placement::new(2, 2, 1);
        assert_eq!((placement.file(0), placement.file(0)), (0, 0));
        assert_eq!(placement.file(0), 1);
        assert_eq!(placement.directory(Some(0), &[5, 5]), 1);
        assert_eq!(placement.directory(Some(1), &[0, 100]), 1);
    }
}
