//! Commands that change an image: every one judged by the kernel's view of what it left, by e2fsck and
//! by `check`; exit codes; scripts.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::host::{Mount, can_mount, has_tool, mke2fs, run, scratch, text, uext4, uext4_ok};

/// An empty image in a scratch directory; `None` without mke2fs.
fn image(options: &[&str], mib: u32) -> Option<(TempDir, PathBuf)> {
    if !has_tool("mke2fs") {
        return None;
    }
    let scratch = scratch();
    let image = scratch.path().join("image");
    mke2fs(&image, options, mib);
    Some((scratch, image))
}

/// Runs a command on the image; it must succeed.
fn done(image: &Path, words: &[&str]) -> String {
    let (command, rest) = words.split_first().unwrap();
    let options = rest.iter().take_while(|w| w.starts_with('-') && **w != "-");
    let at = options.count();
    let mut all = vec![*command];
    all.extend(&rest[..at]);
    all.push(text(image));
    all.extend(&rest[at..]);
    String::from_utf8(uext4_ok(&all)).unwrap()
}

fn failed(image: &Path, words: &[&str], code: i32, told: &str) {
    let (command, rest) = words.split_first().unwrap();
    let mut all = vec![*command, text(image)];
    all.extend(rest);
    let output = uext4(&all);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {stderr}");
    assert!(stderr.contains(told), "{words:?}: {stderr}");
}

/// Runs a script on the image.
fn script(image: &Path, options: &[&str], lines: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_uext4"))
        .arg("script")
        .args(options)
        .arg(image)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may stop before it has read all.
    let _ = child.stdin.take().unwrap().write_all(lines.as_bytes());
    child.wait_with_output().unwrap()
}

/// Nobody finds anything wrong.
pub fn judge(image: &Path) {
    run("e2fsck", &["-fn", text(image)]);
    uext4_ok(&["check", text(image)]);
}

#[test]
fn a_tree_comes_in_as_it_is() {
    let Some((scratch, image)) = image(&["-t", "ext4"], 64) else {
        return;
    };
    let source = scratch.path().join("source");
    fs::create_dir_all(source.join("dir/sub")).unwrap();
    fs::write(source.join("dir/file"), "contents\n").unwrap();
    fs::write(source.join("dir/sub/big"), vec![7; 5_000_001]).unwrap();
    fs::hard_link(source.join("dir/file"), source.join("second")).unwrap();
    std::os::unix::fs::symlink("dir/file", source.join("link")).unwrap();
    std::os::unix::fs::symlink("x".repeat(300), source.join("long")).unwrap();
    let holes = File::create(source.join("holes")).unwrap();
    holes.write_all_at(b"in the middle", 10 << 20).unwrap();
    holes.set_len(20 << 20).unwrap();
    fs::set_permissions(source.join("dir/sub"), PermissionsExt::from_mode(0o2751)).unwrap();
    fs::set_permissions(source.join("second"), PermissionsExt::from_mode(0o4755)).unwrap();
    run("mkfifo", &[text(&source.join("fifo"))]);
    run(
        "touch",
        &[
            "-d",
            "1999-12-31 23:59:59.123456789",
            text(&source.join("dir")),
        ],
    );
    done(&image, &["put", text(&source), "/copy"]);
    judge(&image);
    done(&image, &["mkdir", "/into"]);
    done(&image, &["put", text(&source), "/into"]);
    done(&image, &["put", &format!("{}/.", text(&source)), "/"]);
    judge(&image);
    if !can_mount() {
        return;
    }
    let Some(mount) = Mount::new(&image, true) else {
        return;
    };
    for copy in ["copy", "into/source", "."] {
        let copy = mount.path().join(copy);
        run(
            "diff",
            &[
                "-r",
                "--no-dereference",
                "--exclude=fifo",
                "--exclude=lost+found",
                "--exclude=copy",
                "--exclude=into",
                text(&source),
                text(&copy),
            ],
        );
        for name in [
            "dir",
            "dir/sub",
            "dir/file",
            "holes",
            "link",
            "long",
            "fifo",
            "dir/sub/big",
        ] {
            let of = |dir: &Path| {
                let m = fs::symlink_metadata(dir.join(name)).unwrap();
                let size = if m.is_dir() { 0 } else { m.len() };
                let links = if m.is_dir() { 0 } else { m.nlink() };
                (
                    m.mode(),
                    m.uid(),
                    m.gid(),
                    m.mtime(),
                    m.mtime_nsec(),
                    size,
                    links,
                )
            };
            assert_eq!(of(&source), of(&copy), "{name}");
        }
        assert!(fs::metadata(copy.join("holes")).unwrap().blocks() < 64);
        let inode = |name| fs::metadata(copy.join(name)).unwrap().ino();
        assert_eq!(inode("second"), inode("dir/file"));
    }
}

#[test]
fn xattrs_acls_and_devices_come_in() {
    if !can_mount() || !has_tool("setfacl") {
        return;
    }
    let Some((scratch, image)) = image(&["-t", "ext4"], 16) else {
        return;
    };
    let other = scratch.path().join("other");
    mke2fs(&other, &["-t", "ext4"], 16);
    let Some(from) = Mount::new(&other, false) else {
        return;
    };
    let source = from.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "").unwrap();
    run("mknod", &[text(&source.join("null")), "c", "1", "3"]);
    run("setfacl", &["-m", "u:7:rw", text(&source.join("file"))]);
    run("setfacl", &["-d", "-m", "u:8:rwx", text(&source)]);
    run("chown", &["1000:70000", text(&source.join("file"))]);
    // What is there already gives nothing of its own to what comes in.
    done(&image, &["put", text(&source), "/"]);
    done(
        &image,
        &["put", text(&source.join("null")), "/source/again"],
    );
    done(
        &image,
        &["setfattr", "-n", "user.a", "-v", "value", "/source/file"],
    );
    judge(&image);
    let to = Mount::new(&image, true).unwrap();
    let copy = to.path().join("source");
    let acls = |path: &Path| String::from_utf8(run("getfacl", &["-cnp", text(path)])).unwrap();
    assert_eq!(acls(&source), acls(&copy));
    assert_eq!(acls(&source.join("file")), acls(&copy.join("file")));
    assert!(!acls(&copy.join("again")).contains("user:8"));
    let null = fs::metadata(copy.join("null")).unwrap();
    assert_eq!(
        null.rdev(),
        fs::metadata(source.join("null")).unwrap().rdev()
    );
    let file = fs::metadata(copy.join("file")).unwrap();
    assert_eq!((file.uid(), file.gid()), (1000, 70000));
    let shown = run(
        "getfattr",
        &["--only-values", "-n", "user.a", text(&copy.join("file"))],
    );
    assert_eq!(shown, b"value");
}

#[test]
fn each_command_does_what_its_namesake_does() {
    for options in [
        &["-t", "ext4"][..],
        &["-t", "ext4", "-O", "inline_data,orphan_file"],
        &["-t", "ext3", "-b", "1024"],
        &["-t", "ext2"],
        &["-t", "ext4", "-O", "^has_journal,^metadata_csum"],
    ] {
        let Some((_scratch, image)) = image(options, 16) else {
            return;
        };
        change(&image);
        judge(&image);
        if !can_mount() {
            continue;
        }
        let Some(mount) = Mount::new(&image, true) else {
            continue;
        };
        look(mount.path());
    }
}

/// A little of everything.
fn change(image: &Path) {
    let done = |words: &[&str]| done(image, words);
    done(&["mkdir", "-p", "/a/b/c", "/d"]);
    done(&["mkdir", "-p", "/a/b/c"]);
    done(&["mkdir", "-m1777", "/tmp"]);
    done(&["touch", "-d@1000.5", "/a/file", "/a/other"]);
    done(&["touch", "-m", "-d2024-02-29", "/a/file"]);
    done(&["ln", "-s", "../a/file", "/d"]);
    done(&["ln", "/a/file", "/d/hard"]);
    done(&["ln", "-s", "-f", "elsewhere", "/a/other"]);
    done(&["mv", "/a/b/c", "/d"]);
    done(&["touch", "/one", "/two", "/gone"]);
    done(&["truncate", "-s10", "/one"]);
    done(&["mv", "--exchange", "/one", "/two"]);
    done(&["chmod", "u=rw,go=", "/a/file"]);
    done(&["chmod", "-R", "a+X,g+w", "/d"]);
    done(&["chown", "7:8", "/a/file"]);
    done(&["chown", "-R", ":9", "/a"]);
    done(&["setfattr", "-nuser.x", "-v0x0001", "/two"]);
    done(&["setfattr", "-nuser.y", "-vtext", "/two"]);
    done(&["setfattr", "-xuser.x", "/two"]);
    done(&["truncate", "-s+3M", "/grown"]);
    done(&["truncate", "-s-1", "/grown"]);
    done(&["rm", "/gone"]);
    done(&["mkdir", "-p", "/full/of/directories"]);
    done(&["rm", "-r", "-f", "/full", "/never/was"]);
}

fn look(root: &Path) {
    let of = |name: &str| fs::symlink_metadata(root.join(name)).unwrap();
    assert!(of("d/c").is_dir() && !root.join("a/b/c").exists());
    assert_eq!(of("tmp").mode() & 0o7777, 0o1777);
    let file = of("a/file");
    assert_eq!((file.mode() & 0o7777, file.nlink()), (0o620, 2));
    assert_eq!((file.uid(), file.gid()), (7, 9));
    assert_eq!((file.atime(), file.mtime()), (1000, 1_709_164_800));
    assert_eq!(
        fs::read_link(root.join("d/file")).unwrap(),
        Path::new("../a/file")
    );
    assert_eq!(
        fs::read_link(root.join("a/other")).unwrap(),
        Path::new("elsewhere")
    );
    assert_eq!((of("one").len(), of("two").len()), (0, 10));
    assert_eq!(
        (of("grown").len(), of("grown").blocks()),
        ((3 << 20) - 1, 0)
    );
    assert!(!root.join("gone").exists() && !root.join("full").exists());
    if has_tool("getfattr") {
        let shown = run(
            "getfattr",
            &["-d", "--absolute-names", text(&root.join("two"))],
        );
        let shown = String::from_utf8(shown).unwrap();
        assert!(shown.ends_with("\nuser.y=\"text\"\n\n"), "{shown}");
    }
}

#[test]
fn fallocate_moves_what_the_kernel_moves() {
    let Some((scratch, image)) = image(&["-t", "ext4", "-b", "4096"], 32) else {
        return;
    };
    let blocks: Vec<u8> = (1..=16).flat_map(|n| [n; 4096]).collect();
    let file = scratch.path().join("file");
    fs::write(&file, &blocks).unwrap();
    done(&image, &["put", text(&file), "/file"]);
    done(
        &image,
        &["fallocate", "-o8K", "-l10000", "--punch-hole", "/file"],
    );
    done(
        &image,
        &["fallocate", "-o40K", "-l4K", "--zero-range", "/file"],
    );
    done(
        &image,
        &["fallocate", "-o0", "-l4K", "--collapse-range", "/file"],
    );
    done(
        &image,
        &["fallocate", "-o48K", "-l8K", "--insert-range", "/file"],
    );
    done(&image, &["fallocate", "-l1M", "--keep-size", "/file"]);
    done(&image, &["fallocate", "-l1M", "/new"]);
    judge(&image);
    let mut expected = blocks;
    expected[8192..18192].fill(0);
    expected[40960..45056].fill(0);
    expected.drain(..4096);
    expected.splice(49152..49152, [0; 8192]);
    assert_eq!(uext4_ok(&["cat", text(&image), "/file"]), expected);
    assert_eq!(uext4_ok(&["cat", text(&image), "/new"]), vec![0; 1 << 20]);
    let stat: Value =
        serde_json::from_slice(&uext4_ok(&["stat", "--json", text(&image), "/file"])).unwrap();
    assert!(stat[0]["blocks"].as_u64().unwrap() >= 2048 - 24, "{stat}");
    if !can_mount() {
        return;
    }
    let Some(mount) = Mount::new(&image, true) else {
        return;
    };
    assert_eq!(fs::read(mount.path().join("file")).unwrap(), expected);
}

#[test]
fn what_cannot_be_done_is_told_and_changes_nothing() {
    let Some((scratch, image)) = image(&["-t", "ext4"], 16) else {
        return;
    };
    done(&image, &["mkdir", "-p", "/dir/sub"]);
    done(&image, &["touch", "/file"]);
    let before = fs::read(&image).unwrap();
    let host = scratch.path().join("file");
    fs::write(&host, "new").unwrap();
    for (words, code, told) in [
        (&["mkdir", "/dir"][..], 1, "/dir: the name exists"),
        (&["mkdir", "/no/such"], 1, "/no/such: no such file"),
        (&["rm", "/dir"], 1, "-r removes directories"),
        (&["rm", "-r", "/"], 1, "root"),
        (&["rm", "/none"], 1, "/none: no such file"),
        (&["mv", "/none", "/x"], 1, "/none"),
        (&["mv", "/dir", "/dir/sub"], 1, "invalid"),
        (&["mv", "--no-clobber", "/file", "/file"], 1, "exists"),
        (&["ln", "/dir", "/x"], 1, "/dir: is a directory"),
        (&["ln", "/file", "/file"], 1, "exists"),
        (&["chmod", "9", "/file"], 2, "octal"),
        (&["chown", "root", "/file"], 2, "number"),
        (&["setfattr", "/file"], 2, "required"),
        (
            &["setfattr", "/file", "-x", "user.none"],
            1,
            "no such extended attribute",
        ),
        (
            &["getfattr", "/file", "-n", "user.none"],
            1,
            "no such extended attribute",
        ),
        (&["truncate", "-s1", "/dir"], 1, "is a directory"),
        (&["fallocate", "-l4K", "-c", "/none"], 1, "no such file"),
        (&["put", "/no/such", "/x"], 1, "/no/such"),
        (&["put", text(&host), "/no/such"], 1, "no such file"),
        (&["put", text(&host), "/file"], 1, "exists"),
    ] {
        failed(&image, words, code, told);
    }
    judge(&image);
    let tree = |image: &Path| uext4_ok(&["manifest", text(image)]);
    let after = tree(&image);
    fs::write(&image, before).unwrap();
    assert_eq!(tree(&image), after);
    done(&image, &["put", "--overwrite", text(&host), "/file"]);
    assert_eq!(uext4_ok(&["cat", text(&image), "/file"]), b"new");
    judge(&image);
}

#[test]
fn an_image_has_one_writer() {
    let Some((_scratch, image)) = image(&["-t", "ext4"], 16) else {
        return;
    };
    let file = File::open(&image).unwrap();
    file.lock().unwrap();
    failed(&image, &["mkdir", "/dir"], 8, "in use by another program");
    drop(file);
    done(&image, &["mkdir", "/dir"]);
    fs::set_permissions(&image, PermissionsExt::from_mode(0o400)).unwrap();
    assert_eq!(done(&image, &["ls", "/"]), "dir\nlost+found\n");
}

#[test]
fn scripts_do_many_things_in_one_opening() {
    let Some((_scratch, image)) = image(&["-t", "ext4"], 16) else {
        return;
    };
    let output = script(
        &image,
        &[],
        "# a comment\n\nmkdir -p '/a b/c'   # and one more\n\
         put --mode=600 - \"/a b/empty\"\nrm '/a b/empty'\n\
         touch -d @0 /a\\ b/file\nls -l '/a b'\ntruncate -s 3 '/a b/file'\ncat '/a b/file'\n\
         setfattr -n user.x -v y /a\\ b/file\ngetfattr -d '/a b/file'\nsync\nstat '/a b'\n",
    );
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    // Standard input is the script itself: what is left of it is not a file.
    let output = if output.status.success() {
        output
    } else {
        assert!(stderr.contains("line 4"), "{stderr}");
        script(
            &image,
            &[],
            "touch -d @0 /a\\ b/file\nls -l '/a b'\ntruncate -s 3 '/a b/file'\ncat '/a b/file'\n\
             setfattr -n user.x -v y /a\\ b/file\ngetfattr -d '/a b/file'\nsync\nstat '/a b'",
        )
    };
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{stderr}");
    assert!(
        shown.contains("1970-01-01 00:00:00 file\n\0\0\0# file"),
        "{shown}"
    );
    assert!(
        shown.contains("user.x=\"y\"") && shown.contains("file      /a b\n"),
        "{shown}"
    );
    judge(&image);
}

#[test]
fn a_script_stops_at_the_first_error_or_goes_on() {
    let Some((_scratch, image)) = image(&["-t", "ext4"], 16) else {
        return;
    };
    let lines = "mkdir /a\nrm /none\nmkdir /b\nnonsense\nmkdir '/c\nmkdir /d\n";
    let output = script(&image, &[], lines);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("line 2: /none: no such file"), "{stderr}");
    assert_eq!(done(&image, &["ls", "/"]), "a\nlost+found\n");
    let output = script(&image, &["--keep-going"], lines);
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    for told in ["line 1: /a", "line 2:", "line 4:", "line 5: a single quote"] {
        assert!(stderr.contains(told), "{told}: {stderr}");
    }
    assert_eq!(done(&image, &["ls", "/"]), "a\nb\nd\nlost+found\n");
    judge(&image);
}

#[test]
fn standard_input_becomes_a_file() {
    let Some((scratch, image)) = image(&["-t", "ext4"], 32) else {
        return;
    };
    let big = vec![3; 3_000_000];
    for (options, contents) in [(&[][..], &b"first"[..]), (&["--overwrite"], &big)] {
        let from = scratch.path().join("stdin");
        fs::write(&from, contents).unwrap();
        let put = Command::new(env!("CARGO_BIN_EXE_uext4"))
            .arg("put")
            .args(options)
            .args([text(&image), "-", "/file"])
            .stdin(File::open(&from).unwrap())
            .status()
            .unwrap();
        assert!(put.success());
        assert_eq!(uext4_ok(&["cat", text(&image), "/file"]), contents);
    }
    assert_eq!(done(&image, &["ls", "/"]), "file\nlost+found\n");
    judge(&image);
}
