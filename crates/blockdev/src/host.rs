//! What the machine says of its memory and its disks: the texts as the kernel gives them. What they
//! mean is for the reader.

use std::fs::File;
use std::io::Read;

/// More than any of these texts has.
const LEN_MAX: u64 = 64 << 10;

/// `/proc/meminfo`: how much memory there is. `None` where there is no such text.
pub fn meminfo() -> Option<String> {
    text("/proc/meminfo")
}

/// `/proc/pressure/memory`: how much time was lost waiting for memory. `None` where the kernel
/// does not report.
pub fn memory_pressure() -> Option<String> {
    text("/proc/pressure/memory")
}

/// Whether a disk, or the disk that a partition is of, is a spindle, by its `queue/rotational`;
/// false where the kernel does not report, as for what is no disk.
pub(crate) fn is_rotational(device: u64) -> bool {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let device = format!("/sys/dev/block/{major}:{minor}");
    // A partition lies in the directory of its disk.
    text(&format!("{device}/queue/rotational"))
        .or_else(|| text(&format!("{device}/../queue/rotational")))
        .is_some_and(|text| text.trim() == "1")
}

/// Whether the kernel refuses to write a disk or partition; false where it does not report.
pub(crate) fn is_read_only(device: u64) -> bool {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    text(&format!("/sys/dev/block/{major}:{minor}/ro")).is_some_and(|text| text.trim() == "1")
}

fn text(path: &str) -> Option<String> {
    let mut text = String::new();
    let file = File::open(path).ok()?;
    file.take(LEN_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_none() {
        assert_eq!(text("/proc/no such text"), None);
        assert!(meminfo().is_none_or(|text| text.contains("MemTotal:")));
    }
}
