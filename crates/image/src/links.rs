//! Which path of a file with several hard links came first.

use std::collections::HashMap;

use uext4::Inode;
use uext4_blockdev::host;
use uext4_ondisk::Ino;
use uext4_ondisk::inode::FileType;

/// Bytes of paths remembered, at most, where there is much memory.
const MEMORY_MAX: u64 = 64 << 20;
/// Bytes an entry takes in addition to its path.
const OVERHEAD: usize = 64;

/// Files of which a link was seen and another is still to come.
#[derive(Debug)]
pub struct Links {
    first: HashMap<Ino, First>,
    bytes: usize,
    /// Bytes of paths remembered, at most.
    most: usize,
}

impl Default for Links {
    /// Remembers 64 MiB of paths, or an eighth of what this process may take.
    fn default() -> Self {
        let most = host::share_of_memory(8, MEMORY_MAX);
        Self {
            first: HashMap::new(),
            bytes: 0,
            most: usize::try_from(most).unwrap_or(usize::MAX),
        }
    }
}

#[derive(Debug)]
struct First {
    path: Box<[u8]>,
    /// Links not seen yet.
    left: u16,
}

impl Links {
    /// The first path of this file, if this is not it.
    ///
    /// Also `None` if too many paths would have to be remembered: the file is then one more copy.
    pub fn first(&mut self, inode: &Inode, path: &[u8]) -> Option<Box<[u8]>> {
        if inode.links < 2 || inode.file_type == FileType::Directory {
            return None;
        }
        if let Some(first) = self.first.get_mut(&inode.ino) {
            first.left = first.left.saturating_sub(1);
            if first.left > 0 {
                return Some(first.path.clone());
            }
            let first = self.first.remove(&inode.ino)?;
            self.bytes -= first.path.len() + OVERHEAD;
            return Some(first.path);
        }
        if self.bytes + path.len() + OVERHEAD <= self.most {
            self.bytes += path.len() + OVERHEAD;
            let left = inode.links - 1;
            self.first.insert(
                inode.ino,
                First {
                    path: path.into(),
                    left,
                },
            );
        }
        None
    }

    /// Forgets a path that could not be made, so that the next link becomes the first.
    pub fn forget(&mut self, inode: &Inode) {
        if let Some(first) = self.first.remove(&inode.ino) {
            self.bytes -= first.path.len() + OVERHEAD;
        }
    }
}
