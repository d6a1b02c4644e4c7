//! What later passes must know of each inode: one byte an inode, in the groups that have any.
//!
//! ```text
//! bits 0–3: kind   4: one link is counted   5: one link is stored   6: the rest is in the table
//! ```
//! Most inodes are files with one name. What does not fit into a byte (directories, files with
//! several names, values of attributes) is in a table of its group, under a lock.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use uext4_blockdev::{Bytes, Scratch};
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
    groups: Box<[OnceLock<Box<Group>>]>,
    scratch: Arc<Scratch>,
    per_group: u32,
}

/// The inodes of one group.
#[derive(Debug)]
struct Group {
    bytes: Bytes,
    /// Of the inodes whose byte has [`IN_TABLE`], by their number within the group. A byte changes
    /// without this lock only while it has not that bit, and never gets it without the lock.
    table: Mutex<HashMap<u32, Links, FxBuildHasher>>,
}

/// What does not fit into a byte.
#[derive(Clone, Copy, Debug, Default)]
struct Links {
    stored: u16,
    counted: u16,
    is_ea_inode: bool,
}

const KIND: u8 = 15;
const COUNTED: u8 = 1 << 4;
const STORED: u8 = 1 << 5;
const IN_TABLE: u8 = 1 << 6;
const RESERVED: u8 = 15;

impl Group {
    fn new(inodes: u32, scratch: &Scratch) -> Box<Self> {
        Box::new(Self {
            bytes: scratch.bytes(index(inodes)),
            table: Mutex::default(),
        })
    }

    fn byte(&self, at: u32) -> u8 {
        self.bytes[index(at)].load(Ordering::Relaxed)
    }

    /// Notes what is stored of an inode, and keeps what is counted.
    fn set(&self, at: u32, kind: u8, stored: Links) {
        let mut table = self.table.lock();
        let mut links = Links {
            counted: self.links(&table, at).counted,
            ..stored
        };
        let is_small = |links: Links| !links.is_ea_inode && links.stored <= 1 && links.counted <= 1;
        while is_small(links) {
            let counted = if links.counted == 0 { 0 } else { COUNTED };
            let new = kind | counted | if links.stored == 0 { 0 } else { STORED };
            // Another thread may count the first link meanwhile.
            let old = self.byte(at);
            let is_same = old & IN_TABLE != 0 || (old & COUNTED) == counted;
            if is_same && self.swap(at, old, new) {
                table.remove(&at);
                return;
            }
            links.counted = self.links(&table, at).counted;
        }
        let old = self.bytes[index(at)].swap(kind | IN_TABLE, Ordering::Relaxed);
        if old & IN_TABLE == 0 && old & COUNTED != 0 {
            links.counted = links.counted.max(1);
        }
        table.insert(at, links);
    }

    /// Counts one link.
    fn count(&self, at: u32) {
        let old = self.byte(at);
        if old & (IN_TABLE | COUNTED) == 0 && self.swap(at, old, old | COUNTED) {
            return;
        }
        let mut table = self.table.lock();
        loop {
            let old = self.byte(at);
            if old & (IN_TABLE | COUNTED) == 0 {
                if self.swap(at, old, old | COUNTED) {
                    return;
                }
                continue;
            }
            let mut links = self.links(&table, at);
            links.counted = links.counted.saturating_add(1);
            // It has the bit of the table or a link: nothing but this lock's holder changes it.
            self.bytes[index(at)].store(old & KIND | IN_TABLE, Ordering::Relaxed);
            table.insert(at, links);
            return;
        }
    }

    /// Takes back a count.
    fn uncount(&self, at: u32) {
        let mut table = self.table.lock();
        match table.get_mut(&at) {
            Some(links) => links.counted = links.counted.saturating_sub(1),
            None => _ = self.bytes[index(at)].fetch_and(!COUNTED, Ordering::Relaxed),
        }
    }

    fn swap(&self, at: u32, old: u8, new: u8) -> bool {
        let byte = &self.bytes[index(at)];
        byte.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// The links of an inode.
    fn links(&self, table: &HashMap<u32, Links, FxBuildHasher>, at: u32) -> Links {
        match self.byte(at) {
            byte if byte & IN_TABLE != 0 => table.get(&at).copied().unwrap_or_default(),
            byte => small(byte),
        }
    }

    fn known(&self, at: u32) -> Known {
        let byte = self.byte(at);
        let links = match byte & IN_TABLE != 0 {
            true => self.links(&self.table.lock(), at),
            false => small(byte),
        };
        Known {
            kind: kind(byte),
            is_ea_inode: links.is_ea_inode,
            stored: links.stored,
            counted: links.counted,
        }
    }
}

/// What a byte says of the kind.
fn kind(byte: u8) -> Kind {
    match byte & KIND {
        0 => Kind::Unused,
        RESERVED => Kind::Reserved,
        code => file_type(code).map_or(Kind::Unused, Kind::File),
    }
}

/// What a byte without [`IN_TABLE`] says of links.
fn small(byte: u8) -> Links {
    Links {
        stored: u16::from(byte & STORED != 0),
        counted: u16::from(byte & COUNTED != 0),
        is_ea_inode: false,
    }
}

impl InodeMap {
    /// No inode in use. Where the bytes are is `scratch`'s to say.
    pub fn new(geometry: &Geometry, scratch: &Arc<Scratch>) -> Self {
        Self {
            groups: (0..geometry.groups_count.get())
                .map(|_| OnceLock::new())
                .collect(),
            scratch: Arc::clone(scratch),
            per_group: geometry.inodes_per_group.get(),
        }
    }

    /// Notes an inode; forgets what was known of it, but for the links counted. Nothing happens
    /// to an inode that does not exist.
    pub fn set(&self, ino: Ino, kind: Kind, is_ea_inode: bool, links: u16) {
        let Some((group, at)) = self.place(ino) else {
            return;
        };
        let kind = match kind {
            Kind::Unused => 0,
            Kind::File(file_type) => code(file_type),
            Kind::Reserved => RESERVED,
        };
        let stored = Links {
            stored: links,
            counted: 0,
            is_ea_inode,
        };
        group
            .get_or_init(|| Group::new(self.per_group, &self.scratch))
            .set(at, kind, stored);
    }

    /// Counts a directory entry that refers to the inode.
    pub fn count_link(&self, ino: Ino) {
        if let Some((group, at)) = self.place(ino) {
            group
                .get_or_init(|| Group::new(self.per_group, &self.scratch))
                .count(at);
        }
    }

    /// Takes back a count; see [`InodeMap::count_link`].
    pub fn uncount_link(&self, ino: Ino) {
        if let Some((group, at)) = self.place(ino)
            && let Some(group) = group.get()
        {
            group.uncount(at);
        }
    }

    /// What is known of an inode; unused if nothing is, or if it does not exist.
    pub fn get(&self, ino: Ino) -> Known {
        let known = self
            .place(ino)
            .and_then(|(group, at)| Some(group.get()?.known(at)));
        known.unwrap_or(Known {
            kind: Kind::Unused,
            is_ea_inode: false,
            stored: 0,
            counted: 0,
        })
    }

    /// The inodes of a group about which anything is known, in order.
    pub fn in_group(&self, group: GroupNr) -> impl Iterator<Item = (Ino, Known)> + '_ {
        let inodes = self.groups.get(index(group.0)).and_then(OnceLock::get);
        let first = group.0.saturating_mul(self.per_group).saturating_add(1);
        inodes.into_iter().flat_map(move |inodes| {
            let numbers = (0..self.per_group).zip((first..).map(Ino));
            let numbers = numbers.filter(|&(at, _)| inodes.byte(at) != 0);
            numbers.map(|(at, ino)| (ino, inodes.known(at)))
        })
    }

    /// The kinds of the inodes of a group about which anything is known, in order. Takes no lock.
    pub fn kinds_in_group(&self, group: GroupNr) -> impl Iterator<Item = (Ino, Kind)> + '_ {
        let inodes = self.groups.get(index(group.0)).and_then(OnceLock::get);
        let first = group.0.saturating_mul(self.per_group).saturating_add(1);
        inodes.into_iter().flat_map(move |inodes| {
            let bytes = inodes.bytes.iter().map(|byte| byte.load(Ordering::Relaxed));
            let numbered = (first..).map(Ino).zip(bytes);
            numbered.filter_map(|(ino, byte)| (byte != 0).then_some((ino, kind(byte))))
        })
    }

    fn place(&self, ino: Ino) -> Option<(&OnceLock<Box<Group>>, u32)> {
        let number = ino.0.checked_sub(1)?;
        let group = self.groups.get(index(number / self.per_group))?;
        Some((group, number % self.per_group))
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

fn code(file_type: FileType) -> u8 {
    (1..)
        .zip(TYPES)
        .find(|(_, t)| *t == file_type)
        .map_or(0, |(code, _)| code)
}

fn file_type(code: u8) -> Option<FileType> {
    TYPES.get(usize::from(code.checked_sub(1)?)).copied()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn map() -> InodeMap {
        InodeMap {
            groups: (0..2).map(|_| OnceLock::new()).collect(),
            scratch: Arc::default(),
            per_group: 8,
        }
    }

    const FILE: Kind = Kind::File(FileType::Regular);

    #[test]
    fn what_is_noted_and_counted_is_known() {
        for links in [0, 1, 2, 1023, 65_535] {
            for is_ea_inode in [false, true] {
                for counted in 0..4 {
                    let map = map();
                    map.count_link(Ino(9));
                    (1..counted).for_each(|_| map.count_link(Ino(9)));
                    map.set(Ino(9), FILE, is_ea_inode, links);
                    map.count_link(Ino(9));
                    map.uncount_link(Ino(9));
                    let known = Known {
                        kind: FILE,
                        is_ea_inode,
                        stored: links,
                        counted: counted.max(1),
                    };
                    assert_eq!(map.get(Ino(9)), known);
                    let in_group: Vec<_> = map.in_group(GroupNr(1)).collect();
                    assert_eq!(in_group, [(Ino(9), known)]);
                    // Back to what fits into a byte.
                    (0..4).for_each(|_| map.uncount_link(Ino(9)));
                    map.set(Ino(9), Kind::Unused, false, 0);
                    assert_eq!(map.in_group(GroupNr(1)).count(), 0);
                }
            }
        }
    }

    #[test]
    fn numbers_that_do_not_exist_are_nothing() {
        let map = map();
        for ino in [0, 17, u32::MAX] {
            map.set(Ino(ino), FILE, false, 1);
            map.count_link(Ino(ino));
            map.uncount_link(Ino(ino));
            assert_eq!(map.get(Ino(ino)).kind, Kind::Unused);
        }
        assert_eq!(map.in_group(GroupNr(7)).count(), 0);
    }

    #[test]
    fn counts_have_an_upper_limit() {
        let map = map();
        (0..70_000).for_each(|_| map.count_link(Ino(1)));
        assert_eq!(map.get(Ino(1)).counted, u16::MAX);
    }

    #[test]
    fn threads_count_and_note_at_once() {
        for _ in 0..200 {
            let map = map();
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| (1..=16).for_each(|ino| map.count_link(Ino(ino))));
                }
                scope.spawn(|| (1..=16).for_each(|ino| map.set(Ino(ino), FILE, false, 1)));
                scope.spawn(|| (1..=16).for_each(|ino| map.set(Ino(ino), FILE, false, 1)));
            });
            for ino in 1..=16 {
                let known = map.get(Ino(ino));
                assert_eq!((known.kind, known.stored, known.counted), (FILE, 1, 3));
            }
        }
    }
}
