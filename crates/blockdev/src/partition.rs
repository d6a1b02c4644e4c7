//! Partition tables: MBR with extended partitions, and GPT.
//!
//! A table only says where partitions lie; whether a file system is in one is for the caller to
//! judge, who hands a closure to [`find_file_systems`]. Tables are hostile input: every list and
//! chain is bounded, and a damaged entry costs itself but not its neighbours. What was wrong is
//! stored in [`Table::damage`].
//!
//! Tables count in sectors. The position of the GPT header shows whether these have 512 or 4096
//! bytes; an MBR does not show it, so the device's own [`BlockDevice::sector_size`] decides, and
//! [`find_file_systems`] tries 4096 where 512 led to no file system.
//!
//! Left out: making tables (an entry that is there can be changed), BSD and Sun labels, members of
//! LVM and RAID.

mod edit_error;
mod find;
pub mod gpt;
mod guard;
pub mod mbr;
mod window;

pub use edit_error::EditError;
pub use find::{Found, find_file_systems};
pub use guard::{FsLen, Guard, READ_ONLY};
pub use window::{Name, Place, Window};

use std::ops::Range;
use std::sync::Arc;

pub use crate::partition_damage::Damage;
use crate::{BlockDevice, Error, SubDevice};

/// Which kind of table a partition was found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TableKind {
    /// The table of the first sector, with chained tables for logical partitions.
    Mbr,
    /// GUID partition table.
    Gpt,
}

/// One partition as its table reports it. It may lie partly or wholly past the end of the device.
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
    /// UUID as `blkid` calls it `PARTUUID`: a GUID in upper case in a GPT; in an MBR the signature
    /// of the disk and the number, in lower case. Empty where the disk has no signature.
    pub uuid: String,
    /// Attributes of a GPT entry; 0 in an MBR.
    pub attributes: u64,
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

/// A partition table: what could be read of it, and what was wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The partitions in the order of the table; extended containers and empty entries left out.
    pub partitions: Vec<Partition>,
    /// The bytes of the table itself, its copy and chained tables: no file system lies there.
    pub reserved: Vec<Range<u64>>,
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

/// Lets a partition, behind which no other lies, end at byte `end` at least, or without one as late
/// as the disk allows. It is never made shorter.
///
/// # Errors
/// [`EditError`]; nothing is written unless the device fails.
pub fn extend(
    device: &dyn BlockDevice,
    partition: &Partition,
    end: Option<u64>,
) -> Result<(), EditError> {
    match partition.table {
        TableKind::Gpt => gpt::extend(device, partition.number, end),
        TableKind::Mbr => mbr::extend(device, partition, end),
    }
}

/// Lets a partition end at byte `end`, rounded up to a multiple of 4096 bytes, if that is earlier
/// than where it ends.
///
/// # Errors
/// [`EditError`]; nothing is written unless the device fails.
pub fn shorten(device: &dyn BlockDevice, partition: &Partition, end: u64) -> Result<(), EditError> {
    match partition.table {
        TableKind::Gpt => gpt::shorten(device, partition.number, end),
        TableKind::Mbr => mbr::shorten(device, partition, end),
    }
}

/// Looks whether [`extend`] could change the table, but for the room on the disk: before anything
/// else is changed that would be of no use without it.
///
/// # Errors
/// As [`extend`]; nothing is written.
pub fn can_extend(device: &dyn BlockDevice, partition: &Partition) -> Result<(), EditError> {
    match partition.table {
        TableKind::Gpt => gpt::can_extend(device, partition.number),
        TableKind::Mbr => mbr::can_extend(device, partition),
    }
}

/// The same for [`shorten`].
///
/// # Errors
/// As [`shorten`]; nothing is written.
pub fn can_shorten(device: &dyn BlockDevice, partition: &Partition) -> Result<(), EditError> {
    match partition.table {
        TableKind::Gpt => gpt::can_shorten(device, partition.number),
        TableKind::Mbr => mbr::can_shorten(device, partition),
    }
}

/// Bytes of a disk on which this partition, behind which no other lies, ends at byte `end`.
#[must_use]
pub fn disk_len(table: TableKind, end: u64) -> u64 {
    match table {
        TableKind::Gpt => gpt::disk_len(end),
        TableKind::Mbr => end.div_ceil(1 << 20).saturating_mul(1 << 20),
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

/// A partition of a device.
///
/// # Errors
/// As [`scan`], [`Partition::open`] and [`Name::among`].
pub fn open(device: Arc<dyn BlockDevice>, name: &Name) -> Result<SubDevice, Error> {
    name.among(&scan(&*device)?)?.open(device)
}

/// As [`read`], with MBR entries counted in sectors of `sector_size` bytes.
fn read_with(device: &dyn BlockDevice, sector_size: u64) -> Result<Table, Error> {
    let mut table = Table::default();
    let Some(sector) = read_sector(device, 0, 512)? else {
        return Ok(table);
    };
    let Some(entries) = mbr::parse(&sector) else {
        // The first sector may be lost, with the GPT behind it, or used for something else. A
        // table or its copy whose checksums are right stands for itself; anything less is chance.
        return Ok(gpt::read(device, sector_size)?.unwrap_or(table));
    };
    if entries.iter().any(|entry| entry.kind == mbr::PROTECTIVE) {
        match gpt::read(device, sector_size)? {
            Ok(found) => return Ok(found),
            Err(damage) => damage.into_iter().for_each(|damage| table.lose(damage)),
        }
    }
    mbr::read(device, &entries, sector_size, &mut table)?;
    if let Some(signature) = mbr::disk_signature(&sector) {
        for partition in &mut table.partitions {
            partition.uuid = format!("{signature:08x}-{:02x}", partition.number);
        }
    }
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
