//! Reading a file system that another process writes: a snapshot of its image.
//!
//! ```text
//! command ── shared memory ──► daemon: sync, Origin::keep
//!         ◀── the image, opened for reading, and where in it the file system is
//!         ── reads both, and asks no more ──
//! ```
//! The snapshot is of a moment after everything that had returned before the request was made
//! durable, and as a power cut would leave it then: who opens it replays the journal in memory.
//! Without a journal it is of a moment in which nothing waited to be written, and is refused where
//! there is none. It holds as long as the connection.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, fcntl_get_seals, memfd_create};
use uext4::{Error, Result, Volume};
use uext4_blockdev::{
    BlockDevice, Error as BlockError, FileDevice, Kept, Origin, Snapshot, Writer,
};
use uext4_ondisk::features::Compat;

use crate::client::{Client, Passed};
use crate::node::unexpected;
use crate::wire::{Answer, Request};

/// How often a moment is looked for in which nothing is written.
const TRIES: u32 = 20;

/// What a process that has a file system open needs to let others read it.
#[derive(Debug)]
pub struct Disk {
    /// The image, or the device, as it writes to it.
    pub origin: Arc<Origin>,
    /// The same, opened for reading.
    pub image: File,
    /// Where in it the file system begins, if that was asked for.
    pub offset: Option<u64>,
    /// In which partition it is, if that was asked for.
    pub partition: Option<u32>,
}

/// Where in its image a file system is, as options say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Within {
    /// In bytes.
    pub offset: Option<u64>,
    /// By number.
    pub partition: Option<u32>,
}

impl Disk {
    /// Begins a snapshot, whose store the client has passed.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a store that a write could wait for; those of [`Volume::sync`];
    /// [`Error::Device`] for a store that cannot be used.
    pub(crate) fn keep(&self, fs: &Volume, store: Option<&File>) -> Result<(Kept, Answer)> {
        let is_memory = |file: &&File| fcntl_get_seals(file).is_ok();
        let store = store.filter(is_memory).ok_or_else(|| Error::Unsupported {
            what: "a snapshot whose store is no shared memory".to_owned(),
        })?;
        let unusable =
            |error| Error::Device(BlockError::io("use the store of a snapshot", 0, error));
        let store = store.try_clone().map_err(unusable)?;
        let kept = self.begin(fs, &store, unusable)?;
        let answer = Answer::Snapshot {
            len: kept.len(),
            offset: self.offset,
            partition: self.partition,
        };
        Ok((kept, answer))
    }

    /// Begins it where the file system is consistent: anywhere, with a journal; without one, where
    /// nothing was written since everything was.
    fn begin(
        &self,
        fs: &Volume,
        store: &File,
        unusable: impl Fn(io::Error) -> Error,
    ) -> Result<Kept> {
        let features = fs.geometry().features;
        let has_journal = features.compat.contains(Compat::HAS_JOURNAL);
        let mut before = None;
        for _ in 0..TRIES {
            match fs.sync() {
                // What is on the device can be read, and is what there is.
                Ok(()) | Err(Error::Aborted { .. }) => {}
                Err(error) => return Err(error),
            }
            let store = store.try_clone().map_err(&unusable)?;
            let kept = self.origin.keep(store).map_err(&unusable)?;
            if has_journal || before == Some(kept.writes()) {
                return Ok(kept);
            }
            drop(kept);
            before = Some(self.origin.writes());
        }
        Err(Error::Unsupported {
            what: "a snapshot of a file system without a journal that is written all the time"
                .to_owned(),
        })
    }

    /// What passes with the answer.
    pub(crate) fn passed(&self) -> BorrowedFd<'_> {
        self.image.as_fd()
    }
}

impl Writer for Client {
    fn is_running(&self) -> bool {
        self.is_connected()
    }
}

/// Begins a snapshot of the image of the file system that the other end of `client` serves, and
/// says where in the image that is. Errors of the device name it `image`.
///
/// # Errors
/// What the other end refuses it with; [`Error::Remote`]; errors of the device.
pub fn of(client: &Client, image: &Path) -> Result<(Arc<dyn BlockDevice>, Within)> {
    let store = memfd_create("uext4-snapshot", MemfdFlags::CLOEXEC);
    let store = store.map_err(|error| {
        Error::Device(BlockError::io("create the store of a snapshot", 0, error))
    })?;
    let asked = client.call_passing(Passed::Own(store.as_fd()), Request::Snapshot)?;
    let (answer, image_file) = asked;
    let Answer::Snapshot {
        len,
        offset,
        partition,
    } = answer
    else {
        return Err(unexpected());
    };
    let file: OwnedFd = image_file.ok_or_else(unexpected)?;
    let device = FileDevice::of_file(File::from(file), image)?;
    let writer = Box::new(client.clone());
    let snapshot = Snapshot::new(Arc::new(device), File::from(store), len, writer)?;
    Ok((Arc::new(snapshot), Within { offset, partition }))
}
