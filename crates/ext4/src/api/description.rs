//! The description of a file system, and what had to be done to open it.

use uext4_ondisk::Geometry;
use uext4_ondisk::superblock::SuperBlock;

use crate::api::image::Image;
use crate::base::fast_commit::ReplaySummary;
use crate::base::rescue::Rescue;
use crate::journal::label::{self, LABEL_LEN};

impl Image {
    /// The validated geometry.
    pub fn geometry(&self) -> &Geometry {
        self.sbi.geometry()
    }

    /// The superblock, after replay of the journal.
    pub fn superblock(&self) -> &SuperBlock {
        self.sbi.superblock()
    }

    /// The label, as `e2label` shows it: up to the first zero byte.
    pub fn label(&self) -> [u8; LABEL_LEN] {
        label::label(&self.sbi)
    }

    /// How an incomplete file system was opened; the default value if it is complete.
    pub fn rescue(&self) -> &Rescue {
        self.sbi.rescue()
    }

    /// What the journal changed compared with the contents of the device, if the file system was
    /// not unmounted.
    pub fn replayed(&self) -> Option<ReplaySummary> {
        self.sbi.replayed().cloned()
    }
}
