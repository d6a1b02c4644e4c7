//! Two trees side by side: what two images have at each path, in the order of [`Order::Nested`].
//!
//! Both walks show names in the same order, so that they are merged as two sorted lists: no more is
//! in memory than the walks themselves have. Where a directory of one image cannot be read wholly,
//! nothing below it can be said to be missing there: names that only the other image has are marked
//! so. The caller reports what is wrong, which the pair of the directory holds.

use std::cmp::Ordering;

use uext4::{Image, Inode};

use crate::walk::{Entry, Order, Step, Walk};

/// What two trees have at a path.
#[derive(Debug)]
pub struct Pair {
    /// The path below the tops; empty for the tops themselves.
    pub path: Vec<u8>,
    /// What the old tree has there.
    pub old: Option<Entry>,
    /// What the new tree has there.
    pub new: Option<Entry>,
    /// Only one tree has something there, as far as known: a directory above it could not be read
    /// wholly in the other.
    pub is_unsure: bool,
}

/// The pairs of two trees, each directory before its contents.
#[derive(Debug)]
pub struct Pairs<'a> {
    old: Side<'a>,
    new: Side<'a>,
}

impl<'a> Pairs<'a> {
    /// Begins at the tops of two trees.
    pub fn new(old: &'a Image, old_top: Inode, new: &'a Image, new_top: Inode) -> Self {
        Self {
            old: Side::new(old, old_top),
            new: Side::new(new, new_top),
        }
    }
}

impl Iterator for Pairs<'_> {
    type Item = Pair;

    /// The next path that one of the trees has, or both. An entry that [is unusable] comes alone.
    ///
    /// [is unusable]: Entry::is_unusable
    fn next(&mut self) -> Option<Pair> {
        self.old.advance();
        self.new.advance();
        let order = match (&self.old.next, &self.new.next) {
            (None, None) => return None,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(_)) if old.entry.is_unusable() => Ordering::Less,
            (Some(_), Some(new)) if new.entry.is_unusable() => Ordering::Greater,
            (Some(old), Some(new)) => compare(&old.path, &new.path),
        };
        let old = self.old.next.take_if(|_| order.is_le());
        let new = self.new.next.take_if(|_| order.is_ge());
        let path = old.as_ref().or(new.as_ref())?.path.clone();
        let is_unsure = match order {
            Ordering::Less => self.new.is_unsure(&path),
            Ordering::Greater => self.old.is_unsure(&path),
            Ordering::Equal => false,
        };
        let (old, new) = (old.map(|at| at.entry), new.map(|at| at.entry));
        self.old.note(&path, old.as_ref());
        self.new.note(&path, new.as_ref());
        Some(Pair {
            path,
            old,
            new,
            is_unsure,
        })
    }
}

/// One of the trees.
#[derive(Debug)]
struct Side<'a> {
    walk: Walk<'a>,
    next: Option<At>,
    /// The outermost directory of those around the last entry that could not be read wholly.
    unsure: Option<Vec<u8>>,
}

/// An entry and its path.
#[derive(Debug)]
struct At {
    path: Vec<u8>,
    entry: Entry,
}

impl<'a> Side<'a> {
    fn new(fs: &'a Image, top: Inode) -> Self {
        Self {
            walk: Walk::new(fs, top, Order::Nested),
            next: None,
            unsure: None,
        }
    }

    /// Makes sure that the next entry is known, if there is one.
    fn advance(&mut self) {
        while self.next.is_none() {
            match self.walk.step() {
                Some(Step::Entry(entry)) => {
                    let path = self.walk.path().to_vec();
                    self.next = Some(At { path, entry });
                }
                Some(_) => {}
                None => return,
            }
        }
    }

    /// Whether it is not known that this tree has nothing at `path`.
    fn is_unsure(&self, path: &[u8]) -> bool {
        self.unsure.as_ref().is_some_and(|dir| is_in(path, dir))
    }

    fn note(&mut self, path: &[u8], entry: Option<&Entry>) {
        if !self.is_unsure(path)
            && let Some(entry) = entry
            && !entry.is_unusable()
            && (entry.problem.is_some() || entry.inode.is_err())
        {
            self.unsure = Some(path.to_vec());
        }
    }
}

/// Whether `path` lies below the directory `dir`; both are paths below the same top.
pub fn is_in(path: &[u8], dir: &[u8]) -> bool {
    match path.strip_prefix(dir) {
        Some(rest) => rest.starts_with(b"/") || dir.is_empty() && !rest.is_empty(),
        None => false,
    }
}

/// The order of [`Order::Nested`], which is that of the names in the paths.
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let is_slash = |byte: &u8| *byte == b'/';
    a.split(is_slash).cmp(b.split(is_slash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_comes_before_its_contents_and_these_before_what_follows() {
        let sorted: [&[u8]; 7] = [b"", b"a", b"a/b", b"a/b/c", b"a/b!", b"a!", b"b"];
        assert!(sorted.is_sorted_by(|a, b| compare(a, b).is_lt()));
    }

    #[test]
    fn a_name_that_begins_alike_is_not_below() {
        assert!(is_in(b"a/b", b"a") && is_in(b"a", b"") && is_in(b"a/b", b""));
        assert!(!is_in(b"ab", b"a") && !is_in(b"a", b"a") && !is_in(b"", b""));
    }
}
