//! What keeps the file system of a partition from being changed: the attribute of its entry that
//! says so, and a hash tree by which the kernel verifies it.

use std::sync::Arc;

use super::{Partition, TableKind, Window, gpt, read};
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

impl Window {
    /// What keeps its file system from being changed. Only a partition of a GPT has guards; a tree
    /// covers the one that is as long as the tree says.
    ///
    /// # Errors
    /// Those of reading the disk.
    pub fn guards(&self, disk: &dyn BlockDevice) -> Result<Vec<Guard>, Error> {
        let Some(own) = &self.partition else {
            return Ok(Vec::new());
        };
        if own.table != TableKind::Gpt {
            return Ok(Vec::new());
        }
        let mut guards = Vec::new();
        for other in &read(disk)?.partitions {
            if other.number != own.number
                && let Some(tree) = tree_of(disk, other)?
                && tree.data_len() == own.len
            {
                let number = other.number;
                guards.push(Guard::Tree { number, tree });
            }
        }
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
    pub fn open_to_write(&self, disk: Arc<dyn BlockDevice>) -> Result<SubDevice, Error> {
        match self.guards(&*disk)?.first() {
            Some(guard) => Err(guard.error()),
            None => self.open(disk),
        }
    }
}

/// The tree that a partition holds.
fn tree_of(disk: &dyn BlockDevice, partition: &Partition) -> Result<Option<Tree>, Error> {
    match partition.start < disk.len() {
        true => Tree::read(disk, partition.start),
        false => Ok(None),
    }
}
