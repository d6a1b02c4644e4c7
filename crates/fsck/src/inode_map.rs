//! What later passes must know of each inode: four bytes an inode, in the groups that have any.
//!
//! ```text
//! bits 0–3: kind   4: external attribute value   6–15: links stored   16–31: links counted
//! ```
//! Link counts of 1,023 and more are kept in a table on the side.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use uext4_ondisk::inode::FileType;
use uext4_ondisk::num::index;
use uext4_ondisk::{Geometry, GroupNr, Ino};

/// What is known of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// What it is.
    pub kind: Kind,
    /// It holds the value of an extended attribute.
    pub is_ea_inode: bool,
    /// `i_links_count` as stored.
    pub stored: u16,
    /// Directory entries that refer to it, at most 65,535.
    pub counted: u16,
}

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Not in use.
    Unused,
    /// A file of this type.
    File(FileType),
    /// In use by the file system itself, without a name: reserved inodes but the root.
    Reserved,
}

/// What is known of all inodes. Threads may add and count at the same time.
#[derive(Debug)]
pub struct InodeMap {
    groups: Box<[OnceLock<Box<[AtomicU32]>>]>,
    per_group: u32,
    many_links: Mutex<HashMap<Ino, u16, FxBuildHasher>>,
}

const MANY: u32 = 1023;
const EA_INODE: u32 = 1 << 4;
const STORED_SHIFT: u32 = 6;
const COUNTED_SHIFT: u32 = 16;
const RESERVED: u32 = 15;

impl InodeMap {
    /// No inode in use.
    pub fn new(geometry: &Geometry) -> Self {
        Self {
            groups: (0..geometry.groups_count.get())
                .map(|_| OnceLock::new())
                .collect(),
            per_group: geometry.inodes_per_group.get(),
            many_links: Mutex::default(),
        }
    }

    /// Notes an inode; forgets what was known of it, but for the links counted. Nothing happens
    /// to an inode that does not exist.
    pub fn set(&self, ino: Ino, kind: Kind, is_ea_inode: bool, links: u16) {
        let Some((group, at)) = self.place(ino) else {
            return;
        };
        let words = group.get_or_init(|| (0..self.per_group).map(|_| AtomicU32::new(0)).collect());
        let kind = match kind {
            Kind::Unused => 0,
            Kind::File(file_type) => code(file_type),
            Kind::Reserved => RESERVED,
        };
        let stored = u32::from(links).min(MANY);
        if stored == MANY {
            self.many_links.lock().insert(ino, links);
        }
        let ea_inode = if is_ea_inode { EA_INODE } else { 0 };
        let new = kind | ea_inode | stored << STORED_SHIFT;
        let keep = u32::MAX << COUNTED_SHIFT;
        let set = |old: u32| Some(old & keep | new);
        // The closure never refuses.
        let _ = words[at].fetch_update(Ordering::Relaxed, Ordering::Relaxed, set);
    }

    /// Counts a directory entry that refers to the inode.
    pub fn count_link(&self, ino: Ino) {
        if let Some((group, at)) = self.place(ino) {
            let words =
                group.get_or_init(|| (0..self.per_group).map(|_| AtomicU32::new(0)).collect());
            let old = words[at].fetch_add(1 << COUNTED_SHIFT, Ordering::Relaxed);
            if old >> COUNTED_SHIFT == 0xFFFF {
                // It has wrapped around: back to the most that can be counted.
                words[at].fetch_sub(1 << COUNTED_SHIFT, Ordering::Relaxed);
            }
        }
    }

    /// Takes back a count; see [`InodeMap::count_link`].
    pub fn uncount_link(&self, ino: Ino) {
        if let Some((group, at)) = self.place(ino)
            && let Some(words) = group.get()
            && words[at].load(Ordering::Relaxed) >> COUNTED_SHIFT != 0
        {
            words[at].fetch_sub(1 << COUNTED_SHIFT, Ordering::Relaxed);
        }
    }

    /// What is known of an inode; unused if nothing is, or if it does not exist.
    pub fn get(&self, ino: Ino) -> Known {
        let word = self.place(ino).and_then(|(group, at)| {
            let words = group.get()?;
            Some(words[at].load(Ordering::Relaxed))
        });
        self.decode(ino, word.unwrap_or(0))
    }

    /// The inodes of a group about which anything is known, in order.
    pub fn in_group(&self, group: GroupNr) -> impl Iterator<Item = (Ino, Known)> + '_ {
        let words = self.groups.get(index(group.0)).and_then(OnceLock::get);
        let first = group.0.saturating_mul(self.per_group).saturating_add(1);
        let words = words.map_or(&[][..], |words| &**words);
        (first..).map(Ino).zip(words).filter_map(|(ino, word)| {
            let word = word.load(Ordering::Relaxed);
            (word != 0).then(|| (ino, self.decode(ino, word)))
        })
    }

    fn decode(&self, ino: Ino, word: u32) -> Known {
        let stored = word >> STORED_SHIFT & MANY;
        let stored = match stored {
            MANY => self.many_links.lock().get(&ino).copied().unwrap_or(0),
            stored => stored as u16,
        };
        let kind = match word & 15 {
            0 => Kind::Unused,
            RESERVED => Kind::Reserved,
            code => file_type(code).map_or(Kind::Unused, Kind::File),
        };
        Known {
            kind,
            is_ea_inode: word & EA_INODE != 0,
            stored,
            counted: (word >> COUNTED_SHIFT) as u16,
        }
    }

    fn place(&self, ino: Ino) -> Option<(&OnceLock<Box<[AtomicU32]>>, usize)> {
        let number = ino.0.checked_sub(1)?;
        let group = self.groups.get(index(number / self.per_group))?;
        Some((group, index(number % self.per_group)))
    }
}

const TYPES: [FileType; 7] = [
    FileType::Regular,
    FileType::Directory,
    FileType::CharDevice,
    FileType::BlockDevice,
    FileType::Fifo,
    FileType::Socket,
    FileType::Symlink,
];

fn code(file_type: FileType) -> u32 {
    (1..)
        .zip(TYPES)
        .find(|(_, t)| *t == file_type)
        .map_or(0, |(code, _)| code)
}

fn file_type(code: u32) -> Option<FileType> {
    TYPES.get(index(code.checked_sub(1)?)).copied()
}
