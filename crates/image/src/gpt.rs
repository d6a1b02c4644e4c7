//! A disk image of one partition with a file system, and one with its hash tree if it has one.
//!
//! ```text
//! 0        34 sectors   1 MiB            1 MiB boundary            end
//! | MBR, GPT |          | file system |   | hash tree |   | GPT copy |
//! ```
//! The crate `gpt` lays out the tables. Everything in them follows from the arguments: GUIDs from
//! the identity of the image; those of partitions with a hash tree from the root hash, as the
//! [Discoverable Partitions Specification][dps] says, so that systemd finds the pair.
//!
//! [dps]: https://uapi-group.org/specifications/specs/discoverable_partitions_specification/

mod types;

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;

use ::gpt::GptConfig;
use ::gpt::disk::LogicalBlockSize;
use ::gpt::mbr::ProtectiveMBR;
use ::gpt::partition::Partition;
use ::gpt::partition_types::{OperatingSystem, Type};
use sha2::{Digest, Sha256};
use uext4_blockdev::{BlockDevice, Error};
use uuid::Uuid;

pub use types::{PartitionType, UnknownType};

use crate::verity::{BLOCK, RootHash};

/// Where partitions begin is a multiple of this many bytes, and the length of the image.
const ALIGN: u64 = 1 << 20;
/// Bytes of a table: 128 entries of 128 bytes.
const ENTRIES_LEN: u64 = 128 * 128;
/// UTF-16 units of the longest name of a partition.
const NAME_MAX: usize = 36;
/// The attribute that has a partition mounted read-only (bit 60).
const READ_ONLY: u64 = 1 << 60;

/// A partition table around a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpt {
    kind: PartitionType,
    name: String,
    /// What GUIDs follow from.
    identity: [u8; 16],
    sector_size: LogicalBlockSize,
}

/// Where everything lies, in bytes of the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The file system.
    pub fs: Range<u64>,
    /// The hash tree.
    pub verity: Option<Range<u64>>,
    /// Bytes of the image.
    pub len: u64,
}

/// Why there can be no such table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GptError {
    /// The name does not fit into the table.
    #[error("partition name {name:?} has {units} UTF-16 units; at most {NAME_MAX}, and no zero")]
    Name {
        /// The name.
        name: String,
        /// Its length.
        units: usize,
    },
    /// Partition tables are not counted in such sectors.
    #[error("a partition table cannot be counted in sectors of {bytes} bytes: only 512 and 4096")]
    SectorSize {
        /// Bytes of a sector.
        bytes: u32,
    },
}

impl Gpt {
    /// A table counted in sectors of 512 bytes, whose GUIDs follow from `identity`, such as the
    /// UUID of the file system.
    ///
    /// # Errors
    /// [`GptError::Name`] if the name has more than 36 UTF-16 units, or a zero.
    pub fn new(kind: PartitionType, name: &str, identity: [u8; 16]) -> Result<Self, GptError> {
        let units = name.encode_utf16().count();
        if units > NAME_MAX || name.contains('\0') {
            let name = name.to_owned();
            return Err(GptError::Name { name, units });
        }
        Ok(Self {
            kind,
            name: name.to_owned(),
            identity,
            sector_size: LogicalBlockSize::Lb512,
        })
    }

    /// The table as a device with sectors of so many bytes needs it.
    ///
    /// # Errors
    /// [`GptError::SectorSize`] if that is neither 512 nor 4096.
    pub fn with_sector_size(mut self, bytes: u32) -> Result<Self, GptError> {
        self.sector_size = match bytes {
            512 => LogicalBlockSize::Lb512,
            4096 => LogicalBlockSize::Lb4096,
            _ => return Err(GptError::SectorSize { bytes }),
        };
        Ok(self)
    }

    /// Where a file system and its hash tree lie, each rounded up to [`BLOCK`], and the length of
    /// the smallest image that holds them.
    #[must_use]
    pub fn layout(&self, fs_len: u64, verity_len: Option<u64>) -> Layout {
        let place = |start: u64, len: u64| {
            let len = len.div_ceil(BLOCK).saturating_mul(BLOCK);
            start..start.saturating_add(len)
        };
        let aligned = |at: u64| at.div_ceil(ALIGN).saturating_mul(ALIGN);
        let fs = place(ALIGN, fs_len);
        let verity = verity_len.map(|len| place(aligned(fs.end), len));
        let end = verity.as_ref().map_or(fs.end, |verity| verity.end);
        let len = aligned(end.saturating_add(self.copy_len()));
        Layout { fs, verity, len }
    }

    /// Bytes of the copy at the end: the table, and its header in the last sector.
    fn copy_len(&self) -> u64 {
        ENTRIES_LEN + self.sector_size.as_u64()
    }

    /// Writes the protective MBR and both tables; the copy lies at the end of the device, which
    /// has [`Layout::len`] bytes or more. With a hash tree the GUIDs of the partitions are the
    /// halves of the root hash, and both are read-only.
    ///
    /// # Errors
    /// Those of the device; [`Error::OutOfRange`] if it is too small, before anything is written.
    pub fn write(
        &self,
        layout: &Layout,
        root_hash: Option<&RootHash>,
        device: &dyn BlockDevice,
    ) -> Result<(), Error> {
        let failed = |source| Error::Io {
            op: "write the partition table",
            offset: 0,
            source,
        };
        let end = layout.verity.as_ref().unwrap_or(&layout.fs).end;
        Error::check_range(end, self.copy_len(), device.len())?;
        let mut cursor = Cursor { device, at: 0 };
        let last = device.len() / self.sector_size.as_u64() - 1;
        let mbr = ProtectiveMBR::with_lb_size(u32::try_from(last).unwrap_or(u32::MAX));
        let written = mbr.overwrite_lba0(&mut cursor);
        written.map_err(|error| failed(io::Error::other(error)))?;
        let write = || {
            let mut disk = GptConfig::new()
                .writable(true)
                .logical_block_size(self.sector_size)
                .create_from_device(cursor, Some(self.guid("disk")))?;
            disk.update_partitions(self.partitions(layout, root_hash))?;
            disk.write()
        };
        write().map_err(|error| failed(io::Error::other(error)))?;
        Ok(())
    }

    fn partitions(
        &self,
        layout: &Layout,
        root_hash: Option<&RootHash>,
    ) -> BTreeMap<u32, Partition> {
        let flags = root_hash.map_or(0, |_| READ_ONLY);
        let entry = |place: &Range<u64>, guid: Uuid, part_guid: Uuid, name: String| Partition {
            part_type_guid: Type {
                guid,
                os: OperatingSystem::None,
            },
            part_guid,
            first_lba: place.start / self.sector_size.as_u64(),
            last_lba: place.end / self.sector_size.as_u64() - 1,
            flags,
            name,
        };
        let half = |hash: &RootHash, from: usize| {
            let mut half = [0; 16];
            half.copy_from_slice(&hash.0[from..from + 16]);
            Uuid::from_bytes(half)
        };
        let fs_guid = root_hash.map_or_else(|| self.guid("partition"), |hash| half(hash, 0));
        let fs = entry(&layout.fs, self.kind.guid(), fs_guid, self.name.clone());
        let mut partitions = BTreeMap::from([(1, fs)]);
        if let (Some(place), Some(hash)) = (&layout.verity, root_hash) {
            // A type that the specification does not know has no pair either.
            let kind = self.kind.verity().unwrap_or(PartitionType::LINUX.guid());
            let name = format!("{}-verity", self.kind.name());
            partitions.insert(2, entry(place, kind, half(hash, 16), name));
        }
        partitions
    }

    /// The GUID of what `of` says.
    fn guid(&self, of: &str) -> Uuid {
        let mut hash = Sha256::new();
        hash.update(b"uext4 gpt 1\0");
        hash.update(self.identity);
        hash.update(of);
        let mut guid = [0; 16];
        guid.copy_from_slice(&hash.finalize()[..16]);
        // Version 8: "made by an algorithm of one's own".
        uuid::Builder::from_custom_bytes(guid).into_uuid()
    }
}

/// A device as the crate `gpt` takes it.
#[derive(Debug)]
struct Cursor<'a> {
    device: &'a dyn BlockDevice,
    at: u64,
}

impl Read for Cursor<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let there = self.device.len().saturating_sub(self.at);
        let len = usize::try_from(there).map_or(buf.len(), |there| there.min(buf.len()));
        let read = self.device.read_at(self.at, &mut buf[..len]);
        read.map_err(io::Error::other)?;
        self.at += len as u64;
        Ok(len)
    }
}

impl Write for Cursor<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let written = self.device.write_at(self.at, buf);
        written.map_err(io::Error::other)?;
        self.at += buf.len() as u64;
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Cursor<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.device.len().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests;
