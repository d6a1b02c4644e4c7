//! How much file data a walk may read: no more than the file system holds.
//!
//! Files of a sound file system do not share blocks, so all their data together are no more than
//! its size. Where a damaged one has thousands of files mapping the same blocks, copying or
//! hashing each of them would take days; the budget ends that with an error for those past it.

use std::ops::Range;

use uext4::{Damage, Error, Image, Inode};
use uext4_ondisk::features::RoCompat;

/// What is left of it.
#[derive(Debug)]
pub struct Budget {
    left: u64,
}

impl Budget {
    /// As much as the file system is large; without end where files may share blocks by design.
    pub fn new(fs: &Image) -> Self {
        let geometry = fs.geometry();
        let shared = geometry.features.ro_compat;
        Self {
            left: match shared.contains(RoCompat::SHARED_BLOCKS) {
                true => u64::MAX,
                false => geometry.len_bytes(),
            },
        }
    }

    /// Twice as much as two file systems are large together: where files are compared, one with
    /// several names may have to be read for each of them.
    pub fn of_two(one: &Image, other: &Image) -> Self {
        let left = |fs| Self::new(fs).left;
        Self {
            left: left(one).saturating_add(left(other)).saturating_mul(2),
        }
    }

    /// Takes a range of data of a file off what is left.
    ///
    /// # Errors
    /// [`Damage::InodeField`] if that is less.
    pub fn take(&mut self, inode: &Inode, data: &Range<u64>) -> Result<(), Error> {
        let len = data.end.saturating_sub(data.start);
        self.left = self
            .left
            .checked_sub(len)
            .ok_or(Error::Corrupt(Damage::InodeField {
                ino: inode.ino,
                field: "i_size",
                value: inode.size,
                why: "with the files before it, more data than the file system holds",
            }))?;
        Ok(())
    }
}
