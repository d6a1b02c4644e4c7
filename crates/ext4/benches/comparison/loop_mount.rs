//! An image that the kernel's ext4 has mounted through a loop device.

use std::path::{Path, PathBuf};

use crate::system::run;

/// Unmounted at the end, and the loop device given back.
pub struct LoopMount {
    device: String,
    point: Option<PathBuf>,
}

impl LoopMount {
    /// Mounts an image on a directory that is there, with more options if any are given.
    ///
    /// # Errors
    /// Why it cannot be mounted here: it takes root and loop devices.
    pub fn new(image: &Path, point: &Path, options: &str) -> Result<Self, String> {
        let (from, at) = (image.to_str().unwrap(), point.to_str().unwrap());
        let mut mount = Self {
            device: run("losetup", &["-f", "--show", from])?,
            point: None,
        };
        let options = format!("rw{options}");
        run("mount", &["-t", "ext4", "-o", &options, &mount.device, at])?;
        mount.point = Some(point.to_owned());
        Ok(mount)
    }
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        // Nothing can be done about what fails here.
        if let Some(point) = &self.point {
            _ = run("umount", &[point.to_str().unwrap()]);
        }
        _ = run("losetup", &["-d", &self.device]);
    }
}
