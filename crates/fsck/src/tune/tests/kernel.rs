//! The kernel mounts what came of a change, writes to it, and leaves it clean.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use uext4_testkit::e2fsprogs::complaints;
use uext4_testkit::{Mount, can_mount};

/// How many images were mounted.
#[derive(Debug, Default)]
pub struct Mounts {
    /// Written to, or found read-only as the feature says.
    pub written: u32,
    /// Refused, as what tune2fs made is: the kernel was built without the feature.
    pub refused: u32,
}

impl Mounts {
    /// What is wrong with `ours`, of which tune2fs made `theirs`.
    pub fn complaint(&mut self, ours: &Path, theirs: &Path) -> Option<String> {
        if !can_mount() {
            return None;
        }
        match written(ours) {
            Ok(()) => self.written += 1,
            Err(_) if Mount::attempt(theirs, OPTIONS).is_err() => {
                self.refused += 1;
                return None;
            }
            Err(message) => return Some(message),
        }
        complaints(ours)
    }

    /// Whether it was tried, where it could be.
    pub fn are_enough(&self) -> bool {
        !can_mount() || self.written > self.refused
    }
}

/// An error must not make the kernel panic, as one of the switches has it.
const OPTIONS: &str = "errors=remount-ro";

fn written(image: &Path) -> Result<(), String> {
    let mount = Mount::attempt(image, OPTIONS)?;
    let read = fs::read(mount.path().join("data")).map_err(|error| error.to_string())?;
    if read != [7; 300_000] {
        return Err("a file has other contents".to_owned());
    }
    let directory = mount.path().join("made");
    let made = fs::create_dir(&directory)
        .and_then(|()| fs::write(directory.join("file"), [8; 70_000]))
        .and_then(|()| fs::remove_file(mount.path().join("short")));
    match made {
        Err(error) if error.kind() != ErrorKind::ReadOnlyFilesystem => Err(error.to_string()),
        _ => Ok(()),
    }
}
