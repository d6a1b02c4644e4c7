//! Where an examination or a repair cannot be done: one sentence, and nothing half-done.

use std::fs;
use std::path::{Path, PathBuf};

use crate::changing::judge;
use crate::checking::{UNSAFE, damaged, ended};
use crate::fsck::power_cut;
use crate::host::{Loop, can_mount, debugfs_write, run, scratch, text, unmount_lazily};

/// What is run on each image that cannot be examined.
const COMMANDS: &[&[&str]] = &[
    &["check"],
    &["repair", "--plan"],
    &["repair", "-y"],
    &["fsck", "-fn"],
    &["fsck", "-fy"],
];

/// Runs all commands, which must end with this code, say this in one line (and a hint), and leave
/// the image.
fn all_fail(image: &Path, options: &[&str], code: i32, said: &str) {
    let before = fs::read(image).ok();
    for command in COMMANDS {
        if command[0] == "fsck" && !options.is_empty() {
            continue;
        }
        let arguments = [command, options, &[text(image)]].concat();
        let (ended, printed) = ended(&arguments);
        assert_eq!(ended, Some(code), "{arguments:?}: {printed}");
        assert!(printed.contains(said), "{arguments:?}: {printed}");
        let sentences = printed.lines().filter(|line| line.starts_with("uext4: "));
        assert_eq!(sentences.count(), 1, "{arguments:?}: {printed}");
        assert!(fs::read(image).ok() == before, "{arguments:?}");
    }
}

#[test]
fn what_is_no_file_system_is_refused() {
    let scratch = scratch();
    let image = scratch.path().join("image");
    all_fail(&image, &[], 8, "No such file");
    fs::write(&image, "").unwrap();
    all_fail(&image, &[], 8, "no ext2, ext3 or ext4 file system");
    fs::write(&image, vec![0; 4 << 20]).unwrap();
    all_fail(&image, &[], 8, "no ext2, ext3 or ext4 file system");
    let noise: Vec<u8> = (0..4_u32 << 20)
        .map(|at| (at.wrapping_mul(at) >> 8) as u8)
        .collect();
    fs::write(&image, noise).unwrap();
    all_fail(&image, &[], 8, "no ext2, ext3 or ext4 file system");
    all_fail(scratch.path(), &[], 8, "is a directory");
}

#[test]
fn unknown_features_and_a_journal_that_may_not_be_replayed_are_refused() {
    let Some((_scratch, image)) = damaged(UNSAFE) else {
        return;
    };
    power_cut(&image);
    all_fail(
        &image,
        &["--no-replay"],
        8,
        "the journal must be replayed first",
    );
    debugfs_write(&image, ["feature FEATURE_I31"]);
    all_fail(&image, &[], 8, "features that this version does not know");
}

#[test]
fn an_image_that_is_cut_off_is_refused() {
    let Some((_scratch, image)) = damaged(UNSAFE) else {
        return;
    };
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.set_len(15 << 20).unwrap();
    all_fail(&image, &[], 4, "the rest is cut off");
}

/// A tmpfs of its own, unmounted at the end.
struct Small(PathBuf);

impl Drop for Small {
    fn drop(&mut self) {
        unmount_lazily(&self.0);
    }
}

#[test]
fn no_space_for_the_undo_file_or_the_copy_leaves_the_image() {
    if !can_mount() {
        return;
    }
    let Some((scratch, image)) = damaged(UNSAFE) else {
        return;
    };
    let small = Small(scratch.path().join("small"));
    fs::create_dir(&small.0).unwrap();
    let options = ["-t", "tmpfs", "-o", "size=4k", "tmpfs", text(&small.0)];
    run("mount", &options);
    let new = small.0.join("new");
    let before = fs::read(&image).unwrap();
    for option in ["--undo", "--into"] {
        let (code, printed) = ended(&["repair", "-y", option, text(&new), text(&image)]);
        assert_eq!(code, Some(8), "{printed}");
        assert!(printed.contains("No space left"), "{printed}");
        assert!(fs::read(&image).unwrap() == before);
        assert_eq!(fs::read_dir(&small.0).unwrap().count(), 0, "{option}");
    }
}

#[test]
fn a_device_that_fails_is_named() {
    if !can_mount() {
        return;
    }
    let Some((_scratch, image)) = damaged(UNSAFE) else {
        return;
    };
    let before = fs::read(&image).unwrap();
    let device = Loop::with_options(&image, &[]).unwrap();
    // What the device has no file for any more is an error of the medium.
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.set_len(64 << 10).unwrap();
    let path = text(device.path()).to_owned();
    let ends: Vec<_> = COMMANDS
        .iter()
        .map(|command| ended(&[command, &[&*path][..]].concat()))
        .collect();
    drop(device);
    for (command, (code, printed)) in COMMANDS.iter().zip(ends) {
        assert_eq!(code, Some(8), "{command:?}: {printed}");
        assert!(printed.contains("Input/output error"), "{printed}");
    }
    assert!(fs::read(&image).unwrap() == before[..64 << 10]);
    fs::write(&image, before).unwrap();
    let repaired = ended(&["repair", "-y", text(&image)]);
    assert_eq!(repaired.0, Some(1), "{repaired:?}");
    judge(&image);
}

#[test]
fn a_medium_that_takes_no_more_is_left_as_it_was() {
    if !can_mount() {
        return;
    }
    let Some((scratch, image)) = damaged(UNSAFE) else {
        return;
    };
    let small = Small(scratch.path().join("small"));
    fs::create_dir(&small.0).unwrap();
    let options = ["-t", "tmpfs", "-o", "size=4m", "tmpfs", text(&small.0)];
    run("mount", &options);
    let copy = small.0.join("image");
    run("cp", &["--sparse=always", text(&image), text(&copy)]);
    // Nothing is left for the log of a repair.
    let filled = fs::write(small.0.join("filler"), vec![1; 8 << 20]);
    assert!(filled.is_err());
    // Without the bytes to write: the time of the repair is among them.
    let plan = || {
        let (code, printed) = ended(&["repair", "--plan", text(&copy)]);
        (code, printed.split("\nblock ").next().unwrap().to_owned())
    };
    let before = plan();
    let (code, printed) = ended(&["repair", "-y", text(&copy)]);
    assert_eq!(code, Some(8), "{printed}");
    assert!(printed.contains("No space left"), "{printed}");
    // A part of the log may lie in free blocks; nothing refers to it.
    assert_eq!(plan(), before);
    fs::remove_file(small.0.join("filler")).unwrap();
    let repaired = ended(&["repair", "-y", text(&copy)]);
    assert_eq!(repaired.0, Some(1), "{repaired:?}");
    judge(&copy);
}
