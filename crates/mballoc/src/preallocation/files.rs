//! What is kept for single files: which of their blocks will lie where.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use uext4_ondisk::{Lblk, Pblk};

use crate::{Allocator, Run};

/// Blocks of a file that are not mapped, and what is kept for them.
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
    parts: Mutex<Parts>,
}

#[derive(Debug, Default)]
struct Parts {
    is_registered: bool,
    list: Vec<Part>,
}

/// All files that anything is kept for. Its lock is innermost.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    next: AtomicU64,
    files: Mutex<HashMap<u64, Arc<FileParts>>>,
}

impl Registry {
    pub(crate) fn new_file(&self) -> Arc<FileParts> {
        Arc::new(FileParts {
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

    /// All of them, which are in it no longer.
    pub(crate) fn take_all(&self) -> Vec<Arc<FileParts>> {
        let files = std::mem::take(&mut *self.files.lock());
        files.into_values().collect()
    }
}

impl FileParts {
    /// Parts of the file that something is kept for.
    pub(crate) fn ranges(&self) -> Vec<Range<u64>> {
        self.parts.lock().list.iter().map(Part::range).collect()
    }

    pub(crate) fn runs(&self) -> Vec<Run> {
        self.parts.lock().list.iter().map(|part| part.run).collect()
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.parts.lock().is_registered
    }

    /// Takes everything out, for it to be given back.
    pub(crate) fn take(&self) -> Vec<Run> {
        let mut parts = self.parts.lock();
        parts.is_registered = false;
        let list = std::mem::take(&mut parts.list);
        list.into_iter().map(|part| part.run).collect()
    }

    /// The same, for one file that may grow again.
    pub(crate) fn discard(&self, allocator: &Allocator) {
        let runs = {
            let mut parts = self.parts.lock();
            if parts.is_registered {
                let files = &allocator.preallocations().files;
                files.files.lock().remove(&self.number);
                parts.is_registered = false;
            }
            std::mem::take(&mut parts.list)
        };
        let runs: Vec<Run> = runs.into_iter().map(|part| part.run).collect();
        allocator.give_back(&runs);
    }

    /// Hands out what is kept for block `lblk` of the file and up to `len - 1` after it.
    pub(crate) fn use_at(&self, allocator: &Allocator, lblk: Lblk, len: u32) -> Option<Run> {
        let mut parts = self.parts.lock();
        let wanted = u64::from(lblk.0);
        let at = parts
            .list
            .iter()
            .position(|part| part.range().contains(&wanted))?;
        let part = parts.list.swap_remove(at);
        let skip = lblk.0 - part.lblk.0;
        let used = part.cut(skip, len.min(part.run.len - skip));
        let behind = skip + used.run.len;
        let rest = [part.cut(0, skip), part.cut(behind, part.run.len - behind)];
        let rest = rest.into_iter().filter(|part| part.run.len > 0);
        let before = parts.list.len();
        parts.list.extend(rest);
        // The part's own mark goes with what is handed out; what is left of it needs others.
        let more = parts.list.len() - before;
        allocator.divide(used.run.start, more as i32, used.run.len.into());
        allocator.preallocations().used(used.run.len);
        Some(used.run)
    }

    /// Keeps `part`, which holds no mark yet, unless something is kept for any of its blocks. Tells
    /// whether it did.
    pub(crate) fn keep(self: &Arc<Self>, allocator: &Allocator, part: Part) -> bool {
        let mut parts = self.parts.lock();
        let range = part.range();
        let overlaps = |other: &Part| {
            let other = other.range();
            other.start < range.end && range.start < other.end
        };
        if parts.list.iter().any(overlaps) {
            return false;
        }
        allocator.divide(part.run.start, 1, 0);
        parts.list.push(part);
        allocator.note_kept(part.run.len);
        if !parts.is_registered {
            parts.is_registered = true;
            let this = Arc::clone(self);
            let all = allocator.preallocations();
            all.files.files.lock().insert(self.number, this);
        }
        true
    }
}
