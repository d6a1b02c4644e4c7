//! `grow` on an image that is mounted, and on directories of the mount: the daemon makes the file
//! system larger while programs use it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::Value;

use crate::checking::ended;
use crate::host::{Shown, UEXT4, assert_clean, has_tool, run, text, uext4_ok, unmount_lazily};
use crate::mounted::{Mount, can_mount, wait_for_end};
use crate::mounting::{Place, USER, by_user, failed, shell_by_user, user_can_mount};

const MIB: u64 = 1 << 20;

/// Bytes that a mount can hold, as every program sees it.
fn size(dir: &Path) -> u64 {
    let found = rustix::fs::statvfs(dir).unwrap();
    found.f_blocks * found.f_frsize
}

/// The length of a file.
fn len(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

/// Contents that are not the same anywhere.
fn contents(seed: u64, len: usize) -> Vec<u8> {
    let words = (0..len as u64 / 8).map(|at| (at + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15 ^ seed));
    words.flat_map(u64::to_le_bytes).collect()
}

/// Asks for it, which must be done, and returns the blocks before and after.
fn grown(place: &Path, size: &str) -> (u64, u64) {
    let printed = uext4_ok(&["grow", "--json", text(place), size]);
    let json: Value = serde_json::from_slice(&printed).unwrap();
    assert_eq!(json["block_size"].as_u64(), Some(4096));
    let blocks = |key: &str| json[key].as_u64().unwrap();
    (blocks("blocks_before"), blocks("blocks"))
}

#[test]
fn a_mounted_file_system_grows_by_every_way_to_ask_for_it() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4", "-b", "4096"], 64);
    let (image, dir) = (mount.image(), mount.dir());
    fs::create_dir(dir.join("sub")).unwrap();
    let had = size(&dir);
    assert_eq!(grown(&image, "128M"), (16_384, 32_768));
    assert_eq!(len(&image), 128 * MIB);
    assert!(size(&dir) > had + 60 * MIB, "{} after {had}", size(&dir));
    assert_eq!(grown(&dir, "+64M"), (32_768, 49_152));
    // Any directory of the mount stands for the file system.
    assert_eq!(grown(&dir.join("sub"), "256M"), (49_152, 65_536));
    // What another program has added is found when it is asked for.
    let file = File::options().write(true).open(&image).unwrap();
    file.set_len(300 * MIB).unwrap();
    let printed = uext4_ok(&["grow", text(&dir)]);
    let said = format!(
        "{}: 256.0 MiB before, 300.0 MiB now (76800 blocks)\n",
        dir.display()
    );
    assert_eq!(String::from_utf8_lossy(&printed), said);
    let again = uext4_ok(&["grow", text(&image), "max"]);
    assert!(String::from_utf8_lossy(&again).contains("already"));
    assert!(size(&dir) > 250 * MIB);
    // More than there was room for at first.
    let bytes = contents(1, 200 << 20);
    fs::write(dir.join("sub/large"), &bytes).unwrap();
    let mount = mount.judged();
    let place = mount.scratch.path().join("kernel");
    fs::create_dir(&place).unwrap();
    let shown = Shown::new(&image, &place, "ro");
    assert!(fs::read(place.join("sub/large")).unwrap() == bytes);
    shown.end();
    // The size is that of the next mount, too.
    let mount = mount.mounted("rw");
    assert!(size(&dir) > 250 * MIB);
    assert_eq!(grown(&dir, "+100M"), (76_800, 102_400));
    mount.judged();
}

#[test]
fn files_that_are_written_meanwhile_are_right_and_the_new_size_is_seen_at_once() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4", "-b", "4096"], 64);
    let (image, dir) = (mount.image(), mount.dir());
    let ends = AtomicBool::new(false);
    let files: Vec<u64> = thread::scope(|scope| {
        let writers = [0u64, 1].map(|writer| {
            let (ends, dir) = (&ends, &dir);
            scope.spawn(move || {
                // Some find no room, between two steps.
                let mut whole = Vec::new();
                for number in (writer..).step_by(2) {
                    let path = dir.join(format!("f{number}"));
                    match fs::write(&path, contents(number, 1 << 20)) {
                        Ok(()) => whole.push(number),
                        Err(_) => _ = fs::remove_file(&path),
                    }
                    if ends.load(Ordering::Relaxed) || number > 380 {
                        break;
                    }
                }
                whole
            })
        });
        let mut had = size(&dir);
        for (step, place) in (1..=8).zip([&image, &dir].into_iter().cycle()) {
            grown(place, "+48M");
            let has = size(&dir);
            assert!(has > had + 40 * MIB, "step {step}: {had} {has}");
            had = has;
        }
        ends.store(true, Ordering::Relaxed);
        let whole = writers.map(|writer| writer.join().unwrap());
        whole.concat()
    });
    let right = |root: &Path| {
        for &number in &files {
            let bytes = fs::read(root.join(format!("f{number}"))).unwrap();
            assert!(bytes == contents(number, 1 << 20), "f{number}");
        }
    };
    right(&dir);
    let mount = mount.judged();
    let place = mount.scratch.path().join("kernel");
    fs::create_dir(&place).unwrap();
    let shown = Shown::new(&image, &place, "ro");
    right(&place);
    shown.end();
}

#[test]
fn what_cannot_grow_while_it_is_mounted_says_why_and_stays_as_it_is() {
    if !can_mount() {
        return;
    }
    let options = ["-t", "ext4", "-O", "^64bit", "-b", "4096"];
    let mount = Mount::new(&options, 64);
    let (image, dir) = (mount.image(), mount.dir());
    let had = size(&dir);
    for (size, said) in [
        ("8M", "16384 blocks of 4096 bytes already"),
        ("17T", "64bit"),
    ] {
        for place in [&image, &dir] {
            let (code, printed) = ended(&["grow", text(place), size]);
            assert_eq!(code, Some(8), "{printed}");
            assert!(printed.contains(said), "{size}: {printed}");
            let (code, as_json) = ended(&["grow", "--json", text(place), size]);
            assert_eq!(code, Some(8), "{as_json}");
            let json: Value = serde_json::from_str(&as_json).unwrap();
            assert!(json["error"].as_str().unwrap().contains(said), "{json}");
        }
    }
    assert_eq!((size(&dir), len(&image)), (had, 64 * MIB));
    // It goes on, and can still grow.
    fs::write(dir.join("file"), "contents").unwrap();
    grown(&dir, "+8M");
    mount.judged();
}

#[test]
fn a_partition_table_in_use_and_a_mount_for_reading_are_left_alone() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4"], 64);
    let (image, dir) = (mount.image(), mount.dir());
    for place in [&image, &dir] {
        let (code, printed) = ended(&["grow", "--with-partition", text(place), "+8M"]);
        assert_eq!(code, Some(8), "{printed}");
        assert!(printed.contains("partition table"), "{printed}");
        assert!(printed.contains("umount"), "{printed}");
    }
    let mount = mount.unmounted().mounted("ro");
    let before = fs::read(&image).unwrap();
    let (code, printed) = ended(&["grow", text(&dir), "+8M"]);
    assert_eq!(code, Some(8), "{printed}");
    assert!(printed.contains("mounted for reading"), "{printed}");
    let (code, printed) = ended(&["grow", text(&image), "+8M"]);
    assert_eq!(code, Some(8), "{printed}");
    assert!(printed.contains("umount"), "{printed}");
    assert!(fs::read(&image).unwrap() == before);
    mount.judged();
}

#[test]
fn a_partition_of_a_mounted_disk_is_full_and_one_up_to_the_end_is_not() {
    if !can_mount() || !has_tool("sfdisk") {
        return;
    }
    let mount = Mount::new(&["-t", "ext4", "-b", "4096"], 64).unmounted();
    let (image, dir) = (mount.image(), mount.dir());
    let plain = fs::read(&image).unwrap();
    let whole = [&vec![0xA5; 1 << 20], &plain[..]].concat();
    fs::write(&image, &whole).unwrap();
    let at = ["--offset", "1M"];
    uext4_ok(&[&["mount"][..], &at, &[text(&image), text(&dir)]].concat());
    uext4_ok(&[&["grow"][..], &at, &[text(&image), "+16M"]].concat());
    grown(&dir, "+16M");
    uext4_ok(&["umount", text(&dir)]);
    let bytes = fs::read(&image).unwrap();
    assert_eq!(bytes.len() as u64, 97 * MIB);
    assert!(bytes[..1 << 20].iter().all(|&byte| byte == 0xA5));
    fs::write(&image, &bytes[1 << 20..]).unwrap();
    assert_clean(&image);
    // A partition has the length that the table says.
    let source = mount.scratch.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::remove_file(&image).unwrap();
    let build = ["build", text(&source), "-o", text(&image)];
    uext4_ok(&[&build[..], &["--gpt", "--size", "32M"]].concat());
    let had = len(&image);
    let mount = mount.mounted("rw");
    let (code, printed) = ended(&["grow", text(&dir), "+16M"]);
    assert_eq!(code, Some(8), "{printed}");
    assert!(printed.contains("bytes are needed"), "{printed}");
    assert!(printed.contains("larger first"), "{printed}");
    assert_eq!(len(&image), had);
    // It was found by itself, and is the same one by its number and its byte.
    uext4_ok(&["mkdir", "--partition", "1", text(&image), "/by-number"]);
    uext4_ok(&["mkdir", "--offset", "1M", text(&image), "/by-byte"]);
    assert!(dir.join("by-number").is_dir() && dir.join("by-byte").is_dir());
    uext4_ok(&["ls", "--partition", "1", text(&image), "/"]);
    let based = mount.scratch.path().join("based");
    let (code, printed) = ended(&["build", "--base", text(&image), "-o", text(&based)]);
    assert_eq!(code, Some(8), "{printed}");
    let place = format!("it is mounted at {}", text(&dir));
    assert!(printed.contains(&place), "{printed}");
    mount.unmounted();
}

#[test]
fn a_file_that_cannot_become_so_long_keeps_its_length_and_the_mount_goes_on() {
    if !can_mount() || !has_tool("prlimit") {
        return;
    }
    let mount = Mount::new(&["-t", "ext4", "-b", "4096"], 64).unmounted();
    let (image, dir) = (mount.image(), mount.dir());
    let limit = format!("--fsize={}", 200 * MIB);
    let arguments = [&limit, UEXT4, "mount", text(&image), text(&dir)];
    run("prlimit", &arguments);
    let mut mount = mount;
    mount.is_mounted = true;
    let had = size(&dir);
    for place in [&image, &dir] {
        let (code, printed) = ended(&["grow", text(place), "1G"]);
        assert_eq!(code, Some(8), "{printed}");
        assert!(printed.contains("File too large"), "{printed}");
        assert_eq!((size(&dir), len(&image)), (had, 64 * MIB));
    }
    fs::write(dir.join("file"), contents(1, 20 << 20)).unwrap();
    // Up to the limit it grows.
    grown(&dir, "200M");
    fs::write(dir.join("more"), contents(2, 100 << 20)).unwrap();
    let mount = mount.judged();
    // The same without a mount.
    let (code, printed) = {
        let arguments = [&limit, UEXT4, "grow", text(&image), "1G"];
        let done = Command::new("prlimit").args(arguments).output().unwrap();
        (
            done.status.code(),
            String::from_utf8_lossy(&done.stderr).into_owned(),
        )
    };
    assert_eq!(code, Some(8), "{printed}");
    assert!(printed.contains("File too large"), "{printed}");
    assert_eq!(len(&image), 200 * MIB);
    assert_clean(&mount.image());
}

#[test]
fn an_ordinary_user_grows_what_is_mounted_in_its_sandbox() {
    if !user_can_mount() {
        return;
    }
    let owner = format!("root_owner={USER}:{USER}");
    let place = Place::new(&["-t", "ext4", "-b", "4096", "-E", &owner], 64);
    let (image, dir) = (place.image(), place.dir());
    let done = |arguments: &[&str]| {
        failed(&by_user(arguments).output().unwrap(), 0, &[]);
    };
    done(&["mount", text(&image), text(&dir)]);
    done(&["grow", text(&dir), "+64M"]);
    done(&["grow", text(&image), "256M"]);
    assert_eq!(len(&image), 256 * MIB);
    shell_by_user(&format!(
        "head -c 150M /dev/zero | tr '\\0' x > {}/large",
        text(&dir)
    ));
    // Another user has no say in it.
    let other = std::os::unix::process::CommandExt::uid(&mut Command::new(UEXT4), USER + 1)
        .args(["grow", text(&image), "+8M"])
        .output()
        .unwrap();
    assert!(!other.status.success(), "{other:?}");
    assert_eq!(len(&image), 256 * MIB);
    done(&["umount", text(&dir)]);
    place.judge();
}

/// One who reads goes on with what there was.
#[test]
fn a_reader_of_the_old_size_is_not_disturbed() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4", "-b", "4096"], 64);
    let (image, dir) = (mount.image(), mount.dir());
    let old = contents(1, 30 << 20);
    fs::write(dir.join("file"), &old).unwrap();
    let mut reader = Command::new(UEXT4)
        .args(["cat", text(&image), "/file"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut read = vec![0; 1 << 20];
    let mut output = reader.stdout.take().unwrap();
    output.read_exact(&mut read).unwrap();
    grown(&dir, "256M");
    let file = File::options().write(true).open(dir.join("file")).unwrap();
    file.write_all_at(&contents(2, 30 << 20), 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    fs::write(dir.join("new"), contents(3, 100 << 20)).unwrap();
    output.read_to_end(&mut read).unwrap();
    assert!(reader.wait().unwrap().success());
    assert!(read == old);
    let now = uext4_ok(&["cat", text(&dir), "file"]);
    assert!(now == contents(2, 30 << 20));
    mount.judged();
}

/// A device of the kernel does not become longer by itself, but may have.
#[test]
fn a_block_device_is_measured_anew() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4", "-b", "4096"], 64).unmounted();
    let (image, dir) = (mount.image(), mount.dir());
    let disk = uext4_testkit::Loop::with_options(&image, &[]).unwrap();
    uext4_ok(&["mount", text(disk.path()), text(&dir)]);
    let (code, printed) = ended(&["grow", text(&dir), "128M"]);
    assert_eq!(code, Some(8), "{printed}");
    assert!(printed.contains("the device has 67108864"), "{printed}");
    let file = File::options().write(true).open(&image).unwrap();
    file.set_len(128 * MIB).unwrap();
    run("losetup", &["-c", text(disk.path())]);
    assert_eq!(grown(&dir, "max"), (16_384, 32_768));
    let mut large = File::create(dir.join("large")).unwrap();
    large.write_all(&contents(1, 80 << 20)).unwrap();
    drop(large);
    uext4_ok(&["umount", text(&dir)]);
    drop(disk);
    assert_clean(&image);
}

/// What was written to the new groups is in the journal, and the superblock that has them, too.
#[test]
fn a_daemon_that_is_killed_after_growing_leaves_what_all_can_recover() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4", "-b", "4096"], 64);
    let (image, dir) = (mount.image(), mount.dir());
    grown(&image, "256M");
    let bytes = contents(1, 100 << 20);
    fs::write(dir.join("large"), &bytes).unwrap();
    for number in 0..300 {
        fs::create_dir(dir.join(format!("d{number}"))).unwrap();
    }
    // Everything is durable when it returns.
    uext4_ok(&["mkdir", text(&dir), "/after"]);
    let daemon = mount.daemon();
    run("kill", &["-KILL", &daemon]);
    wait_for_end(&daemon);
    unmount_lazily(&dir);
    assert!(uext4_ok(&["cat", text(&image), "/large"]) == bytes);
    uext4_ok(&["fsck", "-n", text(&image)]);
    let copy = mount.scratch.path().join("copy");
    fs::copy(&image, &copy).unwrap();
    let place = mount.scratch.path().join("kernel");
    fs::create_dir(&place).unwrap();
    let shown = Shown::new(&copy, &place, "rw");
    assert!(fs::read(place.join("large")).unwrap() == bytes);
    shown.end();
    assert_clean(&copy);
    let mount = mount.mounted("rw");
    assert!(size(&dir) > 200 * MIB);
    assert!(fs::read(dir.join("large")).unwrap() == bytes);
    mount.judged();
}
