//! Commands that change an image: every one judged by the kernel's view of what it left, by
//! e2fsck and by `check`.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::host::{
    assert_clean, can_mount, has_tool, mke2fs, mounted, run, scratch, text, uext4_ok,
};

/// An empty image in a scratch directory; `None` without mke2fs.
pub fn image(options: &[&str], mib: u32) -> Option<(TempDir, PathBuf)> {
    if !has_tool("mke2fs") {
        return None;
    }
    let scratch = scratch();
    let image = scratch.path().join("image");
    mke2fs(&image, options, mib);
    Some((scratch, image))
}

/// Runs a command on the image; it must succeed.
pub fn done(image: &Path, words: &[&str]) -> String {
    let (command, rest) = words.split_first().unwrap();
    let options = rest.iter().take_while(|w| w.starts_with('-') && **w != "-");
    let at = options.count();
    let mut all = vec![*command];
    all.extend(&rest[..at]);
    all.push(text(image));
    all.extend(&rest[at..]);
    String::from_utf8(uext4_ok(&all)).unwrap()
}

/// Neither e2fsck nor the kernel finds anything wrong.
pub fn judge(image: &Path) {
    assert_clean(image);
    uext4_ok(&["check", text(image)]);
}

/// Kills `put` while it writes 8 MiB, and lets the journal be replayed.
pub fn killed_while_it_puts(image: &Path, option: &str, name: &str) {
    let mut put = Command::new(env!("CARGO_BIN_EXE_uext4"))
        .args(["put", option, text(image), "-", name])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = put.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, &vec![7; 8 << 20]).unwrap();
    put.kill().unwrap();
    put.wait().unwrap();
    done(image, &["sync"]);
    judge(image);
}

#[test]
fn a_tree_comes_in_as_it_is() {
    let Some((scratch, image)) = image(&["-t", "ext4"], 64) else {
        return;
    };
    let source = scratch.path().join("source");
    fill(&source);
    done(&image, &["put", text(&source), "/copy"]);
    judge(&image);
    done(&image, &["mkdir", "/into"]);
    done(&image, &["put", text(&source), "/into"]);
    done(&image, &["put", &format!("{}/.", text(&source)), "/"]);
    judge(&image);
    if !can_mount() {
        return;
    }
    let Some(mount) = mounted(&image, true) else {
        return;
    };
    for copy in ["copy", "into/source", "."] {
        compare(&source, &mount.path().join(copy));
    }
}

/// Some of everything that needs no root.
fn fill(source: &Path) {
    fs::create_dir_all(source.join("dir/sub")).unwrap();
    fs::write(source.join("dir/file"), "contents\n").unwrap();
    fs::write(source.join("dir/sub/big"), vec![7; 5_000_001]).unwrap();
    fs::hard_link(source.join("dir/file"), source.join("second")).unwrap();
    symlink("dir/file", source.join("link")).unwrap();
    symlink("x".repeat(300), source.join("long")).unwrap();
    let holes = File::create(source.join("holes")).unwrap();
    holes.write_all_at(b"in the middle", 10 << 20).unwrap();
    holes.set_len(20 << 20).unwrap();
    fs::set_permissions(source.join("dir/sub"), PermissionsExt::from_mode(0o2751)).unwrap();
    fs::set_permissions(source.join("second"), PermissionsExt::from_mode(0o4755)).unwrap();
    run("mkfifo", &[text(&source.join("fifo"))]);
    let time = "1999-12-31 23:59:59.123456789";
    run("touch", &["-d", time, text(&source.join("dir"))]);
}

/// The kernel sees no difference.
fn compare(source: &Path, copy: &Path) {
    let mut diff = vec!["-r", "--no-dereference"];
    let left_out = ["fifo", "lost+found", "copy", "into"].map(|name| format!("--exclude={name}"));
    diff.extend(left_out.iter().map(String::as_str));
    diff.extend([text(source), text(copy)]);
    run("diff", &diff);
    let names = "dir dir/sub dir/file holes link long fifo dir/sub/big";
    for name in names.split(' ') {
        let of = |dir: &Path| {
            let m = fs::symlink_metadata(dir.join(name)).unwrap();
            let (size, links) = match m.is_dir() {
                true => (0, 0),
                false => (m.len(), m.nlink()),
            };
            let owner = (m.uid(), m.gid());
            (m.mode(), owner, m.mtime(), m.mtime_nsec(), size, links)
        };
        assert_eq!(of(source), of(copy), "{name}");
    }
    assert!(fs::metadata(copy.join("holes")).unwrap().blocks() < 64);
    let inode = |name| fs::metadata(copy.join(name)).unwrap().ino();
    assert_eq!(inode("second"), inode("dir/file"));
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
    let Some(from) = mounted(&other, false) else {
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
    done(&image, &["setfattr", "-nuser.a", "-vvalue", "/source/file"]);
    judge(&image);
    let to = mounted(&image, true).unwrap();
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
        let Some(mount) = mounted(&image, true) else {
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
    let Some(mount) = mounted(&image, true) else {
        return;
    };
    assert_eq!(fs::read(mount.path().join("file")).unwrap(), expected);
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

#[test]
fn what_replaces_a_file_touches_no_other_name() {
    let Some((scratch, image)) = image(&["-t", "ext4"], 32) else {
        return;
    };
    let from = scratch.path().join("from");
    fs::write(&from, "new").unwrap();
    // Names that earlier versions used for their own files.
    for name in ["/.uext4-put", "/.uext4-ln", "/file", "/other"] {
        done(&image, &["put", text(&from), name]);
    }
    fs::write(&from, "newer").unwrap();
    done(&image, &["put", "--overwrite", text(&from), "/file"]);
    done(&image, &["ln", "-f", "/file", "/other"]);
    done(&image, &["ln", "-sf", "/file", "/other"]);
    // Killed in the midst, it leaves the old file and no name of its own.
    killed_while_it_puts(&image, "--overwrite", "/file");
    let names = ".uext4-ln\n.uext4-put\nfile\nlost+found\nother\n";
    assert_eq!(done(&image, &["ls", "/"]), names);
    for (name, contents) in [
        ("/.uext4-put", "new"),
        ("/.uext4-ln", "new"),
        ("/file", "newer"),
    ] {
        assert_eq!(done(&image, &["cat", name]), contents, "{name}");
    }
}
