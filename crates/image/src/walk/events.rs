//! The events of a directory: collected, sorted, and no more of them than memory allows.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::VecDeque;

use uext4::{Image, Inode};
use uext4_ondisk::inode::FileType;

use super::{Order, is_unusable};

/// Read errors after which the rest of a directory is given up.
const DIRECTORY_ERRORS_MAX: u32 = 64;

/// A name, or the contents of a directory, that the walk has still to show.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// Where it sorts; see the table of orders.
    pub key: Box<[u8]>,
    /// The name, as it is.
    pub name: Box<[u8]>,
    /// The inode.
    pub ino: u32,
    /// The contents of the directory, not the name itself.
    pub subtree: bool,
    /// The type the directory entry reports; none if it reports none.
    pub directory: Option<bool>,
}

impl Event {
    /// Bytes it takes, roughly.
    pub fn cost(&self) -> usize {
        // Two allocations of their own, each with the allocator's word and rounding.
        size_of::<Self>() + self.key.len() + self.name.len() + 32
    }
}

/// Offers all events of a directory.
pub fn collect(fs: &Image, dir: &Inode, order: Order, smallest: &mut Smallest) {
    let mut errors = 0;
    // An error was reported with the directory's entry; what could be read is still shown.
    for entry in fs.read_dir(dir).into_iter().flatten() {
        let Ok(entry) = entry else {
            errors += 1;
            if errors > DIRECTORY_ERRORS_MAX {
                return;
            }
            continue;
        };
        let name = fs.entry_name(dir, &entry);
        let directory = entry.file_type.map(|t| t == FileType::Directory);
        let has_subtree = directory.unwrap_or_else(|| {
            fs.inode(entry.ino)
                .is_ok_and(|inode| inode.file_type == FileType::Directory)
        });
        for subtree in [false, true] {
            if !subtree || has_subtree {
                smallest.offer(order, &name, entry.ino.0, subtree, directory);
            }
        }
    }
}

/// The smallest events above a key that fit a number of bytes.
#[derive(Debug)]
pub struct Smallest {
    limit: usize,
    /// Only keys above this one count.
    pub above: Option<Box<[u8]>>,
    /// Keys above this one are for a later pass.
    ceiling: Option<Box<[u8]>>,
    events: Vec<Event>,
    bytes: usize,
    key: Vec<u8>,
}

impl Smallest {
    /// Nothing yet; `limit` is in bytes.
    pub fn new(above: Option<Box<[u8]>>, limit: usize) -> Self {
        Self {
            limit,
            above,
            ceiling: None,
            events: Vec::new(),
            bytes: 0,
            key: Vec::new(),
        }
    }

    fn offer(&mut self, order: Order, name: &[u8], ino: u32, subtree: bool, dir: Option<bool>) {
        let mut key = std::mem::take(&mut self.key);
        key_of(order, name, subtree, &mut key);
        let wanted = self.above.as_deref().is_none_or(|above| *key > *above)
            && self
                .ceiling
                .as_deref()
                .is_none_or(|ceiling| *key <= *ceiling);
        if wanted {
            self.add(Event {
                key: (*key).into(),
                name: name.into(),
                ino,
                subtree,
                directory: dir,
            });
        }
        self.key = key;
    }

    /// Takes an event in if it is wanted.
    pub fn add(&mut self, event: Event) {
        if self
            .above
            .as_deref()
            .is_some_and(|above| *event.key <= *above)
        {
            return;
        }
        self.bytes += event.cost();
        self.events.push(event);
        if self.bytes > self.limit {
            self.events.sort_unstable();
            // A directory may be one block many times over; then this alone makes room.
            self.events.dedup();
            if self.cost() > self.limit / 2 {
                self.events.truncate(self.events.len() / 2);
                self.ceiling = self.events.last().map(|e| e.key.clone());
            }
            self.bytes = self.cost();
        }
    }

    fn cost(&self) -> usize {
        self.events.iter().map(Event::cost).sum()
    }

    /// The events in order, and whether larger ones were left out.
    pub fn finish(&mut self) -> (VecDeque<Event>, bool) {
        let mut events = std::mem::take(&mut self.events);
        events.sort_unstable_by(|a, b| match a.key.cmp(&b.key) {
            Ordering::Equal => a.ino.cmp(&b.ino),
            different => different,
        });
        (events.into(), self.ceiling.is_some())
    }
}

fn key_of(order: Order, name: &[u8], subtree: bool, key: &mut Vec<u8>) {
    key.clear();
    match order {
        Order::Sorted => {
            key.extend_from_slice(text_name(name).as_bytes());
            if subtree {
                key.push(b'/');
            }
        }
        Order::Nested => {
            key.extend_from_slice(name);
            key.extend_from_slice(&[0, u8::from(subtree)]);
        }
        Order::Listing => {
            key.push(u8::from(subtree));
            key.extend_from_slice(name);
        }
    }
}

/// A name as text: itself if it is UTF-8, a path can hold it, and it does not begin with `hex:`;
/// else `hex:…`.
pub fn text_name(name: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(name) {
        Ok(text) if name.is_empty() || !(is_unusable(name) || text.starts_with("hex:")) => {
            text.into()
        }
        _ => format!("hex:{}", hex::encode(name)).into(),
    }
}
