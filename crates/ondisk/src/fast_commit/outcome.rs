//! What fast commits change in all, against the file system as it was last committed.
//!
//! A fast commit says what happened, not which blocks look how. Who reads the file system, and who
//! replays them, only has to know the outcome: other inodes, other mappings, names come and gone.
//!
//! Left out: finding and decoding the records, bitmaps and counts (which stay those of the last
//! whole commit), and times of directories, which fast commits do not record.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Record;
use crate::inode::InodeFlags;
use crate::mapping::Mapping;
use crate::units::{Ino, Lblk};

/// Flags of an inode that no fast commit sets or clears.
pub const FIXED_FLAGS: InodeFlags = InodeFlags::ENCRYPT
    .union(InodeFlags::VERITY)
    .union(InodeFlags::EA_INODE)
    .union(InodeFlags::CASEFOLD);

/// What becomes of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// It is not in use, before or after; or nothing that is said of it counts.
    #[default]
    Nothing,
    /// It is made; one that had its number before, if any, is deleted.
    New,
    /// It was there and stays.
    Stays,
    /// It has no name any more.
    Dies,
}

/// Names of an inode among those that change.
#[derive(Clone, Copy, Debug, Default)]
pub struct Names {
    /// How many.
    pub count: u32,
    /// The directory of one of them.
    pub dir: Ino,
}

impl Names {
    /// Counts one more, in this directory.
    pub fn add(&mut self, dir: Ino) {
        self.count = self.count.saturating_add(1);
        self.dir = dir;
    }
}

/// Name → its inode now, `None` if it has none.
pub type ChangedNames = BTreeMap<Vec<u8>, Option<Ino>>;

/// The outcome of all fast commits of one journal.
#[derive(Debug, Default)]
pub struct FastCommit {
    inodes: HashMap<Ino, ChangedInode>,
    /// By directory.
    names: HashMap<Ino, ChangedNames>,
}

/// What became of one inode.
#[derive(Debug, Default)]
pub struct ChangedInode {
    /// The first bytes of the inode, where they were recorded.
    pub raw: Option<Box<[u8]>>,
    /// Made by these commits: nothing of what its place in the table holds counts. Its first
    /// parent, which for a directory is what ".." means.
    pub parent: Option<Ino>,
    /// First logical block → mapping; none overlap.
    ranges: BTreeMap<u32, Mapping>,
}

impl FastCommit {
    /// Goes through the records of all good commits, in order.
    pub fn new(records: &[Record<'_>]) -> Self {
        let births = births(records);
        let mut all = Self::default();
        for (at, record) in records.iter().enumerate() {
            match *record {
                Record::AddRange { ino, extent } => all.inode(ino).set_range(extent.into()),
                Record::DelRange { ino, lblk, len } => {
                    all.inode(ino).set_range(Mapping::hole(lblk, len));
                }
                Record::Create(d) | Record::Link(d) => all.name(d.parent, d.name, Some(d.ino)),
                Record::Unlink(d) => all.name(d.parent, d.name, None),
                Record::Inode { ino, raw } => {
                    let inode = all.inode(ino);
                    if births.contains(&at) {
                        *inode = ChangedInode::default();
                    }
                    inode.raw = Some(raw.into());
                }
                Record::Pad | Record::Tail { .. } | Record::Head { .. } => {}
            }
            if let Record::Create(d) = record {
                all.inode(d.ino).parent = Some(d.parent);
            }
        }
        all
    }

    /// What became of an inode, if anything did.
    pub fn changed(&self, ino: Ino) -> Option<&ChangedInode> {
        self.inodes.get(&ino)
    }

    /// The names of a directory that came or went.
    pub fn names(&self, dir: Ino) -> Option<&ChangedNames> {
        self.names.get(&dir)
    }

    /// All inodes that something became of, in the order of their numbers.
    pub fn all_inodes(&self) -> BTreeMap<Ino, &ChangedInode> {
        let inodes = self.inodes.iter();
        inodes.map(|(ino, changed)| (*ino, changed)).collect()
    }

    /// All directories whose names changed, in the order of their numbers.
    pub fn all_names(&self) -> BTreeMap<Ino, &ChangedNames> {
        let dirs = self.names.iter();
        dirs.map(|(dir, names)| (*dir, names)).collect()
    }

    fn inode(&mut self, ino: Ino) -> &mut ChangedInode {
        self.inodes.entry(ino).or_default()
    }

    fn name(&mut self, dir: Ino, name: &[u8], ino: Option<Ino>) {
        self.names
            .entry(dir)
            .or_default()
            .insert(name.to_vec(), ino);
    }
}

/// Which records describe an inode that is new at that point: a commit reports first what a new
/// inode is, then what it maps, then that it was created.
fn births(records: &[Record<'_>]) -> HashSet<usize> {
    let mut last = HashMap::new();
    let mut births = HashSet::new();
    for (at, record) in records.iter().enumerate() {
        match record {
            Record::Inode { ino, .. } => {
                last.insert(*ino, at);
            }
            Record::Create(dentry) => births.extend(last.get(&dentry.ino)),
            _ => {}
        }
    }
    births
}

impl ChangedInode {
    /// What is mapped now, and where a hole is now: none overlap, ascending.
    pub fn ranges(&self) -> impl Iterator<Item = Mapping> {
        self.ranges.values().copied()
    }

    /// Puts a mapping over what was reported before.
    fn set_range(&mut self, new: Mapping) {
        let (from, to) = (new.lblk.0, new.end());
        if to <= from {
            return;
        }
        let before = self.ranges.range(..from).next_back().map(|(_, m)| *m);
        let within: Vec<Mapping> = self.ranges.range(from..to).map(|(_, m)| *m).collect();
        for old in before.iter().chain(&within).filter(|old| old.end() > from) {
            self.ranges.remove(&old.lblk.0);
            if old.lblk.0 < from {
                self.ranges.insert(
                    old.lblk.0,
                    old.part(old.lblk, from.saturating_sub(old.lblk.0)),
                );
            }
            if old.end() > to {
                self.ranges.insert(to, old.part(Lblk(to), u32::MAX));
            }
        }
        self.ranges.insert(from, new);
    }

    /// What is said of `lblk` and up to `len - 1` blocks after it: the mapping, or for how many
    /// blocks the tree has the word.
    ///
    /// # Errors
    /// The number of these blocks.
    pub fn map(&self, lblk: Lblk, len: u32) -> Result<Mapping, u32> {
        let before = self.ranges.range(..=lblk.0).next_back();
        if let Some((_, mapping)) = before
            && mapping.end() > lblk.0
        {
            return Ok(mapping.part(lblk, len));
        }
        let next = self.ranges.range(lblk.0..).next();
        Err(next.map_or(len, |(&start, _)| len.min(start.saturating_sub(lblk.0))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::Extent;
    use crate::fast_commit::Dentry;
    use crate::units::Pblk;

    fn add(ino: u32, lblk: u32, len: u16, pblk: u64) -> Record<'static> {
        let extent = Extent {
            lblk: Lblk(lblk),
            len,
            pblk: Pblk(pblk),
            unwritten: false,
        };
        Record::AddRange {
            ino: Ino(ino),
            extent,
        }
    }

    fn del(ino: u32, lblk: u32, len: u32) -> Record<'static> {
        Record::DelRange {
            ino: Ino(ino),
            lblk: Lblk(lblk),
            len,
        }
    }

    /// Physical block, 0 for a hole, `None` where the tree has the word.
    fn blocks(all: &FastCommit, ino: u32, count: u32) -> Vec<Option<u64>> {
        let inode = all.changed(Ino(ino)).unwrap();
        (0..count)
            .map(|i| inode.map(Lblk(i), 1).ok().map(|m| m.pblk.0))
            .collect()
    }

    #[test]
    fn later_ranges_cover_earlier_ones() {
        let records = [
            add(12, 1, 6, 100),
            del(12, 3, 1),
            add(12, 4, 1, 50),
            add(12, 0, 2, 9),
        ];
        let all = FastCommit::new(&records);
        let expected = [
            Some(9),
            Some(10),
            Some(101),
            Some(0),
            Some(50),
            Some(104),
            Some(105),
            None,
        ];
        assert_eq!(blocks(&all, 12, 8), expected);
        let inode = all.changed(Ino(12)).unwrap();
        assert_eq!(inode.map(Lblk(7), 100), Err(100));
    }

    #[test]
    fn a_hole_to_the_end_of_all_files() {
        let all = FastCommit::new(&[add(12, 0, 4, 100), del(12, 2, u32::MAX - 2)]);
        assert_eq!(
            blocks(&all, 12, 4),
            [Some(100), Some(101), Some(0), Some(0)]
        );
    }

    #[test]
    fn a_new_inode_forgets_the_one_before() {
        let dentry = |name| Dentry {
            parent: Ino(2),
            ino: Ino(12),
            name,
        };
        let inode = Record::Inode {
            ino: Ino(12),
            raw: &[7; 128],
        };
        let records = [
            inode,
            add(12, 0, 1, 100),
            Record::Create(dentry(b"a")),
            Record::Unlink(dentry(b"a")),
            inode,
            add(12, 1, 1, 200),
            Record::Create(dentry(b"b")),
        ];
        let all = FastCommit::new(&records);
        assert_eq!(blocks(&all, 12, 2), [None, Some(200)]);
        let names = all.names(Ino(2)).unwrap();
        assert_eq!(names[&b"a"[..]], None);
        assert_eq!(names[&b"b"[..]], Some(Ino(12)));
    }
}
