//! Settings of the whole machine, below `/proc/sys/vm`: changed by one process at a time, and set
//! back however it ends.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::undo::Undo;

/// Where the settings are.
const ROOT: &str = "/proc/sys/vm";
/// Locked by the process that changes settings: another would save, and later restore, its values.
const LOCK: &str = "/run/uext4-lab.lock";

/// The kernel's limits of dirty memory, in bytes, until this is dropped.
#[derive(Debug)]
pub struct DirtyBytes {
    _undo: [Undo; 2],
    /// Unlocked last.
    _lock: File,
}

fn read(file: &Path) -> Result<String, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(text.trim().to_owned())
}

/// Sets one limit in bytes. What is undone is the limit that counted before: of bytes and ratio the
/// kernel zeroes the one that is not set.
fn set(root: &Path, name: &str, bytes: u64) -> Result<Undo, String> {
    let file = |unit: &str| -> PathBuf { root.join(format!("{name}_{unit}")) };
    let before = read(&file("bytes"))?;
    let undo = match before.as_str() {
        "0" => Undo::store(&file("ratio"), &read(&file("ratio"))?)?,
        _ => Undo::store(&file("bytes"), &before)?,
    };
    fs::write(file("bytes"), bytes.to_string())
        .map_err(|error| format!("{}: {error}", file("bytes").display()))?;
    Ok(undo)
}

impl DirtyBytes {
    /// Writers wait above `limit` bytes, flushers write above `background` bytes. Waits until no
    /// other process has changed these settings.
    ///
    /// # Errors
    /// Why that is not possible: no root, read-only settings.
    pub fn new(limit: u64, background: u64) -> Result<Self, String> {
        let fails = |error: io::Error| format!("{LOCK}: {error}");
        let mut options = File::options();
        let lock = options.create(true).truncate(false).write(true).open(LOCK);
        let lock = lock.map_err(fails)?;
        lock.lock().map_err(fails)?;
        let root = Path::new(ROOT);
        // The lower limit first, so that it never lies above the other.
        let lower = set(root, "dirty_background", background)?;
        let upper = set(root, "dirty", limit)?;
        Ok(Self {
            _undo: [upper, lower],
            _lock: lock,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counted_before_is_set_again() {
        let root = tempfile::tempdir().unwrap();
        let file = |name: &str| root.path().join(name);
        for (name, value) in [("dirty_bytes", "0"), ("dirty_ratio", "20")] {
            fs::write(file(name), value).unwrap();
        }
        let undo = set(root.path(), "dirty", 4096).unwrap();
        assert_eq!(read(&file("dirty_bytes")).unwrap(), "4096");
        fs::write(file("dirty_ratio"), "0").unwrap();
        let nested = set(root.path(), "dirty", 8192).unwrap();
        assert_eq!(read(&file("dirty_bytes")).unwrap(), "8192");
        drop(nested);
        assert_eq!(read(&file("dirty_bytes")).unwrap(), "4096");
        drop(undo);
        assert_eq!(read(&file("dirty_ratio")).unwrap(), "20");
    }
}
