//! How much file data a walk may read: no more than the file system holds.
//!
//! Files of a sound file system do not share blocks, so all their data together are no more than
//! its size. Where a damaged one has thousands of files mapping the same blocks, copying or
//! hashing each of them would take days; the budget ends that with an error for those past it.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use uext4::{Damage, Error, Image, Inode};
use uext4_ondisk::features::RoCompat;

/// What is left of it, for all threads that share it.
#[derive(Debug)]
pub struct Budget {
    left: AtomicU64,
}

impl Budget {
    /// As much as the file system is large; without end where files may share blocks by design.
    pub fn new(fs: &Image) -> Self {
        Self {
            left: size(fs).into(),
        }
    }

    /// Twice as much as two file systems are large together: where files are compared, one with
    /// several names may have to be read for each of them.
    pub fn of_two(one: &Image, other: &Image) -> Self {
        let both = size(one).saturating_add(size(other));
        Self {
            left: both.saturating_mul(2).into(),
        }
    }

    /// Takes a range of data of a file off what is left.
    ///
    /// # Errors
    /// [`Damage::InodeField`] if that is less.
    pub fn take(&self, inode: &Inode, data: &Range<u64>) -> Result<(), Error> {
        let len = data.end.saturating_sub(data.start);
        let taken = |left: u64| left.checked_sub(len);
        match self.left.fetch_update(Relaxed, Relaxed, taken) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::Corrupt(Damage::InodeField {
                ino: inode.ino,
                field: "i_size",
                value: inode.size,
                why: "with the files before it, more data than the file system holds",
            })),
        }
    }
}

fn size(fs: &Image) -> u64 {
    let geometry = fs.geometry();
    let shared = geometry.features.ro_compat;
    match shared.contains(RoCompat::SHARED_BLOCKS) {
        true => u64::MAX,
        false => geometry.len_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use uext4::{FollowLast, OpenOptions};
    use uext4_testkit::formatted;

    use super::*;

    #[test]
    fn threads_share_what_two_images_hold() {
        let image = Image::open(formatted("-t ext4", 4096), &OpenOptions::default());
        let image = image.unwrap();
        let inode = image.resolve("/", FollowLast::No).unwrap();
        let budget = Budget::of_two(&image, &image);
        let half = 2 * (4096 << 10);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| budget.take(&inode, &(0..half)).unwrap());
            }
        });
        assert!(budget.take(&inode, &(0..1)).is_err());
    }
}
