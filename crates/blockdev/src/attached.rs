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
    // Paths in the table need not be UTF-8, and one of them must not hide all others.
    find(&fs::read("/proc/self/mounts").ok()?, device)
}

/// The same in a table of mounts.
fn find(table: &[u8], device: &str) -> Option<(String, bool)> {
    let table = String::from_utf8_lossy(table);
    let device = fs::canonicalize(device).ok()?;
    table.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (source, dir) = (fields.next()?, fields.next()?);
        let (kind, options) = (fields.next()?, fields.next()?);
        if kind.starts_with("fuse") {
            return None;
        }
        // What does not begin with /dev is no device, and may be slow to look at.
        let is_it = source.starts_with("/dev/") && fs::canonicalize(source).ok()? == device;
        is_it.then(|| (dir.to_owned(), options.split(',').any(|word| word == "rw")))
    })
}

/// The loop device this file is attached to, if what is written to the device reaches the file.
#[must_use]
pub fn writing_loop_device(image: &Path) -> Option<String> {
    let device = loop_device(image)?;
    let name = device.strip_prefix("/dev/")?;
    let read_only = fs::read_to_string(format!("/sys/block/{name}/ro"));
    read_only.is_ok_and(|ro| ro.trim() == "0").then_some(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_next_to_paths_that_are_not_utf8() {
        let table = b"/dev/zero /m\xFEnt ext4 rw,relatime 0 0\n\
            x\xFF /fuse fuse.uext4 rw 0 0\n/dev/null /mnt ext4 ro 0 0\n";
        assert_eq!(find(table, "/dev/null"), Some(("/mnt".to_owned(), false)));
        assert_eq!(find(table, "/dev/zero").map(|(_, rw)| rw), Some(true));
        assert_eq!(find(table, "/dev/full"), None);
    }
}
