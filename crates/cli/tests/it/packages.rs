//! What `make install` installs, and the packages that are made of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::host::{UEXT4, has_tool, run, scratch, text};

/// A script of the repository.
fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../scripts")
        .join(name)
}

/// Runs one of the two scripts of an installation in a root of its own.
fn in_root(name: &str, root: &Path, prefix: &str) {
    let mut command = Command::new(script(name));
    command
        .env("BINARY", UEXT4)
        .env("DESTDIR", root)
        .env("PREFIX", prefix);
    let done = command
        .env_remove("SBINDIR")
        .env_remove("GENERATOR")
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

/// All files and links below a directory, relative to it.
fn files(root: &Path) -> Vec<String> {
    let found = run(
        "find",
        &[
            text(root),
            "-mindepth",
            "1",
            "-not",
            "-type",
            "d",
            "-printf",
            "%P\\n",
        ],
    );
    let mut files: Vec<String> = String::from_utf8(found)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    files.sort();
    files
}

#[test]
fn an_installation_is_complete_and_is_removed_without_a_trace() {
    let scratch = scratch();
    let root = scratch.path().join("root");
    in_root("install-files", &root, "/opt/uext4");
    let installed = files(&root);
    for expected in [
        "bin/uext4",
        "sbin/mount.fuse.uext4",
        "sbin/umount.fuse.uext4",
        "sbin/fsck.uext4",
        "sbin/mkfs.uext4",
        "share/man/man1/uext4.1.gz",
        "share/man/man1/uext4-mount.1.gz",
        "share/bash-completion/completions/uext4",
        "share/zsh/site-functions/_uext4",
        "share/fish/vendor_completions.d/uext4.fish",
        "lib/systemd/user/uext4@.service",
        "share/doc/uext4/LICENSE-MIT",
    ] {
        let expected = format!("opt/uext4/{expected}");
        assert!(installed.contains(&expected), "{expected} in {installed:?}");
    }
    let program = fs::metadata(root.join("opt/uext4/bin/uext4")).unwrap();
    assert_eq!(program.permissions().mode() & 0o7777, 0o755);
    let link = fs::read_link(root.join("opt/uext4/sbin/mount.fuse.uext4")).unwrap();
    assert_eq!(link, Path::new("/opt/uext4/bin/uext4"));
    let unit = fs::read_to_string(root.join("opt/uext4/lib/systemd/user/uext4@.service"));
    assert!(
        unit.unwrap()
            .contains("ExecStart=/opt/uext4/bin/uext4 mount")
    );
    in_root("uninstall-files", &root, "/opt/uext4");
    assert_eq!(files(&root), [""; 0]);
}

#[test]
fn packages_hold_the_installed_files_and_are_reproducible() {
    if !has_tool("dpkg-deb") || !has_tool("rpmbuild") {
        return;
    }
    let scratch = scratch();
    let made = |name: &str| {
        let (root, out) = (
            scratch.path().join(format!("{name}.root")),
            scratch.path().join(name),
        );
        in_root("install-files", &root, "/usr");
        // The program of a test is large; what the packages do with it is the same.
        fs::write(root.join("usr/bin/uext4"), "program").unwrap();
        let mut package = Command::new(script("package"));
        package.args([text(&root), "1.2.3", "x86_64", text(&out)]);
        let done = package
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .output()
            .unwrap();
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
        (root, out)
    };
    let (root, out) = made("one");
    let (_, again) = made("two");
    let names = files(&out);
    assert!(
        names.contains(&"uext4_1.2.3_amd64.deb".to_owned()),
        "{names:?}"
    );
    assert!(
        names.contains(&"uext4-1.2.3-1.x86_64.rpm".to_owned()),
        "{names:?}"
    );
    assert_eq!(names, files(&again));
    for name in &names {
        let same = fs::read(out.join(name)).unwrap() == fs::read(again.join(name)).unwrap();
        assert!(same, "{name} differs between two runs");
    }
    let unpacked = scratch.path().join("deb");
    let deb = out.join("uext4_1.2.3_amd64.deb");
    run("dpkg-deb", &["-x", text(&deb), text(&unpacked)]);
    assert_eq!(files(&unpacked), files(&root));
    let rpm = out.join("uext4-1.2.3-1.x86_64.rpm");
    let listed = String::from_utf8(run("rpm", &["-qlp", text(&rpm)])).unwrap();
    for file in files(&root) {
        assert!(
            listed.lines().any(|line| line == format!("/{file}")),
            "{file}"
        );
    }
}

#[test]
fn the_debian_package_installs_in_a_new_root_and_mounts_an_image() {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root
        || !["mmdebstrap", "dpkg-deb", "strip"]
            .into_iter()
            .all(has_tool)
    {
        println!("skipped: needs root, mmdebstrap, dpkg-deb and strip");
        return;
    }
    let scratch = scratch();
    let (root, out) = (scratch.path().join("root"), scratch.path().join("out"));
    in_root("install-files", &root, "/usr");
    run("strip", &[text(&root.join("usr/bin/uext4"))]);
    run(
        text(&script("package")),
        &[text(&root), "1.2.3", "x86_64", text(&out), "libc6"],
    );
    // The program of a test is not static: the other packages have no C library in their roots.
    for name in files(&out) {
        if name.ends_with(".deb") {
            let sum = run("sha256sum", &[text(&out.join(&name))]);
            let sum = String::from_utf8(sum).unwrap();
            fs::write(out.join("SHA256SUMS"), sum.replace(text(&out), ".")).unwrap();
        } else {
            fs::remove_file(out.join(&name)).unwrap();
        }
    }
    let mut tested = Command::new(script("dist-test"));
    let tested = tested.env("DIST", &out).output().unwrap();
    let printed = String::from_utf8_lossy(&tested.stdout).into_owned();
    let errors = String::from_utf8_lossy(&tested.stderr);
    assert!(tested.status.success(), "{printed}{errors}");
    assert!(printed.contains("ok: .deb"), "{printed}{errors}");
}
