//! Checks directories: every entry refers to an inode in use and is found by lookup; every inode
//! has as many names as its link count, and every directory one parent.

use std::hash::Hasher;

use rustc_hash::FxHasher;
use uext4_ondisk::inode::{FileType, InodeFlags};
use uext4_ondisk::num::len64;
use uext4_ondisk::{GroupNr, Ino, Lblk};

use super::index::Leaves;
use super::table::{Seen, Table};
use super::{Checker, Issue};
use crate::base::error::Error;
use crate::dir::namei;
use crate::dir::{self, DirEntry};
use crate::inode::{Inode, iget};

/// Maximum number of names of one directory that are compared with each other: 32 MiB of hashes.
const NAMES_MAX: usize = 1 << 22;
/// Maximum number of additional names of directories that are recorded; further ones are only
/// counted.
const SECOND_NAMES_MAX: u64 = 1 << 20;

/// The parent of each directory: eight bytes per directory.
#[derive(Debug, Default)]
pub(super) struct Parents {
    /// (directory, the directory that refers to it), in the order in which they were found.
    named: Vec<(Ino, Ino)>,
}

impl Checker<'_> {
    /// Counts the names in `dir`, and with `first_window` checks them.
    pub(super) fn directory(&mut self, table: &mut Table, dir: &Inode, first_window: bool) {
        if self.is_removed(dir) {
            return;
        }
        let mut entries = match dir::read_dir(self.shared, dir) {
            Ok(entries) => entries,
            Err(error) => return self.report_once(first_window, Some(dir.ino), error),
        };
        let leaves = first_window.then(|| self.leaves(dir)).flatten();
        let mut hashes = Vec::new();
        let (mut dots, mut doubled) = (0, false);
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.report_once(first_window, Some(dir.ino), error);
                    continue;
                }
            };
            match entry.name.as_slice() {
                b"." | b".." => {
                    dots = u32::saturating_add(dots, 1);
                    // That there are more, or fewer, is reported below.
                    if first_window && dots <= 2 && entry.name.len() == 2 {
                        self.dot_dots.named.push((dir.ino, entry.ino));
                    }
                }
                _ if first_window && hashes.len() < NAMES_MAX => hashes.push(hash(&entry.name)),
                _ => {}
            }
            self.name(table, dir, &entry, first_window);
            if let (Some(leaves), Some(lblk)) = (&leaves, entries.lblk()) {
                self.found_by_hash(dir, &entry, leaves, lblk);
            }
        }
        if first_window && dots != 2 {
            let damage = uext4_ondisk::Damage::Directory {
                ino: dir.ino,
                why: "lacks \".\" or \"..\"",
            };
            self.report(Issue::Damage { ino: None, damage });
        }
        hashes.sort_unstable();
        doubled |= hashes.windows(2).any(|w| w[0] == w[1]);
        if doubled {
            self.duplicates(dir, &hashes);
        }
    }

    /// Counts a name, and compares it with its inode, which the table of the inode's window shows
    /// without a lookup. What is wrong with the name itself is reported with `first_window`.
    fn name(&mut self, table: &mut Table, dir: &Inode, entry: &DirEntry, first_window: bool) {
        let seen = table.entry(entry.ino).map(|seen| {
            seen.names = seen.names.saturating_add(1);
            *seen
        });
        match entry.name.as_slice() {
            b"." => {
                if first_window && entry.ino != dir.ino {
                    let why = "\".\" leads elsewhere";
                    let damage = uext4_ondisk::Damage::Directory { ino: dir.ino, why };
                    self.report(Issue::Damage { ino: None, damage });
                }
                return;
            }
            b".." => return,
            // An encrypted name is stored as any bytes.
            name if first_window
                && !dir.has(InodeFlags::ENCRYPT)
                && name.iter().any(|b| matches!(b, b'/' | 0)) =>
            {
                let name = name.to_vec();
                self.report(Issue::IllegalName { dir: dir.ino, name });
            }
            _ => {}
        }
        if namei::is_hidden(self.sbi, entry.ino) {
            if first_window {
                let (dir, name, ino) = (dir.ino, entry.name.clone(), entry.ino);
                self.report(Issue::ReservedName { dir, name, ino });
            }
            return;
        }
        let (file_type, links) = match (seen, self.sbi.geometry().inode_group(entry.ino)) {
            (
                Some(Seen {
                    file_type: Some(file_type),
                    stored,
                    ..
                }),
                _,
            ) => (file_type, stored),
            // The inode belongs to another window.
            (None, Some(_)) => return,
            (None, None) if !first_window => return,
            _ => match iget(self.sbi, entry.ino) {
                Ok(inode) => (inode.file_type, inode.links),
                Err(error @ Error::Device(_)) => return self.report_error(Some(dir.ino), error),
                Err(_) => (FileType::Regular, 0),
            },
        };
        if links == 0 {
            let (dir, name, ino) = (dir.ino, entry.name.clone(), entry.ino);
            return self.report(Issue::DanglingName { dir, name, ino });
        }
        if let Some(recorded) = entry.file_type.filter(|t| *t != file_type) {
            self.report(Issue::NameType {
                dir: dir.ino,
                name: entry.name.clone(),
                recorded,
                actual: file_type,
            });
        }
        let room = self.summary.directories.saturating_add(SECOND_NAMES_MAX);
        if file_type == FileType::Directory && len64(self.parents.named.len()) < room {
            self.parents.named.push((entry.ino, dir.ino));
        }
    }

    /// In a hashed directory, a lookup must search the block that contains the entry.
    fn found_by_hash(&mut self, dir: &Inode, entry: &DirEntry, leaves: &Leaves, lblk: Lblk) {
        if matches!(entry.name.as_slice(), b"." | b"..") {
            return;
        }
        match leaves.lead_to(self.sbi, lblk, &entry.name) {
            Ok(true) => {}
            Ok(false) => self.report(Issue::NameNotFound {
                dir: dir.ino,
                name: entry.name.clone(),
            }),
            Err(error) => self.report_error(Some(dir.ino), error),
        }
    }

    /// Reads the directory again and reports every name that occurs twice, among those whose hash
    /// occurs twice.
    fn duplicates(&mut self, dir: &Inode, sorted: &[u64]) {
        let Ok(entries) = dir::read_dir(self.shared, dir) else {
            return;
        };
        let twice = |h: u64| {
            let from = sorted.partition_point(|x| *x < h);
            sorted[from..].get(1) == Some(&h)
        };
        let mut names: Vec<Vec<u8>> = entries
            .filter_map(Result::ok)
            .map(|e| e.name)
            .filter(|n| twice(hash(n)))
            .take(NAMES_MAX / 64)
            .collect();
        names.sort_unstable();
        for pair in names.chunk_by(|a, b| a == b).filter(|same| same.len() > 1) {
            self.report(Issue::DuplicateName {
                dir: dir.ino,
                name: pair[0].clone(),
            });
        }
    }

    /// Compares the counted names of one window of inodes with the inodes' link counts.
    pub(super) fn link_counts(&mut self, table: &Table) {
        for group in table.groups() {
            let group = GroupNr(group);
            let inodes = super::first_inode(self.sbi, group).0..=u32::MAX;
            for (seen, ino) in table.group(group).iter().zip(inodes.map(Ino)) {
                let hidden = ino.0 < self.sbi.geometry().first_ino && ino != Ino::ROOT;
                if seen.file_type.is_none() || hidden || namei::is_hidden(self.sbi, ino) {
                    continue;
                }
                let is_dir = seen.file_type == Some(FileType::Directory);
                let many_subdirs = is_dir && seen.stored == 1 && seen.names > 2;
                if seen.names == 0 && !self.is_orphan(ino) {
                    self.report(Issue::Unreachable { ino });
                } else if seen.names != seen.stored && seen.names != u16::MAX && !many_subdirs {
                    let (stored, counted) = (seen.stored, seen.names.into());
                    self.report(Issue::LinkCount {
                        ino,
                        stored,
                        counted,
                    });
                }
            }
        }
    }

    /// Checks that every directory has one parent, that its ".." refers to it, and that the path
    /// up ends at the root.
    pub(super) fn check_parents(&mut self) {
        let mut parents = std::mem::take(&mut self.parents.named);
        // Any entry that refers to the root is a second name: the root needs none.
        parents.insert(0, (Ino::ROOT, Ino::ROOT));
        parents.sort_by_key(|(dir, _)| *dir);
        for pair in parents.windows(2).filter(|w| w[0].0 == w[1].0) {
            self.report(Issue::SecondParent {
                dir: pair[0].0,
                parent: pair[1].1,
            });
        }
        let parent_of = |dir: Ino| {
            let at = parents.partition_point(|(d, _)| *d < dir);
            parents.get(at).filter(|(d, _)| *d == dir).map(|(_, p)| *p)
        };
        let dot_dots = std::mem::take(&mut self.dot_dots.named);
        for &(dir, found) in &dot_dots {
            let parent = if dir == Ino::ROOT {
                Some(Ino::ROOT)
            } else {
                parent_of(dir)
            };
            if let Some(parent) = parent.filter(|p| *p != found) {
                self.report(Issue::DotDot { dir, found, parent });
            }
        }
        parents.dedup_by_key(|(dir, _)| *dir);
        for ino in circles(&parents) {
            self.report(Issue::Unreachable { ino });
        }
    }
}

/// Returns one directory of each cycle among (directory, parent) pairs, which are sorted and have
/// distinct directories: directories in a cycle are not connected to the root.
fn circles(parents: &[(Ino, Ino)]) -> Vec<Ino> {
    let place = |dir: Ino| parents.binary_search_by_key(&dir, |(d, _)| *d).ok();
    // The number of the walk, counted from 1, that visited each first.
    let mut walked = vec![0u32; parents.len()];
    let mut found = Vec::new();
    for (walk, &(start, _)) in (1..).zip(parents) {
        let mut at = start;
        while let Some(i) = place(at).filter(|_| at != Ino::ROOT) {
            if walked[i] != 0 {
                if walked[i] == walk {
                    found.push(at);
                }
                break;
            }
            walked[i] = walk;
            at = parents[i].1;
        }
    }
    found
}

fn hash(name: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(name);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_found_from_a_directory_below_it() {
        let parents = |pairs: &[(u32, u32)]| -> Vec<(Ino, Ino)> {
            pairs.iter().map(|&(dir, up)| (Ino(dir), Ino(up))).collect()
        };
        assert_eq!(circles(&parents(&[(11, 2), (12, 11), (13, 12)])), []);
        let below = parents(&[(11, 2), (12, 13), (13, 14), (14, 13), (15, 15)]);
        assert_eq!(circles(&below), [Ino(13), Ino(15)]);
        assert_eq!(circles(&parents(&[(2, 12), (12, 2)])), []);
    }
}
