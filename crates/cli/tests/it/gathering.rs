//! The kernel's write-back cache: what it holds is asked for where it matters, and what is lost is
//! reported to who has written it.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use rustix::fs::{AtFlags, CWD, SeekFrom, Timespec, Timestamps};
use rustix::io::Errno;

use crate::host::{UEXT4, run, text, uext4_ok, unmount_lazily};
use crate::mounted::{Mount, can_mount, wait_for_end};

const OPTIONS: &str = "rw,writeback_cache=on";

fn mount(mib: u32) -> Option<Mount> {
    can_mount().then(|| Mount::with(&["-t", "ext4"], mib, OPTIONS))
}

/// WRITE requests so far.
fn requests(inside: &Path) -> u64 {
    let page = uext4_ok(&["stats", "--prometheus", text(inside)]);
    let page = String::from_utf8(page).unwrap();
    let is_of_writes =
        |line: &&str| line.contains("request_seconds_count") && line.contains("\"write\"");
    let line = page.lines().find(is_of_writes);
    line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

/// A file that is open for writing, of which the kernel holds all.
fn held(path: &Path, contents: &[u8]) -> File {
    let file = File::create_new(path).unwrap();
    let dir = path.parent().unwrap();
    let before = requests(dir);
    let write = || file.write_all_at(contents, 0).unwrap();
    (0..3).for_each(|_| write());
    // Statistics are asked for by a command, which has the kernel send what it holds.
    assert!(requests(dir) <= before + 1, "the file bypasses the cache");
    write();
    file
}

#[test]
fn programs_that_write_hear_that_there_is_no_space() {
    let Some(mount) = mount(256) else {
        return;
    };
    let full = mount.dir().join("full");
    let mut file = File::create(&full).unwrap();
    let second = OpenOptions::new().append(true).open(&full).unwrap();
    let chunk = vec![7; 64 << 10];
    // More than there is space for, and than the kernel holds on a machine of a terabyte.
    let failed = (0..1u64 << 16).find_map(|_| file.write_all(&chunk).err());
    let failed = failed.expect("a write that fails");
    assert_eq!(failed.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    // The one that hears of it first takes nothing from the other.
    let failed = (&second).write_all(b"x").unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    drop((file, second));
    // Now there is less space than the kernel may hold.
    let mut late = File::create(mount.dir().join("late")).unwrap();
    let failed = late.write_all(&chunk).unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    drop(late);
    fs::remove_file(full).unwrap();
    fs::write(mount.dir().join("late"), &chunk).unwrap();
    assert_eq!(fs::read(mount.dir().join("late")).unwrap(), chunk);
    mount.judged();
}

#[test]
fn commands_see_what_the_kernel_holds() {
    let Some(mount) = mount(256) else {
        return;
    };
    let (image, dir) = (mount.image(), mount.dir());
    let image = text(&image);
    let one = held(&dir.join("one"), b"not closed");
    assert_eq!(uext4_ok(&["cat", image, "/one"]), b"not closed");
    one.write_all_at(b"and changed", 4).unwrap();
    let archive = uext4_ok(&["tar", image]);
    let holds = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).any(|it| it == part);
    assert!(holds(&archive, b"not and changed"));
    one.write_all_at(b"in a moment", 4).unwrap();
    assert!(holds(&uext4_ok(&["grep", "in a", image]), b"in a moment"));
    // What programs read stays the same.
    assert_eq!(fs::read(dir.join("one")).unwrap(), b"not in a moment");
    drop(one);
    mount.judged();
}

#[test]
fn programs_see_what_a_command_has_changed_in_a_closed_file() {
    let Some(mount) = mount(256) else {
        return;
    };
    let (image, path) = (mount.image(), mount.dir().join("file"));
    fs::write(&path, vec![5; 10_000]).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 10_000);
    let script = |line: &str| {
        let lines = mount.scratch.path().join("lines");
        fs::write(&lines, format!("{line}\n")).unwrap();
        uext4_ok(&["script", "-f", text(&lines), text(&image)]);
    };
    for len in [123u64, 20_000] {
        script(&format!("truncate -s {len} /file"));
        let known = fs::metadata(&path).unwrap();
        assert_eq!(known.len(), len);
        assert_eq!(fs::read(&path).unwrap().len() as u64, len);
    }
    script("touch -d 2001-02-03T04:05:06Z /file");
    assert_eq!(fs::metadata(&path).unwrap().mtime(), 981_173_106);
    fs::write(&path, b"again").unwrap();
    assert_eq!(uext4_ok(&["cat", text(&image), "/file"]), b"again");
    mount.judged();
}

#[test]
fn copies_take_what_the_kernel_holds_for_data() {
    let Some(mount) = mount(256) else {
        return;
    };
    let dir = mount.dir();
    let (from, to) = (dir.join("from"), dir.join("to"));
    let file = held(&from, b"");
    file.write_all_at(b"far", 5 << 20).unwrap();
    let data = rustix::fs::seek(&file, SeekFrom::Data(0)).unwrap();
    assert!(data <= 5 << 20 && data > 4 << 20, "{data}");
    file.write_all_at(b"near", 0).unwrap();
    run(
        "cp",
        &["--sparse=auto", "--reflink=never", text(&from), text(&to)],
    );
    assert!(fs::read(&from).unwrap() == fs::read(&to).unwrap());
    drop(file);
    mount.judged();
}

#[test]
fn a_file_that_replaces_another_is_written_before() {
    let Some(mut mount) = mount(256) else {
        return;
    };
    let dir = mount.dir();
    fs::write(dir.join("settings"), vec![1; 50_000]).unwrap();
    File::open(&dir).unwrap().sync_all().unwrap();
    let new = held(&dir.join("new"), &[2; 60_000]);
    fs::rename(dir.join("new"), dir.join("settings")).unwrap();
    // What makes the rename durable, and nothing of the file's data.
    File::open(&dir).unwrap().sync_all().unwrap();
    let daemon = mount.daemon();
    run("kill", &["-9", &daemon]);
    wait_for_end(&daemon);
    assert!(new.sync_all().is_err());
    drop(new);
    unmount_lazily(&dir);
    mount.is_gone();
    let output = Command::new(UEXT4)
        .args(["cat", text(&mount.image()), "/settings"])
        .output();
    assert!(output.unwrap().stdout == [2; 60_000]);
}

#[test]
fn a_daemon_that_is_asked_to_end_asks_the_kernel_first() {
    let Some(mut mount) = mount(256) else {
        return;
    };
    let dir = mount.dir();
    let daemon = mount.daemon();
    // Each page is a request of its own.
    let mut contents = vec![0; 9999 * 4096];
    let file = held(&dir.join("held"), b"x");
    for (at, page) in contents.chunks_mut(4096).enumerate().step_by(2) {
        page.fill(at as u8 | 1);
        file.write_all_at(page, at as u64 * 4096).unwrap();
    }
    run("kill", &["-TERM", &daemon]);
    wait_for_end(&daemon);
    drop(file);
    unmount_lazily(&dir);
    mount.is_gone();
    let image = mount.image();
    assert!(uext4_ok(&["cat", text(&image), "/held"]) == contents);
}

#[test]
fn programs_set_no_times_of_immutable_files() {
    let Some(mount) = mount(256) else {
        return;
    };
    let path = mount.dir().join("file");
    fs::write(&path, b"fixed").unwrap();
    run("chattr", &["+i", text(&path)]);
    let omitted = Timespec {
        tv_sec: 0,
        tv_nsec: rustix::fs::UTIME_OMIT,
    };
    let times = Timestamps {
        last_access: omitted,
        last_modification: Timespec {
            tv_sec: 7,
            tv_nsec: 7,
        },
    };
    let set = rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty());
    assert_eq!(set, Err(Errno::PERM));
    run("chattr", &["-i", text(&path)]);
    rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
    mount.judged();
}
