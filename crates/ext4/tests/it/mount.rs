//! The kernel's view of an image, where there is a kernel to ask: root and loop devices.

use std::path::Path;
use std::process::Command;

/// Runs `f` on a read-only mount of the image; says that it is skipped without root.
pub fn with(image: &Path, f: impl FnOnce(&Path)) {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
        println!("skipped: needs root");
        return;
    }
    let mount = Mount::new(image);
    f(mount.dir.path());
}

struct Mount {
    device: String,
    dir: tempfile::TempDir,
}

impl Mount {
    fn new(image: &Path) -> Self {
        let losetup = Command::new("losetup")
            .args(["-r", "-f", "--show"])
            .arg(image)
            .output();
        let losetup = losetup.unwrap();
        assert!(losetup.status.success(), "{losetup:?}");
        let device = String::from_utf8(losetup.stdout).unwrap().trim().to_owned();
        let mount = Self {
            device,
            dir: tempfile::tempdir().unwrap(),
        };
        let status = Command::new("mount")
            .args(["-t", "ext4", "-o", "ro,noload"])
            .arg(&mount.device)
            .arg(mount.dir.path())
            .status();
        assert!(
            status.unwrap().success(),
            "the kernel does not mount {}",
            image.display()
        );
        mount
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.dir.path()).status();
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
    }
}
