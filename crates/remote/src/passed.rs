//! What passes with a frame: files that contents are read from, and that snapshots are kept in.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::gate::{Gate, closing};
use crate::wire::{NewEntry, Source};

/// What came with a frame, by number.
pub(crate) struct Passed {
    files: Vec<Option<File>>,
    gate: Arc<Gate>,
}

impl Passed {
    /// Of the descriptors of a frame.
    pub(crate) fn new(descriptors: Vec<OwnedFd>, gate: Arc<Gate>) -> Self {
        let files = descriptors.into_iter().map(regular).collect();
        Self { files, gate }
    }

    /// The file of a number.
    pub(crate) fn file(&self, number: u32) -> Option<&File> {
        self.files.get(number as usize).and_then(Option::as_ref)
    }

    /// Contents of a new file, from where its request says they lie.
    pub(crate) fn read(&self, new: &NewEntry<'_>, at: u64, buf: &mut [u8]) -> io::Result<()> {
        if self.gate.is_closing() {
            return Err(closing());
        }
        let after = new.data.partition_point(|extent| extent.offset <= at);
        let extent = after.checked_sub(1).and_then(|last| new.data.get(last));
        let extent = extent.ok_or(io::ErrorKind::InvalidData)?;
        let place = extent.at.saturating_add(at - extent.offset);
        match new.source {
            Source::Descriptor(number) => {
                let file = self.file(number).ok_or(io::ErrorKind::InvalidData)?;
                file.read_exact_at(buf, place)
            }
            Source::Inline(bytes) => {
                let start = usize::try_from(place).unwrap_or(usize::MAX);
                let end = start.saturating_add(buf.len());
                let part = bytes.get(start..end).ok_or(io::ErrorKind::InvalidData)?;
                buf.copy_from_slice(part);
                Ok(())
            }
        }
    }
}

/// A descriptor that can be read without waiting for another process: that of a regular file.
fn regular(descriptor: OwnedFd) -> Option<File> {
    let file = File::from(descriptor);
    file.metadata().ok()?.is_file().then_some(file)
}
