//! Whose files a mount shows: those of others, of one user, of root.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::host::{Shown, run, text, uext4, uext4_ok, while_busy};
use crate::mounting::{Place, USER, by_user, can_mount, failed, shell_by_user, user_can_mount};

/// An image with a file of root's in a directory of root's, and one of user 7's.
fn image_of_others(place: &Place) {
    place.mount("rw");
    let dir = place.dir().join("dir");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("file"), "root's").unwrap();
    fs::write(place.dir().join("seven"), "7's").unwrap();
    chown(place.dir().join("seven"), Some(7), Some(8)).unwrap();
    place.unmount();
}

/// What the image says of owners: user and group.
fn stored(place: &Place, path: &str) -> (u64, u64) {
    let printed = uext4_ok(&["stat", "--json", text(&place.image()), path]);
    let printed: serde_json::Value = serde_json::from_slice(&printed).unwrap();
    let of = |field: &str| printed[0][field].as_u64().unwrap();
    (of("uid"), of("gid"))
}

#[test]
fn fakeroot_edits_every_file_and_creates_files_of_root() {
    if !user_can_mount() {
        return;
    }
    let place = Place::new(&["-t", "ext4"], 32);
    image_of_others(&place);
    let (image, dir) = (place.image(), place.dir());
    let mount = |options: &str| {
        let output = by_user(&["mount", "-o", options, text(&image), text(&dir)]).output();
        failed(&output.unwrap(), 0, &[]);
    };
    let sh = |script: &str| {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", script])
            .current_dir(&dir)
            .uid(USER)
            .gid(USER);
        shell.output().unwrap()
    };
    mount("rw");
    assert!(!sh("echo x > dir/file").status.success());
    failed(&while_busy(&mut by_user(&["umount", text(&dir)])), 0, &[]);
    mount("fakeroot");
    let done = sh(
        "set -e; [ $(stat -c %u:%g seven) = 7:8 ]; echo changed > dir/file; mkdir dir/new; \
         echo new > dir/new/file; chown 5:6 dir/new/file; chmod 600 seven; rm seven; \
         ln -s x link; [ $(stat -c %u:%g dir/new/file) = 5:6 ]",
    );
    failed(&done, 0, &[]);
    failed(&while_busy(&mut by_user(&["umount", text(&dir)])), 0, &[]);
    assert_eq!(stored(&place, "/dir/new"), (0, 0));
    assert_eq!(stored(&place, "/dir/new/file"), (5, 6));
    assert_eq!(uext4_ok(&["cat", text(&image), "/dir/file"]), b"changed\n");
    assert!(!uext4(&["stat", text(&image), "/seven"]).status.success());
    place.judge();
}

#[test]
fn everything_may_be_shown_as_somebodys() {
    if !can_mount() {
        return;
    }
    let place = Place::new(&["-t", "ext4"], 32);
    image_of_others(&place);
    place.mount("uid=1,gid=4321,allow_other");
    for name in ["dir", "dir/file", "seven"] {
        let found = fs::metadata(place.dir().join(name)).unwrap();
        assert_eq!((found.uid(), found.gid()), (USER, 4321), "{name}");
    }
    let script = format!("echo by user > {}/dir/made", text(&place.dir()));
    shell_by_user(&script);
    place.unmount();
    assert_eq!(
        stored(&place, "/dir/made"),
        (u64::from(USER), u64::from(USER))
    );
    assert_eq!(stored(&place, "/seven"), (7, 8));
    place.judge();
}

#[test]
fn ids_of_the_image_stand_for_others_of_the_machine() {
    if !can_mount() {
        return;
    }
    let place = Place::new(&["-t", "ext4"], 32);
    image_of_others(&place);
    place.mount("idmap=0:1:1,idmap=u:1:100001:100,idmap=g:1:200001:100,allow_other");
    let shown = |name: &str| {
        let found = fs::metadata(place.dir().join(name)).unwrap();
        (found.uid(), found.gid())
    };
    assert_eq!(shown("dir"), (USER, USER));
    assert_eq!(shown("seven"), (100_007, 200_008));
    let script = "echo new > dir/made && mkdir dir/sub";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).current_dir(place.dir());
    failed(&shell.uid(USER).gid(USER).output().unwrap(), 0, &[]);
    assert_eq!(shown("dir/made"), (USER, USER));
    // Version 2; owner, user 100005, group, mask, others.
    let acl = |user: u32| {
        let mut acl = vec![2u8, 0, 0, 0];
        for (tag, permissions, id) in [
            (1, 7, u32::MAX),
            (2, 6, user),
            (4, 5, u32::MAX),
            (16, 7, u32::MAX),
            (32, 0, u32::MAX),
        ] {
            acl.extend([tag, 0, permissions, 0]);
            acl.extend(id.to_le_bytes());
        }
        acl
    };
    let file = place.dir().join("dir/made");
    let none = XattrFlags::empty();
    let name = "system.posix_acl_access";
    rustix::fs::setxattr(&file, name, &acl(100_005), none).unwrap();
    let refused = rustix::fs::setxattr(&file, name, &acl(5), none);
    assert_eq!(refused, Err(Errno::INVAL));
    let mut read = [0; 200];
    let len = rustix::fs::getxattr(&file, name, &mut read[..]).unwrap();
    assert_eq!(read[..len], acl(100_005));
    chown(place.dir().join("dir/sub"), Some(100_009), Some(200_009)).unwrap();
    let refused = chown(&file, Some(50), None).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::INVAL.raw_os_error()));
    place.unmount();
    assert_eq!(stored(&place, "/dir/made"), (0, 0));
    assert_eq!(stored(&place, "/dir/sub"), (9, 9));
    place.mount("rw");
    let len = rustix::fs::getxattr(&file, name, &mut read[..]).unwrap();
    assert_eq!(read[..len], acl(5));
    place.unmount();
    // A user without an id in the image creates nothing.
    place.mount("idmap=0:5:1,uid=1,allow_other");
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo x > made"]).current_dir(place.dir());
    let refused = shell.uid(USER).gid(USER).output().unwrap();
    let printed = String::from_utf8_lossy(&refused.stderr);
    assert!(
        printed.contains("too large for defined data type"),
        "{printed}"
    );
    place.unmount();
    place.judge();
}

/// The groups of what is made in directories of group 50, one with the set-group-id bit, and the
/// modes of directories made there.
fn made_in_group_50(dir: &std::path::Path) -> Vec<(u32, u32)> {
    let mut made = Vec::new();
    for (name, mode) in [("plain", 0o755), ("set", 0o2755)] {
        let parent = dir.join(name);
        fs::create_dir(&parent).unwrap();
        chown(&parent, Some(0), Some(50)).unwrap();
        fs::set_permissions(&parent, fs::Permissions::from_mode(mode)).unwrap();
        fs::write(parent.join("file"), "x").unwrap();
        fs::create_dir(parent.join("dir")).unwrap();
        std::os::unix::fs::symlink("x", parent.join("link")).unwrap();
        for name in ["file", "dir", "link"] {
            let found = fs::symlink_metadata(parent.join(name)).unwrap();
            made.push((found.gid(), found.mode()));
        }
        fs::remove_dir_all(&parent).unwrap();
    }
    made
}

#[test]
fn files_get_the_group_of_their_directory_where_the_superblock_or_an_option_says_so() {
    if !can_mount() {
        return;
    }
    let place = Place::new(&["-t", "ext4"], 32);
    let (image, dir) = (place.image(), place.dir());
    for (default, options) in [
        ("^bsdgroups", "rw"),
        ("^bsdgroups", "grpid"),
        ("^bsdgroups", "bsdgroups"),
        ("bsdgroups", "rw"),
        ("bsdgroups", "nogrpid"),
        ("bsdgroups", "sysvgroups"),
    ] {
        run("tune2fs", &["-o", default, text(&image)]);
        let by_kernel = Shown::new(&image, &dir, options);
        let expected = made_in_group_50(&dir);
        by_kernel.end();
        place.mount(options);
        let made = made_in_group_50(&dir);
        place.unmount();
        assert_eq!(made, expected, "{default} {options}");
    }
    place.judge();
}

#[test]
fn default_mount_options_that_are_not_followed_are_named() {
    if !can_mount() {
        return;
    }
    let place = Place::new(&["-t", "ext4"], 32);
    let (image, dir) = (place.image(), place.dir());
    run(
        "tune2fs",
        &[
            "-o",
            "nobarrier,journal_data",
            "-E",
            "mount_opts=commit=9",
            text(&image),
        ],
    );
    let done = uext4(&["mount", "-o", "data=writeback", text(&image), text(&dir)]);
    let said = [
        "nobarrier",
        "journal_data",
        "commit=9",
        "-o data=writeback has no effect",
    ];
    failed(&done, 0, &said);
    // Each once, though two processes read the options.
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert_eq!(stderr.lines().count(), 4, "{stderr}");
    place.unmount();
    place.judge();
}
