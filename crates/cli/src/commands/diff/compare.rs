//! Comparing the pairs of a batch, by all processors.

use std::collections::{HashMap, HashSet};
use std::num::NonZero;
use std::rc::Rc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::thread;

use uext4::xattr::Xattr;
use uext4::{Error, FileType, Image, Ino, Inode, InodeFlags};
use uext4_image::budget::Budget;
use uext4_image::pairs::Pair;
use uext4_image::same_data::{SameData, Unread};

use super::change::{Difference, What};
use crate::failure::{Exit, exit_of};
use crate::inode_flags;
use crate::record::stat_size;
use crate::show::{escaped, time_long};

/// Threads, at most: each has 2 MiB of data in memory.
const THREADS_MAX: usize = 8;
/// Pairs of files with several names whose differences are remembered for these names.
const KNOWN_MAX: usize = 1 << 18;

/// What is compared.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// Modification times, too.
    pub times: bool,
    /// Sizes and modification times in place of contents.
    pub quick: bool,
    /// All but these.
    pub ignored: &'a [What],
}

impl Rules<'_> {
    /// Whether this is compared.
    pub fn compares(&self, what: What) -> bool {
        !self.ignored.contains(&what)
    }
}

/// What the comparison of two inodes has found.
#[derive(Debug, Default)]
pub struct Found {
    pub differences: Vec<Difference>,
    /// What could not be compared.
    pub failed: Vec<Failed>,
}

/// A part of an inode that could not be read.
#[derive(Debug)]
pub struct Failed {
    /// It is that of the new image.
    pub is_new: bool,
    pub exit: Exit,
    pub error: String,
}

/// The two inodes of a pair, if they are there, readable and of one type.
fn both(pair: &Pair) -> Option<[&Inode; 2]> {
    let [old, new] = [&pair.old, &pair.new].map(|entry| entry.as_ref()?.inode.as_ref().ok());
    let (old, new) = (old?, new?);
    (old.file_type == new.file_type).then_some([old, new])
}

/// The numbers of two inodes that both have several names, in this pair perhaps not for the first
/// time.
fn linked([old, new]: [&Inode; 2]) -> Option<(Ino, Ino)> {
    let is_linked = |inode: &Inode| inode.links > 1 && inode.file_type != FileType::Directory;
    (is_linked(old) && is_linked(new)).then_some((old.ino, new.ino))
}

/// Compares pairs.
pub struct Comparison<'a> {
    comparers: Vec<Comparer<'a>>,
    /// What was found of files with several names.
    known: HashMap<(Ino, Ino), Rc<Found>>,
}

impl<'a> Comparison<'a> {
    /// Of two images.
    pub fn new(old: &'a Image, new: &'a Image, rules: Rules<'a>) -> Self {
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        let budget = Arc::new(Budget::of_two(old, new));
        let comparer = || Comparer {
            old,
            new,
            rules,
            data: SameData::new(old, new, Arc::clone(&budget)),
        };
        Self {
            comparers: (0..threads.min(THREADS_MAX)).map(|_| comparer()).collect(),
            known: HashMap::new(),
        }
    }

    /// What differs in each pair; `None` for pairs that are not two inodes of a type.
    pub fn of(&mut self, batch: &[Pair]) -> Vec<Option<Rc<Found>>> {
        let mut seen = HashSet::new();
        let jobs: Vec<(usize, [&Inode; 2])> = (0..)
            .zip(batch)
            .filter_map(|(at, pair)| Some((at, both(pair)?)))
            .filter(|(_, inodes)| {
                let key = linked(*inodes);
                key.is_none_or(|key| !self.known.contains_key(&key) && seen.insert(key))
            })
            .collect();
        let found: Vec<OnceLock<Found>> = batch.iter().map(|_| OnceLock::new()).collect();
        let next = AtomicUsize::new(0);
        let work = &|comparer: &mut Comparer<'a>| {
            while let Some((at, inodes)) = jobs.get(next.fetch_add(1, Relaxed)) {
                found[*at].get_or_init(|| comparer.compare(*inodes));
            }
        };
        thread::scope(|scope| {
            let (first, others) = self.comparers.split_at_mut(1);
            for comparer in others.iter_mut().take(jobs.len().saturating_sub(1)) {
                // Without a thread the others do its work.
                _ = thread::Builder::new().spawn_scoped(scope, move || work(comparer));
            }
            first.iter_mut().for_each(work);
        });
        let mut fresh = HashMap::new();
        let results = batch.iter().zip(found).map(|(pair, found)| {
            let key = both(pair).and_then(linked);
            let Some(found) = found.into_inner() else {
                let earlier = |key| fresh.get(&key).or_else(|| self.known.get(&key)).cloned();
                return key.and_then(earlier);
            };
            let found = Rc::new(found);
            if let Some(key) = key {
                fresh.insert(key, Rc::clone(&found));
            }
            Some(found)
        });
        let results = results.collect();
        let left = KNOWN_MAX.saturating_sub(self.known.len());
        self.known.extend(fresh.into_iter().take(left));
        results
    }
}

/// Compares inodes, one pair after the other.
struct Comparer<'a> {
    old: &'a Image,
    new: &'a Image,
    rules: Rules<'a>,
    data: SameData<'a>,
}

impl Comparer<'_> {
    fn compare(&mut self, inodes: [&Inode; 2]) -> Found {
        let [old, new] = inodes;
        let mut found = Found::default();
        match old.file_type {
            FileType::Regular if self.rules.compares(What::Content) => {
                self.contents(inodes, &mut found);
            }
            FileType::Symlink if self.rules.compares(What::Target) => {
                self.targets(inodes, &mut found);
            }
            FileType::CharDevice | FileType::BlockDevice => {
                let number = |inode: &Inode| {
                    let number = inode.rdev.unwrap_or_default();
                    format!("{}:{}", number.major, number.minor)
                };
                self.differ(&mut found, What::Device, inodes.map(number));
            }
            _ => {}
        }
        let mode = |inode: &Inode| format!("{:04o}", inode.mode & 0o7777);
        self.differ(&mut found, What::Mode, inodes.map(mode));
        let owner = |inode: &Inode| format!("{}:{}", inode.uid, inode.gid);
        self.differ(&mut found, What::Owner, inodes.map(owner));
        let is_quick = self.rules.quick && old.file_type == FileType::Regular;
        if (self.rules.times || is_quick) && old.mtime != new.mtime {
            let times = inodes.map(|inode| time_long(inode.mtime));
            self.differ(&mut found, What::Mtime, times);
        }
        if self.rules.compares(What::Xattrs) {
            self.xattrs(inodes, &mut found);
        }
        self.differ(&mut found, What::Flags, inodes.map(flags));
        let project = |inode: &Inode| inode.projid.to_string();
        self.differ(&mut found, What::Project, inodes.map(project));
        found
    }

    fn differ(&self, found: &mut Found, what: What, [old, new]: [String; 2]) {
        if old != new && self.rules.compares(what) {
            let how = format!("{old} -> {new}");
            found.differences.push(Difference::new(what, how));
        }
    }

    fn contents(&mut self, inodes: [&Inode; 2], found: &mut Found) {
        let [old, new] = inodes;
        let is_same = match old.size == new.size {
            true if self.rules.quick => Ok(true),
            _ => self.data.holds(old, new),
        };
        match is_same {
            Ok(true) => {}
            Ok(false) => {
                let content = Difference::new(What::Content, String::new());
                found.differences.push(content);
            }
            Err(Unread::Old(error)) => found.fail(false, &error),
            Err(Unread::New(error)) => found.fail(true, &error),
        }
        let size = |inode| stat_size(inode).to_string();
        self.differ(found, What::Size, inodes.map(size));
    }

    fn targets(&self, inodes: [&Inode; 2], found: &mut Found) {
        let targets = self.of_both(inodes, Image::read_link, found);
        if let Some(targets) = targets {
            let targets = targets.map(|target| escaped(&target));
            self.differ(found, What::Target, targets);
        }
    }

    fn xattrs(&self, inodes: [&Inode; 2], found: &mut Found) {
        let Some([old, new]) = self.of_both(inodes, Image::xattrs, found) else {
            return;
        };
        let lacks = |list: &[Xattr], xattr: &Xattr| !list.contains(xattr);
        let removed = old.iter().filter(|xattr| lacks(&new, xattr));
        let added = new.iter().filter(|xattr| lacks(&old, xattr));
        let mut names: Vec<Vec<u8>> = removed.chain(added).map(|x| x.name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        if !names.is_empty() {
            let shown: Vec<String> = names.iter().map(|name| escaped(name)).collect();
            found.differences.push(Difference {
                what: What::Xattrs,
                how: shown.join(" "),
                names,
            });
        }
    }

    /// Reads something of both inodes; `None` if that fails for one of them.
    fn of_both<T>(
        &self,
        [old, new]: [&Inode; 2],
        read: impl Fn(&Image, &Inode) -> Result<T, Error>,
        found: &mut Found,
    ) -> Option<[T; 2]> {
        let old = read(self.old, old).map_err(|error| found.fail(false, &error));
        let new = read(self.new, new).map_err(|error| found.fail(true, &error));
        Some([old.ok()?, new.ok()?])
    }
}

impl Found {
    fn fail(&mut self, is_new: bool, error: &Error) {
        self.failed.push(Failed {
            is_new,
            exit: exit_of(error).max(Exit::Incomplete),
            error: error.to_string(),
        });
    }
}

/// The names of the flags that programs set.
fn flags(inode: &Inode) -> String {
    let shown = inode_flags::shown(inode).difference(InodeFlags::LAYOUT);
    let names: Vec<&str> = shown.iter_names().map(|(name, _)| name).collect();
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(" ").to_lowercase(),
    }
}
