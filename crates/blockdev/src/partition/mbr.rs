//! The partition table of the first sector (MBR), and the chain of such tables (EBR) that holds
//! the logical partitions of an extended one.
//!
//! ```text
//! 0            446     462     478     494     510
//! | boot code  | entry | entry | entry | entry | 55 aa |
//! ```
//! In an EBR the first entry is a partition, counted from the EBR's own sector; the second is the
//! next EBR, counted from the start of the whole extended partition.

use std::collections::BTreeSet;
use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::sector_size as sector_size_of;
use super::{Damage, EditError, Partition, Table, TableKind, read_sector};
use crate::{BlockDevice, Error};

/// Type of the entry that covers a disk with a GPT.
pub const PROTECTIVE: u8 = 0xee;

/// `signature` of every table.
pub const SIGNATURE: u16 = 0xaa55;

/// Where the signature of the disk lies.
const DISK_SIGNATURE: usize = 440;

/// Links of the extended chain that are followed: as many as Linux numbers partitions.
const LINKS_MAX: usize = 256;

/// A table as it stands in its sector.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTable {
    boot_code: [u8; 446],
    entries: [RawEntry; 4],
    signature: U16,
}

/// An entry as it stands in the table. Cylinders, heads and sectors have been lies for long.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    status: u8,
    chs_first: [u8; 3],
    kind: u8,
    chs_last: [u8; 3],
    first: U32,
    count: U32,
}

const _: () = assert!(size_of::<RawTable>() == 512 && size_of::<RawEntry>() == 16);
const _: () = assert!(offset_of!(RawTable, entries) == 446);

/// An entry of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Type: 0x83 Linux, 0x05 extended, …
    pub kind: u8,
    /// First sector, counted from what the table belongs to.
    pub first: u32,
    /// Sectors.
    pub count: u32,
}

impl Entry {
    /// Whether the entry is unused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kind == 0 || self.count == 0
    }

    /// Whether it holds logical partitions.
    #[must_use]
    pub fn is_extended(&self) -> bool {
        matches!(self.kind, 0x05 | 0x0f | 0x85)
    }

    fn is_partition(&self) -> bool {
        !self.is_empty() && !self.is_extended() && self.kind != PROTECTIVE
    }

    /// The partition, with the entry counted from sector `base`.
    fn partition(&self, number: u32, base: u64, sector_size: u64) -> Option<Partition> {
        Some(Partition {
            number,
            start: base
                .checked_add(u64::from(self.first))?
                .checked_mul(sector_size)?,
            len: u64::from(self.count).checked_mul(sector_size)?,
            table: TableKind::Mbr,
            kind: format!("{:02x}", self.kind),
            name: String::new(),
            uuid: String::new(),
            attributes: 0,
        })
    }
}

/// The four entries of the table in `sector`; `None` if there is no table.
///
/// Boot sectors of file systems carry the same signature, so entries whose status is neither
/// "active" (0x80) nor "inactive" (0) make it no table.
#[must_use]
pub fn parse(sector: &[u8]) -> Option<[Entry; 4]> {
    let (table, _) = RawTable::ref_from_prefix(sector).ok()?;
    let status_is_known = table
        .entries
        .iter()
        .all(|entry| matches!(entry.status, 0 | 0x80));
    (table.signature.get() == SIGNATURE && status_is_known).then(|| table.host_entries())
}

impl RawTable {
    fn host_entries(&self) -> [Entry; 4] {
        self.entries.each_ref().map(|raw| Entry {
            kind: raw.kind,
            first: raw.first.get(),
            count: raw.count.get(),
        })
    }
}

/// The signature of the disk in its first sector; `None` without one.
#[must_use]
pub fn disk_signature(sector: &[u8]) -> Option<u32> {
    let bytes = sector.get(DISK_SIGNATURE..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes)).filter(|&signature| signature != 0)
}

/// Adds the partitions of an MBR with these `entries` to `table`, logical ones included.
pub(super) fn read(
    device: &dyn BlockDevice,
    entries: &[Entry; 4],
    sector_size: u64,
    table: &mut Table,
) -> Result<(), Error> {
    if entries.iter().any(|entry| !entry.is_empty()) {
        table.reserved.push(0..sector_size);
    }
    for (number, entry) in (1..).zip(entries) {
        if entry.is_partition() {
            table
                .partitions
                .extend(entry.partition(number, 0, sector_size));
        }
    }
    let mut chain = Chain {
        next_number: 5,
        visited: BTreeSet::new(),
    };
    for entry in entries
        .iter()
        .filter(|entry| entry.is_extended() && !entry.is_empty())
    {
        chain.follow(device, u64::from(entry.first), sector_size, table)?;
    }
    Ok(())
}

/// Lets a primary partition, behind which no other lies, end at byte `end` at least, or without one
/// at the end of the disk. The one sector of the table changes, which a disk writes whole or not at
/// all.
///
/// # Errors
/// [`EditError`]; nothing is written unless the device fails.
pub(super) fn extend(
    device: &dyn BlockDevice,
    partition: &Partition,
    end: Option<u64>,
) -> Result<(), EditError> {
    let number = partition.number;
    let mut table = Editable::read(device, partition)?;
    let size = table.sector_size;
    let own = table.entry(number)?;
    let (first, had) = (u64::from(own.first.get()), u64::from(own.count.get()));
    table.must_be_last(number, first)?;
    // The numbers of sectors have 32 bits.
    let most = u64::from(u32::MAX).min(device.len() / size);
    let wanted = end.map_or(most, |end| end.div_ceil(size)).max(first + had);
    if wanted > most {
        let (end, room) = (wanted.saturating_mul(size), most * size);
        return Err(EditError::NoRoom { number, end, room });
    }
    table.set_count(number, wanted - first)?;
    table.write(device)
}

/// Looks whether [`extend`] could change the table, but for the room on the disk.
///
/// # Errors
/// As [`extend`].
pub(super) fn can_extend(device: &dyn BlockDevice, partition: &Partition) -> Result<(), EditError> {
    let number = partition.number;
    let mut table = Editable::read(device, partition)?;
    let first = table.entry(number)?.first.get();
    table.must_be_last(number, first.into())
}

/// Looks whether [`shorten`] could change the table.
///
/// # Errors
/// As [`shorten`].
pub(super) fn can_shorten(
    device: &dyn BlockDevice,
    partition: &Partition,
) -> Result<(), EditError> {
    Editable::read(device, partition).map(drop)
}

/// Lets the entry that keeps others away from a disk with a GPT cover it up to its sector `last`.
/// Next to other entries it covers what they leave, and stays.
pub(super) fn cover(device: &dyn BlockDevice, last: u64) -> Result<(), Error> {
    let sector = read_sector(device, 0, 512)?.unwrap_or_default();
    let Ok(mut raw) = RawTable::read_from_bytes(&sector) else {
        return Ok(());
    };
    let mut used = raw.entries.iter_mut().filter(|entry| entry.kind != 0);
    match (used.next(), used.next()) {
        (Some(entry), None) if entry.kind == PROTECTIVE => {
            // It begins behind this sector. What 32 bits cannot say is all they hold.
            entry.count = u32::try_from(last).unwrap_or(u32::MAX).into();
        }
        _ => return Ok(()),
    }
    device.write_at(0, raw.as_bytes())
}

/// Lets a primary partition end at byte `end`, rounded up to a multiple of 4096 bytes, if that is
/// earlier than where it ends.
///
/// # Errors
/// As [`extend`].
pub(super) fn shorten(
    device: &dyn BlockDevice,
    partition: &Partition,
    end: u64,
) -> Result<(), EditError> {
    let mut table = Editable::read(device, partition)?;
    let own = table.entry(partition.number)?;
    let (first, had) = (u64::from(own.first.get()), u64::from(own.count.get()));
    let end = end
        .div_ceil(4096)
        .saturating_mul(4096)
        .div_ceil(table.sector_size);
    let count = end.saturating_sub(first).max(1);
    if count >= had {
        return Ok(());
    }
    table.set_count(partition.number, count)?;
    table.write(device)
}

/// The table of the first sector, read to be changed.
struct Editable {
    raw: RawTable,
    sector_size: u64,
}

impl Editable {
    /// The table that has this partition, which must be a primary one.
    fn read(device: &dyn BlockDevice, partition: &Partition) -> Result<Self, EditError> {
        let number = partition.number;
        if number > 4 {
            return Err(EditError::Logical { number });
        }
        let none = EditError::NoPartition { number };
        let sector = read_sector(device, 0, 512)?.unwrap_or_default();
        let Ok(raw) = RawTable::read_from_bytes(&sector) else {
            return Err(none);
        };
        let mut table = Self {
            raw,
            sector_size: sector_size_of(device),
        };
        let first = u64::from(table.entry(number)?.first.get());
        // Counted in other sectors than the device's, or changed meanwhile.
        match [table.sector_size, 4096]
            .into_iter()
            .find(|size| first.checked_mul(*size) == Some(partition.start))
        {
            Some(size) => {
                table.sector_size = size;
                Ok(table)
            }
            None => Err(none),
        }
    }

    fn entry(&mut self, number: u32) -> Result<&mut RawEntry, EditError> {
        let index = (number as usize).checked_sub(1);
        let entry = index.and_then(|index| self.raw.entries.get_mut(index));
        match entry {
            Some(entry) if entry.kind != 0 && entry.count.get() != 0 => Ok(entry),
            _ => Err(EditError::NoPartition { number }),
        }
    }

    /// Fails if another partition begins behind this one, which begins at sector `first`.
    fn must_be_last(&self, number: u32, first: u64) -> Result<(), EditError> {
        let entries = self.raw.entries.iter().zip(1..);
        let mut others = entries.filter(|(entry, of)| entry.count.get() != 0 && *of != number);
        match others.find(|(entry, _)| u64::from(entry.first.get()) > first) {
            Some((_, next)) => Err(EditError::NotLast { number, next }),
            None => Ok(()),
        }
    }

    /// Changes how long a partition is.
    fn set_count(&mut self, number: u32, sectors: u64) -> Result<(), EditError> {
        let entry = self.entry(number)?;
        // OK to truncate: it was compared with what 32 bits hold.
        entry.count = (sectors as u32).into();
        // Beyond what cylinders count, as sfdisk writes it.
        entry.chs_last = [0xfe, 0xff, 0xff];
        Ok(())
    }

    fn write(&self, device: &dyn BlockDevice) -> Result<(), EditError> {
        device.write_at(0, self.raw.as_bytes())?;
        Ok(device.flush()?)
    }
}

/// The walk along the tables of extended partitions.
struct Chain {
    next_number: u32,
    /// Sectors of the tables met, over all extended partitions.
    visited: BTreeSet<u64>,
}

impl Chain {
    /// Walks the chain that begins at sector `container`; what breaks it ends it.
    fn follow(
        &mut self,
        device: &dyn BlockDevice,
        container: u64,
        sector_size: u64,
        table: &mut Table,
    ) -> Result<(), Error> {
        let mut next = Some(container);
        while let Some(sector) = next {
            if let Some(damage) = self.refuse(sector) {
                table.lose(damage);
                return Ok(());
            }
            let Some(bytes) = read_sector(device, sector, sector_size)? else {
                let device_len = device.len();
                let what = "the extended table";
                table.lose(Damage::Outside {
                    what,
                    sector,
                    device_len,
                });
                return Ok(());
            };
            // OK to unwrap: a sector has at least the 512 bytes of a table.
            let (raw, _) = RawTable::ref_from_prefix(&bytes).unwrap();
            let found = raw.signature.get();
            if found != SIGNATURE {
                table.lose(Damage::ExtendedSignature { sector, found });
                return Ok(());
            }
            // Only the first two entries mean something in an extended table.
            let [first, second, _, _] = raw.host_entries();
            let at = sector.saturating_mul(sector_size);
            table.reserved.push(at..at.saturating_add(sector_size));
            for entry in [first, second].iter().filter(|entry| entry.is_partition()) {
                table
                    .partitions
                    .extend(entry.partition(self.next_number, sector, sector_size));
                self.next_number += 1;
            }
            next = [first, second]
                .iter()
                .find(|entry| entry.is_extended() && !entry.is_empty())
                .and_then(|entry| container.checked_add(u64::from(entry.first)));
        }
        Ok(())
    }

    /// Why the walk must not go on to `sector`.
    fn refuse(&mut self, sector: u64) -> Option<Damage> {
        if self.visited.len() == LINKS_MAX {
            return Some(Damage::ExtendedTooLong { max: LINKS_MAX });
        }
        (!self.visited.insert(sector)).then_some(Damage::ExtendedCycle { sector })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::{read as read_table, scan};
    use crate::{BlockDevice, MemoryDevice};

    fn put(device: &MemoryDevice, sector: u64, entries: &[(u8, u32, u32)]) {
        let mut bytes = [0; 512];
        for (entry, &(kind, first, count)) in bytes[446..].chunks_mut(16).zip(entries) {
            entry[4] = kind;
            entry[8..12].copy_from_slice(&first.to_le_bytes());
            entry[12..].copy_from_slice(&count.to_le_bytes());
        }
        bytes[510..].copy_from_slice(&[0x55, 0xaa]);
        device.write_at(sector * 512, &bytes).unwrap();
    }

    fn spans(device: &MemoryDevice) -> Vec<(u32, u64, u64, String)> {
        let partitions = scan(device).unwrap();
        partitions
            .into_iter()
            .map(|p| (p.number, p.start / 512, p.len / 512, p.kind))
            .collect()
    }

    #[test]
    fn primary_and_logical_partitions() {
        let device = MemoryDevice::new(1 << 20);
        put(
            &device,
            0,
            &[(0x83, 8, 10), (0, 0, 0), (0x05, 100, 500), (0x0c, 700, 9)],
        );
        put(&device, 100, &[(0x83, 2, 20), (0x05, 50, 60)]);
        put(&device, 150, &[(0x82, 3, 30), (0, 0, 0)]);
        let expected = [
            (1, 8, 10, "83"),
            (4, 700, 9, "0c"),
            (5, 102, 20, "83"),
            (6, 153, 30, "82"),
        ];
        assert_eq!(
            spans(&device),
            expected.map(|(n, s, l, k)| (n, s, l, k.to_owned()))
        );
    }

    #[test]
    fn chains_that_break_keep_what_came_before() {
        let device = MemoryDevice::new(1 << 20);
        put(&device, 0, &[(0x83, 8, 10), (0x0f, 100, 500)]);
        let damage = |device: &MemoryDevice| read_table(device).unwrap().damage;
        assert_eq!(
            damage(&device),
            [Damage::ExtendedSignature {
                sector: 100,
                found: 0
            }]
        );
        put(&device, 100, &[(0x83, 2, 20), (0x05, 50, 60)]);
        put(&device, 150, &[(0x83, 2, 20), (0x05, 0, 60)]);
        assert_eq!(damage(&device), [Damage::ExtendedCycle { sector: 100 }]);
        assert_eq!(spans(&device).len(), 3);
        put(&device, 150, &[(0x83, 2, 20), (0x05, u32::MAX, 60)]);
        let sector = 100 + u64::from(u32::MAX);
        let what = "the extended table";
        assert_eq!(
            damage(&device),
            [Damage::Outside {
                what,
                sector,
                device_len: 1 << 20
            }]
        );
        for link in 100..1000 {
            put(
                &device,
                link,
                &[(0x83, 1, 1), (0x05, (link - 99) as u32, 1)],
            );
        }
        assert_eq!(
            damage(&device),
            [Damage::ExtendedTooLong { max: LINKS_MAX }]
        );
        assert_eq!(spans(&device).len(), 1 + LINKS_MAX);
    }

    #[test]
    fn no_table_is_no_error() {
        let device = MemoryDevice::new(4096);
        assert_eq!(spans(&device), []);
        put(&device, 0, &[(0x83, 1, 1)]);
        device.write_at(446, b"\xeb").unwrap();
        assert_eq!(spans(&device), [], "a boot sector of a file system");
        assert_eq!(spans(&MemoryDevice::new(511)), []);
    }
}
