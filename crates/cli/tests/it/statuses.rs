//! Exit codes where standard output is closed or full, and options that mean what they mean
//! elsewhere.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::host::{UEXT4, has_tool, mke2fs, run, scratch, text, uext4, uext4_ok};

/// A small image with a known tree; `None` without mke2fs.
fn image() -> Option<(TempDir, PathBuf)> {
    if !has_tool("mke2fs") {
        return None;
    }
    let scratch = scratch();
    let source = scratch.path().join("source");
    fs::create_dir_all(source.join("dir/sub")).unwrap();
    fs::write(source.join("dir/file"), vec![1; 3_000_000]).unwrap();
    std::os::unix::fs::symlink("dir/file", source.join("link")).unwrap();
    let image = scratch.path().join("image");
    mke2fs(
        &image,
        &["-t", "ext4", "-b", "4096", "-d", text(&source)],
        16,
    );
    Some((scratch, image))
}

/// Runs the command with a standard output that nothing reads.
pub fn unread(arguments: &[&str]) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(UEXT4);
    command.args(arguments).stdin(Stdio::null());
    let child = command.stdout(writer).stderr(Stdio::piped()).spawn();
    child.unwrap().wait_with_output().unwrap()
}

#[test]
fn a_closed_pipe_hides_no_damage() {
    let Some((scratch, image)) = image() else {
        return;
    };
    let image_text = text(&image);
    for (command, expected) in [("check", 0), ("ls", 0), ("manifest", 0), ("tar", 1)] {
        let output = unread(&[command, image_text]);
        assert_eq!(
            output.status.code(),
            Some(expected),
            "{command}: {output:?}"
        );
        assert!(output.stderr.is_empty(), "{command}: {output:?}");
    }
    let script = scratch.path().join("script");
    fs::write(&script, "ls /\nmkdir /never\n").unwrap();
    let output = unread(&["script", "-f", text(&script), image_text]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let blocks = run("debugfs", &["-R", "blocks /dir/sub", image_text]);
    let block: u64 = String::from_utf8(blocks).unwrap().trim().parse().unwrap();
    let file = File::options().write(true).open(&image).unwrap();
    file.write_all_at(&[0xff; 4096], block * 4096).unwrap();
    for arguments in [
        &["check", image_text][..],
        &["check", "--json", image_text],
        &["ls", "-R", image_text],
        &["tree", image_text],
        &["manifest", image_text],
        &["tar", image_text, "/dir/sub"],
    ] {
        let read = uext4(arguments).status.code();
        assert_eq!(
            (read, unread(arguments).status.code()),
            (Some(4), Some(4)),
            "{arguments:?}"
        );
    }
}

#[test]
fn help_that_cannot_be_written_is_an_error() {
    for arguments in [&["--help"][..], &["--version"], &["ls", "--help"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = Command::new(UEXT4).args(arguments).stdout(full).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(8), "{arguments:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("standard output: No space left"), "{said}");
        assert_eq!(unread(arguments).status.code(), Some(0), "{arguments:?}");
    }
}

#[test]
fn short_options_mean_what_they_mean_in_coreutils() {
    let Some((scratch, image)) = image() else {
        return;
    };
    let of = |path: &str, key: &str| {
        let stat = uext4_ok(&["stat", "--json", text(&image), path]);
        let stat: serde_json::Value = serde_json::from_slice(&stat).unwrap();
        stat[0][key].clone()
    };
    uext4_ok(&["chown", "-h", text(&image), "7:8", "/link"]);
    uext4_ok(&["touch", "-hd", "@5", text(&image), "/link"]);
    assert_eq!(of("/link", "uid"), 7);
    assert_eq!(of("/link", "mtime_ns"), 5_000_000_000_u64);
    assert_ne!(of("/dir/file", "uid"), 7);
    let name = ["-n", "trusted.a", "-v", "1"];
    uext4_ok(&[&["setfattr", "-h"], &name[..], &[text(&image), "/link"]].concat());
    let shown = uext4_ok(&["getfattr", "-hd", text(&image), "/link"]);
    assert!(
        String::from_utf8(shown)
            .unwrap()
            .contains("trusted.a=\"1\"")
    );
    assert!(uext4_ok(&["getfattr", text(&image), "/link"]).is_empty());
    for command in ["chown", "touch", "setfattr", "getfattr", "ls"] {
        let help = String::from_utf8(uext4_ok(&[command, "--help"])).unwrap();
        assert!(
            help.contains("-h, --") && help.contains("      --help"),
            "{help}"
        );
    }
    let list = |arguments: &[&str]| {
        let (path, options) = arguments.split_last().unwrap();
        let all = [&["ls"], options, &[text(&image), path]].concat();
        String::from_utf8(uext4_ok(&all)).unwrap()
    };
    assert_eq!(list(&["-d", "/dir"]), "/dir\n");
    assert_eq!(list(&["-1", "-a", "/dir"]), "file\nsub\n");
    assert!(list(&["-lah", "/dir"]).contains(" 2.9M "));
    assert!(list(&["-ld", "/link"]).starts_with("lrwxrwxrwx"));
    // What would do nothing is refused.
    let source = scratch.path().join("source/dir/file");
    let put = uext4(&["put", "--mode", "600", text(&image), text(&source), "/new"]);
    assert_eq!(put.status.code(), Some(2), "{put:?}");
}
