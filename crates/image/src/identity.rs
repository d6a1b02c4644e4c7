//! The identity of an image if the caller states none: UUID, hash seed and time from what it will
//! hold.
//!
//! The same source gives the same image, byte by byte, and another source another UUID. Names,
//! attributes and sizes count; contents do not, because they are read only when the image is
//! written – who changes a file without touching its times has the same UUID, and an image that
//! differs elsewhere.

use sha2::{Digest, Sha256};
use uext4_ondisk::inode::FileType;
use uuid::Builder;

use crate::sparse::unit_ranges;
use crate::tree::{EntryId, FileData, Tree};

/// What an image is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// UUID of the file system.
    pub uuid: [u8; 16],
    /// Seed of the hashes of directories.
    pub hash_seed: [u8; 16],
}

/// The identity that follows from a tree.
///
/// With `unit` the holes of files count as far as they are whole units, wherever the source has its
/// pieces.
pub fn derive(tree: &Tree, unit: Option<u64>) -> Identity {
    let mut hash = Sha256::new();
    hash.update(b"uext4 image 1\0");
    // One buffer an entry: the hash takes long pieces faster than short ones.
    let mut record = Vec::with_capacity(512);
    let mut first_name = vec![None; tree.nodes_len()];
    for entry in tree.entries() {
        record.clear();
        describe(tree, entry, &mut first_name, unit, &mut record);
        hash.update(&record);
    }
    let digest = hash.finalize();
    let id = |from: usize| {
        let mut id = [0; 16];
        id.copy_from_slice(&digest[from..from + 16]);
        // Version 8: "made by an algorithm of one's own".
        Builder::from_custom_bytes(id).into_uuid().into_bytes()
    };
    Identity {
        uuid: id(0),
        hash_seed: id(16),
    }
}

fn describe(
    tree: &Tree,
    entry: EntryId,
    first_name: &mut [Option<EntryId>],
    unit: Option<u64>,
    record: &mut Vec<u8>,
) {
    let mut number = |n: u64| record.extend_from_slice(&n.to_le_bytes());
    let node = tree.node_of(entry);
    let seen = first_name[tree.node_id(entry).index()].get_or_insert(entry);
    number(tree.parent(entry).index() as u64);
    number(seen.index() as u64);
    number(tree.name(entry).len() as u64);
    if *seen == entry {
        let (uid, gid) = node.owner();
        let device = node.device().unwrap_or_default();
        number(match node.file_type() {
            FileType::Regular => 1,
            FileType::Directory => 2,
            FileType::Symlink => 3,
            FileType::CharDevice => 4,
            FileType::BlockDevice => 5,
            FileType::Fifo => 6,
            FileType::Socket => 7,
        });
        number(u64::from(node.mode()));
        number(u64::from(uid) << 32 | u64::from(gid));
        number(u64::from(device.major) << 32 | u64::from(device.minor));
        number(node.size());
        for time in node.times() {
            number(time.sec.cast_unsigned());
            number(u64::from(time.nsec));
        }
        match (tree.data(node), unit) {
            (FileData::Whole { .. }, _) => {}
            (FileData::Sparse(pieces), None) => {
                for piece in pieces {
                    number(piece.offset);
                    number(piece.len);
                }
            }
            (data, Some(unit)) => {
                let whole = 0..node.size();
                let mut ranges = unit_ranges(data, node.size(), unit).peekable();
                if !whole.is_empty() && ranges.next_if_eq(&whole).is_none() {
                    number(u64::MAX);
                    for range in ranges {
                        number(range.start);
                        number(range.end - range.start);
                    }
                }
            }
        }
        let xattrs = tree.xattrs(node);
        number(xattrs.len() as u64);
        for (name, value) in xattrs {
            record.extend_from_slice(&(name.len() as u64).to_le_bytes());
            record.extend_from_slice(name);
            record.extend_from_slice(&(value.len() as u64).to_le_bytes());
            record.extend_from_slice(value);
        }
        record.extend_from_slice(tree.target(node));
    }
    record.extend_from_slice(tree.name(entry));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Attributes, NewNode};

    fn tree(change: impl Fn(&mut Attributes), size: u64, name: &str) -> Tree {
        let mut tree = Tree::new();
        let mut attributes = Attributes::default();
        change(&mut attributes);
        let data = FileData::Whole { at: size };
        let file = NewNode::File { size, data };
        tree.insert(name.as_bytes(), file, attributes).unwrap();
        tree
    }

    #[test]
    fn everything_but_the_place_of_contents_counts() {
        let same = derive(&tree(|_| {}, 5, "a"), None);
        assert_eq!(same, derive(&tree(|_| {}, 5, "a"), None));
        assert_ne!(same.uuid, same.hash_seed);
        for other in [
            tree(|a| a.mode = 1, 5, "a"),
            tree(|a| a.gid = 1, 5, "a"),
            tree(|a| a.ctime.nsec = 1, 5, "a"),
            tree(|a| a.xattrs.push((b"user.a".to_vec(), vec![])), 5, "a"),
            tree(|_| {}, 6, "a"),
            tree(|_| {}, 5, "b"),
        ] {
            assert_ne!(derive(&other, None), same);
        }
        let mut linked = tree(|_| {}, 5, "a");
        linked.link(b"b", b"a").unwrap();
        let mut copied = tree(|_| {}, 5, "a");
        let data = FileData::Whole { at: 0 };
        let file = NewNode::File { size: 5, data };
        copied.insert(b"b", file, Attributes::default()).unwrap();
        assert_ne!(derive(&linked, None), derive(&copied, None));
    }

    #[test]
    fn it_looks_like_a_uuid() {
        let id = derive(&Tree::new(), None);
        assert_eq!((id.uuid[6] >> 4, id.uuid[8] >> 6), (8, 2));
    }
}
