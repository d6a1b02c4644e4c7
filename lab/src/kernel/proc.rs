//! What the kernel reports in files below /proc and /sys: read, taken apart, and set for a while.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The text of a file of an ext4 that is mounted, below `/proc/fs/ext4`.
///
/// `device` is the name of its block device (`loop3`), `file` for example `mb_stats`.
///
/// # Errors
/// The path, and what reading it failed with: this kernel has no such file.
pub fn ext4(device: &str, file: &str) -> Result<String, String> {
    read(&Path::new("/proc/fs/ext4").join(device).join(file))
}

/// The path of an attribute of an ext4 that is mounted, for example `mb_stats`.
pub fn attribute(device: &str, file: &str) -> PathBuf {
    Path::new("/sys/fs/ext4").join(device).join(file)
}

/// The text of a file without white space around it.
///
/// # Errors
/// The path, and what reading it failed with.
pub fn read(path: &Path) -> Result<String, String> {
    let text = fs::read_to_string(path);
    let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(text.trim().to_owned())
}

/// The number that a file holds.
///
/// # Errors
/// The path, and what reading it failed with, or what it holds instead.
pub fn number(path: &Path) -> Result<f64, String> {
    let text = read(path)?;
    let number = text.parse();
    number.map_err(|_| format!("{}: {text:?} is no number", path.display()))
}

/// Writes a file whose value belongs to one mount or control group, and nothing puts it back.
///
/// # Errors
/// The path, and what writing it failed with.
pub fn store(path: &Path, value: &str) -> Result<(), String> {
    fs::write(path, value).map_err(|error| format!("{}: {error}", path.display()))
}

/// Has the kernel drop clean caches of the whole machine: 1 is page cache, 2 slabs (inodes, names
/// and whatever a shrinker may drop), 3 both.
///
/// # Errors
/// What writing the file failed with.
pub fn drop_caches(which: u8) -> Result<(), String> {
    store(Path::new("/proc/sys/vm/drop_caches"), &which.to_string())
}

/// Numbers in lines `name: number`, with those of an indented line below the line before it:
/// `mb_stats` has `cr_p2_aligned_stats/hits`. What follows a number, as its unit, is left out.
pub fn tree(text: &str) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    // Names of the lines that the next one may be below, and how far they are indented.
    let mut above: Vec<(usize, String)> = Vec::new();
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let Some((name, value)) = line.trim().split_once(':') else {
            continue;
        };
        while above.last().is_some_and(|(other, _)| *other >= indent) {
            above.pop();
        }
        above.push((indent, name.trim().to_owned()));
        let word = value.split_whitespace().next().unwrap_or_default();
        if let Ok(number) = word.parse() {
            let names: Vec<_> = above.iter().map(|(_, name)| name.as_str()).collect();
            found.insert(names.join("/"), number);
        }
    }
    found
}

/// What `es_shrinker_info` reports.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shrinker {
    /// Extents in memory.
    pub objects: u64,
    /// Those that may be dropped.
    pub reclaimable: u64,
    /// Lookups that found an extent, and others.
    pub hits: u64,
    /// Lookups that found none.
    pub misses: u64,
    /// Inodes on the list.
    pub inodes: u64,
    /// Moving average of the time of a scan, in microseconds.
    pub average_us: u64,
    /// Moving average of extents dropped by a scan.
    pub average_shrunk: u64,
    /// Longest scan, in microseconds.
    pub longest_us: u64,
}

impl Shrinker {
    /// Of the ext4 on this device (`loop3`).
    ///
    /// # Errors
    /// What reading the file failed with.
    pub fn of(device: &str) -> Result<Self, String> {
        Ok(Self::parse(&ext4(device, "es_shrinker_info")?))
    }

    /// Reads its text; what is not there is 0.
    pub fn parse(text: &str) -> Self {
        let mut stats = Self::default();
        for line in text.lines() {
            let Some((count, what)) = line.trim().split_once(' ') else {
                continue;
            };
            let number = count.parse().unwrap_or(0);
            match what {
                "objects" => stats.objects = number,
                "reclaimable objects" => stats.reclaimable = number,
                "cache hits/misses" => {
                    let (hits, misses) = count.split_once('/').unwrap_or_default();
                    stats.hits = hits.parse().unwrap_or(0);
                    stats.misses = misses.parse().unwrap_or(0);
                }
                "inodes on list" => stats.inodes = number,
                "us scan time" => stats.average_us = number,
                "shrunk objects" => stats.average_shrunk = number,
                "us max scan time" => stats.longest_us = number,
                _ => {}
            }
        }
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_the_shrinker_is_read() {
        let text = "stats:\n  272572 objects\n  272545 reclaimable objects\n  \
                    2228/247 cache hits/misses\n  18 inodes on list\naverage:\n  54 us scan time\n  \
                    91 shrunk objects\nmaximum:\n  36 inode (340 objects, 339 reclaimable)\n  \
                    353 us max scan time";
        let stats = Shrinker {
            objects: 272_572,
            reclaimable: 272_545,
            hits: 2228,
            misses: 247,
            inodes: 18,
            average_us: 54,
            average_shrunk: 91,
            longest_us: 353,
        };
        assert_eq!(Shrinker::parse(text), stats);
        assert_eq!(
            Shrinker::parse("stats:\n  many objects\n"),
            Shrinker::default()
        );
    }

    #[test]
    fn an_indented_line_is_below_the_one_before_it() {
        let text = "mballoc:\n\treqs: 7\n\tcr_goal_fast_stats:\n\t\thits: 2 of 3\n\tuseless: no\n\
                    \t\tbad: 0.5\nend: 1\n";
        let found: Vec<(String, f64)> = tree(text).into_iter().collect();
        let expected = [
            ("end", 1.0),
            ("mballoc/cr_goal_fast_stats/hits", 2.0),
            ("mballoc/reqs", 7.0),
            ("mballoc/useless/bad", 0.5),
        ];
        assert_eq!(found, expected.map(|(name, n)| (name.to_owned(), n)));
    }

    #[test]
    fn invalid_numbers_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("dirty_ratio");
        fs::write(&file, "20\n").unwrap();
        assert_eq!(number(&file), Ok(20.0));
        store(&file, "many").unwrap();
        assert!(number(&file).unwrap_err().contains("\"many\""));
        assert!(
            ext4("no-such-device", "mb_stats")
                .unwrap_err()
                .contains("no-such-device")
        );
    }
}
