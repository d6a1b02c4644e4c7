//! Archives of the real writers: GNU tar, bsdtar, Python.

use std::collections::BTreeMap;

use tempfile::TempDir;
use uext4_ondisk::inode::FileType;

use crate::source::{Source, Warnings};
use crate::tests::{Seen, has_tool, listed, pattern, populate, run, seen};

/// A directory with one of everything in `tree`, next to which archives can be made.
fn fixture() -> (TempDir, BTreeMap<String, Seen>) {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    populate(&tree);
    let want = seen(&listed(&Source::Directory(tree)).unwrap());
    (dir, want)
}

/// What a format cannot report, made equal; `ns` if it reports nanoseconds and access times.
fn level(all: &mut BTreeMap<String, Seen>, ns: bool, xattrs: bool, acls: bool) {
    for one in all.values_mut() {
        one.times[2] = 0;
        if one.kind == FileType::Symlink {
            // Reading a link is an access to it.
            one.times[0] = 0;
        }
        if !ns {
            one.times = [0, one.times[1].div_euclid(1_000_000_000), 0];
        }
        let is_acl = |name: &str| name.starts_with("system.posix_acl");
        one.xattrs
            .retain(|(name, _)| if is_acl(name) { acls } else { xattrs });
    }
}

fn assert_same(mut got: BTreeMap<String, Seen>, want: &BTreeMap<String, Seen>, what: &str) {
    for (path, want) in want {
        let got = got
            .remove(path)
            .unwrap_or_else(|| panic!("{what}: {path} is missing"));
        assert_eq!(got, *want, "{what}: {path}");
    }
    assert!(got.is_empty(), "{what}: also {:?}", got.keys());
}

fn check_writer(command: &[&str], ns: bool, xattrs: bool, acls: bool, change: fn(&mut Seen)) {
    if !has_tool(command[0]) {
        return;
    }
    let (dir, mut want) = fixture();
    run(dir.path(), command);
    let archive = Source::TarFile(dir.path().join("a.tar"));
    let listing = listed(&archive).unwrap();
    assert_eq!(listing.warnings, Warnings::default(), "{command:?}");
    let mut got = seen(&listing);
    level(&mut got, ns, xattrs, acls);
    level(&mut want, ns, xattrs, acls);
    want.values_mut().for_each(change);
    got.values_mut().for_each(change);
    assert_same(got, &want, &format!("{command:?}"));
}

const ALL: &[&str] = &["--xattrs", "--xattrs-include=*", "--acls", "--sparse"];

fn gnu_tar<'a>(options: &[&'a str]) -> Vec<&'a str> {
    [
        &["tar", "-C", "tree", "-cf", "a.tar", "--numeric-owner"],
        options,
        &["."],
    ]
    .concat()
}

#[test]
fn gnu_tar_posix() {
    for version in ["0.0", "0.1", "1.0"] {
        let version = format!("--sparse-version={version}");
        let options = [&["--format=posix", &version], ALL].concat();
        check_writer(&gnu_tar(&options), true, true, true, |_| {});
    }
}

#[test]
fn gnu_tar_own_format() {
    for format in ["--format=gnu", "--format=oldgnu"] {
        check_writer(&gnu_tar(&[format, "--sparse"]), false, false, false, |_| {});
    }
}

#[test]
fn bsdtar_pax() {
    let command = [
        "bsdtar",
        "-C",
        "tree",
        "--format=pax",
        "--acls",
        "--xattrs",
        "--numeric-owner",
    ];
    // It does not see attributes of symbolic links, and counts a tail that is a hole as a piece.
    let change: fn(&mut Seen) = |one| {
        if one.kind == FileType::Symlink {
            one.xattrs.clear();
        }
    };
    let command = [&command[..], &["-cf", "a.tar", "."]].concat();
    check_writer(&command, true, true, true, change);
}

#[test]
fn ustar_and_v7_hold_what_they_can() {
    let (dir, _) = fixture();
    let small = dir.path().join("tree/small");
    std::fs::create_dir(&small).unwrap();
    for (name, len) in [("a", 0), ("b", 511), ("c", 512), ("d", 513)] {
        std::fs::write(small.join(name), pattern(len)).unwrap();
    }
    std::fs::hard_link(small.join("d"), small.join("e")).unwrap();
    std::os::unix::fs::symlink("d", small.join("f")).unwrap();
    let mut want = seen(&listed(&Source::Directory(small)).unwrap());
    level(&mut want, false, false, false);
    for command in [
        &["tar", "--format=ustar"][..],
        &["tar", "--format=v7"],
        &["bsdtar", "--format=ustar"],
        &["bsdtar", "--format=v7"],
        &["bsdtar", "--format=gnutar"],
        &["bsdtar", "--format=ustar", "-z"],
        &["bsdtar", "--format=ustar", "--xz"],
        &["bsdtar", "--format=ustar", "--zstd"],
    ] {
        let command = [command, &["-C", "tree/small", "-cf", "a.tar", "."]].concat();
        if !has_tool(command[0]) {
            continue;
        }
        run(dir.path(), &command);
        let listing = listed(&Source::TarFile(dir.path().join("a.tar"))).unwrap();
        let mut got = seen(&listing);
        level(&mut got, false, false, false);
        assert_same(got, &want, &format!("{command:?}"));
    }
}

#[test]
fn python_tarfile() {
    let script = "import tarfile, sys\n\
        for name, format in ('p', tarfile.PAX_FORMAT), ('g', tarfile.GNU_FORMAT):\n  \
        t = tarfile.open(name + '.tar', 'w', format=format, encoding='utf-8', \
        errors='surrogateescape')\n  \
        t.add('tree', '.', filter=lambda i: None if i.name.endswith('all-hole') else i)\n  \
        t.close()\n";
    if !has_tool("python3") {
        return;
    }
    let (dir, mut want) = fixture();
    run(dir.path(), &["python3", "-c", script]);
    want.remove("all-hole");
    for (name, ns) in [("p.tar", true), ("g.tar", false)] {
        let mut got = seen(&listed(&Source::TarFile(dir.path().join(name))).unwrap());
        let mut want = want.clone();
        for all in [&mut want, &mut got] {
            level(all, ns, false, false);
            all.values_mut().for_each(|one| {
                one.pieces.clear();
                // It takes times for floating-point numbers, which have no room for nanoseconds.
                one.times = one.times.map(|t| {
                    if ns {
                        (t + 500_000).div_euclid(1_000_000)
                    } else {
                        t
                    }
                });
                one.times[0] = 0;
            });
        }
        assert_same(got, &want, name);
    }
}

#[test]
fn compressed_archives_cut_short_are_errors() {
    if !has_tool("bsdtar") {
        return;
    }
    let (dir, _) = fixture();
    for (option, format) in [("-z", "gzip"), ("--xz", "xz"), ("--zstd", "zstd")] {
        run(
            dir.path(),
            &[
                "bsdtar", "-C", "tree", option, "-cf", "a.tar", "hello", "sub",
            ],
        );
        let path = dir.path().join("a.tar");
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 9]).unwrap();
        let error = listed(&Source::TarFile(path)).unwrap_err().to_string();
        assert!(error.contains(format), "{error}");
    }
}
