//! Limits by control groups: bytes a second of a block device.
//!
//! With version 1 the root group limits a device for every process, buffered writes included.
//! With version 2 the root group has no limits: a group is made, and what it limits are the
//! processes that [enter](Throttled::enter) it. Every guard undoes its change, even if this
//! process is killed ([`Undo`]).

use std::fs;
use std::path::{Path, PathBuf};

use super::undo::Undo;

/// Where control groups are mounted.
const ROOT: &str = "/sys/fs/cgroup";

/// Bytes a second that a device may transfer; `None` leaves a direction free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Bytes read a second, at least 1.
    pub read: Option<u64>,
    /// Bytes written a second, at least 1.
    pub write: Option<u64>,
}

/// A block device that is held to a number of bytes a second until this is dropped.
#[derive(Debug)]
pub struct Throttled {
    /// The group of version 2 that processes must enter.
    group: Option<PathBuf>,
    _undo: Vec<Undo>,
}

fn store(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

/// The numbers of a block device, as control groups spell it: `7:0`.
fn numbers(device: &Path) -> Result<String, String> {
    let device = device.canonicalize().unwrap_or_else(|_| device.to_owned());
    let name = device.file_name().unwrap_or_default();
    let file = Path::new("/sys/class/block").join(name).join("dev");
    let text = fs::read_to_string(&file)
        .map_err(|error| format!("{}: no block device: {error}", device.display()))?;
    Ok(text.trim().to_owned())
}

/// A group of version 2 that is removed when the guard is dropped.
fn make_group(root: &Path, controller: &str) -> Result<(PathBuf, Undo), String> {
    // It fails where a parent group still has processes of its own, except in the root group.
    store(
        &root.join("cgroup.subtree_control"),
        &format!("+{controller}"),
    )?;
    let dir = root.join(format!("uext4-lab-{}-{controller}", std::process::id()));
    make_dir(dir)
}

fn make_dir(dir: PathBuf) -> Result<(PathBuf, Undo), String> {
    let undo = Undo::command(["rmdir".as_ref(), dir.as_os_str()])?;
    fs::create_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    Ok((dir, undo))
}

/// Whether the mount of version 2 has this controller.
fn has_controller(root: &Path, controller: &str) -> bool {
    let known = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    known.split_whitespace().any(|known| known == controller)
}

impl Throttled {
    /// Holds `device` to these rates.
    ///
    /// # Errors
    /// Why that is not possible: it is no block device, there is no such controller, no root.
    pub fn new(device: &Path, rates: Rates) -> Result<Self, String> {
        Self::at(Path::new(ROOT), &numbers(device)?, rates)
    }

    fn at(root: &Path, device: &str, rates: Rates) -> Result<Self, String> {
        let first = root.join("blkio");
        if first.join("blkio.throttle.write_bps_device").exists() {
            return Self::first_version(&first, device, rates);
        }
        if !has_controller(root, "io") {
            return Err("no control group limits block devices (blkio or io)".to_owned());
        }
        let (dir, undo) = make_group(root, "io")?;
        let text = |rate: Option<u64>| rate.map_or("max".to_owned(), |rate| rate.to_string());
        store(
            &dir.join("io.max"),
            &format!(
                "{device} rbps={} wbps={}",
                text(rates.read),
                text(rates.write)
            ),
        )?;
        Ok(Self {
            group: Some(dir),
            _undo: vec![undo],
        })
    }

    fn first_version(root: &Path, device: &str, rates: Rates) -> Result<Self, String> {
        let mut undo = Vec::new();
        for (rate, name) in [(rates.read, "read"), (rates.write, "write")] {
            let Some(rate) = rate else { continue };
            let file = root.join(format!("blkio.throttle.{name}_bps_device"));
            undo.push(Undo::store(&file, &format!("{device} 0"))?);
            store(&file, &format!("{device} {rate}"))?;
        }
        Ok(Self {
            group: None,
            _undo: undo,
        })
    }

    /// Has a process, and those it starts from now on, use the device at this rate. With version
    /// 1 of control groups all processes do anyway.
    ///
    /// # Errors
    /// Why the kernel did not move the process.
    pub fn enter(&self, process: u32) -> Result<(), String> {
        match &self.group {
            Some(group) => store(&group.join("cgroup.procs"), &process.to_string()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(file: PathBuf) -> String {
        fs::read_to_string(file).unwrap()
    }

    #[test]
    fn the_first_version_limits_in_its_root_group() {
        let root = tempfile::tempdir().unwrap();
        let blkio = root.path().join("blkio");
        fs::create_dir(&blkio).unwrap();
        let [read, write] =
            ["read", "write"].map(|name| blkio.join(format!("blkio.throttle.{name}_bps_device")));
        fs::write(&write, "").unwrap();
        let rates = Rates {
            read: None,
            write: Some(50),
        };
        let throttled = Throttled::at(root.path(), "7:9", rates).unwrap();
        assert_eq!(text(write.clone()), "7:9 50");
        throttled.enter(std::process::id()).unwrap();
        drop(throttled);
        assert_eq!(text(write), "7:9 0");
        assert!(!read.exists());
    }

    #[test]
    fn the_second_version_limits_processes_in_a_group() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "cpu io memory\n").unwrap();
        let rates = Rates {
            read: Some(7),
            write: Some(50),
        };
        let throttled = Throttled::at(root.path(), "7:9", rates).unwrap();
        let group = throttled.group.clone().unwrap();
        assert_eq!(text(group.join("io.max")), "7:9 rbps=7 wbps=50");
        throttled.enter(12).unwrap();
        assert_eq!(text(group.join("cgroup.procs")), "12");
    }

    #[test]
    fn a_missing_controller_is_named() {
        let root = tempfile::tempdir().unwrap();
        let missing = Throttled::at(root.path(), "7:9", Rates::default()).unwrap_err();
        assert!(missing.contains("blkio"), "{missing}");
        let missing = Throttled::new(Path::new("/dev/null"), Rates::default()).unwrap_err();
        assert!(missing.contains("no block device"), "{missing}");
    }
}
