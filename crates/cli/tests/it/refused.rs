//! What the commands that change an image refuse: exit codes, sentences, what to do next; and
//! that it changes nothing.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::changing::{done, image, judge};
use crate::host::{Loop, can_mount, has_tool, mke2fs, scratch, text, uext4, uext4_ok};

/// Runs a command that must fail so.
fn failed(image: &Path, words: &[&str], code: i32, printed: &str) {
    let (command, rest) = words.split_first().unwrap();
    let mut all = vec![*command, text(image)];
    all.extend(rest);
    let output = uext4(&all);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {stderr}");
    assert!(stderr.contains(printed), "{words:?}: {stderr}");
}

/// Command lines without the image, exit codes, and a part of the output. HOST is a file of this
/// machine, LONG a name of 256 bytes.
const REFUSED: &[(&str, i32, &str)] = &[
    ("mkdir /dir", 1, "/dir: the name exists"),
    ("mkdir /no/such", 1, "/no/such: no such file"),
    ("mkdir /no/such", 1, "-p makes the directories"),
    ("mkdir /file/x", 1, "/file/x: not a directory"),
    ("mkdir -p /file/x", 1, "/file/x: not a directory"),
    ("mkdir /LONG", 1, "a name has 255 bytes at most"),
    ("touch /no/such", 1, "`uext4 mkdir -p` makes"),
    ("touch /file/x", 1, "not a directory"),
    ("touch <8>", 1, "the file system's own"),
    ("touch <99>", 1, "<99>: no such file"),
    ("stat <99>", 1, "<99>: no such file"),
    ("stat <999999>", 1, "<999999>: no such file"),
    ("rm /dir", 1, "-r removes directories"),
    ("rm -r /", 1, "root"),
    ("rm /none", 1, "/none: no such file"),
    ("rm <12>", 1, "an inode goes with its last name"),
    ("mv /none /x", 1, "/none"),
    ("mv /file /LONG", 1, "too long"),
    ("mv /dir /dir/sub", 1, "a directory cannot be moved into"),
    ("mv --no-clobber /file /file", 1, "exists"),
    ("ln /dir /x", 1, "/dir: is a directory"),
    ("ln /file /file", 1, "exists"),
    ("ln -s x /file/x", 1, "not a directory"),
    ("chmod 9 /file", 2, "octal"),
    ("chown root /file", 2, "number"),
    ("setfattr /file", 2, "required"),
    ("setfattr -n user.x -v 0x0 /file", 2, "hexadecimal"),
    ("setfattr -n x -v y /file", 8, "begin with user."),
    (
        "setfattr -x user.none /file",
        1,
        "no such extended attribute",
    ),
    (
        "getfattr -n user.none /file",
        1,
        "no such extended attribute",
    ),
    ("truncate -s1 /dir", 1, "is a directory"),
    ("fallocate -l4K -c /none", 1, "no such file"),
    ("put /no/such /x", 8, "/no/such: No such file"),
    ("put HOST /no/such", 1, "no such file"),
    ("put HOST /file", 1, "--overwrite replaces files"),
    ("put HOST /file/x", 1, "not a directory"),
    ("put HOST /LONG", 1, "the name is too long"),
    ("put - /dir", 1, "give one, as in /dir/NAME"),
    ("put - /file", 1, "--overwrite replaces it"),
];

#[test]
fn refused_changes_are_reported_and_change_nothing() {
    let Some((scratch, image)) = image(&["-t", "ext4"], 16) else {
        return;
    };
    done(&image, &["mkdir", "-p", "/dir/sub"]);
    done(&image, &["touch", "/file"]);
    let tree = || uext4_ok(&["manifest", text(&image)]);
    let before = tree();
    let host = scratch.path().join("file");
    fs::write(&host, "new").unwrap();
    let long = "n".repeat(256);
    for (line, code, printed) in REFUSED {
        let line = line.replace("HOST", text(&host)).replace("LONG", &long);
        let words: Vec<_> = line.split(' ').collect();
        failed(&image, &words, *code, printed);
    }
    judge(&image);
    assert_eq!(tree(), before);
    done(&image, &["put", "--overwrite", text(&host), "/file"]);
    assert_eq!(uext4_ok(&["cat", text(&image), "/file"]), b"new");
    judge(&image);
}

#[test]
fn an_image_has_one_writer() {
    let Some((_scratch, image)) = image(&["-t", "ext4"], 16) else {
        return;
    };
    let mut first = Command::new(env!("CARGO_BIN_EXE_uext4"))
        .args(["script", text(&image)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = first.stdin.take().unwrap();
    input.write_all(b"mkdir /first\nls /\n").unwrap();
    // It has the image for sure when it answers.
    let mut answer = [0; 6];
    first
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut answer)
        .unwrap();
    assert_eq!(&answer, b"first\n");
    for printed in ["is in use by another program", "try again"] {
        failed(&image, &["mkdir", "/second"], 8, printed);
        failed(&image, &["sync"], 8, printed);
        failed(&image, &["ls"], 8, printed);
        failed(&image, &["mkfs"], 8, printed);
    }
    drop(input);
    assert!(first.wait().unwrap().success());
    done(&image, &["mkdir", "/second"]);
    assert_eq!(done(&image, &["ls", "/"]), "first\nlost+found\nsecond\n");
    judge(&image);
}

#[test]
fn what_the_kernel_holds_is_left_to_it() {
    if !can_mount() {
        return;
    }
    let Some((_scratch, image)) = image(&["-t", "ext4"], 16) else {
        return;
    };
    let before = fs::read(&image).unwrap();
    let device = Loop::with_options(&image, &["-r"]).unwrap();
    let attached = uext4(&["mkdir", text(&image), "/dir"]);
    let read_only = uext4(&["mkdir", text(device.path()), "/dir"]);
    let path = text(device.path()).to_owned();
    drop(device);
    let printed = String::from_utf8_lossy(&attached.stderr);
    assert_eq!(attached.status.code(), Some(8), "{printed}");
    assert!(
        printed.contains(&format!("is in use as {path}")),
        "{printed}"
    );
    assert!(printed.contains(&format!("losetup -d {path}")), "{printed}");
    let printed = String::from_utf8_lossy(&read_only.stderr);
    assert_eq!(read_only.status.code(), Some(8), "{printed}");
    assert!(printed.contains("make it writable first"), "{printed}");
    assert!(fs::read(&image).unwrap() == before);
}

#[test]
fn an_image_that_may_not_be_written_stays_as_it_is() {
    let Some((scratch, image)) = image(&["-t", "ext4"], 16) else {
        return;
    };
    let before = fs::read(&image).unwrap();
    fs::set_permissions(&image, PermissionsExt::from_mode(0o444)).unwrap();
    // Root may do anything, so another user tries, with a copy of the program that it can read.
    fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = scratch.path().join("uext4");
    fs::copy(env!("CARGO_BIN_EXE_uext4"), &program).unwrap();
    let mut command = match rustix::process::geteuid().is_root() {
        true if !has_tool("setpriv") => return,
        true => {
            let output = Command::new("setpriv")
                .args(["--reuid=65534", "--clear-groups", text(&program)])
                .args(["mkdir", text(&image), "/dir"])
                .output()
                .unwrap();
            let printed = String::from_utf8_lossy(&output.stderr);
            assert!(printed.contains("it belongs to user 0"), "{printed}");
            std::os::unix::fs::chown(&image, Some(65534), None).unwrap();
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--clear-groups", text(&program)]);
            command
        }
        false => Command::new(&program),
    };
    let output = command
        .args(["mkdir", text(&image), "/dir"])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(8), "{printed}");
    assert!(printed.contains("Permission denied"), "{printed}");
    assert!(
        printed.contains("make it writable first: `chmod u+w IMAGE`"),
        "{printed}"
    );
    assert!(fs::read(&image).unwrap() == before);
}

#[test]
fn a_full_image_is_reported_and_usable_again() {
    let Some((scratch, image)) = image(&["-t", "ext4", "-N", "64"], 8) else {
        return;
    };
    let (big, many) = (scratch.path().join("big"), scratch.path().join("many"));
    fs::write(&big, vec![9; 12 << 20]).unwrap();
    fs::create_dir(&many).unwrap();
    for number in 0..100 {
        fs::write(many.join(format!("{number}")), "x").unwrap();
    }
    for round in 0..2 {
        for (words, printed) in [
            (&["put", text(&big), "/big"][..], "big: no space left"),
            (&["fallocate", "-l12M", "/new"], "/new: no space left"),
            (&["put", text(&many), "/"], "no inodes left"),
        ] {
            failed(&image, words, 8, printed);
            judge(&image);
        }
        failed(&image, &["mkdir", "/dir"], 8, "`uext4 rm`");
        // Files that did not fit are not there, and those that did are whole.
        assert_eq!(done(&image, &["ls", "/"]), "lost+found\nmany\n", "{round}");
        let names = done(&image, &["ls", "/many"]);
        let name = format!("/many/{}", names.lines().next().unwrap());
        assert_eq!(uext4_ok(&["cat", text(&image), &name]), b"x");
        done(&image, &["rm", "-r", "/many"]);
    }
    fs::write(&big, vec![9; 2 << 20]).unwrap();
    done(&image, &["put", text(&big), "/big"]);
    assert_eq!(uext4_ok(&["cat", text(&image), "/big"]), vec![9; 2 << 20]);
    judge(&image);
}

#[test]
fn read_only_features_are_named_when_a_change_is_refused() {
    if !has_tool("mke2fs") {
        return;
    }
    let scratch = scratch();
    for feature in ["bigalloc", "casefold", "encrypt", "verity"] {
        let image = scratch.path().join(feature);
        mke2fs(&image, &["-t", "ext4", "-O", feature], 32);
        let before = fs::read(&image).unwrap();
        failed(&image, &["mkdir", "/dir"], 8, feature);
        failed(
            &image,
            &["rm", "-r", "/lost+found"],
            8,
            "`uext4 build` a new image",
        );
        assert!(fs::read(&image).unwrap() == before, "{feature}");
    }
}
