//! Sources of `build` and `put` that need care: copies that must give the same bytes, owners that a
//! preloaded library gives, files whose size says nothing.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::host::{UEXT4, has_tool, run, scratch, text, uext4, uext4_ok};
use crate::oracle;

#[test]
fn sources_that_are_no_tree_are_named() {
    let scratch = scratch();
    let path = |name: &str| scratch.path().join(name);
    let refused = |source: &Path, code: i32, words: &str| {
        let made = path("made.img");
        let output = uext4(&["build", text(source), "-o", text(&made)]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{source:?}: {said}");
        assert!(said.contains(words), "{source:?}: {said}");
        assert!(!made.exists());
    };
    fs::write(path("zeroes"), vec![0; 8 << 20]).unwrap();
    refused(&path("zeroes"), 4, "an empty disk image");
    let mut late = vec![0; 1 << 20];
    late[4096..4100].copy_from_slice(b"data");
    fs::write(path("late"), late).unwrap();
    refused(&path("late"), 4, "a disk image");
    let layout = path("layout");
    fs::create_dir_all(layout.join("blobs/sha256")).unwrap();
    fs::write(layout.join("oci-layout"), "{}").unwrap();
    fs::write(layout.join("index.json"), "{}").unwrap();
    refused(&layout, 8, "an OCI image layout");
    let archive = path("layout.tar");
    run("tar", &["-C", text(&layout), "-cf", text(&archive), "."]);
    refused(&archive, 8, "an OCI image layout");
    fs::write(layout.join("manifest.json"), "[]").unwrap();
    run("tar", &["-C", text(&layout), "-cf", text(&archive), "."]);
    refused(&archive, 8, "a docker-archive");
    // An archive without members remains one.
    let empty = path("empty.tar");
    fs::write(&empty, [0; 10240]).unwrap();
    uext4_ok(&["build", text(&empty), "-o", text(&path("empty.img"))]);
}

#[test]
fn a_copy_of_a_tree_gives_the_same_bytes() {
    let scratch = scratch();
    let path = |name: &str| scratch.path().join(name);
    let source = path("source");
    fs::create_dir_all(source.join("dir/sub")).unwrap();
    fs::write(source.join("dir/file"), "contents\n").unwrap();
    fs::hard_link(source.join("dir/file"), source.join("dir/sub/name")).unwrap();
    symlink("dir/file", source.join("link")).unwrap();
    // Access times of their own, as a backup that reads leaves them.
    for name in ["dir", "dir/file"] {
        run(
            "touch",
            &["-a", "-d", "2020-01-02", text(&source.join(name))],
        );
    }
    let build = |from: &str, flags: &[&str]| {
        let (from, image) = (path(from), path("image"));
        let arguments = ["build", "-qF", text(&from), "-o", text(&image)];
        uext4_ok(&[&arguments, flags].concat());
        fs::read(image).unwrap()
    };
    let first = build("source", &[]);
    run("cp", &["-a", text(&source), text(&path("copy"))]);
    assert!(first == build("copy", &[]), "a copy gives other bytes");
    fs::read(source.join("dir/file")).unwrap();
    run("touch", &["-a", text(&source.join("dir/sub"))]);
    assert!(first == build("source", &[]), "reading gives other bytes");
    let with_access_times = build("source", &["--preserve-atime"]);
    assert!(first != with_access_times);
    let manifest = oracle::parse(&uext4_ok(&["manifest", text(&path("image"))]));
    let atime = fs::metadata(source.join("dir/file")).unwrap().atime();
    let stored = &manifest["dir/file"]["atime_ns"];
    let digits = stored.to_string().replace('"', "");
    assert!(digits.starts_with(&atime.to_string()), "{stored}");
}

#[test]
fn fakeroot_gives_owners_and_devices() {
    if !has_tool("fakeroot") {
        return;
    }
    let scratch = scratch();
    let (source, image) = (scratch.path().join("source"), scratch.path().join("image"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "contents\n").unwrap();
    let put = scratch.path().join("put.img");
    uext4_ok(&["mkfs", "-q", text(&put), "16M"]);
    let script = "cd $1 && chown 12:34 file && chmod 4755 file && mknod tty c 5 1 && mknod disk b 8 17 \
                  && chown 56:78 . && $2 build -q . -o $3 \
                  && $2 put $4 file /file && $2 put $4 tty /tty";
    let (from, made) = (text(&source), text(&image));
    run(
        "fakeroot",
        &["sh", "-ec", script, "sh", from, UEXT4, made, text(&put)],
    );
    // Nothing of it is so on this machine.
    let found = fs::symlink_metadata(source.join("tty")).unwrap();
    assert!(found.is_file());
    for (image, names) in [
        (&image, &[".", "file", "tty", "disk"][..]),
        (&put, &["file", "tty"]),
    ] {
        let tree = oracle::parse(&uext4_ok(&["manifest", text(image)]));
        let owner = |name: &str| (tree[name]["uid"].as_u64(), tree[name]["gid"].as_u64());
        for name in names {
            let expected = match *name {
                "." => (Some(56), Some(78)),
                "file" => (Some(12), Some(34)),
                _ => (Some(0), Some(0)),
            };
            assert_eq!(owner(name), expected, "{name}");
        }
        assert_eq!(tree["tty"]["type"], "chr");
        assert_eq!(tree["tty"]["rdev"], "5:1");
    }
}

#[test]
fn get_gives_owners_and_devices_to_fakeroot() {
    if !has_tool("fakeroot") {
        return;
    }
    let scratch = scratch();
    let (image, dest) = (scratch.path().join("image"), scratch.path().join("dest"));
    let again = scratch.path().join("again");
    let script = "mkdir $1.src && cd $1.src && mkdir dir && echo contents > dir/file \
                  && ln -s dir link && mknod tty c 5 1 && mknod disk b 8 17 \
                  && chown 12:34 dir/file && chmod 6755 dir/file && chown 56:78 dir \
                  && chown -h 9:10 link && $2 build -q . -o $1";
    let made = text(&image);
    run("fakeroot", &["sh", "-ec", script, "sh", made, UEXT4]);
    // The second copy accepts what the first has made.
    let script = "$1 get $2 / $3 && $1 get $2 / $3 && $1 build -q $3 -o $4";
    let words = [UEXT4, made, text(&dest), text(&again)];
    run(
        "fakeroot",
        &[&["sh", "-ec", script, "sh"], &words[..]].concat(),
    );
    assert!(fs::symlink_metadata(dest.join("tty")).unwrap().is_file());
    let tree = |image: &Path| oracle::parse(&uext4_ok(&["manifest", text(image)]));
    let (first, second) = (tree(&image), tree(&again));
    for name in ["dir", "dir/file", "link", "tty", "disk"] {
        for key in ["type", "uid", "gid", "mode", "rdev", "mtime_ns"] {
            let (was, is) = (first[name].get(key), second[name].get(key));
            assert_eq!(was, is, "{key} of {name}");
        }
    }
    assert_eq!(second["dir/file"]["uid"], 12);
    assert_eq!(second["disk"]["rdev"], "8:17");
}

#[test]
fn attributes_that_fakeroot_fakes_are_copied_both_ways() {
    if !has_tool("fakeroot") || !has_tool("setcap") || !has_tool("setfattr") {
        return;
    }
    let scratch = scratch();
    let dir = text(scratch.path());
    // A device of the system's own and a trusted attribute take root.
    let script = "cd $1 && mkdir r && cp /bin/true r/ping && setcap cap_net_raw+ep r/ping \
                  && setfattr -n user.x -v 1 r/ping && setfattr -n trusted.y -v 2 r \
                  && $2 build -q r -o a.img && $2 mkfs -q -d r c.img 20M \
                  && $2 mkfs -q p.img 20M && $2 put p.img r/ping / \
                  && $2 get a.img / out && getcap out/ping && getfattr -dm- out out/ping";
    let command = ["sh", "-ec", script, "sh", dir, UEXT4];
    let output = match rustix::process::geteuid().is_root() && has_tool("setpriv") {
        // Root needs nothing of it: fakeroot must not be able to do it in earnest.
        true => {
            let ids = [
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "fakeroot",
            ];
            std::os::unix::fs::chown(scratch.path(), Some(65534), Some(65534)).unwrap();
            run("setpriv", &[&ids[..], &command].concat())
        }
        false => run("fakeroot", &command),
    };
    let output = String::from_utf8_lossy(&output).into_owned();
    assert!(output.contains("out/ping cap_net_raw=ep"), "{output}");
    for attribute in ["user.x=\"1\"", "trusted.y=\"2\""] {
        assert!(output.contains(attribute), "{output}");
    }
    for image in ["a.img", "c.img", "p.img"] {
        let image = scratch.path().join(image);
        let ping = uext4_ok(&["getfattr", "-d", text(&image), "/ping"]);
        let ping = String::from_utf8_lossy(&ping).into_owned();
        for attribute in ["security.capability=", "user.x="] {
            assert!(ping.contains(attribute), "{image:?}: {ping}");
        }
    }
}

#[test]
fn a_program_into_which_fakeroot_is_not_loaded_says_so() {
    let scratch = scratch();
    let (source, image) = (scratch.path().join("source"), scratch.path().join("image"));
    fs::create_dir(&source).unwrap();
    let build = |preload: &str| {
        let built = Command::new(UEXT4)
            .args(["build", "-qF", text(&source), "-o", text(&image)])
            .env("LD_PRELOAD", preload)
            .output()
            .unwrap();
        assert!(built.status.success());
        String::from_utf8_lossy(&built.stderr).into_owned()
    };
    // The loader leaves out what it does not find, as it does in a static program.
    let said = build("/nowhere/libfakeroot-sysv.so");
    assert!(said.contains("libfakeroot is not loaded"), "{said}");
    assert!(!build("/nowhere/libother.so").contains("is not loaded"));
}

#[test]
fn an_archive_of_a_container_image_is_read_from_standard_input() {
    if !has_tool("umoci") {
        return;
    }
    let scratch = scratch();
    let dir = text(scratch.path());
    let script = "cd $1 && echo hello > file && umoci init --layout l && umoci new --image l:v1 \
                  && umoci insert --image l:v1 file /file && tar -C l -cf l.tar . \
                  && $2 build -q oci:l:v1 -o a.img && cat l.tar | $2 build -q oci-archive:-:v1 -o b.img \
                  && cmp a.img b.img";
    run("sh", &["-ec", script, "sh", dir, UEXT4]);
}

#[test]
fn put_takes_the_owner_as_build_does() {
    let scratch = scratch();
    let (image, file) = (scratch.path().join("image"), scratch.path().join("file"));
    fs::write(&file, "contents\n").unwrap();
    uext4_ok(&["mkfs", "-q", text(&image), "16M"]);
    let found = fs::metadata(&file).unwrap();
    for (owner, uid, gid) in [
        ("7", 7, found.gid()),
        (":8", found.uid(), 8),
        ("0:70000", 0, 70_000),
    ] {
        let words = ["put", "--overwrite", "--owner", owner, text(&image)];
        uext4_ok(&[&words, &[text(&file), "/file"][..]].concat());
        let tree = oracle::parse(&uext4_ok(&["manifest", text(&image)]));
        assert_eq!(tree["file"]["uid"], uid, "{owner}");
        assert_eq!(tree["file"]["gid"], gid, "{owner}");
    }
}

#[test]
fn files_without_a_size_are_stored_as_read() {
    let scratch = scratch();
    let image = scratch.path().join("image");
    let name = text(&image);
    // Each reading of one of these gives something else.
    uext4_ok(&["build", "-q", "/proc/sys/kernel/random", "-o", name]);
    let boot = fs::read("/proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(uext4_ok(&["cat", name, "/boot_id"]), boot);
    assert_eq!(uext4_ok(&["cat", name, "/uuid"]).len(), boot.len());
    uext4_ok(&["check", name]);
    let put = scratch.path().join("put.img");
    let name = text(&put);
    uext4_ok(&["mkfs", "-q", name, "16M"]);
    uext4_ok(&["put", name, "/proc/version", "/version"]);
    let version = fs::read("/proc/version").unwrap();
    assert_eq!(uext4_ok(&["cat", name, "/version"]), version);
    let status = Command::new(UEXT4)
        .args(["put", name, "/proc/self/status", "/status"])
        .status();
    assert!(status.unwrap().success());
    let stored = uext4_ok(&["cat", name, "/status"]);
    assert!(stored.starts_with(b"Name:\tuext4\n"));
    uext4_ok(&["check", name]);
}

#[test]
fn zeroes_are_holes_as_sparse_says() {
    let scratch = scratch();
    let (source, image) = (scratch.path().join("source"), scratch.path().join("image"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("zeroes"), vec![0; 3 << 20]).unwrap();
    let hole = fs::File::create(source.join("hole")).unwrap();
    hole.set_len(3 << 20).unwrap();
    let blocks = |flags: &[&str]| {
        let mut arguments = vec!["build", text(&source), "-o", text(&image), "-qF"];
        arguments.extend(flags);
        uext4_ok(&arguments);
        ["/zeroes", "/hole"].map(|path| {
            let stat = run("debugfs", &["-R", &format!("stat {path}"), text(&image)]);
            let stat = String::from_utf8_lossy(&stat).into_owned();
            let (_, count) = stat.split_once("Blockcount: ").unwrap();
            count
                .split_whitespace()
                .next()
                .unwrap()
                .parse::<u64>()
                .unwrap()
        })
    };
    let all: u64 = (3 << 20) / 512;
    assert_eq!(blocks(&[]), [all, 0]);
    assert_eq!(blocks(&["--min"]), [0, 0]);
    assert_eq!(blocks(&["--min", "--sparse=auto"]), [all, 0]);
    assert_eq!(blocks(&["--sparse=always"]), [0, 0]);
    assert_eq!(blocks(&["--min", "--sparse=never"]), [all, all]);
    let arguments = ["build", text(&source), "-o", text(&image), "--sparse=no"];
    assert_eq!(uext4(&arguments).status.code(), Some(2));
}
