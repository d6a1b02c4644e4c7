//! The paths that deleted files had: from copies of directories in the log, and from bytes that
//! removed names left in directories.

use std::collections::HashMap;

use uext4::{FileType, FollowLast, Image, Inode, InodeFlags};
use uext4_image::walk::{Order, Step, Walk, joined};
use uext4_jbd2::OlderCopy;
use uext4_ondisk::dir_entry::{DirBlock, DirEntry, removed};
use uext4_ondisk::{Ino, Pblk};

use super::AllBuried;
use super::copies::Copies;
use crate::extents::Runs;

/// Most deleted directories inside each other that are followed.
const DEPTH_MAX: usize = 64;

/// A name that an inode had.
struct Name {
    /// The age of the copy that has it; `u32::MAX` for one that was removed from a directory.
    age: u32,
    dir: Ino,
    name: Vec<u8>,
}

struct Names<'a> {
    fs: &'a Image,
    buried: &'a AllBuried,
    /// The newest name of each deleted inode.
    found: HashMap<Ino, Name>,
    /// Paths of directories that such names are in.
    dirs: HashMap<Ino, Vec<u8>>,
}

/// The paths of deleted inodes, where their names are known.
pub fn paths(fs: &Image, copies: &Copies<'_>, buried: &AllBuried) -> HashMap<Ino, Vec<u8>> {
    let mut names = Names {
        fs,
        buried,
        found: HashMap::new(),
        dirs: HashMap::new(),
    };
    if !buried.is_empty() {
        names.walk(copies);
        for copy in copies.others() {
            names.deleted_directory(copies, copy);
        }
    }
    let path = |&ino: &Ino| Some((ino, names.path(ino, DEPTH_MAX)?));
    names.found.keys().filter_map(path).collect()
}

impl Names<'_> {
    /// Goes through the directories that there are.
    fn walk(&mut self, copies: &Copies<'_>) {
        let Ok(top) = self.fs.resolve("/", FollowLast::No) else {
            return;
        };
        let mut walk = Walk::new(self.fs, top, Order::Nested);
        while let Some(step) = walk.step() {
            let Step::Enter(dir) = step else {
                continue;
            };
            if self.directory(&dir, copies) {
                self.dirs.insert(dir.ino, joined(b"/", walk.path()));
            }
        }
    }

    /// Looks into a directory. Returns whether a name was found that is the newest by now.
    fn directory(&mut self, dir: &Inode, copies: &Copies<'_>) -> bool {
        if dir
            .flags
            .intersects(InodeFlags::ENCRYPT | InodeFlags::INLINE_DATA)
        {
            return false;
        }
        let mut has_found = false;
        let size = self.fs.geometry().block_size;
        let incompat = self.fs.geometry().features.incompat;
        let mut bytes = vec![0; size.len()];
        for run in Runs::new(self.fs, dir).map_while(Result::ok) {
            for block in (run.pblk..)
                .take(usize::try_from(run.len).unwrap_or(0))
                .map(Pblk)
            {
                for copy in copies.of(block) {
                    let content = copies.content(copy).unwrap_or_default();
                    has_found |= self.copy(dir.ino, &content, copy);
                }
                let offset = size.byte_offset(block).unwrap_or(u64::MAX);
                if self.fs.device().read_at(offset, &mut bytes).is_ok() {
                    for entry in removed(&bytes, incompat) {
                        has_found |= self.note(dir.ino, &entry, u32::MAX);
                    }
                }
            }
        }
        has_found
    }

    /// Takes in the first block of a directory, whose own number it has.
    fn deleted_directory(&mut self, copies: &Copies<'_>, copy: &OlderCopy) {
        let content = copies.content(copy).unwrap_or_default();
        let first = self.records(&content).next();
        if let Some(Ok(first)) = first
            && first.name == b"."
            && self.buried.contains_key(&first.ino)
        {
            self.copy(first.ino, &content, copy);
        }
    }

    fn records<'a>(&self, content: &'a [u8]) -> DirBlock<'a> {
        DirBlock::new(content, None, self.fs.geometry().features.incompat)
    }

    /// Takes in a copy of a block of a directory.
    fn copy(&mut self, dir: Ino, content: &[u8], copy: &OlderCopy) -> bool {
        let records: Result<Vec<_>, _> = self.records(content).collect();
        let mut has_found = false;
        for entry in records.unwrap_or_default() {
            has_found |= self.note(dir, &entry, copy.age);
        }
        has_found
    }

    /// Notes a name of a deleted inode that is newer than the one that is known.
    fn note(&mut self, dir: Ino, entry: &DirEntry<'_>, age: u32) -> bool {
        let Some(buried) = self.buried.get(&entry.ino) else {
            return false;
        };
        let is_type = entry.file_type.is_none_or(|kind| kind == buried.file_type);
        let is_name = !matches!(entry.name, b"." | b"..")
            && !entry.name.iter().any(|byte| matches!(byte, 0 | b'/'));
        let known = self.found.get(&entry.ino);
        let is_newest = is_type && is_name && known.is_none_or(|known| age < known.age);
        if is_newest {
            let name = entry.name.to_vec();
            self.found.insert(entry.ino, Name { age, dir, name });
        }
        is_newest
    }

    /// The path of an inode, as far as it is known.
    fn path(&self, ino: Ino, depth: usize) -> Option<Vec<u8>> {
        let name = self.found.get(&ino)?;
        let is_deleted = self.buried.get(&name.dir);
        let is_deleted = is_deleted.is_some_and(|dir| dir.file_type == FileType::Directory);
        let above = match (self.dirs.get(&name.dir), depth.checked_sub(1)) {
            (Some(path), _) => Some(path.clone()),
            (None, Some(depth)) if is_deleted => self.path(name.dir, depth),
            _ => None,
        };
        let above = above.unwrap_or_else(|| format!("<{}>", name.dir).into_bytes());
        Some(joined(&above, &name.name))
    }
}
