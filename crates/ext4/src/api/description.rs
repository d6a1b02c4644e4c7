//! What a file system says of itself, and what had to be done to open it.

use uext4_ondisk::Geometry;
use uext4_ondisk::superblock::SuperBlock;

use crate::api::image::Image;
use crate::base::fast_commit::ReplaySummary;
use crate::base::rescue::Rescue;
use crate::journal::label::{self, LABEL_LEN};

impl Image {
    /// The validated shape.
    pub fn geometry(&self) -> &Geometry {
        self.sbi.geometry()
    }

    /// The superblock, as the journal leaves it.
    pub fn superblock(&self) -> &SuperBlock {
        self.sbi.superblock()
    }

    /// Its label, as `e2label` shows it: up to the first zero byte.
    pub fn label(&self) -> [u8; LABEL_LEN] {
        label::label(&self.sbi)
    }

    /// What it took to read a file system that is not whole; the default where it is.
    pub fn rescue(&self) -> &Rescue {
        self.sbi.rescue()
    }

    /// What the journal changed against what lies on the device, if the file system was not
    /// unmounted.
    pub fn replayed(&self) -> Option<ReplaySummary> {
        self.sbi.replayed().cloned()
    }
}
