//! The names of a directory that is written anew.

use hashbrown::{HashMap, HashSet};
use rustc_hash::FxBuildHasher;
use uext4_ondisk::Ino;
use uext4_ondisk::dir_entry::EXT4_NAME_LEN;
use uext4_ondisk::inode::{FileType, InodeFlags};
use uext4_ondisk::num::{index, len8};
use uext4_ondisk::pack::directory::Name;

use super::Old;
use crate::directories::reread::{self, Seen};
use crate::error::Result;
use crate::inode_map::Kind;
use crate::state::State;

/// A name that a directory gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewName {
    /// 1 to 255 bytes.
    pub name: Vec<u8>,
    /// What it names.
    pub ino: Ino,
    /// The type of that.
    pub file_type: FileType,
}

/// All names of a directory, but `.` and `..`.
#[derive(Debug, Default)]
pub struct Names {
    /// The names one after the other.
    bytes: Vec<u8>,
    list: Vec<Entry>,
    /// The hashes that stand behind the names.
    hashes: Vec<[u8; 8]>,
    /// Names are compared without regard to the case of ASCII letters.
    folded: Option<Vec<u8>>,
    /// A name is folded in a way that is not known here.
    is_opaque: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: usize,
    len: u8,
    ino: Ino,
    file_type: FileType,
}

/// Reads the names of a directory, adds `more`, and makes all of them differ.
///
/// # Errors
/// Of the device and of the overlay.
pub fn collect(state: &State<'_>, old: &Old, more: &[NewName]) -> Result<Names> {
    let mut names = Names::default();
    let has_hashes = old
        .flags
        .contains(InodeFlags::CASEFOLD | InodeFlags::ENCRYPT);
    reread::for_each(state, old.ino, old.source(), |seen: Seen<'_>| {
        let Kind::File(file_type) = state.inodes.get(seen.ino).kind else {
            return Ok(());
        };
        if !matches!(seen.name, b"" | b"." | b"..") {
            names.push(seen.name, seen.ino, file_type);
            if has_hashes {
                let at = (4 - seen.name.len() % 4) % 4;
                let hash = seen
                    .suffix
                    .get(at..)
                    .and_then(|rest| rest.first_chunk::<8>());
                names.hashes.push(hash.copied().unwrap_or_default());
            }
        }
        Ok(())
    })?;
    for name in more {
        names.push(&name.name, name.ino, name.file_type);
        if has_hashes {
            names.hashes.push([0; 8]);
        }
    }
    let is_folded = old.flags.contains(InodeFlags::CASEFOLD) && !has_hashes;
    if is_folded {
        names.is_opaque = !names.bytes.is_ascii();
        names.folded = Some(names.bytes.to_ascii_lowercase());
    }
    if !old.flags.contains(InodeFlags::ENCRYPT) {
        names.make_unique();
    }
    Ok(names)
}

impl Names {
    fn push(&mut self, name: &[u8], ino: Ino, file_type: FileType) {
        self.list.push(Entry {
            start: self.bytes.len(),
            len: len8(name.len()),
            ino,
            file_type,
        });
        self.bytes.extend_from_slice(name);
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        uext4_ondisk::num::len32(self.list.len())
    }

    /// Whether no hash of these names can be computed.
    pub fn is_opaque(&self) -> bool {
        self.is_opaque || !self.hashes.is_empty()
    }

    /// The bytes that are hashed for a name.
    pub fn hashed(&self, i: u32) -> &[u8] {
        self.part(self.folded.as_ref().unwrap_or(&self.bytes), i)
    }

    /// What is written for a name.
    pub fn name(&self, i: u32) -> Name<'_> {
        let entry = self.list.get(index(i));
        Name {
            name: self.part(&self.bytes, i),
            ino: entry.map_or(Ino(0), |entry| entry.ino),
            file_type: entry.map_or(FileType::Regular, |entry| entry.file_type),
        }
    }

    /// The hash that stands behind a name.
    pub fn stored_hash(&self, i: u32) -> Option<[u8; 8]> {
        self.hashes.get(index(i)).copied()
    }

    fn part<'n>(&self, bytes: &'n [u8], i: u32) -> &'n [u8] {
        let Some(entry) = self.list.get(index(i)) else {
            return &[];
        };
        let end = entry.start.saturating_add(entry.len.into());
        bytes.get(entry.start..end).unwrap_or_default()
    }

    /// Gives each name that was there before a new one.
    fn make_unique(&mut self) {
        let mut keys: Vec<&[u8]> = (0..self.count()).map(|i| self.hashed(i)).collect();
        keys.sort_unstable();
        if keys.windows(2).all(|pair| pair.first() != pair.last()) {
            return;
        }
        let mut taken: HashSet<Vec<u8>, FxBuildHasher> = keys.iter().map(|k| k.to_vec()).collect();
        let mut seen: HashSet<Vec<u8>, FxBuildHasher> = HashSet::default();
        let mut numbers = Numbers::default();
        for i in 0..self.count() {
            let key = self.hashed(i).to_vec();
            if seen.insert(key) {
                continue;
            }
            let name = self.name(i).name.to_vec();
            let (new, folded) = loop {
                let new = numbers.next(&name);
                let folded = match self.folded {
                    Some(_) => new.to_ascii_lowercase(),
                    None => new.clone(),
                };
                if taken.insert(folded.clone()) {
                    break (new, folded);
                }
            };
            seen.insert(folded.clone());
            self.rename(i, &new, &folded);
        }
    }

    fn rename(&mut self, i: u32, new: &[u8], folded: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(new);
        if let Some(all) = &mut self.folded {
            all.extend_from_slice(folded);
        }
        if let Some(entry) = self.list.get_mut(index(i)) {
            entry.start = start;
            entry.len = len8(new.len());
        }
    }
}

/// The numbers that were given: by what stands before them, for many names may be cut to the same.
/// So no number is tried twice behind the same bytes.
#[derive(Debug, Default)]
struct Numbers {
    next: HashMap<Stem, u32, FxBuildHasher>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Stem {
    bytes: Vec<u8>,
    digits: usize,
}

impl Numbers {
    /// The name with the next number.
    fn next(&mut self, name: &[u8]) -> Vec<u8> {
        let mut first = 0;
        let mut end = 10_u32;
        for digits in 1.. {
            let bytes = stem(name, digits + 1).to_vec();
            let next = self.next.entry(Stem { bytes, digits }).or_insert(first);
            if *next < end || end == u32::MAX {
                let number = *next;
                *next = number.saturating_add(1);
                return numbered(name, number);
            }
            first = end;
            end = end.saturating_mul(10);
        }
        numbered(name, u32::MAX)
    }
}

/// A name that ends with `~` and a number in the place of its last bytes, or behind it if it is
/// short. Names never come to lie in the middle of a UTF-8 character.
fn numbered(name: &[u8], number: u32) -> Vec<u8> {
    let tail = format!("~{number}");
    [stem(name, tail.len()), tail.as_bytes()].concat()
}

/// What of a name stands before so many bytes.
fn stem(name: &[u8], tail: usize) -> &[u8] {
    let keep = match name.len() {
        len if len <= tail.saturating_add(1) => len,
        len => len.min(EXT4_NAME_LEN).saturating_sub(tail),
    };
    let mut keep = keep.min(EXT4_NAME_LEN.saturating_sub(tail));
    if std::str::from_utf8(name).is_ok() {
        while name.get(keep).is_some_and(|byte| byte & 0xC0 == 0x80) {
            keep = keep.saturating_sub(1);
        }
    }
    name.get(..keep).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_name_ends_with_a_number() {
        for (name, number, expected) in [
            ("test-008", 0, "test-0~0"),
            ("modules.conf.old", 0, "modules.conf.o~0"),
            ("a.", 0, "a.~0"),
            ("abcdé", 0, "abcd~0"),
            ("abcdé", 10, "abc~10"),
        ] {
            let name = numbered(name.as_bytes(), number);
            assert_eq!(String::from_utf8(name).unwrap(), expected);
        }
        assert_eq!(numbered(&[b'a'; 255], 123).len(), 255);
    }

    #[test]
    fn names_that_are_cut_to_the_same_bytes_share_their_numbers() {
        let mut names = Names::default();
        for n in 0..40_000_u32 {
            // 255 bytes each, of which the last three differ; each name twice.
            let end = (n / 2).to_le_bytes();
            let name = [&[b'a'; 252][..], &end[..3]].concat();
            names.push(&name, Ino(n), FileType::Regular);
        }
        let start = std::time::Instant::now();
        names.make_unique();
        assert!(start.elapsed().as_secs() < 5);
        let all: HashSet<_, FxBuildHasher> =
            (0..40_000).map(|i| names.name(i).name.to_vec()).collect();
        assert_eq!(all.len(), 40_000);
    }

    #[test]
    fn equal_names_become_different_and_stay_in_order() {
        let mut names = Names::default();
        for (ino, name) in (11..).zip([&b"name"[..], b"name", b"na~0", b"name", b"x"]) {
            names.push(name, Ino(ino), FileType::Regular);
        }
        names.make_unique();
        let all: Vec<_> = (0..5).map(|i| names.name(i).name).collect();
        assert_eq!(all, [&b"name"[..], b"na~1", b"na~0", b"na~2", b"x"]);
    }
}
