//! Images that are used again as soon as they are unmounted, by umount(8) and `fusermount3`, which
//! do not wait for the daemon.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use crate::host::{UEXT4, assert_clean, copy_image, run, text, uext4_ok, unmount};
use crate::mounted::Mount;
use crate::mounting::{Place, USER, by_user, can_mount, failed, user_can_mount};

/// What the daemon is to write after the end of the mount.
fn written(dir: &Path, cycle: usize) {
    fs::write(dir.join("data"), vec![cycle as u8; 4 << 20]).unwrap();
    for number in 0..20 {
        fs::write(dir.join(format!("{cycle}-{number}")), "contents").unwrap();
    }
}

#[test]
fn an_image_is_used_as_soon_as_it_is_unmounted() {
    if !can_mount() {
        return;
    }
    let mut mount = Mount::new(&["-t", "ext4"], 64);
    let (image, dir) = (mount.image(), mount.dir());
    let image = text(&image);
    let copy = mount.scratch.path().join("copy");
    let source = mount.scratch.path().join("source");
    fs::write(&source, "more").unwrap();
    for cycle in 0..20 {
        written(&dir, cycle);
        unmount("umount", &[text(&dir)]);
        match cycle % 5 {
            0 => drop(uext4_ok(&["check", image])),
            1 => drop(uext4_ok(&["ls", image, "/"])),
            2 => drop(uext4_ok(&[
                "get",
                "--overwrite",
                image,
                "/data",
                text(&copy),
            ])),
            3 => drop(uext4_ok(&[
                "put",
                "--overwrite",
                image,
                text(&source),
                "/more",
            ])),
            _ => {}
        }
        mount = mount.mounted(if cycle % 7 == 6 { "ro" } else { "rw" });
        assert_eq!(fs::read(dir.join("data")).unwrap()[0], cycle as u8);
        if cycle % 7 == 6 {
            unmount("umount", &[text(&dir)]);
            mount = mount.mounted("rw");
        }
    }
    mount.judged();
}

#[test]
fn a_user_uses_an_image_as_soon_as_it_is_unmounted() {
    if !user_can_mount() {
        return;
    }
    let place = Place::new(
        &["-t", "ext4", "-E", &format!("root_owner={USER}:{USER}")],
        64,
    );
    let (image, dir) = (place.image(), place.dir());
    let mounting = ["mount", text(&image), text(&dir)];
    for cycle in 0..5 {
        failed(&by_user(&mounting).output().unwrap(), 0, &[]);
        let writing = format!("head -c 4194304 /dev/zero > {}/{cycle}", text(&dir));
        crate::mounting::shell_by_user(&writing);
        crate::mounting::shell_by_user(&format!("fusermount3 -u {}", text(&dir)));
        if cycle % 2 == 1 {
            failed(&by_user(&["check", text(&image)]).output().unwrap(), 0, &[]);
        }
    }
    // Root waits for a daemon of the image's owner, too.
    failed(&by_user(&mounting).output().unwrap(), 0, &[]);
    crate::mounting::shell_by_user(&format!("fusermount3 -u {}", text(&dir)));
    run(UEXT4, &["check", text(&image)]);
}

#[test]
fn umount_calls_its_helper() {
    if !can_mount() {
        return;
    }
    let mut mount = Mount::new(&["-t", "ext4"], 16);
    let (image, dir) = (mount.image(), mount.dir());
    let helper = mount.scratch.path().join("umount.fuse.uext4");
    std::os::unix::fs::symlink(UEXT4, &helper).unwrap();
    fs::write(dir.join("file"), "contents").unwrap();
    unmount(text(&helper), &[text(&dir), "-n", "-t", "fuse.uext4"]);
    // It waited: a program that asks no daemon finds all of it.
    assert_clean(&image);
    mount = mount.mounted("rw");
    let file = File::open(dir.join("file")).unwrap();
    run(text(&helper), &[text(&dir), "-l"]);
    let read = std::io::read_to_string(&file).unwrap();
    assert_eq!(read, "contents");
    drop(file);
    // The daemon ends some time after its last file was closed, and gives the lock up then.
    File::open(&image).unwrap().lock().unwrap();
    mount.mounted("rw").judged();
}

/// The time of access after a file was read.
fn read(file: &Path) -> SystemTime {
    fs::read(file).unwrap();
    fs::metadata(file).unwrap().accessed().unwrap()
}

#[test]
fn access_times_follow_reads() {
    if !can_mount() {
        return;
    }
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for (options, follows) in [
        ("strictatime", true),
        ("relatime", false),
        ("noatime", false),
    ] {
        let mount = Mount::with(&["-t", "ext4"], 16, options);
        let path = mount.dir().join("file");
        fs::write(&path, "contents").unwrap();
        // Nothing but the first read after a change counts with relatime.
        let set = |accessed| {
            let times = FileTimes::new().set_accessed(accessed);
            File::options()
                .write(true)
                .open(&path)
                .unwrap()
                .set_times(times)
                .unwrap();
        };
        set(long_ago);
        for _ in 0..2 {
            assert_eq!(read(&path) > long_ago, options != "noatime", "{options}");
        }
        // Less than a day old, and younger than the last change.
        let ahead = SystemTime::now() + Duration::from_secs(1000);
        set(ahead);
        for _ in 0..2 {
            assert_eq!(read(&path) != ahead, follows, "{options}");
            set(ahead);
        }
        assert!(fs::metadata(&path).unwrap().ctime() > 1_000_000_000);
        mount.judged();
    }
}

#[test]
fn a_live_mount_is_not_waited_for() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4"], 16);
    for arguments in [["repair", "-y"], ["shrink", "--min"]] {
        let mut command = Command::new("timeout");
        command.args([
            "100",
            UEXT4,
            arguments[0],
            arguments[1],
            text(&mount.image()),
        ]);
        failed(&command.output().unwrap(), 8, &["it is mounted at"]);
    }
    mount.judged();
}

/// Asks as mount(8) does, with the options that it finds in the table of mounts.
fn remount(mount: &Mount, how: &str) -> std::process::Output {
    let helper = mount.scratch.path().join("mount.fuse.uext4");
    _ = std::os::unix::fs::symlink(UEXT4, &helper);
    let options = format!(
        "{how},nosuid,nodev,relatime,remount,user_id=0,group_id=0,default_permissions,\
         max_read=1048576"
    );
    let (image, dir) = (mount.image(), mount.dir());
    let mut command = Command::new(helper);
    command.args([text(&image), text(&dir), "-o", &options]);
    command.output().unwrap()
}

#[test]
fn a_mount_is_made_read_only_and_writable_again() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4"], 16);
    let file = mount.dir().join("file");
    fs::write(&file, "contents").unwrap();
    let open = File::options().append(true).open(&file).unwrap();
    failed(&remount(&mount, "ro"), 32, &["open for writing"]);
    drop(open);
    // A program that another test is about to start may have the file open until then.
    let end = Instant::now() + Duration::from_secs(10);
    while !remount(&mount, "ro").status.success() {
        assert!(Instant::now() < end, "still open for writing");
    }
    let refused = fs::write(mount.dir().join("other"), "").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    // debugfs replays no journal: all of it is in place.
    let copy = copy_image(&mount.image(), "copy");
    let shown = run("debugfs", &["-R", "cat /file", text(&copy)]);
    assert_eq!(shown, b"contents");
    failed(&remount(&mount, "rw"), 0, &[]);
    fs::write(&file, "more").unwrap();
    let mount = mount.judged().mounted("ro");
    failed(
        &remount(&mount, "rw"),
        32,
        &["mounted with ro", "umount DIR"],
    );
    assert_eq!(fs::read(&file).unwrap(), b"more");
    failed(&remount(&mount, "ro"), 0, &[]);
    mount.judged();
}
