//! Where in a disk a file system lies that is written: from a byte, or a partition, up to what
//! belongs to another partition or to the table.
//!
//! ```text
//! | table | partition 1 |   gap   | partition 2 |  gap  | copy of the table |
//!         ^ 1 begins    ^ up to partition 2      ^ up to the copy
//! ```
//! A writer that was given a byte cannot know that the file system there ends, as its superblock
//! says it does, before its neighbour begins. The window does.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use super::{Damage, Partition, Table, read};
use crate::{BlockDevice, Error, SubDevice};

/// Which partition of a table is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// The one of this number.
    Number(u32),
    /// The one of this label or this UUID, as the table has them.
    Text(String),
}

impl FromStr for Name {
    type Err = &'static str;

    /// A number, a label or a UUID; also behind `PARTLABEL=` or `PARTUUID=`, as in fstab(5).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let plain = ["PARTLABEL=", "PARTUUID="]
            .into_iter()
            .find_map(|prefix| text.strip_prefix(prefix));
        match (plain.unwrap_or(text), text.parse()) {
            ("", _) => Err("a partition has a number, a label or a UUID"),
            (_, Ok(number)) => Ok(Self::Number(number)),
            (name, Err(_)) => Ok(Self::Text(name.to_owned())),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

impl Name {
    /// The partition of this name among `partitions`.
    ///
    /// # Errors
    /// [`Error::NoPartition`] if there is none, [`Error::SeveralPartitions`] if a label is that of
    /// more than one.
    pub fn among(&self, partitions: &[Partition]) -> Result<Partition, Error> {
        let is_meant = |partition: &&Partition| match self {
            Self::Number(number) => partition.number == *number,
            Self::Text(text) => {
                partition.name == *text || partition.uuid.eq_ignore_ascii_case(text)
            }
        };
        let mut found = partitions.iter().filter(is_meant);
        match (found.next(), found.next()) {
            (Some(one), None) => Ok(one.clone()),
            (Some(_), Some(_)) => Err(Error::SeveralPartitions {
                name: self.to_string(),
                numbers: partitions
                    .iter()
                    .filter(is_meant)
                    .map(|p| p.number)
                    .collect(),
            }),
            _ => Err(Error::NoPartition {
                name: self.to_string(),
                present: partitions.iter().map(|p| p.number).collect(),
            }),
        }
    }
}

/// Where in a disk a file system begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// At this byte.
    Offset(u64),
    /// Where this partition begins.
    Partition(Name),
}

/// The part of a disk that a file system may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its first byte.
    pub start: u64,
    /// The first byte behind it that belongs to something else; `None` if nothing follows but the
    /// end of the device.
    pub end: Option<u64>,
    /// The partition that begins at `start`.
    pub partition: Option<Partition>,
    /// The partition that begins at `end`.
    pub next: Option<u32>,
    /// Damage of the table, which may hide a partition that begins before `end`.
    pub hidden: Option<Damage>,
}

impl Window {
    /// The window of a place on a disk, whose table is read.
    ///
    /// # Errors
    /// Those of reading; [`Error::NoPartition`], [`Error::SeveralPartitions`];
    /// [`Error::InPartitionTable`] for a byte of the table itself.
    pub fn find(device: &dyn BlockDevice, place: &Place) -> Result<Self, Error> {
        let table = read(device)?;
        match place {
            Place::Offset(offset) => Self::at(&table, *offset),
            Place::Partition(name) => {
                let partition = name.among(&table.clone().partitions_or_damage()?)?;
                Ok(Self::of(partition))
            }
        }
    }

    /// All of a device.
    #[must_use]
    pub fn whole() -> Self {
        Self {
            start: 0,
            end: None,
            partition: None,
            next: None,
            hidden: None,
        }
    }

    /// All of a partition.
    #[must_use]
    pub fn of(partition: Partition) -> Self {
        Self {
            start: partition.start,
            end: Some(partition.start.saturating_add(partition.len)),
            partition: Some(partition),
            next: None,
            hidden: None,
        }
    }

    /// The window that begins at a byte of a disk with this table.
    fn at(table: &Table, offset: u64) -> Result<Self, Error> {
        if table.reserved.iter().any(|range| range.contains(&offset)) {
            return Err(Error::InPartitionTable { offset });
        }
        let partitions = &table.partitions;
        // The longest, should a damaged table have several.
        let here = partitions.iter().filter(|p| p.start == offset);
        if let Some(partition) = here.max_by_key(|p| p.len) {
            return Ok(Self::of(partition.clone()));
        }
        let next = partitions.iter().filter(|p| p.start > offset);
        let next = next.min_by_key(|p| p.start);
        let around = partitions
            .iter()
            .filter(|p| p.start < offset)
            .map(|p| p.start.saturating_add(p.len))
            .filter(|&end| end > offset);
        let tables = table.reserved.iter().map(|range| range.start);
        let ends = around.chain(next.map(|p| p.start)).chain(tables);
        let end = ends.filter(|&end| end > offset).min();
        Ok(Self {
            start: offset,
            end,
            partition: None,
            next: next.filter(|p| Some(p.start) == end).map(|p| p.number),
            hidden: table.damage.first().filter(|_| table.incomplete).cloned(),
        })
    }

    /// The first `len` bytes of it: the caller says how far it goes, whatever the table hides.
    #[must_use]
    pub fn within(self, len: u64) -> Self {
        let end = self.start.saturating_add(len);
        let is_shorter = self.end.is_none_or(|own| end < own);
        Self {
            end: Some(self.end.map_or(end, |own| own.min(end))),
            next: self.next.filter(|_| !is_shorter),
            hidden: None,
            ..self
        }
    }

    /// Makes sure that its end is known, for a writer that takes all of it.
    ///
    /// # Errors
    /// [`Error::HiddenPartitions`] if the table may hide what begins before that.
    pub fn must_be_known(&self) -> Result<(), Error> {
        match &self.hidden {
            None => Ok(()),
            Some(damage) => Err(Error::HiddenPartitions {
                offset: self.start,
                damage: damage.clone(),
            }),
        }
    }

    /// Makes sure that its first `len` bytes may be overwritten: they are not those of the table,
    /// and if they are a partition's, not those of another one. Tables of disks that are made to
    /// boot as several media have such partitions.
    ///
    /// # Errors
    /// [`Error::InPartitionTable`], [`Error::Overlap`]; those of reading the table.
    pub fn must_be_free(&self, disk: &dyn BlockDevice, len: u64) -> Result<(), Error> {
        let Some(own) = &self.partition else {
            // It was cut where anything else begins.
            return Ok(());
        };
        let end = self.start.saturating_add(len);
        let meets = |range: &Range<u64>| range.start < end && self.start < range.end;
        let table = read(disk)?;
        if let Some(range) = table.reserved.iter().find(|range| meets(range)) {
            let offset = range.start.max(self.start);
            return Err(Error::InPartitionTable { offset });
        }
        let others = table.partitions.iter().filter(|p| p.number != own.number);
        let mut others = others.filter(|p| meets(&(p.start..p.start.saturating_add(p.len))));
        match others.next() {
            None => Ok(()),
            Some(other) => Err(Error::Overlap {
                number: own.number,
                other: other.number,
            }),
        }
    }

    /// Bytes on a device; a partition may be cut short by its end. 0 if it begins behind that.
    #[must_use]
    pub fn len_on(&self, device: &dyn BlockDevice) -> u64 {
        let end = self.end.map_or(device.len(), |end| end.min(device.len()));
        end.saturating_sub(self.start)
    }

    /// Bytes of its partition that lie past the end of a device.
    #[must_use]
    pub fn missing_on(&self, device: &dyn BlockDevice) -> u64 {
        let end = self.partition.as_ref().and(self.end);
        end.map_or(0, |end| end.saturating_sub(device.len()))
    }

    /// The window as a device of its own. Without an end it follows the length of the device.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if it begins at or past the end of the device.
    pub fn open(&self, device: Arc<dyn BlockDevice>) -> Result<SubDevice, Error> {
        match (&self.partition, self.end) {
            (Some(partition), _) => partition.open(device),
            (None, Some(_)) => {
                let len = self.len_on(&*device);
                SubDevice::new(device, self.start, len)
            }
            (None, None) => SubDevice::from_offset(device, self.start),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::TableKind;

    fn partition(number: u32, start: u64, len: u64, name: &str) -> Partition {
        Partition {
            number,
            start,
            len,
            table: TableKind::Gpt,
            kind: String::new(),
            name: name.to_owned(),
            uuid: format!("AB-{number}"),
            attributes: 0,
        }
    }

    fn table() -> Table {
        Table {
            partitions: vec![
                partition(1, 1000, 500, "boot"),
                partition(2, 2000, 500, "root"),
                partition(3, 2500, 500, "root"),
            ],
            reserved: vec![0..100, 4000..4100],
            ..Table::default()
        }
    }

    #[test]
    fn a_window_ends_where_something_else_begins() {
        let at = |offset| {
            let window = Window::at(&table(), offset).unwrap();
            (window.end, window.partition.map(|p| p.number), window.next)
        };
        assert_eq!(at(1000), (Some(1500), Some(1), None));
        assert_eq!(at(1100), (Some(1500), None, None));
        assert_eq!(at(500), (Some(1000), None, Some(1)));
        assert_eq!(at(1500), (Some(2000), None, Some(2)));
        assert_eq!(at(3000), (Some(4000), None, None));
        assert_eq!(at(5000), (None, None, None));
        for offset in [0, 99, 4000] {
            assert!(matches!(
                Window::at(&table(), offset),
                Err(Error::InPartitionTable { .. })
            ));
        }
        let none = Window::at(&Table::default(), 7).unwrap();
        assert_eq!((none.start, none.end), (7, None));
    }

    #[test]
    fn what_a_damaged_table_may_hide_bounds_no_window_but_a_length_does() {
        let mut table = table();
        table.lose(Damage::GptSignature { sector: 1 });
        let window = |offset| Window::at(&table, offset).unwrap();
        window(1000).must_be_known().unwrap();
        for offset in [500, 5000] {
            assert!(matches!(
                window(offset).must_be_known(),
                Err(Error::HiddenPartitions { .. })
            ));
            let short = window(offset).within(100);
            short.must_be_known().unwrap();
            assert_eq!((short.end, short.next), (Some(offset + 100), None));
        }
        let same = window(500).within(9000);
        assert_eq!((same.end, same.next), (Some(1000), Some(1)));
    }

    #[test]
    fn partitions_have_numbers_labels_and_uuids() {
        let found = |text: &str| {
            let name: Name = text.parse().unwrap();
            name.among(&table().partitions).map(|p| p.number)
        };
        for text in ["1", "boot", "PARTLABEL=boot", "ab-1", "PARTUUID=AB-1"] {
            assert_eq!(found(text).unwrap(), 1, "{text}");
        }
        let several = found("root").unwrap_err().to_string();
        assert!(several.contains("2, 3"), "{several}");
        let none = found("home").unwrap_err().to_string();
        assert!(
            none.contains("\"home\"") && none.contains("1, 2, 3"),
            "{none}"
        );
        assert!("".parse::<Name>().is_err());
    }
}
