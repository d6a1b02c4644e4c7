//! Directories of a mount on which another file system is mounted: commands that go to the daemon
//! do not take them away.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::host::{run, text, uext4, uext4_ok, unmount_lazily};
use crate::mounted::{Mount, can_mount};

/// A file system mounted in another; unmounted when dropped.
struct Inner<'a>(&'a Path);

impl<'a> Inner<'a> {
    fn new(dir: &'a Path) -> Self {
        run("mount", &["-t", "tmpfs", "inner", text(dir)]);
        fs::write(dir.join("precious"), "x").unwrap();
        Self(dir)
    }
}

impl Drop for Inner<'_> {
    fn drop(&mut self) {
        unmount_lazily(self.0);
    }
}

#[test]
fn what_is_or_holds_a_mount_point_is_neither_removed_nor_moved() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4"], 64);
    let (dir, image) = (mount.dir(), mount.image());
    let (dir, image) = (text(&dir), text(&image));
    let point = mount.dir().join("a/b c");
    fs::create_dir_all(&point).unwrap();
    fs::write(mount.dir().join("file"), "old").unwrap();
    fs::create_dir(mount.dir().join("empty")).unwrap();
    let source = mount.scratch.path().join("source");
    fs::write(&source, "new").unwrap();
    let file = mount.dir().join("file");
    run("mount", &["--bind", text(&source), text(&file)]);
    let bound = Inner(&file);
    let inner = Inner::new(&point);
    for arguments in [
        &["rm", "-r", dir, "/a/b c"][..],
        &["rm", "-r", image, "/a"],
        &["mv", dir, "/a/b c", "/c"],
        &["mv", image, "/a", "/c"],
        &["mv", "--exchange", dir, "/empty", "/a"],
        &["rm", dir, "/file"],
        &["mv", dir, "/file", "/moved"],
        &["put", "--overwrite", dir, text(&source), "/file"],
        &["put", "--atomic", dir, text(&source), "/file"],
    ] {
        let done = uext4(arguments);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_ne!(done.status.code(), Some(0), "{arguments:?}: {said}");
        assert!(said.contains("busy"), "{arguments:?}: {said}");
        if let ["mv", .., old, new] = arguments {
            let both = format!("{old} to {new}");
            assert!(said.contains(&both), "{arguments:?}: {said}");
        }
        assert_eq!(fs::read_to_string(point.join("precious")).unwrap(), "x");
        assert_eq!(fs::read_to_string(&file).unwrap(), "new", "{arguments:?}");
    }
    // rm(1) says so, too; what lies next to it can go.
    let refused = Command::new("rmdir").arg(&point).output().unwrap();
    assert!(!refused.status.success());
    fs::write(mount.dir().join("a/other"), "x").unwrap();
    uext4_ok(&["rm", dir, "/a/other", "/empty", "-r"]);
    drop((inner, bound));
    uext4_ok(&["rm", "-r", dir, "/a", "/file"]);
    assert!(!mount.dir().join("a").exists());
    mount.judged();
}
