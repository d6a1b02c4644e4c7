//! `repair` and `undo`: plans, ways to write, and what is refused.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use uext4_blockdev::{BlockDevice, MemoryDevice};
use uext4_fsck::{Writes, apply};
use uext4_testkit::{SimDevice, SimOptions, complaints, lose_superblocks};

use crate::changing::{done, judge};
use crate::checking::{SAFE, UNSAFE, damaged, ended};
use crate::host::{
    Shown, UEXT4, assert_clean, can_mount, debugfs_write, has_tool, mke2fs, run, scratch, text,
    uext4, uext4_ok,
};
use crate::statuses::unread;

/// Runs `repair` on the image with these options.
fn repair(image: &Path, options: &[&str]) -> (Option<i32>, String) {
    let mut arguments = vec!["repair"];
    arguments.extend(options);
    arguments.push(text(image));
    ended(&arguments)
}

#[test]
fn a_plan_is_shown_and_nothing_is_written() {
    let Some((_scratch, image)) = damaged(SAFE) else {
        return;
    };
    let before = fs::read(&image).unwrap();
    for option in ["-n", "--plan"] {
        let (code, printed) = repair(&image, &[option]);
        assert_eq!(code, Some(4), "{printed}");
        assert!(printed.contains("1: "), "{printed}");
        assert!(printed.contains("(for "), "{printed}");
        assert!(printed.contains(" -> "), "{printed}");
        assert!(printed.contains("to write"), "{printed}");
    }
    let plan = uext4(&["repair", "--plan", "--json", text(&image)]).stdout;
    for line in String::from_utf8(plan).unwrap().lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
    assert_eq!(fs::read(&image).unwrap(), before);
    // Without a terminal there is no question, and no repair.
    let (code, printed) = repair(&image, &[]);
    assert_eq!(code, Some(8), "{printed}");
    assert!(printed.contains("-y repairs without asking"), "{printed}");
    assert_eq!(fs::read(&image).unwrap(), before);
}

#[test]
fn without_any_superblock_a_repair_makes_one_that_is_proved() {
    if !has_tool("mke2fs") {
        return;
    }
    let scratch = scratch();
    let image = scratch.path().join("image");
    for options in [
        "-t ext4",
        "-t ext4 -b 1024",
        "-t ext3 -b 4096",
        "-t ext2 -b 1024",
    ] {
        let options: Vec<_> = options.split_whitespace().collect();
        let make = || mke2fs(&image, &[&options[..], &["-d", "src"]].concat(), 40);
        for is_proved in [true, false] {
            make();
            let mut bytes = fs::read(&image).unwrap();
            lose_superblocks(&mut bytes, !is_proved);
            fs::write(&image, &bytes).unwrap();
            let (code, printed) = repair(&image, &["-p"]);
            assert_eq!(code, Some(8), "{options:?}: {printed}");
            let (code, printed) = repair(&image, &["-y"]);
            if is_proved {
                assert_eq!(code, Some(1), "{options:?}: {printed}");
                assert!(
                    printed.contains("the primary superblock is lost"),
                    "{printed}"
                );
                assert_clean(&image);
                let shown = uext4_ok(&["ls", text(&image)]);
                assert!(String::from_utf8_lossy(&shown).contains("commands"));
            } else {
                assert_eq!(code, Some(8), "{options:?}: {printed}");
                assert!(fs::read(&image).unwrap() == bytes, "{options:?}");
            }
        }
    }
}

#[test]
fn a_repair_mends_once_and_then_changes_no_byte() {
    for (requests, option) in [(SAFE, "-p"), (SAFE, "-y"), (UNSAFE, "-y")] {
        let Some((_scratch, image)) = damaged(requests) else {
            return;
        };
        assert!(complaints(&image).is_some());
        let (code, printed) = repair(&image, &[option]);
        assert_eq!(code, Some(1), "{printed}");
        assert!(printed.contains("repaired: "), "{printed}");
        judge(&image);
        assert_eq!(done(&image, &["cat", "/dir/other-8"]).len(), 50_000);
        let after = fs::read(&image).unwrap();
        let (code, printed) = repair(&image, &[option]);
        assert_eq!(code, Some(0), "{printed}");
        assert!(printed.contains("clean: nothing to repair"), "{printed}");
        assert_eq!(fs::read(&image).unwrap(), after);
    }
}

#[test]
fn what_a_human_is_to_decide_is_left_by_preening() {
    let Some((_scratch, image)) = damaged(UNSAFE) else {
        return;
    };
    let before = fs::read(&image).unwrap();
    let (code, printed) = repair(&image, &["-p"]);
    assert_eq!(code, Some(4), "{printed}");
    assert!(printed.contains("nothing was written"), "{printed}");
    assert_eq!(fs::read(&image).unwrap(), before);
}

#[test]
fn a_plan_is_applied_to_its_image_and_to_no_other() {
    let Some((scratch, image)) = damaged(UNSAFE) else {
        return;
    };
    let plan = scratch.path().join("plan");
    let planned = uext4(&["repair", "--plan", "--json", text(&image)]);
    assert_eq!(planned.status.code(), Some(4));
    fs::write(&plan, &planned.stdout).unwrap();
    let other = scratch.path().join("other");
    fs::copy(&image, &other).unwrap();
    debugfs_write(&other, ["ssv mnt_count 7"]);
    let before = fs::read(&other).unwrap();
    let (code, printed) = repair(&other, &["--apply", text(&plan)]);
    assert_eq!(code, Some(8), "{printed}");
    assert_eq!(fs::read(&other).unwrap(), before);
    let (code, printed) = repair(&image, &["--apply", text(&plan)]);
    assert_eq!(code, Some(1), "{printed}");
    judge(&image);
    // It is done: the image is not what was planned any more.
    let (code, _) = repair(&image, &["--apply", text(&plan)]);
    assert_eq!(code, Some(8));
    fs::write(&plan, "{}\n").unwrap();
    let (code, printed) = repair(&image, &["--apply", text(&plan)]);
    assert_eq!(code, Some(8), "{printed}");
}

#[test]
fn undo_puts_back_every_byte() {
    let Some((scratch, image)) = damaged(UNSAFE) else {
        return;
    };
    let saved = scratch.path().join("saved");
    let before = fs::read(&image).unwrap();
    let (code, printed) = repair(&image, &["-y", "--undo", text(&saved)]);
    assert_eq!(code, Some(1), "{printed}");
    judge(&image);
    let mode = fs::metadata(&saved).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // A file that is there already is never overwritten.
    let (code, printed) = repair(&image, &["-y", "--undo", text(&saved)]);
    assert_eq!(code, Some(8), "{printed}");
    let printed = String::from_utf8(uext4_ok(&["undo", text(&saved), text(&image)])).unwrap();
    assert!(printed.contains("put back"), "{printed}");
    assert!(fs::read(&image).unwrap() == before);
    fs::write(&saved, "no undo file").unwrap();
    let (code, printed) = ended(&["undo", text(&saved), text(&image)]);
    assert_eq!(code, Some(8), "{printed}");
    assert!(fs::read(&image).unwrap() == before);
}

#[test]
fn a_copy_is_repaired_and_the_image_stays() {
    let Some((scratch, image)) = damaged(UNSAFE) else {
        return;
    };
    let before = fs::read(&image).unwrap();
    let into = scratch.path().join("into");
    let (code, printed) = repair(&image, &["-y", "--into", text(&into)]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(fs::read(&image).unwrap() == before);
    assert_clean(&into);
    let (code, printed) = repair(&image, &["-y", "--into", text(&into)]);
    assert_eq!(code, Some(8), "{printed}");
    assert!(printed.contains("exists already"), "{printed}");
    // Nothing to repair: the copy that was asked for is made all the same.
    let again = scratch.path().join("again");
    let (code, printed) = repair(&into, &["--into", text(&again)]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(fs::read(&again).unwrap() == fs::read(&into).unwrap());
    let left: Vec<_> = fs::read_dir(scratch.path()).unwrap().collect();
    assert_eq!(left.len(), 4, "{left:?}");
}

#[test]
fn no_name_that_is_in_use_is_lost_to_a_copy() {
    let Some((scratch, image)) = damaged(UNSAFE) else {
        return;
    };
    // Names that a command might think are its own.
    let source = scratch.path().join("new.part");
    fs::rename(&image, &source).unwrap();
    let before = fs::read(&source).unwrap();
    let (code, printed) = repair(
        &source,
        &["-y", "--into", text(&image.with_file_name("new"))],
    );
    assert_eq!(code, Some(1), "{printed}");
    assert!(fs::read(&source).unwrap() == before);
    assert_clean(&scratch.path().join("new"));
    // Where the copy cannot be made, nothing of it stays.
    let none = scratch.path().join("none/new");
    let (code, printed) = repair(&source, &["-y", "--into", text(&none)]);
    assert_eq!(code, Some(8), "{printed}");
    assert!(printed.contains("No such file"), "{printed}");
    assert!(fs::read(&source).unwrap() == before);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 3);
}

#[test]
fn a_reader_that_goes_away_ends_no_repair() {
    for words in [&["repair", "-y"][..], &["fsck", "-fy"]] {
        let Some((scratch, image)) = damaged(UNSAFE) else {
            return;
        };
        let saved = scratch.path().join("saved");
        let option = if words[0] == "fsck" { "-z" } else { "--undo" };
        let arguments = [words, &[option, text(&saved), text(&image)]].concat();
        let output = unread(&arguments);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
        judge(&image);
        assert_eq!(
            unread(&["undo", text(&saved), text(&image)]).status.code(),
            Some(0)
        );
        assert_eq!(
            unread(&["repair", "--plan", text(&image)]).status.code(),
            Some(4)
        );
    }
}

#[test]
fn an_interrupted_examination_writes_nothing() {
    if !has_tool("mke2fs") {
        return;
    }
    let scratch = scratch();
    let image = scratch.path().join("image");
    // So large that its inode tables, all in use, are read for two seconds or more.
    let options = [
        "-t",
        "ext4",
        "-O",
        "^metadata_csum,^uninit_bg",
        "-E",
        "lazy_itable_init=0",
    ];
    uext4_testkit::mke2fs(&image, options, "1T");
    debugfs_write(&image, ["ssv free_blocks_count 77"]);
    let superblock = || {
        let mut bytes = [0; 1024];
        let file = fs::File::open(&image).unwrap();
        file.read_exact_at(&mut bytes, 1024).unwrap();
        bytes
    };
    let before = superblock();
    let into = scratch.path().join("into");
    for (words, code) in [
        (&["repair", "-y"][..], 32),
        (&["repair", "-y", "--into", text(&into)], 32),
        (&["fsck", "-fy"], 32),
        (&["check", "-q"], 8),
    ] {
        let mut command = Command::new(UEXT4);
        let mut child = command.args(words).arg(&image).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(200));
        run("kill", &["-TERM", &child.id().to_string()]);
        assert_eq!(child.wait().unwrap().code(), Some(code), "{words:?}");
        assert!(superblock() == before, "{words:?}");
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    }
}

#[test]
fn what_is_mounted_is_not_copied_and_findings_are_doubted() {
    if !can_mount() {
        return;
    }
    let Some((scratch, image)) = damaged(&[]) else {
        return;
    };
    let place = scratch.path().join("place");
    fs::create_dir(&place).unwrap();
    let into = scratch.path().join("into");
    let copy = ["repair", "-y", "--into", text(&into), text(&image)];
    let (plan, check) = (["repair", "--plan", text(&image)], ["check", text(&image)]);
    let shown = Shown::new(&image, &place, "rw");
    let (copied, planned) = (ended(&copy), ended(&plan));
    let (checked, written) = (ended(&check), ended(&["repair", "-y", text(&image)]));
    shown.end();
    assert_eq!(copied.0, Some(8), "{copied:?}");
    assert!(
        copied.1.contains("a copy of it would be torn"),
        "{copied:?}"
    );
    assert!(!into.exists());
    assert!(
        planned.1.contains("what is found may be wrong"),
        "{planned:?}"
    );
    assert!(
        checked.1.contains("what is found may be wrong"),
        "{checked:?}"
    );
    assert_eq!(written.0, Some(8), "{written:?}");
    // A read-only mount changes nothing.
    let shown = Shown::new(&image, &place, "ro");
    let checked = ended(&check);
    shown.end();
    assert_eq!(checked.0, Some(0), "{checked:?}");
    assert!(!checked.1.contains("may be wrong"), "{checked:?}");
}

#[test]
fn wrong_words_are_wrong_usage() {
    for options in [
        &["-y", "-p"][..],
        &["--plan", "-y"],
        &["--undo", "a", "--into", "b"],
        &["--dup", "both"],
    ] {
        let (code, printed) = repair(Path::new("none"), options);
        assert_eq!(code, Some(16), "{options:?}: {printed}");
    }
}

#[test]
fn an_image_that_was_in_use_since_is_not_undone() {
    let Some((scratch, image)) = damaged(UNSAFE) else {
        return;
    };
    let saved = scratch.path().join("saved");
    let (code, printed) = repair(&image, &["-y", "--undo", text(&saved)]);
    assert_eq!(code, Some(1), "{printed}");
    uext4_ok(&["mkdir", text(&image), "/new"]);
    let before = fs::read(&image).unwrap();
    let (code, printed) = ended(&["undo", text(&saved), text(&image)]);
    assert_eq!(code, Some(8), "{printed}");
    assert!(printed.contains("in use since the repair"), "{printed}");
    assert!(fs::read(&image).unwrap() == before);
}

/// Repairs the image, and loses the power when half of the blocks are written.
fn cut_off(image: &Path) {
    let start = MemoryDevice::from_bytes(fs::read(image).unwrap());
    let whole: Arc<dyn BlockDevice> = Arc::new(start.snapshot());
    let outcome = uext4_fsck::plan(&whole, &uext4_fsck::Options::default(), &()).unwrap();
    let writes = Writes::new(&outcome.overlay, &outcome.used).unwrap();
    let log = writes.log().unwrap().iter().map(|run| run.blocks);
    let cut = log.sum::<u64>() + 1 + writes.count() / 2;
    let device = SimDevice::new(&start, SimOptions::default());
    device.cut_at_write(cut);
    assert!(apply::in_place(&device, &outcome.overlay, &writes, None, &|_| ()).is_err());
    fs::write(image, device.contents().to_bytes()).unwrap();
}

#[test]
fn a_repair_that_was_cut_off_is_finished_before_all_else() {
    let Some((scratch, image)) = damaged(UNSAFE) else {
        return;
    };
    cut_off(&image);
    let before = fs::read(&image).unwrap();
    let saved = scratch.path().join("saved");
    let (code, printed) = repair(&image, &["-y", "--undo", text(&saved)]);
    assert_eq!(code, Some(8), "{printed}");
    assert!(printed.contains("finished before another"), "{printed}");
    let plan = scratch.path().join("plan");
    fs::write(
        &plan,
        uext4(&["repair", "--plan", "--json", text(&image)]).stdout,
    )
    .unwrap();
    let (code, printed) = repair(&image, &["--apply", text(&plan)]);
    assert_eq!(code, Some(8), "{printed}");
    assert!(printed.contains("finish it first"), "{printed}");
    assert!(fs::read(&image).unwrap() == before);
    let (code, printed) = repair(&image, &["-y"]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("it is finished first"), "{printed}");
    judge(&image);
}
