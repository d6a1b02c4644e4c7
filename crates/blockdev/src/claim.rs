//! Exclusive use of a device, or of a part of it, for a writer.

use std::ops::Range;
use std::sync::Arc;

use crate::{BlockDevice, Error};

/// Exclusive use of a whole device (of a window, if that is what the device is). Dropping it gives
/// the device up.
#[derive(Debug)]
pub struct Claim {
    device: Arc<dyn BlockDevice>,
    range: Range<u64>,
}

impl Claim {
    /// Claims a device for one writer.
    ///
    /// # Errors
    /// [`Error::Locked`] if another writer or a reader that locks has any byte of it,
    /// [`Error::Attached`] if the kernel has it attached or mounted, [`Error::Io`].
    pub fn new(device: Arc<dyn BlockDevice>) -> Result<Self, Error> {
        let range = 0..device.len();
        device.claim_range(&range)?;
        Ok(Self { device, range })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.device.release_range(&self.range);
    }
}

/// The claims that users of one device have.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    ranges: Vec<Range<u64>>,
    /// The device is claimed until it is dropped.
    pub(crate) is_whole: bool,
}

impl Claims {
    /// Whether a claim of this range must be refused.
    pub(crate) fn overlaps(&self, range: &Range<u64>) -> bool {
        let overlap = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        self.ranges.iter().any(overlap)
    }

    /// Notes a claim that was granted.
    pub(crate) fn add(&mut self, range: &Range<u64>) {
        self.ranges.push(range.clone());
    }

    /// Forgets a claim. True if none is left.
    pub(crate) fn remove(&mut self, range: &Range<u64>) -> bool {
        if let Some(at) = self.ranges.iter().position(|other| other == range) {
            self.ranges.swap_remove(at);
        }
        self.is_empty()
    }

    /// Whether nothing of the device is claimed.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty() && !self.is_whole
    }
}
