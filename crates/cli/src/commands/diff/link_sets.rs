//! Which names are hard links of one file, in two trees: whether both group the names that they
//! share in the same way.

use std::collections::HashMap;

use uext4::{FileType, Ino, Inode};

/// Files with several links that are remembered of each tree: some 32 MiB.
const REMEMBERED_MAX: usize = 1 << 20;

/// The files met so far, each with the file that its first name has in the other tree.
#[derive(Debug, Default)]
pub struct LinkSets {
    of_old: HashMap<Ino, Ino>,
    of_new: HashMap<Ino, Ino>,
}

impl LinkSets {
    /// Whether a name of both trees is a link of one file together with an earlier name in one tree
    /// and not in the other.
    pub fn differ(&mut self, old: &Inode, new: &Inode) -> bool {
        let old_differs = differs(&mut self.of_old, old, new);
        differs(&mut self.of_new, new, old) || old_differs
    }

    /// Whether there were more files than are remembered.
    pub fn is_full(&self) -> bool {
        self.of_old.len().max(self.of_new.len()) >= REMEMBERED_MAX
    }
}

fn differs(of: &mut HashMap<Ino, Ino>, one: &Inode, other: &Inode) -> bool {
    if one.links < 2 || one.file_type == FileType::Directory {
        return false;
    }
    match of.get(&one.ino) {
        Some(first) => *first != other.ino,
        None => {
            if of.len() < REMEMBERED_MAX {
                of.insert(one.ino, other.ino);
            }
            false
        }
    }
}
