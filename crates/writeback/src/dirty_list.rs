//! The files with something to write, the one dirty for longest first.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::MappingError;
use crate::file::File;

/// Ordered by ticket, which is also the order of time. A leaf lock, taken once when a file becomes
/// dirty and once when it becomes clean.
#[derive(Debug)]
pub(crate) struct DirtyList<E: MappingError>(Mutex<Inner<E>>);

#[derive(Debug)]
struct Inner<E: MappingError> {
    next: u64,
    entries: BTreeMap<u64, Entry<E>>,
}

#[derive(Debug)]
struct Entry<E: MappingError> {
    file: Weak<File<E>>,
    /// When it became dirty, on the monotonic clock.
    since: Duration,
    /// A flusher is at it.
    busy: bool,
}

impl<E: MappingError> Inner<E> {
    fn insert(&mut self, file: Weak<File<E>>, since: Duration) -> u64 {
        let ticket = self.next;
        self.next += 1;
        let busy = false;
        self.entries.insert(ticket, Entry { file, since, busy });
        ticket
    }
}

impl<E: MappingError> DirtyList<E> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Inner {
            next: 0,
            entries: BTreeMap::new(),
        }))
    }

    /// Appends a file; returns its ticket.
    pub(crate) fn insert(&self, file: Weak<File<E>>, since: Duration) -> u64 {
        self.0.lock().insert(file, since)
    }

    /// Moves a file to the end in one step, so that it is on the list at every moment; returns its
    /// new ticket.
    pub(crate) fn requeue(&self, ticket: u64, file: Weak<File<E>>, since: Duration) -> u64 {
        let mut inner = self.0.lock();
        inner.entries.remove(&ticket);
        inner.insert(file, since)
    }

    pub(crate) fn remove(&self, ticket: u64) {
        self.0.lock().entries.remove(&ticket);
    }

    /// Every file that joins from now on has this ticket or a higher one.
    pub(crate) fn next_ticket(&self) -> u64 {
        self.0.lock().next
    }

    /// The first file that no flusher is at, dirty since `since` or longer, with a ticket below
    /// `bound`. It is the caller's until it gets a new ticket or leaves.
    pub(crate) fn pick(&self, since: Duration, bound: u64) -> Option<Arc<File<E>>> {
        let mut inner = self.0.lock();
        let mut dead = Vec::new();
        let mut found = None;
        for (ticket, entry) in inner.entries.range_mut(..bound) {
            if entry.busy {
                continue;
            }
            if entry.since > since {
                break;
            }
            entry.busy = true;
            found = entry.file.upgrade();
            if found.is_some() {
                break;
            }
            dead.push(*ticket);
        }
        for ticket in dead {
            inner.entries.remove(&ticket);
        }
        found
    }

    /// All files that are on the list now.
    pub(crate) fn files(&self) -> Vec<Arc<File<E>>> {
        let inner = self.0.lock();
        let files = inner.entries.values();
        files.filter_map(|entry| entry.file.upgrade()).collect()
    }
}
