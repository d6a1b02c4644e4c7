//! What keeps the file system of a partition from being changed: the attribute of its entry that
//! says so, and a hash tree by which the kernel verifies it.

use std::sync::Arc;

use super::{Partition, Table, Window, gpt, read};
use crate::verity::Tree;
use crate::{BlockDevice, Error, SubDevice};

/// The attribute of a GPT entry that has a partition mounted read-only, as the Discoverable
/// Partitions Specification defines it.
pub const READ_ONLY: u64 = 1 << 60;

/// One reason not to change a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The entry of its partition says that it is read-only.
    ReadOnly {
        /// The partition.
        number: u32,
    },
    /// A hash tree in a partition of its own covers it.
    Tree {
        /// The partition of the tree.
        number: u32,
        /// The tree; it lies at this byte of the disk.
        tree: Tree,
    },
}

impl Guard {
    /// The error that it is for a writer.
    #[must_use]
    pub fn error(&self) -> Error {
        match self {
            Self::ReadOnly { number } => Error::ReadOnlyPartition { number: *number },
            Self::Tree { number, tree } => Error::Verified {
                at: tree.at,
                partition: Some(*number),
            },
        }
    }

    /// Gives it up: clears the attribute, or the superblock of the tree.
    ///
    /// # Errors
    /// Those of the device; [`Error::Partition`] if the table cannot be changed as it is.
    pub fn lift(&self, disk: &dyn BlockDevice) -> Result<(), Error> {
        match self {
            Self::ReadOnly { number } => gpt::clear_attributes(disk, *number, READ_ONLY),
            Self::Tree { tree, .. } => tree.wipe(disk),
        }
    }
}

/// Says how many bytes the file system on a device has; `None` if there is none.
pub type FsLen<'a> = &'a dyn Fn(&dyn BlockDevice) -> Option<u64>;

impl Window {
    /// What keeps its file system from being changed. Only a partition has guards. A tree says how
    /// much it covers, not what: it is the partition whose file system is so long, or if there is
    /// none, one that is itself so long.
    ///
    /// # Errors
    /// Those of reading the disk.
    pub fn guards(
        &self,
        disk: &Arc<dyn BlockDevice>,
        fs_len: FsLen<'_>,
    ) -> Result<Vec<Guard>, Error> {
        let Some(own) = &self.partition else {
            return Ok(Vec::new());
        };
        let table = read(&**disk)?;
        let mut trees = Vec::new();
        for other in table.partitions.iter().filter(|p| p.number != own.number) {
            if let Some(tree) = tree_of(&**disk, other)? {
                trees.push((other.number, tree));
            }
        }
        if !trees.is_empty() {
            let lens = fs_lens(disk, &table, fs_len);
            trees.retain(|(_, tree)| covers(tree, own, &lens));
        }
        let trees = trees.into_iter();
        let mut guards: Vec<Guard> = trees
            .map(|(number, tree)| Guard::Tree { number, tree })
            .collect();
        if own.attributes & READ_ONLY != 0 {
            let number = own.number;
            guards.push(Guard::ReadOnly { number });
        }
        Ok(guards)
    }

    /// The window as a device to be written.
    ///
    /// # Errors
    /// As [`Window::open`]; [`Error::Verified`] and [`Error::ReadOnlyPartition`] for what has
    /// [guards](Window::guards).
    pub fn open_to_write(
        &self,
        disk: Arc<dyn BlockDevice>,
        fs_len: FsLen<'_>,
    ) -> Result<SubDevice, Error> {
        match self.guards(&disk, fs_len)?.first() {
            Some(guard) => Err(guard.error()),
            None => self.open(disk),
        }
    }
}

/// The numbers of the partitions that hold a file system, and its bytes.
fn fs_lens(disk: &Arc<dyn BlockDevice>, table: &Table, fs_len: FsLen<'_>) -> Vec<(u32, u64)> {
    let len = |partition: &Partition| {
        let device = partition.open(Arc::clone(disk)).ok()?;
        Some((partition.number, fs_len(&device)?))
    };
    table.partitions.iter().filter_map(len).collect()
}

/// Whether a tree covers a partition, of all that hold file systems of these lengths.
fn covers(tree: &Tree, own: &Partition, lens: &[(u32, u64)]) -> bool {
    let block = tree.data_block.into();
    let is_covered =
        |&&(_, len): &&(u32, u64)| len.checked_next_multiple_of(block) == Some(tree.data_len());
    let mut covered = lens.iter().filter(is_covered).peekable();
    match covered.peek() {
        Some(_) => covered.any(|(number, _)| *number == own.number),
        None => tree.data_len() == own.len,
    }
}

/// The tree that a partition holds.
fn tree_of(disk: &dyn BlockDevice, partition: &Partition) -> Result<Option<Tree>, Error> {
    match partition.start < disk.len() {
        true => Tree::read(disk, partition.start),
        false => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::TableKind;

    #[test]
    fn a_tree_covers_the_file_system_of_its_length_before_a_partition_of_its_length() {
        let tree = Tree {
            at: 0,
            uuid: [0; 16],
            hash_type: 1,
            algorithm: "sha256".to_owned(),
            data_block: 4096,
            hash_block: 4096,
            data_blocks: 10,
            salt: Vec::new(),
        };
        let partition = |number, len| Partition {
            number,
            start: 1 << 20,
            len,
            table: TableKind::Gpt,
            kind: String::new(),
            name: String::new(),
            uuid: String::new(),
            attributes: 0,
        };
        let (first, second) = (partition(1, 10 * 4096), partition(2, 10 * 4096));
        let longer = partition(3, 99 * 4096);
        // Two equal partitions, and the file system of one of them, to a part of a block.
        let lens = [(1, 10 * 4096 - 1024), (2, 9 * 4096)];
        assert!(covers(&tree, &first, &lens));
        assert!(!covers(&tree, &second, &lens));
        assert!(covers(&tree, &longer, &[(3, 10 * 4096)]));
        assert!(!covers(&tree, &longer, &[(3, 11 * 4096)]));
        // The file system itself cannot be recognised.
        assert!(covers(&tree, &first, &[]) && !covers(&tree, &longer, &[]));
    }
}
