//! Entries of a table that is there are changed: the last partition of a disk that has become
//! longer gets the new room, a partition becomes shorter, or loses an attribute.
//!
//! The copy at the end of the disk is written first, and the table after a flush: whatever
//! interrupts that, one of the two is whole.

use zerocopy::{FromBytes, IntoBytes};

use super::{Header, RawEntry, RawHeader, header_checksum};
use crate::partition::{Damage, EditError, mbr, read_sector, sector_size};
use crate::{BlockDevice, Error};

/// Ends of partitions are multiples of this many bytes.
const ALIGN: u64 = 4096;

/// Bytes of a disk whose partition that ends at byte `end` has the copy of a usual table behind it.
pub fn disk_len(end: u64) -> u64 {
    let aligned = end.div_ceil(1 << 20).saturating_mul(1 << 20);
    // The header and 16 KiB of entries fit where what is rounded up does not.
    match aligned.saturating_sub(end) < 5 * ALIGN {
        true => aligned.saturating_add(1 << 20),
        false => aligned,
    }
}

/// Lets a partition, behind which no other lies, end at byte `end` at least, or without one as late
/// as the disk allows. It is never made shorter. The copy of the table goes to the end of the disk.
///
/// # Errors
/// [`EditError`]; nothing is written unless the device fails.
pub fn extend(device: &dyn BlockDevice, number: u32, end: Option<u64>) -> Result<(), EditError> {
    let mut table = Editable::read(device)?;
    let size = table.size;
    let last = device.len() / size - 1;
    // The entries of the copy lie behind all partitions, before its header.
    let copy = last.saturating_sub(table.entry_sectors());
    let had = table.last_sector(number)?;
    let room = copy * size / ALIGN * ALIGN;
    let wanted = end.map_or(room, |end| end.div_ceil(ALIGN).saturating_mul(ALIGN));
    let wanted = wanted.max(had.saturating_add(1).saturating_mul(size));
    if wanted > copy * size {
        let end = wanted;
        return Err(EditError::NoRoom { number, end, room });
    }
    table.entry(number)?.last_lba = (wanted / size - 1).into();
    table.write(device, last, copy, copy - 1)?;
    mbr::cover(device, last)?;
    Ok(device.flush()?)
}

/// Looks whether [`extend`] could change the table, but for the room on the disk.
///
/// # Errors
/// As [`extend`].
pub fn can_extend(device: &dyn BlockDevice, number: u32) -> Result<(), EditError> {
    Editable::read(device)?.last_sector(number).map(drop)
}

/// Looks whether [`shorten`] could change the table.
///
/// # Errors
/// As [`shorten`].
pub fn can_shorten(device: &dyn BlockDevice, number: u32) -> Result<(), EditError> {
    let mut table = Editable::read(device)?;
    table.entry(number)?;
    table.copy_in_place(device).map(drop)
}

/// Lets a partition end at byte `end`, rounded up to a multiple of 4096 bytes, if that is earlier
/// than where it ends.
///
/// # Errors
/// [`EditError`]; nothing is written unless the device fails.
pub fn shorten(device: &dyn BlockDevice, number: u32, end: u64) -> Result<(), EditError> {
    let mut table = Editable::read(device)?;
    let size = table.size;
    let last = end.div_ceil(ALIGN).saturating_mul(ALIGN) / size;
    let entry = table.entry(number)?;
    let last = last.saturating_sub(1).max(entry.first_lba.get());
    if last >= entry.last_lba.get() {
        return Ok(());
    }
    entry.last_lba = last.into();
    table.write_in_place(device)
}

/// Clears attributes of a partition.
///
/// # Errors
/// [`Error::Partition`] if the table is damaged; those of the device.
pub fn clear_attributes(device: &dyn BlockDevice, number: u32, which: u64) -> Result<(), Error> {
    let cleared = Editable::read(device).and_then(|mut table| {
        let entry = table.entry(number)?;
        entry.attributes = (entry.attributes.get() & !which).into();
        table.write_in_place(device)
    });
    cleared.map_err(|error| match error {
        EditError::Table(damage) => Error::Partition(damage),
        EditError::Device(error) => error,
        _ => Error::NoPartition {
            name: number.to_string(),
            present: Vec::new(),
        },
    })
}

/// A table that was read to be changed.
struct Editable {
    /// Bytes of a sector as the table counts them.
    size: u64,
    /// The sector of the header, and what that says.
    old: Vec<u8>,
    header: Header,
    entries: Vec<u8>,
}

impl Editable {
    fn read(device: &dyn BlockDevice) -> Result<Self, EditError> {
        let (size, old, header) = find(device)?;
        Ok(Self {
            entries: read_entries(device, &header, size)?,
            size,
            old,
            header,
        })
    }

    fn entry_sectors(&self) -> u64 {
        (self.entries.len() as u64).div_ceil(self.size)
    }

    /// The entry of a partition.
    fn entry(&mut self, number: u32) -> Result<&mut RawEntry, EditError> {
        let none = EditError::NoPartition { number };
        let len = self.header.entry_size as usize;
        let at = (number as usize)
            .checked_sub(1)
            .and_then(|n| n.checked_mul(len));
        let bytes = at.and_then(|at| self.entries.get_mut(at..));
        match bytes.map(RawEntry::mut_from_prefix) {
            Some(Ok((raw, _))) if is_used(raw) => Ok(raw),
            _ => Err(none),
        }
    }

    /// The last sector of a partition, behind which no other lies.
    fn last_sector(&mut self, number: u32) -> Result<u64, EditError> {
        let last = self.entry(number)?.last_lba.get();
        let len = self.header.entry_size as usize;
        let mut others = (1..)
            .zip(self.entries.chunks_exact(len))
            .filter_map(|(number, bytes)| Some((number, RawEntry::ref_from_prefix(bytes).ok()?.0)))
            .filter(|(other, raw)| is_used(raw) && *other != number);
        match others.find(|(_, raw)| raw.last_lba.get() >= last) {
            Some((next, _)) => Err(EditError::NotLast { number, next }),
            None => Ok(last),
        }
    }

    /// The first sector of the entries of the copy, if that is where it should be.
    fn copy_in_place(&self, device: &dyn BlockDevice) -> Result<u64, EditError> {
        let last = self.header.alternate;
        let copy = last.saturating_sub(self.entry_sectors());
        let end = last
            .checked_add(1)
            .and_then(|sectors| sectors.checked_mul(self.size));
        if copy <= self.header.usable.1 || end.is_none_or(|end| end > device.len()) {
            // Of a disk that was cut, or whose copy lies elsewhere.
            return Err(Damage::GptSignature { sector: last }.into());
        }
        Ok(copy)
    }

    /// Writes both tables where they are.
    fn write_in_place(&self, device: &dyn BlockDevice) -> Result<(), EditError> {
        let copy = self.copy_in_place(device)?;
        self.write(device, self.header.alternate, copy, self.header.usable.1)?;
        Ok(device.flush()?)
    }

    /// Writes the copy with its header in sector `last` and its entries from sector `copy` on, and
    /// then the table.
    fn write(
        &self,
        device: &dyn BlockDevice,
        last: u64,
        copy: u64,
        last_usable: u64,
    ) -> Result<(), EditError> {
        let (size, entries) = (self.size, &self.entries);
        let checksum = crc32fast::hash(entries);
        let with = |place: u64, other: u64, at: u64| {
            let mut bytes = self.old.clone();
            patch(&mut bytes, |raw| {
                raw.my_lba = place.into();
                raw.alternate_lba = other.into();
                raw.last_usable_lba = last_usable.into();
                raw.entries_lba = at.into();
                raw.entries_crc32 = checksum.into();
            });
            bytes
        };
        device.write_at(copy * size, entries)?;
        device.write_at(last * size, &with(last, 1, copy))?;
        device.flush()?;
        // From here on the copy stands in for the table should the power go.
        device.write_at(self.header.entries * size, entries)?;
        Ok(device.write_at(size, &with(1, last, self.header.entries))?)
    }
}

fn is_used(raw: &RawEntry) -> bool {
    raw.kind.as_bytes().iter().any(|&byte| byte != 0)
}

/// Bytes of a sector as the table counts them, and the header with what it says.
fn find(device: &dyn BlockDevice) -> Result<(u64, Vec<u8>, Header), EditError> {
    let mut damage = Damage::GptSignature { sector: 1 };
    for size in [sector_size(device), 4096] {
        let bytes = read_sector(device, 1, size)?.unwrap_or_default();
        match Header::parse(&bytes, 1) {
            Ok(header) => return Ok((size, bytes, header)),
            Err(Damage::GptSignature { .. }) => {}
            Err(other) => damage = other,
        }
    }
    Err(damage.into())
}

/// The entries, if they are what the header says.
fn read_entries(
    device: &dyn BlockDevice,
    header: &Header,
    size: u64,
) -> Result<Vec<u8>, EditError> {
    // OK to truncate: the header bounds it.
    let len = (u64::from(header.count) * u64::from(header.entry_size)) as usize;
    let mut entries = vec![0; len];
    let offset = header.entries.saturating_mul(size);
    device.read_at(offset, &mut entries)?;
    match crc32fast::hash(&entries) {
        computed if computed == header.entries_crc32 => Ok(entries),
        computed => Err(EditError::Table(Damage::GptEntriesChecksum {
            sector: header.entries,
            stored: header.entries_crc32,
            computed,
        })),
    }
}

/// Changes a header and its checksum.
fn patch(bytes: &mut [u8], change: impl FnOnce(&mut RawHeader)) {
    let Ok((raw, _)) = RawHeader::mut_from_prefix(bytes) else {
        return;
    };
    change(raw);
    let len = raw.header_len.get() as usize;
    let checksum = header_checksum(&bytes[..len]);
    if let Ok((raw, _)) = RawHeader::mut_from_prefix(bytes) {
        raw.header_crc32 = checksum.into();
    }
}
