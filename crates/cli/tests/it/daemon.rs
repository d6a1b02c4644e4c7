//! Commands on an image that is mounted, and on directories of the mount: the daemon does them.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::host::{UEXT4, assert_clean, run, scratch, text, uext4, uext4_ok, unmount_lazily};
use crate::mounted::{Mount, can_mount, wait_for_end};

/// A tree with a file of each kind, and its archive.
fn archive(dir: &Path, files: usize) -> std::path::PathBuf {
    let tree = dir.join("tree");
    for number in 0..files {
        let below = tree.join(format!("d{}/e{}", number % 7, number % 3));
        fs::create_dir_all(&below).unwrap();
        let contents = vec![number as u8; number * 97 % 20_000];
        fs::write(below.join(format!("f{number}")), contents).unwrap();
    }
    fs::hard_link(tree.join("d0/e0/f0"), tree.join("d1/linked")).unwrap();
    std::os::unix::fs::symlink("d0", tree.join("to d0")).unwrap();
    let archive = dir.join("tree.tar");
    run("tar", &["-cf", text(&archive), "-C", text(&tree), "."]);
    archive
}

fn same_trees(one: &Path, other: &Path) {
    run("diff", &["-r", "--no-dereference", text(one), text(other)]);
}

/// Runs the command with its standard input from a file.
fn with_input(args: &[&str], input: &Path) -> std::process::Output {
    let mut command = Command::new(UEXT4);
    command.args(args).stdin(File::open(input).unwrap());
    command.output().unwrap()
}

#[test]
fn an_archive_goes_into_a_mount_and_is_seen_at_once() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4"], 128);
    let archive = archive(mount.scratch.path(), 400);
    let tree = mount.scratch.path().join("tree");
    let (image, dir) = (mount.image(), mount.dir());
    // The kernel knows that these are not there.
    for name in ["by-image", "by-dir", "piped"] {
        assert!(!dir.join(name).exists());
    }
    let done = with_input(&["untar", text(&image), "/by-image"], &archive);
    assert!(done.status.success(), "{done:?}");
    same_trees(&tree, &dir.join("by-image"));
    fs::create_dir(dir.join("by-dir")).unwrap();
    let done = with_input(&["untar", text(&dir.join("by-dir"))], &archive);
    assert!(done.status.success(), "{done:?}");
    same_trees(&tree, &dir.join("by-dir"));
    let piped = format!(
        "cat {} | {UEXT4} untar {} /piped",
        text(&archive),
        text(&image)
    );
    run("sh", &["-c", &piped]);
    same_trees(&tree, &dir.join("piped"));
    let linked = fs::metadata(dir.join("piped/d1/linked")).unwrap();
    assert_eq!(linked.nlink(), 2);
    // What is there is replaced.
    fs::write(dir.join("piped/d0/e0/f0"), "other").unwrap();
    let done = with_input(&["untar", text(&image), "/piped"], &archive);
    assert!(done.status.success(), "{done:?}");
    same_trees(&tree, &dir.join("piped"));
    let kept = with_input(&["untar", "-k", text(&image), "/piped"], &archive);
    assert_eq!(kept.status.code(), Some(1), "{kept:?}");
    // Durable without anything else: the daemon is killed.
    let daemon = mount.daemon();
    run("kill", &["-KILL", &daemon]);
    wait_for_end(&daemon);
    unmount_lazily(dir);
    let out = mount.scratch.path().join("out");
    uext4_ok(&["get", text(&image), "/piped", text(&out)]);
    same_trees(&tree, &out);
    assert_clean(&image);
    std::mem::forget(mount);
}

#[test]
fn each_command_that_changes_is_seen_at_once() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4"], 64);
    let (image, dir) = (mount.image(), mount.dir());
    let at = |name: &str| dir.join(name);
    let host = mount.scratch.path().join("host");
    fs::write(&host, "contents").unwrap();
    // What the kernel keeps of names, attributes, pages and listings.
    let listing = |place: &Path| fs::read_dir(place).unwrap().count();
    let before = listing(&dir);
    uext4_ok(&["mkdir", text(&image), "/d"]);
    assert_eq!(listing(&dir), before + 1);
    uext4_ok(&["put", text(&image), text(&host), "/d/f"]);
    assert_eq!(fs::read(at("d/f")).unwrap(), b"contents");
    let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o7777;
    uext4_ok(&["chmod", text(&image), "4711", "/d/f"]);
    assert_eq!(mode("d/f"), 0o4711);
    uext4_ok(&["chown", text(&image), "12:13", "/d/f"]);
    let owner = fs::metadata(at("d/f")).unwrap();
    assert_eq!((owner.uid(), owner.gid()), (12, 13));
    uext4_ok(&["truncate", "-s", "3", text(&image), "/d/f"]);
    assert_eq!(fs::read(at("d/f")).unwrap(), b"con");
    fs::write(&host, "others").unwrap();
    let open = File::open(at("d/f")).unwrap();
    uext4_ok(&["put", "--atomic", text(&image), text(&host), "/d/f"]);
    assert_eq!(fs::read(at("d/f")).unwrap(), b"others");
    // One who has the old file open keeps it.
    assert_eq!(open.metadata().unwrap().len(), 3);
    drop(open);
    uext4_ok(&["ln", text(&image), "/d/f", "/d/g"]);
    assert_eq!(fs::metadata(at("d/f")).unwrap().nlink(), 2);
    uext4_ok(&["mv", text(&image), "/d/g", "/d/h"]);
    assert!(!at("d/g").exists() && at("d/h").exists());
    uext4_ok(&["setfattr", "-n", "user.a", "-v", "b", text(&image), "/d/h"]);
    let shown = run(
        "getfattr",
        &["-n", "user.a", "--only-values", text(&at("d/h"))],
    );
    assert_eq!(shown.first(), Some(&b'b'));
    uext4_ok(&["rm", "-r", text(&image), "/d"]);
    assert!(!at("d").exists());
    assert_eq!(listing(&dir), before);
    mount.judged();
}

#[test]
fn a_script_says_which_lines_failed() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4"], 64);
    let script = mount.scratch.path().join("script");
    fs::write(&script, "mkdir /a\nrm /none\ntouch /a/b\nsync\n").unwrap();
    let dir = mount.dir();
    let args = ["script", "--keep-going", "-f", text(&script), text(&dir)];
    let done = uext4(&args);
    assert_eq!(done.status.code(), Some(1));
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(said.contains("line 2: /none"), "{said}");
    assert!(dir.join("a/b").exists());
    // Options of the image would be those of the mount.
    let done = uext4(&["mkdir", "-o", "commit=1", text(&dir), "/x"]);
    assert_eq!(done.status.code(), Some(2), "{done:?}");
    mount.judged();
}

#[test]
fn others_see_whole_files_while_an_archive_is_extracted() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4"], 256);
    let archive = archive(mount.scratch.path(), 3000);
    let dir = mount.dir();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut looks = 0;
            while !is_over.load(Ordering::Relaxed) {
                // Names that are listed can be looked up, and sizes are those of the contents.
                for entry in walk(&dir.join("x")) {
                    let Ok(contents) = fs::read(&entry) else {
                        continue;
                    };
                    let first = contents.first().copied().unwrap_or(0);
                    let is_one = |byte: &u8| *byte == first || *byte == 0;
                    assert!(contents.iter().all(is_one), "{entry:?}");
                }
                looks += 1;
            }
            looks
        });
        let writer = scope.spawn(|| {
            let mut count = 0;
            while !is_over.load(Ordering::Relaxed) {
                fs::write(dir.join(format!("w{}", count % 20)), vec![7; 3000]).unwrap();
                count += 1;
            }
            count
        });
        let done = with_input(&["untar", text(&dir), "/x"], &archive);
        is_over.store(true, Ordering::Relaxed);
        assert!(done.status.success(), "{done:?}");
        assert!(watcher.join().unwrap() > 0 && writer.join().unwrap() > 0);
    });
    same_trees(&mount.scratch.path().join("tree"), &dir.join("x"));
    mount.judged();
}

/// All regular files below a directory, as far as it can be listed.
fn walk(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(it) if it.is_dir() => dirs.push(entry.path()),
                Ok(it) if it.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files
}

#[test]
fn a_daemon_that_is_killed_and_a_client_that_is() {
    if !can_mount() {
        return;
    }
    let mut mount = Mount::new(&["-t", "ext4"], 256);
    let archive = archive(mount.scratch.path(), 3000);
    let (image, dir) = (mount.image(), mount.dir());
    // A client that is killed: the daemon goes on.
    let mut client = Command::new(UEXT4);
    client.args(["untar", text(&image), "/cut"]);
    let mut client = client.stdin(File::open(&archive).unwrap()).spawn().unwrap();
    thread::sleep(Duration::from_millis(30));
    _ = client.kill();
    client.wait().unwrap();
    fs::write(dir.join("still"), "there").unwrap();
    uext4_ok(&["mkdir", text(&image), "/after"]);
    assert!(dir.join("after").exists());
    // A daemon that is killed: the client says what it knows. The archive never ends.
    let mut client = Command::new(UEXT4);
    client.args(["script", "--keep-going", text(&image)]);
    let client = client.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut client = client.spawn().unwrap();
    let mut lines = client.stdin.take().unwrap();
    writeln!(lines, "mkdir /one").unwrap();
    while !dir.join("one").exists() {
        thread::sleep(Duration::from_millis(5));
    }
    let daemon = mount.daemon();
    run("kill", &["-KILL", &daemon]);
    wait_for_end(&daemon);
    writeln!(lines, "mkdir /two").unwrap();
    drop(lines);
    let said = client.wait_with_output().unwrap();
    assert_eq!(said.status.code(), Some(8), "{said:?}");
    let text_of = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(
        text_of.contains("line 2: ") && text_of.contains("does not answer"),
        "{text_of}"
    );
    // What is left of the mount has let go of the image.
    uext4_ok(&["mkdir", text(&image), "/three"]);
    unmount_lazily(dir);
    mount.is_gone();
    uext4_ok(&["sync", text(&image)]);
    assert_clean(&image);
}

#[test]
fn rubbish_ends_its_connection_and_nothing_else() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4"], 64);
    let metadata = fs::metadata(mount.dir()).unwrap();
    let number = format!(
        "{}:{}",
        rustix::fs::major(metadata.dev()),
        rustix::fs::minor(metadata.dev())
    );
    let sockets = [
        "/run/uext4".to_owned(),
        format!(
            "{}/uext4",
            std::env::var("XDG_RUNTIME_DIR").unwrap_or_default()
        ),
    ];
    let socket = sockets.iter().map(|dir| Path::new(dir).join(&number));
    let Some(socket) = socket.into_iter().find(|socket| socket.exists()) else {
        println!("skipped: the socket is elsewhere");
        return;
    };
    let version = env!("CARGO_PKG_VERSION");
    for rubbish in [&b"operations 9 0\n"[..], b"\0\0\0", &[0xFF; 100]] {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(rubbish).unwrap();
        _ = stream.shutdown(std::net::Shutdown::Write);
    }
    for rubbish in [&[0xFF; 64][..], &[9, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF]] {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream
            .write_all(format!("operations 2 {version}\n").as_bytes())
            .unwrap();
        stream.write_all(rubbish).unwrap();
        _ = stream.shutdown(std::net::Shutdown::Write);
    }
    uext4_ok(&["mkdir", text(&mount.image()), "/after"]);
    assert!(mount.dir().join("after").exists());
    mount.judged();
}

#[test]
fn a_bound_directory_is_not_the_root_and_dots_do_not_leave_it() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        println!("skipped: binding needs root");
        return;
    }
    let mount = Mount::new(&["-t", "ext4"], 64);
    let dir = mount.dir();
    let bound = mount.scratch.path().join("bound");
    fs::create_dir(&bound).unwrap();
    for name in ["etc", "sub/etc", "sub/x"] {
        fs::create_dir_all(dir.join(name)).unwrap();
    }
    run("mount", &["--bind", text(&dir.join("sub")), text(&bound)]);
    uext4_ok(&["rm", "-r", text(&bound), "/etc"]);
    uext4_ok(&["rm", "-r", text(&bound), "/../../x"]);
    run("umount", &[text(&bound)]);
    assert!(dir.join("etc").exists() && !dir.join("sub/etc").exists());
    assert!(!dir.join("sub/x").exists());
    mount.judged();
}

#[test]
fn what_is_mounted_below_stays_and_another_image_of_the_name_is_itself() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        println!("skipped: mounting below needs root");
        return;
    }
    let mount = Mount::new(&["-t", "ext4"], 64);
    let dir = mount.dir();
    let archive = archive(mount.scratch.path(), 30);
    fs::create_dir_all(dir.join("d0/e0")).unwrap();
    let below = dir.join("d0");
    run("mount", &["-t", "tmpfs", "none", text(&below)]);
    let done = with_input(&["untar", text(&dir)], &archive);
    assert!(done.status.success(), "{done:?}");
    uext4_ok(&["mkdir", "-p", text(&dir), "/d0/e0/new"]);
    assert!(!below.join("e0").exists(), "the tmpfs is gone");
    run("umount", &[text(&below)]);
    assert!(below.join("e0/new").exists());
    // Refused entries are reported, and the rest goes on.
    run("chattr", &["+i", text(&below.join("e0/f0"))]);
    let done = with_input(&["untar", text(&dir)], &archive);
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    let refused = uext4(&["chmod", text(&dir), "600", "/d0/e0/f0"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    run("chattr", &["-i", text(&below.join("e0/f0"))]);
    // The path of the image is another image's by now.
    let (image, old) = (mount.image(), mount.scratch.path().join("old"));
    fs::rename(&image, &old).unwrap();
    uext4_ok(&["mkfs", text(&image), "16M"]);
    uext4_ok(&["mkdir", text(&image), "/only-here"]);
    assert!(!dir.join("only-here").exists());
    uext4_ok(&["stat", text(&image), "/only-here"]);
    uext4_ok(&["umount", text(&dir)]);
    let mut mount = mount;
    mount.is_gone();
    assert_clean(&old);
    assert_clean(&image);
}

#[test]
fn a_full_file_system_ends_the_extraction_and_stays_clean() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4"], 16);
    let archive = archive(mount.scratch.path(), 3000);
    let done = with_input(&["untar", text(&mount.image())], &archive);
    assert_eq!(done.status.code(), Some(8), "{done:?}");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(said.contains("no space"), "{said}");
    mount.judged();
}

#[test]
fn untar_into_an_image_is_what_tar_extracts() {
    let scratch = scratch();
    let archive = archive(scratch.path(), 200);
    let image = scratch.path().join("image");
    uext4_ok(&["mkfs", text(&image), "64M"]);
    let done = with_input(&["untar", "--json", text(&image), "/x"], &archive);
    assert!(done.status.success(), "{done:?}");
    let entries = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(entries.contains("\"entries\":"), "{entries}");
    let out = scratch.path().join("out");
    uext4_ok(&["get", text(&image), "/x", text(&out)]);
    same_trees(&scratch.path().join("tree"), &out);
    assert_clean(&image);
    let cut = scratch.path().join("cut.tar");
    let bytes = fs::read(&archive).unwrap();
    fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let done = with_input(&["untar", text(&image), "/y"], &cut);
    assert!(!done.status.success());
    assert_clean(&image);
}

#[test]
fn limits_and_shared_attributes_of_a_mounted_image() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4", "-O", "quota", "-I", "128"], 64);
    let (image, dir) = (mount.image(), mount.dir());
    let quota = ["quota", "--set", "1000", "1M", "1M", "3", "3", "--user"];
    uext4_ok(&[&quota[..1], &[text(&image)], &quota[1..]].concat());
    let shown = uext4_ok(&["quota", "--user", "--json", text(&dir)]);
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.contains("\"inodes_hard\":3"), "{shown}");
    // The limit holds at once.
    let make = |number: u32| {
        let path = dir.join(format!("f{number}"));
        File::create(&path).and_then(|_| std::os::unix::fs::chown(path, Some(1000), None))
    };
    let made = (0..5).filter(|&number| make(number).is_ok()).count();
    assert_eq!(made, 3);
    // Two files get equal blocks of attributes one after the other, so that they are two.
    for (name, value) in [("f0", "a"), ("f1", "b"), ("f1", "a")] {
        let path = format!("/{name}");
        uext4_ok(&["setfattr", "-n", "user.x", "-v", value, text(&image), &path]);
    }
    let merged = uext4_ok(&["dedup-xattrs", "--json", text(&image)]);
    let merged = String::from_utf8(merged).unwrap();
    assert!(merged.contains("\"moved\":"), "{merged}");
    mount.judged();
}
