//! `script`: many changes in one opening, with the numbers of lines where they fail.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use uext4_testkit::SplitMix64;

use crate::changing::{done, image, judge};
use crate::host::{text, uext4_ok};

#[path = "../exercise/script.rs"]
mod exercise;

/// Runs a script on the image.
fn script(image: &Path, options: &[&str], lines: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_uext4"))
        .arg("script")
        .args(options)
        .arg(image)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may stop before it has read all.
    let _ = child.stdin.take().unwrap().write_all(lines.as_bytes());
    child.wait_with_output().unwrap()
}

#[test]
fn scripts_do_many_things_in_one_opening() {
    let Some((_scratch, image)) = image(&["-t", "ext4"], 16) else {
        return;
    };
    let output = script(
        &image,
        &[],
        "# a comment\n\nmkdir --parents '/a b/c'   # and one more\n\
         touch -d @0 /a\\ b/file\nls -l '/a b'\ntruncate -s 3 '/a b/file'\ncat '/a b/file'\n\
         setfattr -n user.x -v y /a\\ b/file\ngetfattr -d '/a b/file'\nsync\nstat '/a b'",
    );
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    let shown = String::from_utf8(output.stdout).unwrap();
    for printed in [
        "1970-01-01 00:00:00 file\n\0\0\0# file",
        "user.x=\"y\"",
        "file      /a b\n",
    ] {
        assert!(shown.contains(printed), "{printed:?}: {shown}");
    }
    judge(&image);
}

#[test]
fn standard_input_is_the_script_or_a_file_of_it() {
    let Some((scratch, image)) = image(&["-t", "ext4"], 16) else {
        return;
    };
    let lines = "mkdir /a\nput --mode 600 - /a/file\n";
    let output = script(&image, &[], lines);
    assert_eq!(output.status.code(), Some(2));
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(
        printed.contains("line 2: put - would read the script"),
        "{printed}"
    );
    assert!(printed.contains("-f FILE"), "{printed}");
    let file = scratch.path().join("script");
    fs::write(&file, "put --mode 600 - /a/file\n").unwrap();
    let output = script(&image, &["-f", text(&file)], "contents");
    assert!(output.status.success());
    assert_eq!(uext4_ok(&["cat", text(&image), "/a/file"]), b"contents");
    let list = done(&image, &["ls", "-l", "/a"]);
    assert!(list.starts_with("-rw------- "), "{list}");
    judge(&image);
}

#[test]
fn a_script_stops_at_the_first_error_or_goes_on() {
    let Some((_scratch, image)) = image(&["-t", "ext4"], 16) else {
        return;
    };
    let lines = "mkdir /a\nrm /none\nmkdir /b\nnonsense\nmkdir '/c\nmkdir /d\n";
    let output = script(&image, &[], lines);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("line 2: /none: no such file"), "{stderr}");
    assert_eq!(done(&image, &["ls", "/"]), "a\nlost+found\n");
    let output = script(&image, &["--keep-going"], lines);
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    for printed in ["line 1: /a", "line 2:", "line 4:", "line 5: a closing"] {
        assert!(stderr.contains(printed), "{printed}: {stderr}");
    }
    assert_eq!(done(&image, &["ls", "/"]), "a\nb\nd\nlost+found\n");
    judge(&image);
}

#[test]
fn a_script_reports_dirty_data() {
    let Some((scratch, image)) = image(&["-t", "ext4"], 16) else {
        return;
    };
    let source = scratch.path().join("source");
    fs::write(&source, vec![7; 200 << 10]).unwrap();
    let lines = format!(
        "put {} /file\nstats\nstats --json\nsync\nstats --json\n",
        text(&source)
    );
    let output = script(&image, &[], &lines);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{printed}");
    let shown = String::from_utf8(output.stdout).unwrap();
    let (lines, objects): (Vec<&str>, Vec<&str>) =
        shown.lines().partition(|line| !line.starts_with('{'));
    let names = "BdiWriteback BdiReclaimable BdiDirtyThresh DirtyThresh BackgroundThresh BdiDirtied \
                 BdiWritten BdiWriteBandwidth BdiDirtyRatelimit b_dirty b_io b_more_io b_dirty_time";
    let names: Vec<&str> = names.split_whitespace().collect();
    let found: Vec<&str> = lines
        .iter()
        .filter_map(|l| Some(l.split_once(':')?.0))
        .collect();
    assert_eq!(found, names, "{shown}");
    let objects: Vec<serde_json::Value> = objects
        .iter()
        .map(|object| serde_json::from_str(object).unwrap())
        .collect();
    let value = |index: usize, name: &str| objects[index][name].as_u64().unwrap();
    assert!(
        names.iter().all(|name| objects[0][*name].is_u64()),
        "{shown}"
    );
    // Of a file of 200 kB some may be written before the first look, all is after the second.
    let all = value(0, "BdiReclaimable") + value(0, "BdiWriteback") + value(0, "BdiWritten");
    assert_eq!((all, value(0, "BdiDirtied")), (200, 200), "{shown}");
    assert_eq!(
        (value(1, "BdiReclaimable"), value(1, "BdiWriteback")),
        (0, 0)
    );
    assert_eq!((value(1, "BdiWritten"), value(1, "b_dirty")), (200, 0));
    judge(&image);
}

/// Scripts that the fuzzer found, and one to begin with.
fn cases() -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus-regressions/script");
    let cases = fs::read_dir(root).unwrap();
    let mut paths: Vec<_> = cases.map(|case| case.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

#[test]
fn scripts_that_the_fuzzer_found_leave_sound_images() {
    let cases = cases();
    assert!(!cases.is_empty());
    if !cases.iter().all(|case| exercise::exercise(case)) {
        eprintln!("skipped: this kernel has no Landlock");
    }
}

#[test]
fn random_lines_and_words_leave_sound_images() {
    let rounds = match std::env::var_os("UEXT4_LONG") {
        Some(_) => 20_000,
        None => 60,
    };
    let (cases, mut random) = (cases(), SplitMix64::new(25));
    let lines: Vec<&[u8]> = cases
        .iter()
        .flat_map(|case| case.split(|&b| b == b'\n'))
        .collect();
    let words: Vec<&[u8]> = lines
        .iter()
        .flat_map(|line| line.split(|&b| b == b' '))
        .collect();
    for _ in 0..rounds {
        let mut script = Vec::new();
        for _ in 0..30 {
            let line = lines[random.next_u64() as usize % lines.len()];
            for word in line.split(|&b| b == b' ') {
                let word = match random.next_u64() % 8 {
                    0 => words[random.next_u64() as usize % words.len()],
                    _ => word,
                };
                script.extend_from_slice(word);
                script.push(b' ');
            }
            if random.next_u64() % 8 == 0 {
                let at = random.next_u64() as usize % script.len();
                script[at] = random.next_u64() as u8;
            }
            script.push(b'\n');
        }
        if !exercise::exercise(&script) {
            eprintln!("skipped: this kernel has no Landlock");
            return;
        }
    }
}

#[test]
fn a_line_that_is_no_command_is_answered_in_a_line_and_with_the_tip() {
    let Some((_scratch, image)) = image(&["-t", "ext4"], 16) else {
        return;
    };
    // The first wrong line ends a script.
    let said = ["rm --recursve /a\n", "mkdir\n"].map(|line| {
        let output = script(&image, &[], line);
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    });
    let said = said.concat();
    assert!(
        said.contains("'--recursve'") && said.contains("--recursive"),
        "{said}"
    );
    assert!(said.contains("required") && said.contains("PATH"), "{said}");
    for word in ["\\n", "Usage", "tip:", "For more information"] {
        assert!(!said.contains(word), "{word}: {said}");
    }
}
