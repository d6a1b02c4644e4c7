//! Partition tables: MBR with extended partitions, and GPT.
//!
//! A table only says where partitions lie; whether a file system is in one is for the caller to
//! judge, who hands a closure to [`find_file_systems`]. Tables are hostile input: every list and
//! chain is bounded, and a damaged entry costs itself but not its neighbours. What was wrong is
//! kept in [`Table::damage`].
//!
//! Tables count in sectors. A GPT header tells by its place whether they are of 512 or 4096 bytes;
//! an MBR does not, so the device's own [`BlockDevice::sector_size`] decides, and
//! [`find_file_systems`] tries 4096 where 512 led to no file system.
//!
//! Left out: writing tables, BSD and Sun labels, LVM and RAID members.

mod find;
pub mod gpt;
pub mod mbr;

pub use find::{Found, find_file_systems};

use std::sync::Arc;

use crate::{BlockDevice, Error, SubDevice};

/// Which kind of table a partition was found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TableKind {
    /// The table of the first sector, with chained tables for logical partitions.
    Mbr,
    /// GUID partition table.
    Gpt,
}

/// One partition as its table tells it. It may lie partly or wholly past the end of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Number as Linux counts: from 1; logical partitions of an MBR from 5.
    pub number: u32,
    /// First byte on the device.
    pub start: u64,
    /// Bytes, at least 1; `start + len` does not overflow.
    pub len: u64,
    /// Which table it stands in.
    pub table: TableKind,
    /// Type: two hex digits ("83") in an MBR, a GUID in upper case in a GPT.
    pub kind: String,
    /// Label; GPT only, else empty.
    pub name: String,
}

impl Partition {
    /// The partition as a device of its own, cut short where the device ends before it.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if it begins at or past the end of the device.
    pub fn open(&self, device: Arc<dyn BlockDevice>) -> Result<SubDevice, Error> {
        let device_len = device.len();
        let present = device_len.saturating_sub(self.start);
        if present == 0 {
            return Err(Error::OutOfRange {
                offset: self.start,
                len: self.len,
                device_len,
            });
        }
        SubDevice::new(device, self.start, self.len.min(present))
    }
}

/// What is wrong with a partition table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// A table of the chain of logical partitions has no signature.
    #[error("the extended table at sector {sector} ends with {found:#06x} instead of 0xaa55")]
    ExtendedSignature {
        /// Sector of the table.
        sector: u64,
        /// What stands in the signature's place.
        found: u16,
    },
    /// The chain of logical partitions leads back into itself.
    #[error("the chain of extended tables comes back to sector {sector}")]
    ExtendedCycle {
        /// Sector of the table met twice.
        sector: u64,
    },
    /// The chain of logical partitions does not end.
    #[error("the chain of extended tables has more than {max} links")]
    ExtendedTooLong {
        /// Links followed.
        max: usize,
    },
    /// A table or header lies past the end of the device.
    #[error("{what} at sector {sector} lies past the end of the device of {device_len} bytes")]
    Outside {
        /// Which structure.
        what: &'static str,
        /// Where it should be.
        sector: u64,
        /// Bytes on the device.
        device_len: u64,
    },
    /// The header has no signature.
    #[error("no GPT header at sector {sector}")]
    GptSignature {
        /// Sector of the header.
        sector: u64,
    },
    /// The header's length is impossible.
    #[error("the GPT header at sector {sector} says it has {len} bytes")]
    GptHeaderLen {
        /// Sector of the header.
        sector: u64,
        /// The length it gives.
        len: u32,
    },
    /// The header's checksum is wrong.
    #[error("the GPT header at sector {sector} has checksum {stored:#010x}, not {computed:#010x}")]
    GptHeaderChecksum {
        /// Sector of the header.
        sector: u64,
        /// In the header.
        stored: u32,
        /// Of the header.
        computed: u32,
    },
    /// The header says it is somewhere else.
    #[error("the GPT header at sector {sector} says it is at sector {stored}")]
    GptHeaderPlace {
        /// Sector of the header.
        sector: u64,
        /// Where it says it is.
        stored: u64,
    },
    /// The list of entries is impossible or too large to be meant.
    #[error("the GPT header at sector {sector} has {count} entries of {entry_size} bytes")]
    GptEntries {
        /// Sector of the header.
        sector: u64,
        /// Entries.
        count: u32,
        /// Bytes of each.
        entry_size: u32,
    },
    /// The checksum of the entries is wrong.
    #[error(
        "the GPT entries at sector {sector} have checksum {computed:#010x}, not {stored:#010x}"
    )]
    GptEntriesChecksum {
        /// First sector of the entries.
        sector: u64,
        /// In the header.
        stored: u32,
        /// Of the entries.
        computed: u32,
    },
    /// An entry ends before it begins, or lies where no byte number reaches.
    #[error("GPT entry {number} goes from sector {first} to {last}")]
    GptEntry {
        /// Number of the partition.
        number: u32,
        /// First sector.
        first: u64,
        /// Last sector.
        last: u64,
    },
}

/// A partition table: what could be read of it, and what was wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The partitions in the order of the table; extended containers and empty entries left out.
    pub partitions: Vec<Partition>,
    /// What was met and passed by.
    pub damage: Vec<Damage>,
    /// Whether the damage may hide partitions. A GPT read from its backup is complete.
    pub incomplete: bool,
}

impl Table {
    /// Notes damage that may hide partitions.
    fn lose(&mut self, damage: Damage) {
        self.damage.push(damage);
        self.incomplete = true;
    }

    /// The partitions; or the first damage, where it may be why there are none.
    fn partitions_or_damage(self) -> Result<Vec<Partition>, Error> {
        match self.damage.into_iter().next() {
            Some(damage) if self.incomplete && self.partitions.is_empty() => Err(damage.into()),
            _ => Ok(self.partitions),
        }
    }
}

/// Reads the partition table of a device. A device without one has no partitions and no damage.
///
/// # Errors
/// Those of reading the device; damage is in the answer.
pub fn read(device: &dyn BlockDevice) -> Result<Table, Error> {
    read_with(device, sector_size(device))
}

/// The partitions of a device; empty where it has no table.
///
/// # Errors
/// Those of reading the device, and [`Error::Partition`] if there are no partitions and damage
/// may be the reason.
pub fn scan(device: &dyn BlockDevice) -> Result<Vec<Partition>, Error> {
    read(device)?.partitions_or_damage()
}

/// Partition `number` of a device.
///
/// # Errors
/// As [`scan`] and [`Partition::open`]; [`Error::NoPartition`] if there is none of this number.
pub fn open(device: Arc<dyn BlockDevice>, number: u32) -> Result<SubDevice, Error> {
    let partitions = scan(&*device)?;
    match partitions
        .iter()
        .find(|partition| partition.number == number)
    {
        Some(partition) => partition.open(device),
        None => {
            let present = partitions
                .iter()
                .map(|partition| partition.number)
                .collect();
            Err(Error::NoPartition { number, present })
        }
    }
}

/// As [`read`], with MBR entries counted in sectors of `sector_size` bytes.
fn read_with(device: &dyn BlockDevice, sector_size: u64) -> Result<Table, Error> {
    let mut table = Table::default();
    let Some(sector) = read_sector(device, 0, 512)? else {
        return Ok(table);
    };
    let Some(entries) = mbr::parse(&sector) else {
        // The first sector may be lost or used for something else. A good primary GPT stands
        // for itself; anything less is chance.
        return Ok(gpt::read(device, sector_size, gpt::Look::Primary)?.unwrap_or(table));
    };
    if entries.iter().any(|entry| entry.kind == mbr::PROTECTIVE) {
        match gpt::read(device, sector_size, gpt::Look::Everywhere)? {
            Ok(found) => return Ok(found),
            Err(damage) => damage.into_iter().for_each(|damage| table.lose(damage)),
        }
    }
    mbr::read(device, &entries, sector_size, &mut table)?;
    Ok(table)
}

/// The device's sector size where a partition table could be counted in it, else 512.
fn sector_size(device: &dyn BlockDevice) -> u64 {
    match device.sector_size() {
        size @ (512 | 1024 | 2048 | 4096) => u64::from(size),
        _ => 512,
    }
}

/// Sector `number`; `None` if it does not lie on the device.
fn read_sector(
    device: &dyn BlockDevice,
    number: u64,
    sector_size: u64,
) -> Result<Option<Vec<u8>>, Error> {
    let Some(offset) = number.checked_mul(sector_size) else {
        return Ok(None);
    };
    if Error::check_range(offset, sector_size, device.len()).is_err() {
        return Ok(None);
    }
    // OK to unwrap: sectors have at most 4096 bytes.
    let mut sector = vec![0; usize::try_from(sector_size).unwrap()];
    device.read_at(offset, &mut sector)?;
    Ok(Some(sector))
}
