//! The search for file systems on a device that may be partitioned.

use std::sync::Arc;

use super::{Partition, Table, TableKind, read, read_with, sector_size};
use crate::{BlockDevice, Error, SubDevice};

/// A file system and where it was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The partition; `None` for the whole device.
    pub partition: Option<Partition>,
    /// Its bytes.
    pub device: SubDevice,
}

/// The file systems of a device: the device itself if it is one, else its partitions that are.
///
/// `is_file_system` is asked of each candidate and should read no more than a superblock.
/// Partitions that begin past the end of the device are passed over, others are cut short there.
///
/// # Errors
/// As [`super::scan`]. No file system at all is an empty answer.
pub fn find_file_systems(
    device: Arc<dyn BlockDevice>,
    is_file_system: impl Fn(&dyn BlockDevice) -> bool,
) -> Result<Vec<Found>, Error> {
    let whole = SubDevice::from_offset(Arc::clone(&device), 0)?;
    if is_file_system(&whole) {
        return Ok(vec![Found {
            partition: None,
            device: whole,
        }]);
    }
    let table = read(&*device)?;
    let mut found = among(&device, &table, &is_file_system)?;
    let is_mbr = table
        .partitions
        .iter()
        .any(|partition| partition.table == TableKind::Mbr);
    if found.is_empty() && is_mbr && sector_size(&*device) != 4096 {
        let other = read_with(&*device, 4096)?;
        found = among(&device, &other, &is_file_system)?;
    }
    if found.is_empty() {
        table.partitions_or_damage()?;
    }
    Ok(found)
}

fn among(
    device: &Arc<dyn BlockDevice>,
    table: &Table,
    is_file_system: &impl Fn(&dyn BlockDevice) -> bool,
) -> Result<Vec<Found>, Error> {
    let mut found = Vec::new();
    for partition in &table.partitions {
        if partition.start >= device.len() {
            continue;
        }
        let window = partition.open(Arc::clone(device))?;
        if is_file_system(&window) {
            found.push(Found {
                partition: Some(partition.clone()),
                device: window,
            });
        }
    }
    Ok(found)
}
