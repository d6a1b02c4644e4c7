//! `setfacl` and `getfacl`: the same ACLs as the programs of the same names set on a mount of the
//! kernel, and the same text as they print.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::changing::{image, judge};
use crate::host::{can_mount, has_tool, mounted, text, uext4, uext4_ok};

/// What both programs are asked, with paths from the root. Those that fail leave all as it is.
const CHANGES: [&str; 41] = [
    "-m u:7:rwx,g:8:r /f",
    "-m m::rx /f",
    "-m u:5:w /f",
    "-n -m u:6:rwx /f",
    "-m g::rw /f",
    "-x u:7 /f",
    "-x u:99 /f",
    "-x m /f",
    "-x u:: /f",
    "-m u:4:X,g:2:rX /f",
    "-m u:0:7,o:x /f",
    "-m u:1:rwx,m::r /g",
    "-b /g",
    "-n -m u:5:rwx /g",
    "-m m:r /g",
    "-m o::w /g",
    "-x u:5 /g",
    "-x m /g",
    "--set u::rwx,g::r,o::-,u:1:rw /g",
    "--set u:1:rw /g",
    "-n --set u::rw,g::r,o::-,u:3:rwx /g",
    "--mask -m u:1:rwx,m::r /g",
    "-d -m u:9:rw,g::r /d",
    "-d -x u:9 /d",
    "-m d:u:3:rX,u:2:w /d",
    "-x d:g: /d",
    "--set u::rwx,g::rx,o::r /d",
    "--set d:u::rwx,d:g::rx,d:o::r,d:u:4:r /d",
    "-d --set u::rwx,g::rx,o::- /d",
    "-m d:u:1:r,u:1:r /d",
    "-b /d",
    "-m d:g:1:rx /d",
    "-k /d",
    "-k /d",
    "-R -m d:g:7:rwX,u:6:rX /d",
    "-R -x u:6 /d/sub",
    "-d -m u:3:rw /f",
    "-m d:u:3:rw /f",
    "-m u:root:r,u:7:r /d/n",
    "-R -m g:3:rX /d/sub",
    "-m u:4:rw,d:u:3:rw /f",
];

fn fill(image: &Path, scratch: &Path) {
    let script = scratch.join("script");
    let lines = "mkdir -p /d/sub\ntouch /f /g /d/n '/d/a b' /d/sub/c\nln -s n /d/link\n\
                 chmod 2755 /d/sub\nchown 3:4 /f\nchmod 4750 /f\nchmod 664 /g\nln -s f /link\n";
    fs::write(&script, lines).unwrap();
    uext4_ok(&["script", "-f", text(&script), text(image)]);
}

/// Runs setfacl of this machine in a directory, with numbers in the place of names.
fn theirs(program: &str, line: &str, dir: &Path) -> Output {
    let words = line.split(' ').map(|word| match word.strip_prefix('/') {
        Some("") => ".".to_owned(),
        Some(path) => path.to_owned(),
        None => word.replace("root", "0"),
    });
    let output = Command::new(program).args(words).current_dir(dir).output();
    output.unwrap()
}

/// The blocks that getfacl prints, sorted: the real one does not sort.
fn blocks(printed: &[u8]) -> Vec<String> {
    let printed = String::from_utf8(printed.to_vec()).unwrap();
    let mut blocks: Vec<_> = printed.split("\n\n").map(str::to_owned).collect();
    blocks.retain(|block| !block.contains("lost+found"));
    blocks.sort();
    blocks
}

fn ours(command: &str, line: &str, image: &Path) -> Output {
    let words: Vec<_> = line.split(' ').collect();
    let at = words.iter().position(|word| word.starts_with('/')).unwrap();
    let words = [&[command], &words[..at], &[text(image)], &words[at..]].concat();
    uext4(&words)
}

#[test]
fn acls_are_those_that_the_kernel_would_have_and_shows() {
    if !can_mount() || !has_tool("setfacl") {
        return;
    }
    let Some((scratch, image)) = image(&["-t", "ext4"], 16) else {
        return;
    };
    fill(&image, scratch.path());
    let other = scratch.path().join("other");
    fs::copy(&image, &other).unwrap();
    let Some(mount) = mounted(&other, false) else {
        return;
    };
    let printed = |line: &str| {
        let output = ours("getfacl", line, &image);
        assert!(output.status.success(), "{line}: {output:?}");
        blocks(&output.stdout)
    };
    for line in CHANGES {
        let expected = theirs("setfacl", line, mount.path());
        let output = ours("setfacl", &line.replace("root", "0"), &image);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.success(),
            expected.status.success(),
            "{line}: {stderr}"
        );
        let shown = theirs("getfacl", "-nR /", mount.path());
        assert_eq!(printed("-R /"), blocks(&shown.stdout), "{line}");
    }
    for line in [
        "-n /f /d",
        "-n /link",
        "-ne /f /g /d /d/n",
        "-nE /f",
        "-nd /d /f",
        "-na /d",
        "-nda /d",
        "-ncs /f /d /d/sub/c",
        "-nRs /",
    ] {
        let shown = theirs("getfacl", line, mount.path());
        assert_eq!(printed(line), blocks(&shown.stdout), "{line}");
    }
    judge(&image);
    drop(mount);
    let Some(mount) = mounted(&image, true) else {
        return;
    };
    let shown = theirs("getfacl", "-nR /", mount.path());
    assert_eq!(printed("-R /"), blocks(&shown.stdout));
}

#[test]
fn a_default_acl_of_a_file_is_refused_as_setfacl_does() {
    let Some((scratch, image)) = image(&["-t", "ext4"], 16) else {
        return;
    };
    fill(&image, scratch.path());
    for line in [
        "-m d:u:3:rw /f",
        "-d -m u:3:rw /f",
        "--set d:u::rwx,d:g::r,d:o::- /f",
    ] {
        let output = ours("setfacl", line, &image);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {stderr}");
        assert!(
            stderr.contains("only directories can have default ACLs"),
            "{stderr}"
        );
    }
    for line in ["-k /f", "-x d:u:3 /f", "-R -m d:u:3:rw /f"] {
        let output = ours("setfacl", line, &image);
        assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
    }
    judge(&image);
}

#[test]
fn what_getfacl_prints_is_restored() {
    let Some((scratch, image)) = image(&["-t", "ext4"], 16) else {
        return;
    };
    fill(&image, scratch.path());
    let run = |command: &str, line: &str| {
        let output = ours(command, line, &image);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{line}: {stderr}");
        output.stdout
    };
    run("setfacl", "-R -m u:7:rwX,d:g:8:rX /d");
    let before = run("getfacl", "-R /");
    let saved = scratch.path().join("saved");
    fs::write(&saved, &before).unwrap();
    run("setfacl", "-R -b /d");
    run("setfacl", "-m u:1:rw,g:2:- /f");
    run("setfacl", "-m d:u:1:rw /");
    let restored = uext4_ok(&["chown", "-R", text(&image), "9:9", "/"]);
    assert!(restored.is_empty());
    uext4_ok(&["setfacl", "--restore", text(&saved), text(&image)]);
    assert_eq!(run("getfacl", "-R /"), before);
    judge(&image);
    let printed = run("getfacl", "--json /d/n");
    let printed: serde_json::Value = serde_json::from_slice(&printed).unwrap();
    assert_eq!(printed[0]["path"], "/d/n");
    assert_eq!(printed[0]["access"][1], "user:7:rwx".replace("rwx", "rw-"));
}

#[test]
fn a_capital_x_looks_at_what_is_there_and_a_refused_restore_changes_nothing() {
    let Some((scratch, image)) = image(&["-t", "ext4"], 16) else {
        return;
    };
    fill(&image, scratch.path());
    let ok = |words: &[&str]| {
        let words = [&words[..1], &words[2..], &[text(&image), words[1]]].concat();
        String::from_utf8(uext4_ok(&words)).unwrap()
    };
    uext4_ok(&["chmod", text(&image), "744", "/f"]);
    ok(&["setfacl", "/f", "-m", "u::rw,g::rX,"]);
    let shown = ok(&["getfacl", "/f", "-c"]);
    assert!(shown.contains("group::r--"), "{shown}");
    uext4_ok(&["chmod", text(&image), "4755", "/f"]);
    let before = ok(&["getfacl", "/f"]);
    let saved = scratch.path().join("saved");
    fs::write(&saved, "# file: f\n# owner: 5\nuser::rwx\nother::r--\n").unwrap();
    let output = uext4(&["setfacl", "--restore", text(&saved), text(&image)]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(ok(&["getfacl", "/f"]), before);
    judge(&image);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let Some((scratch, image)) = image(&["-t", "ext4"], 16) else {
        return;
    };
    fill(&image, scratch.path());
    let saved = scratch.path().join("saved");
    fs::write(&saved, "# file: none\nuser::rwx\ngroup::r--\nother::r--\n").unwrap();
    for (line, code, said) in [
        ("-m u:root:r /f", 2, "\"root\" is no number"),
        ("-m u:7 /f", 2, "no permissions"),
        ("-x u:7:r /f", 2, "without permissions"),
        ("-d -m d:u:7:r /d", 2, "no d: before them"),
        ("-R /d", 2, "give what to change"),
        ("-m d:u:7:r /f", 1, "only directories"),
        ("-x g:: /f", 1, "not exactly one entry for the group"),
        ("-m u:7:r /none", 1, "no such file"),
        ("-M /no/such /f", 8, "No such file"),
        ("--restore SAVED /", 2, "cannot be used with"),
    ] {
        let line = line.replace("SAVED", text(&saved));
        let words: Vec<_> = line.split(' ').collect();
        let (path, options) = words.split_last().unwrap();
        let words = [&["setfacl"], options, &[text(&image), path]].concat();
        let output = uext4(&words);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {stderr}");
        assert!(stderr.contains(said), "{line}: {stderr}");
    }
    let output = uext4(&["setfacl", "--restore", text(&saved), text(&image)]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("/none"), "{stderr}");
    let script = scratch.path().join("script");
    fs::write(&script, "setfacl -m u:7:rw /f\ngetfacl -c /f\n").unwrap();
    let printed = uext4_ok(&["script", "-f", text(&script), text(&image)]);
    let printed = String::from_utf8(printed).unwrap();
    assert_eq!(printed.lines().nth(1), Some("user:7:rw-"), "{printed}");
    judge(&image);
}
