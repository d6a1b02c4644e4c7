//! `fsck.uext4` as fsck(8), systemd and the initial RAM disks call it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use uext4::{Creation, NewInode, OpenOptions, SetAttributes, Volume};
use uext4_blockdev::SystemClock;

use crate::changing::{done, judge};
use crate::checking::{SAFE, UNSAFE, damaged};
use crate::host::{UEXT4, debugfs_write, dumpe2fs, text, uext4, uext4_ok};

/// Links with the names of e2fsck, next to the image.
struct Links(PathBuf);

impl Links {
    fn new(dir: &Path) -> Self {
        for name in ["fsck.uext4", "fsck.ext4", "e2fsck"] {
            symlink(UEXT4, dir.join(name)).unwrap();
        }
        Self(dir.to_owned())
    }

    fn run(&self, name: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(self.0.join(name));
        command.args(arguments).output().unwrap()
    }

    /// Runs `fsck.uext4`, which must end with this code, and returns what it printed.
    #[track_caller]
    fn ends(&self, arguments: &[&str], code: i32) -> String {
        let output = self.run("fsck.uext4", arguments);
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed).into_owned();
        let ended = output.status.code();
        assert_eq!(ended, Some(code), "{arguments:?}: {printed}");
        printed
    }
}

#[test]
fn a_file_system_that_was_left_clean_is_examined_only_by_force() {
    let Some((scratch, image)) = damaged(&["sif dir/file links_count 5"]) else {
        return;
    };
    let links = Links::new(scratch.path());
    let image = text(&image);
    for arguments in [&["-p", image][..], &["-a", image], &["-n", image], &[image]] {
        assert!(links.ends(arguments, 0).contains(": clean, 22/"));
    }
    let before = fs::read(image).unwrap();
    assert!(links.ends(&["-f", "-n", image], 4).contains("inode 2"));
    assert!(fs::read(image).unwrap() == before);
    links.ends(&["-fy", image], 1);
    judge(Path::new(image));
    links.ends(&["-fy", image], 0);
    // Mounted often enough, or not examined for long enough.
    for requests in [
        &["ssv max_mnt_count 2", "ssv mnt_count 3"][..],
        &[
            "ssv max_mnt_count -1",
            "ssv checkinterval 100",
            "ssv lastcheck 1",
        ],
    ] {
        debugfs_write(Path::new(image), requests);
        assert!(links.ends(&["-n", image], 0).contains("blocks in use"));
        // An examination that may write notes that it is done.
        let printed = links.ends(&["-p", image], 0);
        assert!(!printed.contains("MODIFIED"), "{printed}");
        let stored = dumpe2fs(Path::new(image));
        assert!(stored.contains("Mount count:              0\n"), "{stored}");
        assert!(links.ends(&["-p", image], 0).contains(": clean, 22/"));
        judge(Path::new(image));
    }
}

#[test]
fn what_was_not_unmounted_is_examined_once() {
    for (words, code) in [(&["fsck", "-p"][..], 1), (&["repair", "-y"], 1)] {
        let Some((scratch, image)) = damaged(&["ssv state 0"]) else {
            return;
        };
        let path = text(&image);
        assert_eq!(uext4(&["repair", "--plan", path]).status.code(), Some(4));
        let saved = scratch.path().join("saved");
        let before = fs::read(&image).unwrap();
        let option = if words[0] == "fsck" { "-z" } else { "--undo" };
        let command = [words, &[option, text(&saved), path]].concat();
        assert_eq!(uext4(&command).status.code(), Some(code), "{words:?}");
        uext4_ok(&["undo", text(&saved), path]);
        assert!(fs::read(&image).unwrap() == before);
        let command = [words, &[path]].concat();
        assert_eq!(uext4(&command).status.code(), Some(code), "{words:?}");
        assert!(dumpe2fs(&image).contains("Filesystem state:         clean\n"));
        judge(&image);
        let after = fs::read(&image).unwrap();
        assert_eq!(uext4(&command).status.code(), Some(0), "{words:?}");
        assert!(fs::read(&image).unwrap() == after);
    }
}

#[test]
fn exit_codes_are_those_of_fsck() {
    let Some((scratch, image)) = damaged(UNSAFE) else {
        return;
    };
    debugfs_write(&image, ["ssv state 2"]);
    let links = Links::new(scratch.path());
    let path = text(&image);
    let before = fs::read(&image).unwrap();
    assert!(links.ends(&["-p", path], 4).contains("nothing was written"));
    links.ends(&["-n", path], 4);
    // No terminal, no question.
    links.ends(&[path], 8);
    assert!(fs::read(&image).unwrap() == before);
    let saved = scratch.path().join("saved");
    let printed = links.ends(&["-y", "-v", "-tt", "-z", text(&saved), path], 1);
    assert!(printed.contains("FILE SYSTEM WAS MODIFIED"), "{printed}");
    judge(&image);
    uext4_ok(&["undo", text(&saved), path]);
    assert!(fs::read(&image).unwrap() == before);
    links.ends(&["-y", &format!("{path}-none")], 8);
    for wrong in [
        &["-p", "-y", path][..],
        &["-n", "-D", path],
        &["-y", "-E", "no_such", path],
        &["-c", path],
        &["-l", "list", path],
        &["-j", "journal", path],
        &["-y", "-E", "journal_only", "-z", "x", path],
        &["--no-such", path],
        &[],
    ] {
        links.ends(wrong, 16);
    }
}

#[test]
fn systemd_and_initial_ram_disks_get_what_they_expect() {
    let Some((scratch, image)) = damaged(SAFE) else {
        return;
    };
    debugfs_write(&image, ["ssv state 2"]);
    let links = Links::new(scratch.path());
    let lines = scratch.path().join("lines");
    // As `fsck -a -T -l -M -C3 DEVICE` calls the program of the type.
    let script = format!(
        "exec '{}' -a -C3 '{}' 3>'{}'",
        text(&scratch.path().join("fsck.ext4")),
        text(&image),
        text(&lines)
    );
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    judge(&image);
    let lines = fs::read_to_string(&lines).unwrap();
    let mut last = 0;
    for line in lines.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let pass: u8 = words[0].parse().unwrap();
        assert!(pass >= last && pass <= 5, "{lines}");
        last = pass;
        let part = |index: usize| words[index].parse::<u64>().unwrap();
        assert!(part(1) <= part(2), "{lines}");
        assert_eq!(words[3], text(&image));
    }
    assert_eq!(last, 5, "{lines}");
    assert_eq!(links.run("fsck.ext4", &["-V"]).status.code(), Some(0));
    assert_eq!(
        links.run("e2fsck", &["-p", text(&image)]).status.code(),
        Some(0)
    );
    links.ends(&["-a", "-C77", "-f", text(&image)], 16);
}

#[test]
fn a_lost_superblock_is_found_by_its_backup() {
    let Some((scratch, image)) = damaged(&[]) else {
        return;
    };
    let links = Links::new(scratch.path());
    let mut bytes = fs::read(&image).unwrap();
    bytes[1024..2048].fill(0);
    fs::write(&image, &bytes).unwrap();
    // A file system of one group has no backup: it is computed from what is left, or refused.
    let printed = links.ends(&["-n", text(&image)], 4);
    assert!(printed.contains("superblock"), "{printed}");
    let large = scratch.path().join("large");
    uext4_ok(&["mkfs", "-q", "-b", "1024", text(&large), "64M"]);
    let mut bytes = fs::read(&large).unwrap();
    bytes[1024..2048].fill(0);
    fs::write(&large, &bytes).unwrap();
    links.ends(&["-y", "-b", "8193", "-B", "1024", text(&large)], 1);
    judge(&large);
}

#[test]
fn the_journal_alone_is_replayed() {
    let Some((scratch, image)) = damaged(SAFE) else {
        return;
    };
    let links = Links::new(scratch.path());
    let path = text(&image);
    links.ends(&["-E", "journal_only", path], 0);
    power_cut(&image);
    links.ends(&["-n", "-E", "journal_only", path], 0);
    let printed = links.ends(&["-y", "-E", "journal_only", path], 1);
    assert!(printed.contains("journal replayed"), "{printed}");
    links.ends(&["-E", "journal_only", path], 0);
    assert!(!dumpe2fs(&image).contains("needs_recovery"));
    // The damage is still there.
    links.ends(&["-fn", path], 4);
}

/// Leaves the image as a medium is after a power cut.
pub fn power_cut(image: &Path) {
    let device = uext4_testkit::loaded(image);
    let options = OpenOptions::default();
    let fs = Volume::open(device.clone(), Arc::new(SystemClock), &options).unwrap();
    let creation = Creation::directory();
    let made = fs
        .root()
        .unwrap()
        .create(b"new", NewInode::Directory, &creation);
    made.unwrap();
    fs.sync().unwrap();
    fs::write(image, device.to_bytes()).unwrap();
    drop(fs);
    assert!(dumpe2fs(image).contains("needs_recovery"));
}

/// The same after a change that takes no block.
pub fn power_cut_of_a_full_one(image: &Path) {
    let device = uext4_testkit::loaded(image);
    let options = OpenOptions::default();
    let fs = Volume::open(device.clone(), Arc::new(SystemClock), &options).unwrap();
    let change = SetAttributes {
        mode: Some(0o711),
        ..SetAttributes::default()
    };
    fs.root().unwrap().set_attributes(&change).unwrap();
    fs.sync().unwrap();
    fs::write(image, device.to_bytes()).unwrap();
    drop(fs);
    assert!(dumpe2fs(image).contains("needs_recovery"));
}

#[test]
fn after_a_power_cut_the_journal_is_replayed_and_no_more() {
    let Some((scratch, image)) = damaged(&[]) else {
        return;
    };
    let links = Links::new(scratch.path());
    let path = text(&image);
    for option in ["-p", "-y"] {
        power_cut(&image);
        let printed = links.ends(&[option, path], 0);
        assert!(printed.contains("recovering journal"), "{printed}");
        assert!(printed.contains(": clean, 23/"), "{printed}");
        judge(&image);
        done(&image, &["rm", "-r", "/new"]);
    }
    // It is due for more reasons than that.
    debugfs_write(&image, ["ssv max_mnt_count 2", "ssv mnt_count 3"]);
    power_cut(&image);
    let printed = links.ends(&["-p", path], 1);
    assert!(printed.contains("blocks in use"), "{printed}");
    judge(&image);
}

#[test]
fn directories_are_rebuilt_on_request() {
    let Some((scratch, image)) = damaged(&[]) else {
        return;
    };
    let links = Links::new(scratch.path());
    links.ends(&["-fyD", text(&image)], 1);
    judge(&image);
    let listed = uext4_ok(&["ls", text(&image), "/dir"]);
    assert_eq!(String::from_utf8(listed).unwrap().lines().count(), 10);
}
