//! Devices that the kernel has mounted and writes: what is read of them is what the device has, and
//! not what the pages of an earlier reader have.

use std::fs;
use std::process::Command;

use crate::host::{Mount, UEXT4, can_mount, mke2fs, run, scratch, text};

#[test]
fn a_device_that_the_kernel_writes_is_read_as_it_is() {
    if !can_mount() {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("image");
    mke2fs(&image, &["-t", "ext4", "-J", "size=4"], 64);
    let mount = Mount::new(&image, "rw,noatime");
    let device = text(mount.device()).to_owned();
    let read = |arguments: &[&str]| {
        let output = Command::new(UEXT4).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {said}");
        assert!(said.contains("is mounted by the kernel at"), "{said}");
        assert!(!said.contains("damaged"), "{said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for round in 0..20 {
        let name = format!("file{round}");
        fs::create_dir_all(mount.path().join("d")).unwrap();
        fs::write(mount.path().join("d").join(&name), vec![round + 1; 50_000]).unwrap();
        run("sync", &["-f", text(mount.path())]);
        assert!(read(&["ls", &device, "/d"]).contains(&name), "{round}");
        let contents = read(&["cat", &device, &format!("/d/{name}")]);
        assert!(contents.len() == 50_000 && contents.bytes().all(|byte| byte == round + 1));
        fs::write(mount.path().join("d/changed"), format!("{round}")).unwrap();
        run("sync", &["-f", text(mount.path())]);
        assert_eq!(read(&["cat", &device, "/d/changed"]), round.to_string());
    }
    // The file that the device is of is not stale, but changes all the same.
    assert!(read(&["tar", text(&image)]).contains("file19"));
}
