//! Commands give up paths and system calls before they open what others wrote, and say nothing that
//! a terminal takes as a command.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use crate::host::{UEXT4, has_tool, mke2fs, run, scratch, text, uext4, uext4_ok};

/// The system calls of a command that say when it confined itself and what it opened; `None` where
/// it cannot be traced.
fn trace(log: &Path, arguments: &[&str]) -> Option<Vec<String>> {
    let mut command = Command::new("strace");
    command.args([
        "-f",
        "-qq",
        "-e",
        "trace=openat,open,landlock_restrict_self,seccomp,prctl",
    ]);
    let output = command
        .arg("-o")
        .arg(log)
        .arg(UEXT4)
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let calls = fs::read_to_string(log).unwrap_or_default();
    if calls.is_empty() {
        println!("skipped: nothing can be traced here: {said}");
        return None;
    }
    let code = output.status.code();
    assert!(
        matches!(code, Some(0 | 1)),
        "{arguments:?}: {code:?}: {said}"
    );
    Some(calls.lines().map(str::to_owned).collect())
}

#[test]
fn every_command_is_confined_before_it_opens_an_image() {
    if !has_tool("strace") || !has_tool("tar") {
        return;
    }
    let dir = scratch();
    let at = |name: &str| text(&dir.path().join(name)).to_owned();
    let (image, tar, log) = (at("image"), at("tar"), dir.path().join("log"));
    fs::create_dir(at("source")).unwrap();
    fs::write(at("source/file"), "contents").unwrap();
    run("tar", &["-C", &at("source"), "-cf", &tar, "."]);
    run(
        UEXT4,
        &["build", "-q", &at("source"), "--size", "16M", "-o", &image],
    );
    let (out, salvaged, made) = (at("out"), at("salvaged"), at("made"));
    let commands: [&[&str]; 24] = [
        &["ls", &image],
        &["cat", &image, "/file"],
        &["info", &image],
        &["tree", &image],
        &["find", &image],
        &["grep", "contents", &image],
        &["du", &image],
        &["stat", &image, "/file"],
        &["diff", &image, &image],
        &["tar", &image],
        &["get", &image, "/file", &out],
        &["manifest", &image],
        &["frag", &image],
        &["check", &image],
        &["repair", "-y", &image],
        &["fsck", "-fn", &image],
        &["salvage", &image, "-o", &salvaged],
        &["undelete", &image],
        &["build", "-q", "--base", &image, "-o", &made],
        &["build", "-q", "-F", &tar, "-o", &made],
        &["untar", "-f", &tar, &image, "/untarred"],
        &["put", &image, &tar, "/put"],
        &["tune", "-L", "label", &image],
        &["shrink", "--min", &image],
    ];
    for arguments in commands {
        let Some(calls) = trace(&log, arguments) else {
            return;
        };
        let first = |what: &str| calls.iter().position(|call| call.contains(what));
        let reads_archive = arguments[0] != "put" && arguments.contains(&&*tar);
        let source = if reads_archive { &tar } else { &image };
        let named = format!("\"{source}\"");
        // Opened for its place alone, it is not read.
        let is_read = |call: &&String| call.contains(&named) && !call.contains("O_PATH");
        let opened = calls.iter().find(is_read).and_then(|call| first(call));
        let opened = opened.unwrap_or_else(|| panic!("{arguments:?} opens no image"));
        let filtered = first("SECCOMP_SET_MODE_FILTER").or(first("SECCOMP_MODE_FILTER"));
        assert!(
            filtered.is_some_and(|at| at < opened),
            "{arguments:?}: {calls:?}"
        );
        if let Some(restricted) = first("landlock_restrict_self") {
            assert!(restricted < opened, "{arguments:?}");
        }
    }
    let calls = trace(&log, &["ls", "--no-sandbox", &image]).unwrap();
    let confines = |call: &String| call.contains("landlock") || call.contains("seccomp(");
    assert!(!calls.iter().any(confines));
}

#[test]
fn a_library_of_another_kind_turns_the_sandbox_off_for_no_command() {
    if !has_tool("strace") {
        return;
    }
    let dir = scratch();
    let (image, log) = (dir.path().join("image"), dir.path().join("log"));
    mke2fs(&image, &["-t", "ext4"], 16);
    for (library, confines) in [("/none/libother.so", true), ("/none/libfakeroot.so", false)] {
        let mut command = Command::new("strace");
        command.args(["-qq", "-e", "trace=seccomp,prctl", "-E"]);
        command.arg(format!("LD_PRELOAD={library}"));
        command.args(["-o", text(&log), UEXT4, "ls", text(&image)]);
        command.output().unwrap();
        let calls = fs::read_to_string(&log).unwrap_or_default();
        if calls.is_empty() {
            println!("skipped: nothing can be traced here");
            return;
        }
        let is_filter = calls.contains("SECCOMP_SET_MODE_FILTER") || calls.contains("MODE_FILTER,");
        assert_eq!(is_filter, confines, "{library}: {calls}");
    }
}

#[test]
fn temporary_files_have_a_directory_of_their_own_that_is_gone_at_the_end() {
    let dir = scratch();
    let at = |name: &str| text(&dir.path().join(name)).to_owned();
    mke2fs(Path::new(&at("image")), &["-t", "ext4"], 16);
    fs::create_dir(at("temporary")).unwrap();
    fs::write(at("file"), "contents").unwrap();
    run("tar", &["-C", text(dir.path()), "-cf", &at("tar"), "file"]);
    let (image, tar) = (at("image"), at("tar"));
    for arguments in [
        &["ls", &image][..],
        &["check", &image],
        &["untar", "-f", &tar, &image],
        &["put", &image, "/proc/version", "/version"],
        &["repair", "-y", &image],
    ] {
        let mut command = Command::new(UEXT4);
        let output = command
            .args(arguments)
            .env("TMPDIR", at("temporary"))
            .output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        let left = fs::read_dir(at("temporary")).unwrap().count();
        assert_eq!(left, 0, "{arguments:?}");
    }
    assert!(!uext4_ok(&["cat", &image, "/version"]).is_empty());
}

#[test]
fn an_archive_comes_through_a_pipe_with_a_name() {
    let dir = scratch();
    let at = |name: &str| text(&dir.path().join(name)).to_owned();
    mke2fs(Path::new(&at("image")), &["-t", "ext4"], 16);
    fs::write(at("file"), "contents").unwrap();
    run("mkfifo", &[&at("pipe")]);
    let mut tar = Command::new("tar")
        .args(["-C", text(dir.path()), "-cf", &at("pipe"), "file"])
        .spawn()
        .unwrap();
    let output = uext4(&["untar", "-f", &at("pipe"), &at("image")]);
    let said = String::from_utf8_lossy(&output.stderr);
    // One that is not read waits for ever.
    _ = tar.kill();
    tar.wait().unwrap();
    assert!(output.status.success(), "{said}");
    assert_eq!(uext4_ok(&["cat", &at("image"), "/file"]), b"contents");
}

#[test]
fn names_in_messages_are_escaped() {
    let dir = scratch();
    let name = std::ffi::OsStr::from_bytes(b"a\x1b]0;x\x07\nuext4: all is well");
    let image = dir.path().join(name);
    fs::write(&image, [7; 4096]).unwrap();
    let image = text(&image);
    let missing = format!("{image}-missing");
    for arguments in [
        &["ls", image][..],
        &["ls", &missing],
        &["check", image],
        &["build", &missing, "-o", "/dev/null/x"],
        &["put", image, &missing, "/"],
        &["ls", "--\x1b[2J\n", image],
        &["\x1b[2J"],
        &["fsck", "-n", image],
    ] {
        let output = uext4(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        let said = [&output.stderr[..], &output.stdout].concat();
        let is_odd = |byte: &u8| byte.is_ascii_control() && *byte != b'\n';
        let text = String::from_utf8_lossy(&said);
        assert!(!said.iter().any(is_odd), "{arguments:?}: {text:?}");
        assert!(
            !text.contains("\nuext4: all is well"),
            "{arguments:?}: {text}"
        );
    }
}
