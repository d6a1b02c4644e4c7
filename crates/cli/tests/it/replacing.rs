//! What is there is overwritten only if the user wants it: a question on a terminal, an option
//! without one.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::host::{UEXT4, has_tool, scratch, text, uext4, uext4_ok};

/// Runs a command on a terminal where `typed` is typed; its exit code and what the terminal shows.
fn on_a_terminal(arguments: &[&str], typed: &str) -> (i32, String) {
    let words: Vec<String> = [UEXT4]
        .iter()
        .chain(arguments)
        .map(|word| format!("'{word}'"))
        .collect();
    let mut child = Command::new("script")
        .args(["-qec", &words.join(" "), "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(typed.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code().unwrap(), shown)
}

/// What an image must hold before, the command lines that overwrite it, and the words of the
/// question.
fn cases<'a>(image: &'a str, source: &'a str) -> Vec<(&'static [u8], Vec<&'a str>, &'static str)> {
    let build = vec!["build", source, "-o", image];
    let fill = vec!["mkfs", "-d", source, image, "16M"];
    let mkfs = vec!["mkfs", image, "16M"];
    vec![
        (b"XFSB", build.clone(), "an XFS file system"),
        (b"some text\n", build, "text"),
        (b"LUKS\xba\xbe", fill, "a LUKS encrypted volume"),
        (b"LUKS\xba\xbe", mkfs.clone(), "a LUKS encrypted volume"),
        (b"QFI\xfb", mkfs, "a qcow2 disk image"),
    ]
}

fn make_image(path: &Path, bytes: &[u8]) {
    let mut all = bytes.to_vec();
    if !bytes.is_ascii() || bytes == b"XFSB" {
        all.resize(16 << 20, 0);
    }
    fs::write(path, all).unwrap();
}

#[test]
fn a_terminal_is_asked() {
    if !has_tool("script") {
        return;
    }
    let scratch = scratch();
    let (source, image) = (scratch.path().join("source"), scratch.path().join("image"));
    fs::create_dir(&source).unwrap();
    for (bytes, arguments, what) in cases(text(&image), text(&source)) {
        make_image(&image, bytes);
        for typed in ["n\n", "\n"] {
            let (code, shown) = on_a_terminal(&arguments, typed);
            assert_eq!(code, 1, "{arguments:?}: {shown}");
            assert!(shown.contains(what), "{arguments:?}: {shown}");
            assert!(shown.contains("Overwrite it? [y/N]"), "{shown}");
            assert!(shown.contains("left as it is"), "{shown}");
        }
        assert!(fs::read(&image).unwrap().starts_with(bytes));
        let (code, shown) = on_a_terminal(&arguments, "y\n");
        assert_eq!(code, 0, "{arguments:?}: {shown}");
        uext4_ok(&["check", text(&image)]);
        make_image(&image, bytes);
        let forced = [&arguments[..1], &["-F"], &arguments[1..]].concat();
        let (code, shown) = on_a_terminal(&forced, "");
        assert_eq!(code, 0, "{forced:?}: {shown}");
        assert!(!shown.contains("Overwrite"), "{forced:?}: {shown}");
    }
    // No question where nothing known is lost.
    fs::write(&image, vec![0; 16 << 20]).unwrap();
    for arguments in [
        &["build", text(&source), "-o", text(&image)][..],
        &["mkfs", "-F", text(&image)],
    ] {
        let (code, shown) = on_a_terminal(arguments, "");
        assert_eq!(code, 0, "{arguments:?}: {shown}");
    }
    fs::write(&image, vec![7; 16 << 20]).unwrap();
    let (code, shown) = on_a_terminal(&["mkfs", text(&image)], "");
    assert_eq!(code, 0, "{shown}");
}

#[test]
fn without_a_terminal_an_option_is_needed() {
    let scratch = scratch();
    let (source, image) = (scratch.path().join("source"), scratch.path().join("image"));
    fs::create_dir(&source).unwrap();
    for (bytes, arguments, what) in cases(text(&image), text(&source)) {
        make_image(&image, bytes);
        if arguments[..2] == ["mkfs", text(&image)] {
            // As with mke2fs.
            uext4_ok(&arguments);
            continue;
        }
        let output = uext4(&arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(8), "{arguments:?}: {said}");
        assert!(said.contains(what), "{arguments:?}: {said}");
        assert!(said.contains("--force"), "{arguments:?}: {said}");
        assert!(fs::read(&image).unwrap().starts_with(bytes));
        uext4_ok(&[&arguments[..1], &["--force"], &arguments[1..]].concat());
    }
    let build = ["build", text(&source), "-o", text(&image)];
    for len in [0, 4096] {
        fs::write(&image, vec![0; len]).unwrap();
        uext4_ok(&build);
    }
    fs::remove_file(&image).unwrap();
    uext4_ok(&build);
}
