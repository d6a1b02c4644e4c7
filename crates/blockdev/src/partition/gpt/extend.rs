//! The last partition of a disk that has become longer gets the new room.

use zerocopy::{FromBytes, IntoBytes};

use super::{Header, RawEntry, RawHeader, header_checksum};
use crate::partition::{Damage, read_sector, sector_size};
use crate::{BlockDevice, Error};

/// Ends of partitions are multiples of this many bytes.
const ALIGN: u64 = 4096;
/// Where the first record of an MBR lies in its sector, and bytes of each of the four.
const MBR_RECORDS: usize = 446;
const MBR_RECORD_LEN: usize = 16;
/// The record that keeps others away from a disk with a GPT.
const MBR_PROTECTIVE: u8 = 0xEE;

/// Why a partition cannot be extended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// Only a GPT can be extended.
    #[error("the disk has no GPT that can be extended: {0}")]
    Table(#[from] Damage),
    /// There is no such partition.
    #[error("the GPT has no partition {number}")]
    NoPartition {
        /// Its number.
        number: u32,
    },
    /// Another one lies behind it.
    #[error("partition {next} lies behind partition {number}, which so cannot grow")]
    NotLast {
        /// The partition.
        number: u32,
        /// The other.
        next: u32,
    },
    /// The disk ends too early.
    #[error("partition {number} would end at byte {end}, and the disk has room up to byte {room}")]
    NoRoom {
        /// The partition.
        number: u32,
        /// The byte behind it.
        end: u64,
        /// The byte behind the last one that a partition may have.
        room: u64,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] Error),
}

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
/// as the disk allows. It is never made shorter. The copy of the table goes to the end of the disk
/// first; while the table is written, either of the two is whole.
///
/// # Errors
/// [`ExtendError`]; nothing is written unless the device fails.
pub fn extend(device: &dyn BlockDevice, number: u32, end: Option<u64>) -> Result<(), ExtendError> {
    let (size, old, header) = find(device)?;
    let mut entries = read_entries(device, &header, size)?;
    let last = device.len() / size - 1;
    let entry_sectors = (entries.len() as u64).div_ceil(size);
    // The entries of the copy lie behind all partitions, before its header.
    let copy = last.saturating_sub(entry_sectors);
    let had = last_sector(&entries, &header, number)?;
    let room = copy * size / ALIGN * ALIGN;
    let wanted = end.map_or(room, |end| end.div_ceil(ALIGN).saturating_mul(ALIGN));
    let wanted = wanted.max(had.saturating_add(1).saturating_mul(size));
    if wanted > copy * size {
        let end = wanted;
        return Err(ExtendError::NoRoom { number, end, room });
    }
    let at = (number as usize - 1) * header.entry_size as usize;
    if let Ok((raw, _)) = RawEntry::mut_from_prefix(&mut entries[at..]) {
        raw.last_lba = (wanted / size - 1).into();
    }
    let checksum = crc32fast::hash(&entries);
    let with = |place: u64, other: u64, at: u64| {
        let mut bytes = old.clone();
        patch(&mut bytes, |raw| {
            raw.my_lba = place.into();
            raw.alternate_lba = other.into();
            raw.last_usable_lba = (copy - 1).into();
            raw.entries_lba = at.into();
            raw.entries_crc32 = checksum.into();
        });
        bytes
    };
    device.write_at(copy * size, &entries)?;
    device.write_at(last * size, &with(last, 1, copy))?;
    device.flush()?;
    // From here on the copy stands in for the table should the power go.
    device.write_at(header.entries * size, &entries)?;
    device.write_at(size, &with(1, last, header.entries))?;
    extend_mbr(device, size, last)?;
    Ok(device.flush()?)
}

/// Bytes of a sector as the table counts them, and the header with what it says.
fn find(device: &dyn BlockDevice) -> Result<(u64, Vec<u8>, Header), ExtendError> {
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
) -> Result<Vec<u8>, ExtendError> {
    // OK to truncate: the header bounds it.
    let len = (u64::from(header.count) * u64::from(header.entry_size)) as usize;
    let mut entries = vec![0; len];
    let offset = header.entries.saturating_mul(size);
    device.read_at(offset, &mut entries)?;
    match crc32fast::hash(&entries) {
        computed if computed == header.entries_crc32 => Ok(entries),
        computed => Err(ExtendError::Table(Damage::GptEntriesChecksum {
            sector: header.entries,
            stored: header.entries_crc32,
            computed,
        })),
    }
}

/// The last sector of a partition, behind which no other lies.
fn last_sector(entries: &[u8], header: &Header, number: u32) -> Result<u64, ExtendError> {
    let is_used = |raw: &RawEntry| raw.kind.as_bytes().iter().any(|&byte| byte != 0);
    let used: Vec<(u32, &RawEntry)> = (1..)
        .zip(entries.chunks_exact(header.entry_size as usize))
        .filter_map(|(number, bytes)| Some((number, RawEntry::ref_from_prefix(bytes).ok()?.0)))
        .filter(|(_, raw)| is_used(raw))
        .collect();
    let found = used.iter().find(|(other, _)| *other == number);
    let last = found
        .ok_or(ExtendError::NoPartition { number })?
        .1
        .last_lba
        .get();
    let mut others = used.iter().filter(|(other, _)| *other != number);
    match others.find(|(_, raw)| raw.last_lba.get() >= last) {
        Some(&(next, _)) => Err(ExtendError::NotLast { number, next }),
        None => Ok(last),
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

/// Lets the protective record of the MBR cover the disk up to its sector `last`.
fn extend_mbr(device: &dyn BlockDevice, size: u64, last: u64) -> Result<(), ExtendError> {
    let Some(mut mbr) = read_sector(device, 0, size)? else {
        return Ok(());
    };
    let covered = u32::try_from(last).unwrap_or(u32::MAX);
    for record in mbr[MBR_RECORDS..]
        .chunks_exact_mut(MBR_RECORD_LEN)
        .take(4)
        .filter(|record| record[4] == MBR_PROTECTIVE)
    {
        record[12..].copy_from_slice(&covered.to_le_bytes());
    }
    Ok(device.write_at(0, &mbr)?)
}
