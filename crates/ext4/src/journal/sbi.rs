//! A mounted file system: its state on the device, and the additional state for writing.
//!
//! It is named after the kernel's `ext4_sb_info`. Functions that only read take a [`Disk`], so
//! that they do not depend on the state for writing; those that write take this type or a journal
//! handle.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use crate::base::disk::Disk;
use crate::base::error::{Error, Result};
use crate::journal::rw::Rw;

/// A mounted file system.
#[derive(Debug)]
pub(crate) struct Sbi {
    disk: Disk,
    /// The additional state, when mounted for writing.
    rw: OnceLock<Arc<Rw>>,
}

impl Sbi {
    /// A file system mounted for reading.
    pub(crate) fn new(disk: Disk) -> Self {
        Self {
            disk,
            rw: OnceLock::new(),
        }
    }

    /// Makes the file system writable. Called only once, by the function that opened it.
    pub(crate) fn set_rw(&self, rw: Rw) {
        let rw = Arc::new(rw);
        // Readers must first see what is newer in memory than in the blocks.
        self.disk.set_writing(Arc::<Rw>::clone(&rw));
        _ = self.rw.set(rw);
    }

    /// The state for writing of a file system mounted for that.
    pub(crate) fn rw(&self) -> Option<&Rw> {
        self.rw.get().map(|rw| &**rw)
    }

    /// The state for writing.
    pub(crate) fn writable(&self) -> Result<&Rw> {
        self.rw().ok_or(Error::ReadOnly)
    }
}

impl Deref for Sbi {
    type Target = Disk;

    fn deref(&self) -> &Disk {
        &self.disk
    }
}
