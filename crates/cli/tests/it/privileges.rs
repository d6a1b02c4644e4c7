//! What becomes of set-id bits and times when others use a file: as in the kernel's ext4, and at
//! once.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::host::{Shown, UEXT4, assert_clean, mke2fs, run, scratch, text, uext4_ok, unmount};
use crate::mounted::can_mount;

/// Not a group of the user.
const PYTHON: &str = "/usr/bin/python3";

/// Does each operation on a file of its own, with each mode, and prints results and attributes.
const SCRIPT: &str = r#"
import ctypes, mmap, os, sys
os.chdir(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
def fallocate(fd, mode):
    number = ctypes.c_longlong
    if libc.fallocate(fd, mode, number(0), number(8192)):
        raise OSError(ctypes.get_errno(), "fallocate")
def opened(flags, f):
    fd = os.open(path, flags)
    try:
        f(fd)
    finally:
        os.close(fd)
def mapped(fd):
    with mmap.mmap(fd, 4096) as m:
        m[0] = 7
ops = {
    "write": lambda: opened(os.O_WRONLY, lambda fd: os.write(fd, b"x")),
    "append": lambda: opened(os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, b"x")),
    "sync": lambda: opened(os.O_WRONLY | os.O_SYNC, lambda fd: os.write(fd, b"x")),
    "nothing": lambda: opened(os.O_WRONLY, lambda fd: os.write(fd, b"")),
    "cut": lambda: os.truncate(path, 5),
    "cut open": lambda: opened(os.O_RDWR, lambda fd: os.ftruncate(fd, 5)),
    "open": lambda: opened(os.O_WRONLY | os.O_TRUNC, lambda fd: None),
    "create": lambda: opened(os.O_WRONLY | os.O_CREAT | os.O_TRUNC, lambda fd: None),
    "allocate": lambda: opened(os.O_WRONLY, lambda fd: fallocate(fd, 0)),
    "keep": lambda: opened(os.O_WRONLY, lambda fd: fallocate(fd, 1)),
    "punch": lambda: opened(os.O_WRONLY, lambda fd: fallocate(fd, 3)),
    "zero": lambda: opened(os.O_WRONLY, lambda fd: fallocate(fd, 16)),
    "copy": lambda: opened(os.O_WRONLY, lambda fd: os.copy_file_range(source, fd, 100, 0, 0)),
    "map": lambda: opened(os.O_RDWR, mapped),
    "owner": lambda: os.chown(path, -1, -1),
    "group": lambda: os.chown(path, -1, os.getgid()),
    "touch": lambda: os.utime(path),
}
source = os.open("source", os.O_RDONLY)
for mode in [0o6777, 0o4777, 0o2777, 0o2766, 0o6766, 0o2677]:
    for name, op in ops.items():
        path = f"{mode:o} {name}"
        if sys.argv[2] == "make":
            with open(path, "wb") as f:
                f.write(b"contents" * 1000)
            os.chown(path, 1000, 100)
            os.chmod(path, mode)
            continue
        before = os.stat(path)
        try:
            op()
            printed = "done"
        except OSError as error:
            printed = f"errno {error.errno}"
        after = os.stat(path)
        times = before.st_mtime_ns != after.st_mtime_ns, before.st_ctime_ns != after.st_ctime_ns
        what = oct(after.st_mode), after.st_uid, after.st_gid, after.st_size, after.st_nlink
        print(f"{path}: {printed}", *what, *times)
"#;

/// User, first group, and the argument that sets the others.
const WHO: [(&str, &str, &str); 5] = [
    ("0", "0", "--clear-groups"),
    ("1000", "100", "--clear-groups"),
    ("1001", "100", "--clear-groups"),
    ("1001", "200", "--groups=100"),
    ("1001", "200", "--clear-groups"),
];

/// The output of the script for one mount and one user, with new files.
fn said(place: &Path, (user, group, groups): (&str, &str, &str)) -> String {
    fs::set_permissions(place, fs::Permissions::from_mode(0o777)).unwrap();
    for entry in fs::read_dir(place).unwrap().flatten() {
        if entry.path().is_file() {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    fs::write(place.join("source"), "contents").unwrap();
    run(PYTHON, &["-c", SCRIPT, text(place), "make"]);
    let (user, group) = (format!("--reuid={user}"), format!("--regid={group}"));
    let printed = run(
        "setpriv",
        &[
            &user,
            &group,
            groups,
            PYTHON,
            "-c",
            SCRIPT,
            text(place),
            "run",
        ],
    );
    String::from_utf8(printed).unwrap()
}

/// `chown(-1, -1)` by others of a file with set-id bits is refused by the kernel's ext4; a FUSE
/// mount is not informed enough to do so. It changes nothing here.
fn is_not_passed_on(line: &str, who: (&str, &str, &str)) -> bool {
    who.0 == "1001" && line.contains(" owner: ")
}

#[test]
fn set_id_bits_and_times_are_as_in_the_kernels_ext4() {
    let has_tools =
        Path::new(PYTHON).exists() && Command::new("setpriv").arg("-V").output().is_ok();
    if !can_mount() || !has_tools {
        println!("skipped: needs {PYTHON} and setpriv");
        return;
    }
    let scratch = scratch();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let at = |name: &str| scratch.path().join(name);
    let (theirs, ours) = (at("theirs"), at("ours"));
    for (image, place) in [(at("1"), &theirs), (at("2"), &ours)] {
        mke2fs(&image, &["-t", "ext4"], 64);
        fs::create_dir(place).unwrap();
    }
    let shown = Shown::new(&at("1"), &theirs, "rw");
    uext4_ok(&["mount", "-o", "allow_other", text(&at("2")), text(&ours)]);
    let all = std::panic::catch_unwind(|| {
        for who in WHO {
            let (one, other) = (said(&theirs, who), said(&ours, who));
            assert_eq!(one.lines().count(), 6 * 17);
            for (one, other) in one.lines().zip(other.lines()) {
                match is_not_passed_on(one, who) {
                    false => assert_eq!(one, other, "by {who:?}"),
                    true => assert!(other.ends_with("False False"), "{other}"),
                }
            }
        }
    });
    shown.end();
    unmount(UEXT4, &["umount", text(&ours)]);
    assert_clean(&at("2"));
    all.unwrap();
}
