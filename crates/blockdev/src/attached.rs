//! Images that the kernel has attached as a loop device, and devices that it has mounted: it takes
//! no lock on them, and never sees what another program writes to them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The loop device this file is attached to. `None` also where the system does not say.
#[must_use]
pub fn loop_device(image: &Path) -> Option<String> {
    let image = fs::metadata(image).ok()?;
    for device in fs::read_dir("/sys/block").ok()?.flatten() {
        let Ok(mut path) = fs::read(device.path().join("loop/backing_file")) else {
            continue;
        };
        path.pop_if(|last| *last == b'\n');
        let same = fs::metadata(OsStr::from_bytes(&path))
            .is_ok_and(|file| (file.dev(), file.ino()) == (image.dev(), image.ino()));
        if same {
            return Some(format!("/dev/{}", device.file_name().to_string_lossy()));
        }
    }
    None
}

/// Where the kernel has a block device mounted, and whether the mount may write. `None` also where
/// the system does not say.
#[must_use]
pub fn place_of(device: &str) -> Option<(String, bool)> {
    find(&table_of_mounts(), device)
}

/// The same in a table of mounts.
fn find(table: &str, device: &str) -> Option<(String, bool)> {
    let device = fs::canonicalize(device).ok()?;
    table.lines().filter_map(Line::parse).find_map(|line| {
        // What does not begin with /dev is no device, and may be slow to look at.
        let may_be = !line.kind.starts_with("fuse") && line.source.starts_with("/dev/");
        let is_it = may_be && fs::canonicalize(line.source).ok()? == device;
        is_it.then(|| {
            (
                line.dir.to_owned(),
                line.may_write && line.device_may_be_written,
            )
        })
    })
}

/// The table of mounts of this process. Paths in it need not be UTF-8, and one of them must not
/// hide all others.
fn table_of_mounts() -> String {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    String::from_utf8_lossy(&table).into_owned()
}

/// A line of the table: `36 35 7:0 / /mnt rw,noatime shared:1 - ext4 /dev/loop0 rw`.
struct Line<'a> {
    number: &'a str,
    dir: &'a str,
    kind: &'a str,
    source: &'a str,
    /// Through this mount.
    may_write: bool,
    /// Through any mount of it.
    device_may_be_written: bool,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (place, source) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(2);
        let mut source = source.split(' ');
        let is_rw = |options: &str| options.split(',').any(|word| word == "rw");
        let number = place.next()?;
        Some(Self {
            number,
            dir: place.nth(1)?,
            may_write: is_rw(place.next()?),
            kind: source.next()?,
            source: source.next()?,
            device_may_be_written: is_rw(source.next()?),
        })
    }
}

/// The loop device this file is attached to, if what is written to the device reaches the file.
#[must_use]
pub fn writing_loop_device(image: &Path) -> Option<String> {
    let device = loop_device(image)?;
    let name = device.strip_prefix("/dev/")?;
    let read_only = fs::read_to_string(format!("/sys/block/{name}/ro"));
    read_only.is_ok_and(|ro| ro.trim() == "0").then_some(device)
}

/// A mount of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelMount {
    /// Where; `None` if that is not in the mount namespace of this process.
    pub dir: Option<String>,
    /// It may write to the device.
    pub writes: bool,
}

/// The mount of a block device of this number, or of a partition of it. `None` also where the
/// system does not say.
#[must_use]
pub fn mount_of(device: u64) -> Option<KernelMount> {
    let numbers = with_partitions(device);
    let seen = in_table(&table_of_mounts(), &numbers);
    seen.or_else(|| {
        let name = |number: &String| {
            let disk = fs::canonicalize(format!("/sys/dev/block/{number}")).ok()?;
            Some(disk.file_name()?.to_owned())
        };
        let names = numbers.iter().filter_map(name);
        let mut ext = names.map(|name| Path::new("/sys/fs/ext4").join(name));
        ext.any(|dir| dir.is_dir()).then_some(KernelMount {
            dir: None,
            writes: true,
        })
    })
}

/// `7:0` of a device, and the same of its partitions.
fn with_partitions(device: u64) -> Vec<String> {
    let own = format!(
        "{}:{}",
        rustix::fs::major(device),
        rustix::fs::minor(device)
    );
    let disk = format!("/sys/dev/block/{own}");
    let entries = fs::read_dir(disk).into_iter().flatten().flatten();
    let parts = entries.filter(|entry| entry.path().join("partition").exists());
    let numbers = parts.filter_map(|entry| fs::read_to_string(entry.path().join("dev")).ok());
    let numbers = numbers.map(|number| number.trim().to_owned());
    std::iter::once(own).chain(numbers).collect()
}

/// The same in the text of a table of mounts.
fn in_table(table: &str, numbers: &[String]) -> Option<KernelMount> {
    let lines = table.lines().filter_map(Line::parse);
    let lines = lines.filter(|line| numbers.iter().any(|of| of == line.number));
    let mounts = lines.map(|line| KernelMount {
        dir: Some(line.dir.to_owned()),
        writes: line.device_may_be_written,
    });
    // One that may write counts, of several.
    mounts.max_by_key(|mount| mount.writes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_of_a_device_or_of_its_partition() {
        let table = "36 35 8:1 / /a rw,noatime shared:1 - ext4 /dev/sda1 ro\n\
                     37 35 8:2 / /b ro - ext4 /dev/sda2 rw,data=ordered\n\
                     38 35 0:5 / /dev rw - devtmpfs none rw\n";
        let of = |numbers: &[&str]| {
            let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
            in_table(table, &numbers).map(|mount| (mount.dir.unwrap(), mount.writes))
        };
        assert_eq!(of(&["8:1"]), Some(("/a".to_owned(), false)));
        assert_eq!(of(&["8:0", "8:1", "8:2"]), Some(("/b".to_owned(), true)));
        assert_eq!(of(&["8:3"]), None);
    }

    #[test]
    fn a_mount_is_found_next_to_paths_that_are_not_utf8() {
        let table = b"36 35 8:1 / /m\xFEnt rw,relatime - ext4 /dev/zero rw\n\
            37 35 0:9 / /fuse rw - fuse.uext4 x\xFF rw\n\
            38 35 8:2 / /mnt ro shared:1 - ext4 /dev/null rw\n";
        let table = &String::from_utf8_lossy(table);
        assert_eq!(find(table, "/dev/null"), Some(("/mnt".to_owned(), false)));
        assert_eq!(find(table, "/dev/zero").map(|(_, rw)| rw), Some(true));
        assert_eq!(find(table, "/dev/full"), None);
    }
}
