//! Source trees to copy: directories and the sizes of their files, without names or contents.

use crate::experiment::{Failure, Scale};
use uext4_testkit::SplitMix64;

/// Sizes of the files of Linux 6.1 as Debian ships it; `scripts/linux-tree` made it.
const LINUX: &[u8] = include_bytes!("../../data/linux-6.1.tree.zst");
/// Bytes the list unpacks to, at most.
const LINUX_BYTES_MAX: usize = 1 << 20;
/// Files of the synthetic tree.
const LOGNORMAL_FILES: u64 = 47_000;
/// Files in each of its directories.
const LOGNORMAL_FILES_PER_DIRECTORY: usize = 16;
/// Median of their sizes, standard deviation of the logarithm (so that the mean is 12 KiB),
/// largest.
const LOGNORMAL: (f64, f64, f64) = (4.5 * 1024.0, 1.4006, 5.0 * 1024.0 * 1024.0);

/// A tree.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Every directory after its parent; the first is the root.
    pub directories: Vec<Directory>,
}

/// A directory of a tree.
#[derive(Clone, Debug)]
pub struct Directory {
    /// Index of its parent; the root's is itself.
    pub parent: usize,
    /// Bytes of each of its files.
    pub files: Vec<u64>,
}

impl Tree {
    /// The tree called `linux` or `lognormal`.
    ///
    /// # Errors
    /// [`Failure::Run`] if the list of sizes is damaged.
    pub fn named(name: &str, seed: u64) -> Result<Self, Failure> {
        if name == "lognormal" {
            return Ok(Self::lognormal(seed));
        }
        let damaged = || Failure::Run("the list of Linux's files is damaged".to_owned());
        let bytes = zstd::bulk::decompress(LINUX, LINUX_BYTES_MAX).map_err(|_| damaged())?;
        let text = String::from_utf8(bytes).map_err(|_| damaged())?;
        Self::parse(&text).ok_or_else(damaged)
    }

    /// One line a directory: its parent's line, then its files' sizes.
    fn parse(text: &str) -> Option<Self> {
        let mut directories = Vec::new();
        for line in text.lines() {
            let mut numbers = line.split(' ').map(str::parse::<u64>);
            let parent = numbers.next()?.ok()? as usize;
            let files = numbers.collect::<Result<Vec<_>, _>>().ok()?;
            if parent >= directories.len().max(1) {
                return None;
            }
            directories.push(Directory { parent, files });
        }
        (!directories.is_empty()).then_some(Self { directories })
    }

    fn lognormal(seed: u64) -> Self {
        let mut random = SplitMix64::new(seed ^ 0x7265_6573);
        let (median, sigma, most) = LOGNORMAL;
        let sizes: Vec<u64> = (0..LOGNORMAL_FILES)
            .map(|_| (median * (sigma * random.normal()).exp()).min(most) as u64)
            .collect();
        let mut directories = vec![Directory {
            parent: 0,
            files: Vec::new(),
        }];
        for files in sizes.chunks(LOGNORMAL_FILES_PER_DIRECTORY) {
            // As wide near the root as below it: the parent is one of the directories so far.
            let parent = random.below(directories.len() as u64) as usize;
            directories.push(Directory {
                parent,
                files: files.to_vec(),
            });
        }
        Self { directories }
    }

    /// Bytes of all files, in whole blocks.
    pub fn bytes(&self, block_bytes: u64) -> u64 {
        let files = self.directories.iter().flat_map(|d| &d.files);
        files.map(|size| size.next_multiple_of(block_bytes)).sum()
    }

    /// Evenly thinned to about `most` bytes, if it has more; every directory stays.
    pub fn thinned(mut self, block_bytes: u64, most: u64) -> Self {
        let share = most as f64 / self.bytes(block_bytes).max(1) as f64;
        let mut index = 0u32;
        for directory in &mut self.directories {
            directory.files.retain(|_| {
                // The golden ratio's multiples fall evenly, whatever the sizes' order.
                index += 1;
                (f64::from(index) * 0.618_033_988_749_895).fract() < share
            });
        }
        self
    }

    /// Its first directories, until their files have about `most` bytes.
    pub fn first(mut self, block_bytes: u64, most: u64) -> Self {
        let (mut bytes, mut count) = (0, 0);
        for directory in &self.directories {
            if bytes >= most {
                break;
            }
            let sizes = directory.files.iter();
            bytes += sizes
                .map(|size| size.next_multiple_of(block_bytes))
                .sum::<u64>();
            count += 1;
        }
        self.directories.truncate(count);
        self
    }

    /// As the scale wants it: at most this share of a device of so many bytes when quick.
    pub fn at_scale(self, scale: Scale, block_bytes: u64, device: u64, share: f64) -> Self {
        match scale {
            Scale::Quick => self.thinned(block_bytes, (device as f64 * share) as u64),
            Scale::Full => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_is_all_there() {
        let tree = Tree::named("linux", 0).unwrap();
        let files = tree
            .directories
            .iter()
            .map(|d| d.files.len())
            .sum::<usize>();
        assert_eq!((tree.directories.len(), files), (5096, 78565));
        let thinned = tree.clone().thinned(4096, 200 << 20).bytes(4096);
        assert!((150 << 20..250 << 20).contains(&thinned), "{thinned}");
        let first = tree.first(4096, 40 << 20);
        assert!(first.directories.len() > 10);
        let bytes = first.bytes(4096);
        assert!((40 << 20..60 << 20).contains(&bytes), "{bytes}");
    }

    #[test]
    fn the_synthetic_tree_has_the_paper_s_mean() {
        let tree = Tree::named("lognormal", 5).unwrap();
        let mean = tree.bytes(1) / LOGNORMAL_FILES;
        assert!((10 * 1024..14 * 1024).contains(&mean), "{mean}");
    }

    #[test]
    fn damage_is_refused() {
        for text in ["", "x", "1 2", "0\n2 5"] {
            assert!(Tree::parse(text).is_none(), "{text}");
        }
    }
}
