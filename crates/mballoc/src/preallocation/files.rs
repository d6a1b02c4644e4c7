//! What is preallocated for single files: which of their blocks will lie where.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use uext4_ondisk::{Lblk, Pblk};

use super::Preallocations;
use crate::free_space::FreeSpace;
use crate::{Run, trace};

/// Parts preallocated for one file at most; with more the first is given back. (The kernel's
/// `mb_max_inode_prealloc`.)
const PARTS_MAX: usize = 512;

/// Blocks of a file that are not mapped, and what is preallocated for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) lblk: Lblk,
    pub(crate) run: Run,
}

impl Part {
    pub(crate) fn range(&self) -> Range<u64> {
        let start = u64::from(self.lblk.0);
        start..start + u64::from(self.run.len)
    }

    /// Its blocks from the `skip`th on, `len` of them.
    pub(crate) fn cut(&self, skip: u32, len: u32) -> Self {
        Self {
            lblk: Lblk(self.lblk.0 + skip),
            run: Run {
                start: Pblk(self.run.start.0 + u64::from(skip)),
                len,
            },
        }
    }
}

/// The parts of one file, which do not overlap. Lock: a group's may be taken in it, and that of the
/// registry.
#[derive(Debug)]
pub(crate) struct FileParts {
    number: u64,
    /// The file's number, for events.
    ino: u64,
    parts: Mutex<Parts>,
}

#[derive(Debug, Default)]
struct Parts {
    is_registered: bool,
    /// By their first block of the file.
    map: BTreeMap<u32, Run>,
}

impl Parts {
    /// The part that holds block `lblk`, or the last before it.
    fn at_or_before(&self, lblk: Lblk) -> Option<Part> {
        let before = self.map.range(..=lblk.0).next_back();
        before.map(|(&lblk, &run)| Part {
            lblk: Lblk(lblk),
            run,
        })
    }

    fn after(&self, lblk: Lblk) -> Option<Part> {
        let after = self.map.range(lblk.0.checked_add(1)?..).next();
        after.map(|(&lblk, &run)| Part {
            lblk: Lblk(lblk),
            run,
        })
    }
}

/// All files that anything is preallocated for. Its lock is innermost.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    next: AtomicU64,
    files: Mutex<HashMap<u64, Arc<FileParts>>>,
}

impl Registry {
    pub(crate) fn new_file(&self, ino: u64) -> Arc<FileParts> {
        Arc::new(FileParts {
            ino,
            number: self.next.fetch_add(1, Relaxed),
            parts: Mutex::default(),
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.files.lock().len()
    }

    pub(crate) fn all(&self) -> Vec<Arc<FileParts>> {
        self.files.lock().values().map(Arc::clone).collect()
    }
}

impl FileParts {
    /// The parts of the file next before and behind block `lblk` that something is preallocated
    /// for; one that holds it counts as before.
    pub(crate) fn around(&self, lblk: Lblk) -> [Range<u64>; 2] {
        let parts = self.parts.lock();
        [parts.at_or_before(lblk), parts.after(lblk)]
            .map(|part| part.map_or(0..0, |part| part.range()))
    }

    pub(crate) fn runs(&self) -> Vec<Run> {
        self.parts.lock().map.values().copied().collect()
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.parts.lock().is_registered
    }

    /// Gives everything back. Only then the file is not found any more: a request that is about
    /// to be refused waits for the lock, or finds the blocks free. Returns how many blocks that
    /// were.
    pub(crate) fn discard(&self, space: &FreeSpace, all: &Preallocations) -> u64 {
        let mut parts = self.parts.lock();
        let runs: Vec<Run> = std::mem::take(&mut parts.map).into_values().collect();
        let blocks = all.give_back(space, &runs);
        self.unregister(all, &mut parts);
        drop(parts);
        trace::release_inode(&space.groups, self.ino, &runs);
        trace::discard_file(&space.groups, self.ino, runs.len());
        blocks
    }

    fn unregister(&self, all: &Preallocations, parts: &mut Parts) {
        if parts.is_registered {
            all.files.files.lock().remove(&self.number);
            parts.is_registered = false;
        }
    }

    /// Hands out what is preallocated for block `lblk` of the file and up to `len - 1` after it.
    pub(crate) fn use_at(
        &self,
        space: &FreeSpace,
        all: &Preallocations,
        lblk: Lblk,
        len: u32,
    ) -> Option<Run> {
        let mut parts = self.parts.lock();
        let part = parts.at_or_before(lblk)?;
        if !part.range().contains(&u64::from(lblk.0)) {
            return None;
        }
        parts.map.remove(&part.lblk.0);
        let skip = lblk.0 - part.lblk.0;
        let used = part.cut(skip, len.min(part.run.len - skip));
        let behind = skip + used.run.len;
        let rest = [part.cut(0, skip), part.cut(behind, part.run.len - behind)];
        let before = parts.map.len();
        let rest = rest.into_iter().filter(|part| part.run.len > 0);
        parts.map.extend(rest.map(|part| (part.lblk.0, part.run)));
        // The part's own mark goes with what is handed out; what is left of it needs others.
        let more = parts.map.len() - before;
        space.divide(used.run.start, more as i32, used.run.len.into());
        all.used(used.run.len);
        if parts.map.is_empty() {
            self.unregister(all, &mut parts);
        }
        Some(used.run)
    }

    /// Keeps `part`, which holds no mark yet, unless something is preallocated for any of its
    /// blocks. Returns whether it did.
    pub(crate) fn keep(
        self: &Arc<Self>,
        space: &FreeSpace,
        all: &Preallocations,
        part: Part,
    ) -> bool {
        let mut parts = self.parts.lock();
        let range = part.range();
        let before = parts.at_or_before(part.lblk);
        let after = parts.after(part.lblk);
        if before.is_some_and(|before| before.range().end > range.start)
            || after.is_some_and(|after| after.range().start < range.end)
        {
            return false;
        }
        space.divide(part.run.start, 1, 0);
        parts.map.insert(part.lblk.0, part.run);
        all.note_preallocated(space, part.run.len);
        if !parts.is_registered {
            parts.is_registered = true;
            let this = Arc::clone(self);
            all.files.files.lock().insert(self.number, this);
        }
        let first = (parts.map.len() > PARTS_MAX)
            .then(|| parts.map.pop_first())
            .flatten();
        if let Some((_, first)) = first {
            all.give_back(space, &[first]);
            drop(parts);
            trace::release_inode(&space.groups, self.ino, &[first]);
        } else {
            drop(parts);
        }
        trace::new_inode_pa(&space.groups, self.ino, part.lblk, part.run);
        true
    }
}
