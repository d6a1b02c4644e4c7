//! What people type at first, and what other programs write: is it taken, and where it cannot be,
//! is the next step said?

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::changing::{done, image};
use crate::host::{UEXT4, has_tool, run, scratch, text, uext4, uext4_ok};

/// Standard output and standard error of a command that ends so.
#[track_caller]
fn ends(arguments: &[&str], code: i32) -> [String; 2] {
    let output = uext4(arguments);
    let printed = [output.stdout, output.stderr].map(|p| String::from_utf8_lossy(&p).into_owned());
    assert_eq!(
        output.status.code(),
        Some(code),
        "{arguments:?}: {printed:?}"
    );
    printed
}

/// An image with `/dir/a`, `/dir/b`, `/file` and `/link`.
fn filled(dir: &Path) -> String {
    let source = dir.join("source");
    fs::create_dir_all(source.join("dir")).unwrap();
    for name in ["dir/a", "dir/b", "file"] {
        fs::write(source.join(name), format!("contents of {name}\n")).unwrap();
    }
    symlink("dir/a", source.join("link")).unwrap();
    let image = text(&dir.join("image")).to_owned();
    uext4_ok(&["build", "-q", text(&source), "-o", &image, "--owner", "7:8"]);
    image
}

#[test]
fn ls_lists_several_paths_as_ls_does() {
    let scratch = scratch();
    let image = filled(scratch.path());
    let [listed, said] = ends(&["ls", &image, "/file", "/none", "/dir"], 1);
    assert_eq!(listed, "/file\n\n/dir:\na\nb\n");
    assert!(said.contains("/none: no such file"), "{said}");
    let [listed, _] = ends(&["ls", "-n", &image, "/file"], 0);
    assert!(
        listed.starts_with("-rw") && listed.contains(" 7     8 "),
        "{listed}"
    );
    let listed = uext4_ok(&["ls", "--json", &image, "/file", "/dir"]);
    let listed: Value = serde_json::from_slice(&listed).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 3);
}

#[test]
fn get_writes_a_file_to_standard_output() {
    let scratch = scratch();
    let image = filled(scratch.path());
    let printed = uext4_ok(&["get", &image, "/link", "-"]);
    assert_eq!(printed, b"contents of dir/a\n");
    assert!(!Path::new("-").exists());
    let [_, said] = ends(&["get", &image, "/dir", "-"], 2);
    assert!(said.contains("uext4 tar IMAGE PATH"), "{said}");
}

#[test]
fn only_near_options_are_guessed_and_none_stands_in_the_usage() {
    for (option, guess) in [
        ("--selinux", None),
        ("--frobnicate", None),
        ("--exlude", Some("--exclude")),
    ] {
        let [_, said] = ends(&["build", "source", "-o", "image", option, "x"], 2);
        assert!(
            said.contains(&format!("unexpected argument '{option}'")),
            "{said}"
        );
        let guessed = said.lines().find(|line| line.contains("similar"));
        assert_eq!(guessed.is_some(), guess.is_some(), "{said}");
        assert!(
            guess.is_none_or(|guess| guessed.unwrap().contains(guess)),
            "{said}"
        );
        let usage = said
            .lines()
            .find(|line| line.starts_with("Usage:"))
            .unwrap();
        assert!(
            !usage.contains("--ex") && !usage.contains("--max"),
            "{usage}"
        );
    }
    // What was typed is not required either.
    let [_, said] = ends(&["build", "--gpt=root", "source", "-o", "image"], 2);
    assert!(said.contains("Usage: uext4 build [OPTIONS] "), "{said}");
    for (command, is_guessed) in [("frobnicate", false), ("umonut", true)] {
        let [_, said] = ends(&[command], 2);
        assert_eq!(said.contains("similar"), is_guessed, "{said}");
    }
    let [_, said] = ends(&["resize"], 2);
    assert!(said.contains("'grow', 'shrink'"), "{said}");
}

#[test]
fn what_is_no_file_says_what_to_do() {
    for (image, step) in [
        ("https://host/disk.img", "curl -O https://host/disk.img"),
        ("nbd://host/disk", "qemu-nbd -c"),
        ("s3://bucket/disk.img", "copy it to a file first"),
        ("-", "store it first"),
        (
            "oci-archive:box.tar",
            "uext4 build oci-archive:box.tar -o disk.img",
        ),
    ] {
        let [_, said] = ends(&["ls", image], 8);
        assert!(said.contains(step), "{said}");
    }
}

#[test]
fn a_name_of_another_format_is_warned_of() {
    let scratch = scratch();
    let image = scratch.path().join("disk.QCOW2");
    let [_, said] = ends(&["mkfs", "-q", text(&image), "4M"], 0);
    assert!(said.contains("-O qcow2"), "{said}");
    let raw = scratch.path().join("disk.img");
    let [_, said] = ends(&["mkfs", "-q", text(&raw), "4M"], 0);
    assert_eq!(said, "");
}

#[test]
fn sizes_are_the_same_everywhere() {
    let Some((scratch, image)) = image(&["-t", "ext4"], 16) else {
        return;
    };
    done(&image, &["touch", "/file"]);
    for (size, bytes) in [
        ("1.5K", 1536),
        ("2kb", 2000),
        ("1MiB", 1 << 20),
        ("3s", 1536),
    ] {
        done(&image, &["truncate", &format!("-s{size}"), "/file"]);
        let shown = uext4_ok(&["ls", "--json", text(&image), "/file"]);
        let shown: Value = serde_json::from_slice(&shown).unwrap();
        assert_eq!(shown[0]["size"], bytes, "{size}");
    }
    let made = scratch.path().join("16MB");
    uext4_ok(&["mkfs", "-q", "-b", "4096", text(&made), "16MB"]);
    assert_eq!(fs::metadata(&made).unwrap().len(), 16_000_000);
}

#[test]
fn info_shows_the_magic_number_as_everybody_knows_it() {
    let scratch = scratch();
    let image = filled(scratch.path());
    let shown = String::from_utf8(uext4_ok(&["info", &image])).unwrap();
    let line = shown
        .lines()
        .find(|line| line.starts_with("magic"))
        .unwrap();
    assert!(line.ends_with(" 0xef53"), "{line}");
    let shown: Value = serde_json::from_slice(&uext4_ok(&["info", "--json", &image])).unwrap();
    assert!(shown.to_string().contains("\"magic\":61267"), "{shown}");
}

#[test]
fn a_manifest_has_the_birth_and_the_hash_of_every_file() {
    let Some((_scratch, image)) = image(&["-t", "ext4"], 16) else {
        return;
    };
    done(&image, &["touch", "/large"]);
    done(&image, &["truncate", "-s65M", "/large"]);
    let lines = uext4_ok(&["manifest", text(&image), "/large"]);
    let line: Value = serde_json::from_slice(&lines).unwrap();
    // sha256sum of so many zeroes.
    let mut sum = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    sum.stdin
        .take()
        .unwrap()
        .write_all(&vec![0; 65 << 20])
        .unwrap();
    let sum = String::from_utf8(sum.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(line["sha256"], sum.split(' ').next().unwrap());
    assert!(
        line["crtime_ns"].as_u64().unwrap() > 1_600_000_000_000_000_000,
        "{line}"
    );
    let limited = uext4_ok(&["manifest", "--hash-max", "64M", text(&image), "/large"]);
    assert!(!String::from_utf8(limited).unwrap().contains("sha256"));
    // Holes that would take minutes.
    done(&image, &["truncate", "-s100G", "/large"]);
    let lines = uext4_ok(&["manifest", text(&image), "/large"]);
    let line: Value = serde_json::from_slice(&lines).unwrap();
    assert!(
        line["sha256_omitted"]
            .as_str()
            .unwrap()
            .contains("64.0 GiB"),
        "{line}"
    );
}

#[test]
fn a_body_file_is_that_of_fls() {
    let scratch = scratch();
    let image = filled(scratch.path());
    let lines = uext4_ok(&["manifest", "--format", "bodyfile", &image]);
    let mut ours: Vec<String> = String::from_utf8(lines)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    let file = ours.iter().find(|line| line.contains("|/file|")).unwrap();
    let fields: Vec<&str> = file.split('|').collect();
    assert_eq!((fields.len(), fields[0]), (11, "0"));
    assert_eq!(fields[3..7], ["r/rrw-r--r--", "7", "8", "17"]);
    assert!(ours.iter().any(|line| line.contains("|/link -> dir/a|")));
    if !has_tool("fls") {
        return;
    }
    let lines = run("fls", &["-rpm", "/", &image]);
    let mut theirs: Vec<String> = String::from_utf8(lines)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    // They show no root, but a directory of their own; /lost+found is theirs, too.
    theirs.retain(|line| !line.contains("$OrphanFiles"));
    ours.retain(|line| !line.starts_with("0|/|"));
    ours.sort_unstable();
    theirs.sort_unstable();
    assert_eq!(ours, theirs);
}

#[test]
fn each_command_of_a_script_has_an_answer_of_its_own() {
    let Some((_scratch, image)) = image(&["-t", "ext4"], 16) else {
        return;
    };
    let script =
        "mkdir /srv\n# nothing\nls --json /\nrm /none\nstat --json / /srv\ncat /none /srv\nls /\n";
    let mut child = Command::new(UEXT4)
        .args(["script", "--json", "--keep-going", text(&image)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(script.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stderr, b"");
    let answers: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let lines: Vec<u64> = answers
        .iter()
        .map(|a| a["line"].as_u64().unwrap())
        .collect();
    assert_eq!(lines, [1, 3, 4, 5, 6, 7]);
    let is_ok: Vec<bool> = answers.iter().map(|a| a["ok"].as_bool().unwrap()).collect();
    assert_eq!(is_ok, [true, true, false, true, false, true]);
    assert!(
        answers[1]["output"].as_array().unwrap().len() >= 2,
        "{}",
        answers[1]
    );
    assert_eq!(answers[2]["exit"], 1);
    assert!(
        answers[2]["errors"][0]["text"]
            .as_str()
            .unwrap()
            .contains("/none")
    );
    assert_eq!(
        answers[4]["errors"].as_array().unwrap().len(),
        2,
        "{}",
        answers[4]
    );
    assert!(answers[5]["output"].as_str().unwrap().contains("srv\n"));
}

#[test]
fn what_a_map_of_ddrescue_calls_bad_is_missing_and_not_zero() {
    let Some((scratch, image)) = image(&["-t", "ext4", "-b", "1024"], 16) else {
        return;
    };
    let source = scratch.path().join("file.dat");
    fs::write(&source, vec![7; 100 << 10]).unwrap();
    done(&image, &["put", text(&source), "/large"]);
    done(&image, &["put", text(&source), "/whole"]);
    let extents = uext4_ok(&["stat", "--json", text(&image), "/large"]);
    let extents: Value = serde_json::from_slice(&extents).unwrap();
    let extents = extents.to_string();
    let (_, rest) = extents.split_once("\"physical\":").expect(&extents);
    let block: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let at = (block.parse::<u64>().unwrap() + 10) * 1024;
    // ddrescue leaves zeroes.
    let mut bytes = fs::read(&image).unwrap();
    bytes[at as usize..][..2048].fill(0);
    fs::write(&image, bytes).unwrap();
    let map = scratch.path().join("map");
    let lines = format!(
        "# Mapfile\n0x0 + 1\n0x0 {at:#x} +\n{at:#x} 0x800 -\n{:#x} 0x1000000 +\n",
        at + 2048
    );
    fs::write(&map, lines).unwrap();
    let out = scratch.path().join("out");
    ends(
        &[
            "salvage",
            "--map",
            text(&map),
            text(&image),
            "-o",
            text(&out),
        ],
        1,
    );
    let record = fs::read_to_string(out.join("salvage.jsonl")).unwrap();
    let of = |name: &str| -> Value {
        let mut lines = record
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        lines.find(|line: &Value| line["path"] == name).unwrap()
    };
    assert_eq!(of("large")["contents"], "partial");
    assert_eq!(
        of("large")["missing"],
        serde_json::json!([[10 * 1024, 2048]])
    );
    assert_eq!(of("whole")["contents"], "whole");
    let without = scratch.path().join("without");
    ends(&["salvage", text(&image), "-o", text(&without)], 0);
    fs::write(&map, "no map\n").unwrap();
    let [_, said] = ends(
        &["salvage", "--map", text(&map), text(&image), "-o", "none"],
        2,
    );
    assert!(said.contains("line 1 is none"), "{said}");
}

#[test]
fn put_waits_for_another_program_on_request_and_names_it() {
    let Some((_scratch, image)) = image(&["-t", "ext4"], 16) else {
        return;
    };
    let holder = File::open(&image).unwrap();
    holder.lock().unwrap();
    let [_, said] = ends(&["mkdir", text(&image), "/a"], 8);
    let named = format!("process {} (", std::process::id());
    assert!(
        said.contains(&named) || !Path::new("/proc/locks").exists(),
        "{said}"
    );
    ends(&["mkdir", "--wait=0", text(&image), "/a"], 8);
    let mut waiting = Command::new(UEXT4)
        .args(["mkdir", "--wait", text(&image), "/a"])
        .spawn()
        .unwrap();
    for _ in 0..20 {
        assert!(waiting.try_wait().unwrap().is_none());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    drop(holder);
    assert!(waiting.wait().unwrap().success());
    uext4_ok(&["ls", "-d", text(&image), "/a"]);
}

#[test]
fn a_bad_archive_has_one_exit_code() {
    let Some((scratch, image)) = image(&["-t", "ext4"], 16) else {
        return;
    };
    let (good, bad) = (
        scratch.path().join("good.tar"),
        scratch.path().join("bad.tar"),
    );
    run(
        "tar",
        &[
            "-C",
            text(scratch.path()),
            "-cf",
            text(&good),
            text(&image).rsplit('/').next().unwrap(),
        ],
    );
    let bytes = fs::read(&good).unwrap();
    fs::write(&bad, &bytes[..1 << 20]).unwrap();
    let made = scratch.path().join("made");
    for command in [
        &["build", "-q", text(&bad), "-o", text(&made)][..],
        &["untar", text(&image), "/", "-f", text(&bad)],
    ] {
        let [_, said] = ends(command, 4);
        assert!(said.contains("cut short"), "{said}");
    }
}

#[test]
fn the_names_that_mkfs_and_a_stream_have() {
    let scratch = scratch();
    let link = scratch.path().join("mkfs.uext4");
    symlink(UEXT4, &link).unwrap();
    let image = scratch.path().join("image");
    run(text(&link), &["-q", text(&image), "16M"]);
    let shown = String::from_utf8(uext4_ok(&["info", text(&image)])).unwrap();
    assert!(shown.contains("ext4"), "{shown}");
    let source = scratch.path().join("source");
    fs::create_dir(&source).unwrap();
    let [_, said] = ends(&["build", text(&source), "-o", "-"], 0);
    assert!(
        said.contains("made an image on standard output: "),
        "{said}"
    );
}

#[test]
fn times_that_an_inode_cannot_hold_are_named_by_every_writer() {
    let scratch = scratch();
    let (image, source) = (scratch.path().join("image"), scratch.path().join("source"));
    fs::create_dir(&source).unwrap();
    let late = source.join("late");
    let file = File::create(&late).unwrap();
    let in_2040 = std::time::UNIX_EPOCH + std::time::Duration::from_secs(2_208_988_800);
    file.set_modified(in_2040).unwrap();
    let build = [
        "build",
        "-qF",
        "-I",
        "128",
        text(&source),
        "-o",
        text(&image),
    ];
    uext4_ok(&["mkfs", "-q", "-I", "128", text(&image), "16M"]);
    for command in [&["put", text(&image), text(&late), "/late"][..], &build] {
        let [_, said] = ends(command, 0);
        assert!(said.contains("late: its times lie outside"), "{said}");
    }
    uext4_ok(&["mkfs", "-qF", "-I", "256", text(&image), "16M"]);
    let [_, said] = ends(&["put", text(&image), text(&late), "/late"], 0);
    assert_eq!(said, "");
}

/// An archive of a file with so many names.
fn archive_of_names(names: usize) -> Vec<u8> {
    let mut archive = Vec::new();
    for name in 0..names {
        let mut header = [0; 512];
        let mut put = |at: usize, text: &str| {
            header[at..at + text.len()].copy_from_slice(text.as_bytes());
        };
        put(0, &format!("dir/{name}"));
        put(100, "0000644\0");
        put(108, "0000000\0");
        put(116, "0000000\0");
        put(136, "00000000000\0");
        put(257, "ustar\x0000");
        match name {
            0 => put(124, "00000000005\0"),
            _ => put(124, "00000000000\0"),
        }
        match name {
            0 => put(156, "0"),
            _ => {
                put(156, "1");
                put(157, "dir/0");
            }
        }
        put(148, "        ");
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        archive.extend(header);
        if name == 0 {
            let mut contents = [0; 512];
            contents[..5].copy_from_slice(b"hello");
            archive.extend(contents);
        }
    }
    archive.extend([0; 1024]);
    archive
}

#[test]
fn a_file_with_too_many_names_becomes_several_on_demand() {
    let scratch = scratch();
    let (archive, image) = (scratch.path().join("tar"), scratch.path().join("image"));
    fs::write(&archive, archive_of_names(65_003)).unwrap();
    let build = ["build", "-qF", text(&archive), "-o", text(&image)];
    let [_, said] = ends(&build, 8);
    assert!(said.contains("dir/65000: too many links"), "{said}");
    assert!(said.contains("--split-links"), "{said}");
    let put = ["untar", text(&image), "-f", text(&archive)];
    let split = |command: &[&str]| {
        let [_, said] = ends(&[command, &["--split-links"]].concat(), 0);
        assert!(said.contains("dir/65000: begins another file"), "{said}");
        uext4_ok(&["check", text(&image)]);
        for (name, links) in [("0", 65_000), ("64999", 65_000), ("65000", 3), ("65002", 3)] {
            let path = format!("/dir/{name}");
            assert_eq!(uext4_ok(&["cat", text(&image), &path]), b"hello");
            let stat = uext4_ok(&["stat", "--json", text(&image), &path]);
            let stat: Value = serde_json::from_slice(&stat).unwrap();
            assert_eq!(stat[0]["nlink"], links, "{stat}");
        }
    };
    split(&build);
    // The same from a pipe, whose contents go to their places while they are read.
    let piped = format!(
        "cat {} | {UEXT4} build -qF --split-links - -o {}",
        text(&archive),
        text(&image)
    );
    run("sh", &["-ec", &piped]);
    uext4_ok(&["check", text(&image)]);
    assert_eq!(uext4_ok(&["cat", text(&image), "/dir/65001"]), b"hello");
    uext4_ok(&["mkfs", "-qF", text(&image), "64M"]);
    split(&put);
}
