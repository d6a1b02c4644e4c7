//! Commands that only read, on an image that is mounted and on directories of the mount: they see
//! the file system of one moment while others change it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::host::{UEXT4, assert_clean, has_tool, run, text, uext4, uext4_ok, unmount_lazily};
use crate::mounted::{Mount, can_mount, wait_for_end};

fn lines(printed: &[u8]) -> BTreeSet<String> {
    let printed = String::from_utf8(printed.to_vec()).unwrap();
    printed.lines().map(str::to_owned).collect()
}

/// A mount with some files, which are in memory alone.
fn mount_with_files(options: &str) -> Mount {
    let mount = Mount::with(&["-t", "ext4"], 128, options);
    let dir = mount.dir();
    fs::create_dir_all(dir.join("etc/inner")).unwrap();
    fs::write(dir.join("etc/passwd"), "root:x:0:0\n").unwrap();
    fs::write(dir.join("etc/inner/big"), vec![7; 3 << 20]).unwrap();
    symlink("/etc/passwd", dir.join("etc/inner/link")).unwrap();
    mount
}

#[test]
fn every_reading_command_reads_a_mounted_image_and_directories_of_the_mount() {
    if !can_mount() {
        return;
    }
    let mount = mount_with_files("rw");
    let (image, dir) = (mount.image(), mount.dir());
    let (image, etc) = (text(&image), dir.join("etc"));
    let etc = text(&etc);
    let names = ["inner", "passwd"].map(str::to_owned).into();
    assert_eq!(lines(&uext4_ok(&["ls", image, "/etc"])), names);
    assert_eq!(lines(&uext4_ok(&["ls", etc])), names);
    assert_eq!(lines(&uext4_ok(&["ls", etc, "../.."])), names);
    for arguments in [
        &["cat", image, "/etc/passwd"][..],
        &["cat", etc, "passwd"],
        &["cat", etc, "/passwd"],
        // An absolute link begins at the root of the file system.
        &["cat", etc, "inner/link"],
    ] {
        assert_eq!(uext4_ok(arguments), b"root:x:0:0\n", "{arguments:?}");
    }
    for arguments in [
        &["stat", etc, "passwd"][..],
        &["find", etc, "--name", "passwd"],
        &["grep", "root:x", etc],
        &["du", etc],
        &["tree", etc],
        &["manifest", etc],
        &["lsattr", etc, "/"],
        &["getfacl", etc, "passwd"],
        &["getfattr", etc, "passwd"],
        &["info", image],
        &["info", etc],
        &["frag", image],
        &["fsck", "-n", image],
        &["check", etc],
    ] {
        assert!(
            !uext4_ok(arguments).is_empty() || arguments[0] == "getfattr",
            "{arguments:?}"
        );
    }
    let (out, copy) = (
        mount.scratch.path().join("out"),
        mount.scratch.path().join("copy"),
    );
    uext4_ok(&["get", etc, "/", text(&out)]);
    run("diff", &["-r", "--no-dereference", etc, text(&out)]);
    // What a clone has is clean after its journal is replayed.
    uext4_ok(&["clone", image, text(&copy)]);
    uext4_ok(&["fsck", "-n", text(&copy)]);
    let same = uext4(&["diff", image, text(&copy)]);
    assert_eq!(same.status.code(), Some(0), "{same:?}");
    let archive = Command::new(UEXT4).args(["tar", etc]).output().unwrap();
    assert!(archive.status.success(), "{archive:?}");
    let path = mount.scratch.path().join("archive");
    fs::write(&path, archive.stdout).unwrap();
    run("tar", &["-df", text(&path), "-C", etc]);
    // What needs the image to itself does not get it.
    for arguments in [&["repair", image][..], &["shrink", "--min", image]] {
        let refused = uext4(arguments);
        assert_eq!(refused.status.code(), Some(8), "{refused:?}");
    }
    mount.judged();
}

#[test]
fn stores_through_shared_mappings_are_in_a_snapshot() {
    if !can_mount() || !has_tool("python3") {
        return;
    }
    let mount = mount_with_files("rw");
    let (image, dir) = (mount.image(), mount.dir());
    // The mapping stays, and is never synced.
    const STORES: &str = "import mmap, sys\n\
        file = open(sys.argv[1], 'r+b'); pages = mmap.mmap(file.fileno(), 11)\n\
        for line in sys.stdin: pages[:] = line[:11].encode(); print('stored', flush=True)";
    let file = dir.join("etc/passwd");
    let mut program = Command::new("python3")
        .args(["-c", STORES, text(&file)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = program.stdin.take().unwrap();
    let mut answers = program.stdout.take().unwrap();
    let mut store = |line: &str| {
        writeln!(lines, "{line}").unwrap();
        answers.read_exact(&mut [0; 7]).unwrap();
    };
    let etc = dir.join("etc");
    store("root:y:1:1\t");
    assert_eq!(
        uext4_ok(&["cat", text(&image), "/etc/passwd"]),
        b"root:y:1:1\t"
    );
    store("root:z:2:2\t");
    assert_eq!(uext4_ok(&["cat", text(&etc), "passwd"]), b"root:z:2:2\t");
    store("root:w:3:3\t");
    let script = mount.scratch.path().join("script");
    fs::write(&script, "cat /etc/passwd\n").unwrap();
    let read = uext4_ok(&["script", "--file", text(&script), text(&dir)]);
    assert!(read.starts_with(b"root:w:3:3"), "{read:?}");
    drop(lines);
    program.wait().unwrap();
    mount.judged();
}

#[test]
fn a_directory_of_a_mount_for_reading_is_read() {
    if !can_mount() {
        return;
    }
    let mount = mount_with_files("rw").unmounted().mounted("ro");
    let etc = mount.dir().join("etc");
    assert_eq!(uext4_ok(&["cat", text(&etc), "passwd"]), b"root:x:0:0\n");
    let refused = uext4(&["rm", text(&etc), "passwd"]);
    assert_eq!(refused.status.code(), Some(8), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("mounted for reading"), "{said}");
    let copy = mount.scratch.path().join("copy");
    uext4_ok(&["clone", text(&etc), text(&copy)]);
    assert_eq!(
        uext4_ok(&["cat", text(&copy), "/etc/passwd"]),
        b"root:x:0:0\n"
    );
    // One that is none of ours is none.
    let other = uext4(&["ls", text(mount.scratch.path())]);
    assert_eq!(other.status.code(), Some(8), "{other:?}");
}

/// A file whose two halves are always written one after the other, and directories that are renamed
/// there and back: a copy made meanwhile has what there was
/// at one moment.
#[test]
fn a_copy_is_of_one_moment_while_others_write() {
    if !can_mount() {
        return;
    }
    let mount = mount_with_files("rw");
    let dir = mount.dir();
    fs::create_dir(dir.join("a")).unwrap();
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = End(&ends);
        scope.spawn(|| {
            let first = File::create(dir.join("first")).unwrap();
            let second = File::create(dir.join("second")).unwrap();
            for number in 1u64.. {
                if ends.load(Ordering::Relaxed) {
                    break;
                }
                // The second is never ahead of the first, nor two behind.
                first.write_all_at(&number.to_le_bytes(), 0).unwrap();
                first.sync_data().unwrap();
                second.write_all_at(&number.to_le_bytes(), 0).unwrap();
                second.sync_data().unwrap();
                let (from, to) = match number % 2 {
                    0 => ("b", "a"),
                    _ => ("a", "b"),
                };
                fs::rename(dir.join(from), dir.join(to)).unwrap();
                fs::write(dir.join(format!("f{}", number % 50)), vec![1; 200_000]).unwrap();
            }
        });
        for round in 0..12 {
            let out = mount.scratch.path().join(format!("out{round}"));
            uext4_ok(&["get", text(&mount.image()), "/", text(&out)]);
            let number = |name: &str| {
                let bytes = fs::read(out.join(name)).unwrap_or_default();
                bytes.try_into().map(u64::from_le_bytes).ok()
            };
            if let (Some(first), Some(second)) = (number("first"), number("second")) {
                assert!(second <= first && first <= second + 1, "{first} {second}");
            }
            assert!(out.join("a").exists() != out.join("b").exists());
            fs::remove_dir_all(out).unwrap();
            // Of one moment are the tables, too, and what the journal holds.
            let copy = mount.scratch.path().join(format!("copy{round}"));
            uext4_ok(&["clone", text(&mount.image()), text(&copy)]);
            uext4_ok(&["fsck", "-n", text(&copy)]);
            // The journal, and files that were being truncated; anything else it refuses.
            let preened = Command::new("e2fsck").args(["-p", text(&copy)]).output();
            assert!(preened.unwrap().status.code() <= Some(1));
            assert_clean(&copy);
            fs::remove_file(copy).unwrap();
        }
    });
    mount.judged();
}

/// Ends the writer, also when a test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A reader that waits for its output holds no writer back; when the daemon ends, it says so.
#[test]
fn a_reader_that_stands_still_stops_no_writer_and_learns_of_the_end() {
    if !can_mount() {
        return;
    }
    let mount = mount_with_files("rw");
    let dir = mount.dir();
    let mut waiting = Command::new(UEXT4)
        .args(["tar", text(&mount.image())])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut some = [0; 512];
    waiting
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut some)
        .unwrap();
    for round in 0..3u8 {
        let file = File::create(dir.join("etc/inner/big")).unwrap();
        file.write_all_at(&vec![round; 3 << 20], 0).unwrap();
        file.sync_all().unwrap();
    }
    let daemon = mount.daemon();
    run("kill", &["-KILL", &daemon]);
    wait_for_end(&daemon);
    unmount_lazily(&dir);
    let ended = waiting.wait_with_output().unwrap();
    assert!(!ended.status.success(), "{:?}", ended.status);
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(said.contains("has ended meanwhile"), "{said}");
    std::mem::forget(mount);
}

#[test]
fn what_was_written_before_is_read_without_a_sync() {
    if !can_mount() {
        return;
    }
    let mount = mount_with_files("rw");
    let dir = mount.dir();
    for round in 0..20 {
        let contents = format!("round {round}\n");
        fs::write(dir.join("etc/passwd"), &contents).unwrap();
        let read = uext4_ok(&["cat", text(&dir), "/etc/passwd"]);
        assert_eq!(String::from_utf8(read).unwrap(), contents);
    }
    let gone = dir.join("etc/passwd");
    fs::remove_file(&gone).unwrap();
    let refused = uext4(&["cat", text(Path::new(&dir)), "/etc/passwd"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    mount.judged();
}

#[test]
fn a_script_reads_what_its_lines_before_have_made() {
    if !can_mount() {
        return;
    }
    let mount = mount_with_files("rw");
    let script = mount.scratch.path().join("script");
    let lines =
        "mkdir inner/new\nls inner/new\nmv passwd inner/new\nls inner/new\ncat inner/new/passwd\n";
    fs::write(&script, lines).unwrap();
    let etc = mount.dir().join("etc");
    let printed = uext4_ok(&["script", "-f", text(&script), text(&etc)]);
    assert_eq!(String::from_utf8(printed).unwrap(), "passwd\nroot:x:0:0\n");
    fs::write(&script, "stats\n").unwrap();
    let refused = uext4(&["script", "-f", text(&script), text(&etc)]);
    assert_eq!(refused.status.code(), Some(8), "{refused:?}");
    mount.judged();
}

#[test]
fn a_directory_says_where_in_the_image_it_is() {
    if !can_mount() {
        return;
    }
    let mount = mount_with_files("rw").unmounted();
    let (image, dir) = (mount.image(), mount.dir());
    // The file system begins after as many zeroes.
    let mut bytes = vec![0; 3 << 20];
    bytes.extend(fs::read(&image).unwrap());
    let disk = mount.scratch.path().join("disk");
    fs::write(&disk, bytes).unwrap();
    let begins = ["--offset", "3M"];
    uext4_ok(&[&["mount"], &begins[..], &[text(&disk), text(&dir)]].concat());
    let (etc, copy) = (dir.join("etc"), mount.scratch.path().join("copy"));
    fs::write(etc.join("passwd"), "new").unwrap();
    assert_eq!(uext4_ok(&["cat", text(&etc), "passwd"]), b"new");
    let by_image = [&["cat"], &begins[..], &[text(&disk), "/etc/passwd"]].concat();
    assert_eq!(uext4_ok(&by_image), b"new");
    uext4_ok(&["clone", text(&dir), text(&copy)]);
    uext4_ok(&["umount", text(&dir)]);
    uext4_ok(&[&["check"], &begins[..], &[text(&copy)]].concat());
    let of_copy = [&["cat"], &begins[..], &[text(&copy), "/etc/passwd"]].concat();
    assert_eq!(uext4_ok(&of_copy), b"new");
}

#[test]
fn without_a_journal_a_moment_of_rest_is_read() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4", "-O", "^has_journal"], 64);
    let (image, dir) = (mount.image(), mount.dir());
    for round in 0..5 {
        let contents = format!("round {round}\n");
        fs::write(dir.join(format!("f{round}")), &contents).unwrap();
        let path = format!("/f{round}");
        let read = uext4_ok(&["cat", text(&image), &path]);
        assert_eq!(String::from_utf8(read).unwrap(), contents);
    }
    uext4_ok(&["fsck", "-nf", text(&image)]);
    mount.judged();
}
