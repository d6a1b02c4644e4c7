//! GUID partition tables: a header with a checksum in the second sector and its copy in the last,
//! each with a list of entries that has a checksum too.

mod edit;

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Damage, Partition, Table, TableKind, read_sector};
use crate::{BlockDevice, Error};

pub use edit::{can_extend, can_shorten, clear_attributes, disk_len, extend, shorten};

/// First bytes of every header.
pub const SIGNATURE: [u8; 8] = *b"EFI PART";

/// Bytes of the entries that are read at most; usual is 16 KiB.
const ENTRIES_LEN_MAX: u64 = 1 << 20;

/// A header as it stands in its sector.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    signature: [u8; 8],
    revision: U32,
    header_len: U32,
    header_crc32: U32,
    reserved: U32,
    my_lba: U64,
    alternate_lba: U64,
    first_usable_lba: U64,
    last_usable_lba: U64,
    disk_guid: [u8; 16],
    entries_lba: U64,
    entries_count: U32,
    entry_size: U32,
    entries_crc32: U32,
}

/// An entry; `entry_size` may leave room after it.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    kind: Guid,
    unique: Guid,
    first_lba: U64,
    last_lba: U64,
    attributes: U64,
    name: [U16; 36],
}

/// A GUID; three of its fields are little-endian.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq)]
#[repr(C)]
struct Guid {
    first: U32,
    second: U16,
    third: U16,
    rest: [u8; 8],
}

const _: () = assert!(size_of::<RawHeader>() == 92 && size_of::<RawEntry>() == 128);
const _: () = assert!(offset_of!(RawHeader, header_crc32) == 16);
const _: () = assert!(offset_of!(RawEntry, first_lba) == 32);

impl std::fmt::Display for Guid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:08X}-{:04X}-{:04X}-",
            self.first, self.second, self.third
        )?;
        for (i, byte) in self.rest.iter().enumerate() {
            write!(f, "{}{byte:02X}", if i == 2 { "-" } else { "" })?;
        }
        Ok(())
    }
}

/// A header whose checksum was right and whose entries are of a believable number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Sector of the header.
    pub sector: u64,
    /// Sector of the other header.
    pub alternate: u64,
    /// First sector that a partition may have, and the last one.
    pub usable: (u64, u64),
    /// First sector of the entries.
    pub entries: u64,
    /// Entries.
    pub count: u32,
    /// Bytes of each, at least 128.
    pub entry_size: u32,
    /// Checksum of the entries.
    pub entries_crc32: u32,
}

impl Header {
    /// Checks and takes apart the header in `bytes`, which were read from `sector`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8], sector: u64) -> Result<Self, Damage> {
        let raw = match RawHeader::ref_from_prefix(bytes) {
            Ok((raw, _)) if raw.signature == SIGNATURE => raw,
            _ => return Err(Damage::GptSignature { sector }),
        };
        let len = raw.header_len.get();
        let header = usize::try_from(len).ok().and_then(|len| bytes.get(..len));
        let Some(header) = header.filter(|header| header.len() >= size_of::<RawHeader>()) else {
            return Err(Damage::GptHeaderLen { sector, len });
        };
        let (stored, computed) = (raw.header_crc32.get(), header_checksum(header));
        if stored != computed {
            return Err(Damage::GptHeaderChecksum {
                sector,
                stored,
                computed,
            });
        }
        if raw.my_lba.get() != sector {
            return Err(Damage::GptHeaderPlace {
                sector,
                stored: raw.my_lba.get(),
            });
        }
        let (count, entry_size) = (raw.entries_count.get(), raw.entry_size.get());
        let entries_len = u64::from(count) * u64::from(entry_size);
        if u64::from(entry_size) < size_of::<RawEntry>() as u64 || entries_len > ENTRIES_LEN_MAX {
            return Err(Damage::GptEntries {
                sector,
                count,
                entry_size,
            });
        }
        Ok(Self {
            sector,
            alternate: raw.alternate_lba.get(),
            usable: (raw.first_usable_lba.get(), raw.last_usable_lba.get()),
            entries: raw.entries_lba.get(),
            count,
            entry_size,
            entries_crc32: raw.entries_crc32.get(),
        })
    }

    /// Reads the entries into `table`. `false` if they are damaged as a whole.
    fn load(
        &self,
        device: &dyn BlockDevice,
        sector_size: u64,
        table: &mut Table,
    ) -> Result<bool, Error> {
        let (sector, device_len) = (self.entries, device.len());
        let len = u64::from(self.count) * u64::from(self.entry_size);
        let offset = sector
            .checked_mul(sector_size)
            .filter(|&offset| Error::check_range(offset, len, device_len).is_ok());
        let Some(offset) = offset else {
            let what = "the GPT's entries";
            table.damage.push(Damage::Outside {
                what,
                sector,
                device_len,
            });
            return Ok(false);
        };
        // OK to unwrap: bounded by `ENTRIES_LEN_MAX`.
        let mut bytes = vec![0; usize::try_from(len).unwrap()];
        device.read_at(offset, &mut bytes)?;
        let (stored, computed) = (self.entries_crc32, crc32fast::hash(&bytes));
        if stored != computed {
            table.damage.push(Damage::GptEntriesChecksum {
                sector,
                stored,
                computed,
            });
            return Ok(false);
        }
        parse_entries(&bytes, self.entry_size, sector_size, table);
        self.reserve(sector_size, table);
        Ok(true)
    }

    /// Notes where the headers and entries lie: all that no partition may have.
    fn reserve(&self, sector_size: u64, table: &mut Table) {
        let (first, last) = self.usable;
        let byte = |sector: u64| sector.saturating_mul(sector_size);
        let end = self.sector.max(self.alternate);
        let places = [(0, first), (last.saturating_add(1), end.saturating_add(1))];
        // A copy of a disk that was smaller lies before the end.
        table.reserved = places
            .into_iter()
            .filter(|(start, end)| start < end)
            .map(|(start, end)| byte(start)..byte(end))
            .collect();
    }
}

/// The checksum of a header, its own field counted as zero.
fn header_checksum(header: &[u8]) -> u32 {
    const FIELD: usize = offset_of!(RawHeader, header_crc32);
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&header[..FIELD]);
    hasher.update(&[0; 4]);
    hasher.update(&header[FIELD + 4..]);
    hasher.finalize()
}

/// Adds the partitions of the entries in `bytes` to `table`, and the damage of those that make no
/// sense. An `entry_size` below 128 gives nothing.
pub fn parse_entries(bytes: &[u8], entry_size: u32, sector_size: u64, table: &mut Table) {
    let Ok(entry_size @ 1..) = usize::try_from(entry_size) else {
        return;
    };
    for (number, bytes) in (1..).zip(bytes.chunks_exact(entry_size)) {
        let Ok((entry, _)) = RawEntry::ref_from_prefix(bytes) else {
            return;
        };
        if entry.kind.as_bytes().iter().all(|&byte| byte == 0) {
            continue;
        }
        match entry.partition(number, sector_size) {
            Some(partition) => table.partitions.push(partition),
            None => table.lose(Damage::GptEntry {
                number,
                first: entry.first_lba.get(),
                last: entry.last_lba.get(),
            }),
        }
    }
}

impl RawEntry {
    fn partition(&self, number: u32, sector_size: u64) -> Option<Partition> {
        let start = self.first_lba.get().checked_mul(sector_size)?;
        let end = self
            .last_lba
            .get()
            .checked_add(1)?
            .checked_mul(sector_size)?;
        let name: Vec<u16> = self
            .name
            .iter()
            .map(|unit| unit.get())
            .take_while(|&unit| unit != 0)
            .collect();
        Some(Partition {
            number,
            start,
            len: end.checked_sub(start).filter(|&len| len > 0)?,
            table: TableKind::Gpt,
            kind: self.kind.to_string(),
            name: String::from_utf16_lossy(&name),
            uuid: self.unique.to_string(),
            attributes: self.attributes.get(),
        })
    }
}

/// Reads a GPT, from the backup where the primary is bad: the table with the damage passed by, or
/// the damage that left nothing readable. `native` is the sector size tried first.
pub(super) fn read(
    device: &dyn BlockDevice,
    native: u64,
) -> Result<Result<Table, Vec<Damage>>, Error> {
    let mut sizes = vec![native];
    sizes.extend([512, 4096].into_iter().filter(|&size| size != native));
    let mut table = Table::default();
    let mut places: Vec<(u64, u64)> = sizes.iter().map(|&size| (1, size)).collect();
    let last = |size: u64| (device.len() / size).checked_sub(1);
    places.extend(sizes.iter().filter_map(|&size| Some((last(size)?, size))));
    // Grows by what the primary says of its copy.
    let mut next = 0;
    while let Some(&(place, size)) = places.get(next) {
        next += 1;
        let Some(sector) = read_sector(device, place, size)? else {
            continue;
        };
        if !sector.starts_with(&SIGNATURE) {
            continue;
        }
        if place != 1 && table.damage.is_empty() {
            table.damage.push(Damage::GptSignature { sector: 1 });
        }
        match Header::parse(&sector, place) {
            Ok(header) if header.load(device, size, &mut table)? => return Ok(Ok(table)),
            Ok(header) if place == 1 => {
                places.push((header.alternate, size));
            }
            Ok(_) => {}
            Err(damage) => table.damage.push(damage),
        }
    }
    if table.damage.is_empty() {
        table.damage.push(Damage::GptSignature { sector: 1 });
    }
    Ok(Err(table.damage))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINUX: &str = "0FC63DAF-8483-4772-8E79-3D69D8477DE4";

    fn entry(first: u64, last: u64) -> [u8; 128] {
        let mut entry = RawEntry {
            kind: Guid {
                first: 0x0fc6_3daf.into(),
                second: 0x8483.into(),
                third: 0x4772.into(),
                rest: [0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47, 0x7d, 0xe4],
            },
            unique: FromBytes::read_from_bytes(&[3; 16]).unwrap(),
            first_lba: first.into(),
            last_lba: last.into(),
            attributes: 0.into(),
            name: [0.into(); 36],
        };
        for (unit, letter) in entry.name.iter_mut().zip("wurzel-é".encode_utf16()) {
            *unit = letter.into();
        }
        zerocopy::transmute!(entry)
    }

    /// A header for `entries` at `sector`, with the other at `alternate`.
    fn header(sector: u64, alternate: u64, entries_lba: u64, entries: &[u8]) -> RawHeader {
        let mut header = RawHeader {
            signature: SIGNATURE,
            revision: 0x1_0000.into(),
            header_len: 92.into(),
            header_crc32: 0.into(),
            reserved: 0.into(),
            my_lba: sector.into(),
            alternate_lba: alternate.into(),
            first_usable_lba: 40.into(),
            last_usable_lba: 1000.into(),
            disk_guid: [9; 16],
            entries_lba: entries_lba.into(),
            entries_count: u32::try_from(entries.len() / 128).unwrap().into(),
            entry_size: 128.into(),
            entries_crc32: crc32fast::hash(entries).into(),
        };
        header.header_crc32 = header_checksum(header.as_bytes()).into();
        header
    }

    /// What a header whose checksum is right is refused for.
    fn refusal(change: impl Fn(&mut RawHeader)) -> Damage {
        let mut raw = header(1, 99, 2, &[0; 256]);
        change(&mut raw);
        raw.header_crc32 = 0.into();
        raw.header_crc32 = header_checksum(raw.as_bytes()).into();
        Header::parse(raw.as_bytes(), 1).unwrap_err()
    }

    #[test]
    fn headers_are_checked_field_by_field() {
        let good = header(1, 99, 2, &[0; 256]);
        let parsed = Header::parse(good.as_bytes(), 1).unwrap();
        assert_eq!((parsed.alternate, parsed.entries, parsed.count), (99, 2, 2));
        assert!(matches!(
            Header::parse(&[], 1),
            Err(Damage::GptSignature { sector: 1 })
        ));
        for bit in 64..92 * 8 {
            let mut bytes = good.as_bytes().to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::parse(&bytes, 1).is_err(), "bit {bit}");
        }
        assert_eq!(
            refusal(|raw| raw.my_lba = 7.into()),
            Damage::GptHeaderPlace {
                sector: 1,
                stored: 7
            }
        );
        let entries = |count, entry_size| Damage::GptEntries {
            sector: 1,
            count,
            entry_size,
        };
        assert_eq!(refusal(|raw| raw.entry_size = 127.into()), entries(2, 127));
        assert_eq!(
            refusal(|raw| raw.entry_size = u32::MAX.into()),
            entries(2, u32::MAX)
        );
        assert_eq!(
            refusal(|raw| raw.entries_count = 8193.into()),
            entries(8193, 128)
        );
        let bytes = good.as_bytes();
        for len in [0, 91, 93, u32::MAX] {
            let mut bytes = bytes.to_vec();
            bytes[12..16].copy_from_slice(&len.to_le_bytes());
            assert_eq!(
                Header::parse(&bytes, 1),
                Err(Damage::GptHeaderLen { sector: 1, len })
            );
        }
    }

    #[test]
    fn entries_give_places_types_and_names() {
        let mut bytes = entry(40, 47).to_vec();
        bytes.extend([0; 128]);
        for (first, last) in [(u64::MAX, u64::MAX), (5, 4), (5, u64::MAX / 512), (50, 50)] {
            bytes.extend(entry(first, last));
        }
        let mut table = Table::default();
        parse_entries(&bytes, 128, 512, &mut table);
        let expected = |number, start, len| Partition {
            number,
            start,
            len,
            table: TableKind::Gpt,
            kind: LINUX.to_owned(),
            name: "wurzel-é".to_owned(),
            uuid: "03030303-0303-0303-0303-030303030303".to_owned(),
            attributes: 0,
        };
        assert_eq!(
            table.partitions,
            [expected(1, 40 * 512, 4096), expected(6, 25_600, 512)]
        );
        assert_eq!(table.damage.len(), 3);
        assert_eq!(
            table.damage[1],
            Damage::GptEntry {
                number: 4,
                first: 5,
                last: 4
            }
        );
        for size in [0, 1, 127, u32::MAX] {
            let mut table = Table::default();
            parse_entries(&bytes, size, 512, &mut table);
            assert_eq!(table, Table::default());
        }
    }

    #[test]
    fn the_copy_stands_in_for_a_bad_primary() {
        use crate::MemoryDevice;
        const SECTORS: u64 = 1024;
        for size in [512, 4096] {
            let device = MemoryDevice::new(SECTORS * size);
            let last = SECTORS - 1;
            let mut entries = entry(40, 47).to_vec();
            entries.resize(16 * 1024, 0);
            let put = |sector: u64, bytes: &[u8]| device.write_at(sector * size, bytes).unwrap();
            put(1, header(1, last, 2, &entries).as_bytes());
            put(2, &entries);
            put(last, header(last, 1, last - 32, &entries).as_bytes());
            put(last - 32, &entries);
            let damage = || match read(&device, 512).unwrap() {
                Ok(table) => {
                    assert_eq!(table.partitions[0].start, 40 * size);
                    Ok(table.damage)
                }
                Err(damage) => Err(damage),
            };
            assert_eq!(damage(), Ok(vec![]));

            put(2, &[0]);
            assert!(matches!(
                damage().unwrap()[..],
                [Damage::GptEntriesChecksum { sector: 2, .. }]
            ));
            put(1, &[0; 92]);
            assert_eq!(damage(), Ok(vec![Damage::GptSignature { sector: 1 }]));
            put(last, &[0; 92]);
            assert_eq!(damage(), Err(vec![Damage::GptSignature { sector: 1 }]));

            // A disk copied to a larger one: only the primary knows where its copy is.
            put(1, header(1, last - 60, 2, &entries).as_bytes());
            put(
                last - 60,
                header(last - 60, 1, last - 32, &entries).as_bytes(),
            );
            assert_eq!(damage().unwrap().len(), 1);
        }
    }

    #[test]
    fn the_last_partition_is_extended_and_both_tables_agree() {
        use crate::MemoryDevice;
        use crate::partition::EditError;
        const SECTORS: u64 = 1024;
        for size in [512, 4096] {
            let device = MemoryDevice::new(2 * SECTORS * size);
            // Numbers 1 and 4: between them are empty entries.
            let mut entries = entry(40, 47).to_vec();
            entries.resize(3 * 128, 0);
            entries.extend(entry(100, 199));
            entries.resize(16 * 1024, 0);
            let put = |sector: u64, bytes: &[u8]| device.write_at(sector * size, bytes).unwrap();
            put(1, header(1, SECTORS - 1, 2, &entries).as_bytes());
            put(2, &entries);
            let refused = |number, end| extend(&device, number, end).unwrap_err();
            assert!(matches!(
                refused(1, None),
                EditError::NotLast { next: 4, .. }
            ));
            assert!(matches!(
                refused(2, None),
                EditError::NoPartition { number: 2 }
            ));
            let beyond = Some(2 * SECTORS * size);
            assert!(matches!(
                refused(4, beyond),
                EditError::NoRoom { number: 4, .. }
            ));

            extend(&device, 4, Some(1001 * size)).unwrap();
            extend(&device, 4, Some(300 * size)).unwrap();
            let ends = || {
                let table = read(&device, 512).unwrap().unwrap();
                let all = table.partitions.iter();
                all.map(|p| (p.number, (p.start + p.len).div_ceil(4096)))
                    .collect::<Vec<_>>()
            };
            let expected = [(1, 48 * size / 4096), (4, (1001 * size).div_ceil(4096))];
            assert_eq!(ends(), expected);
            put(1, &[0; 92]);
            assert_eq!(ends(), expected);
        }
    }
}
