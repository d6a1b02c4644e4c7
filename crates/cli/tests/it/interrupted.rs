//! `put` and `script` killed at any moment: the image is consistent, and whole files stay whole;
//! of a script a beginning was done, and at least what it answered to.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::changing::judge;
use crate::host::{has_tool, mke2fs, run, scratch, text, uext4, uext4_ok};

/// Times a `put` is killed.
const KILLS: u32 = 24;

/// Directories, small and larger files.
fn source(dir: &Path) {
    for number in 0..40 {
        let below = dir.join(format!("dir{number}/sub"));
        fs::create_dir_all(&below).unwrap();
        for file in 0..50 {
            let name = below.join(format!("file{file}"));
            fs::write(name, vec![file; 3000 * usize::from(file)]).unwrap();
        }
    }
}

fn put(image: &Path, source: &Path) -> std::process::Child {
    Command::new(env!("CARGO_BIN_EXE_uext4"))
        .args(["put", "--overwrite", text(image), text(source), "/copy"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn put_may_be_killed_at_any_moment() {
    if !has_tool("mke2fs") || !has_tool("e2fsck") {
        return;
    }
    let scratch = scratch();
    let (image, source_dir) = (scratch.path().join("image"), scratch.path().join("source"));
    source(&source_dir);
    mke2fs(&image, &["-t", "ext4", "-J", "size=4"], 512);
    uext4_ok(&["mkdir", text(&image), "/safe"]);
    let begun = Instant::now();
    let safe = source_dir.join("dir1");
    uext4_ok(&["put", text(&image), text(&safe), "/safe"]);
    let empty = fs::read(&image).unwrap();
    let begun_all = Instant::now();
    assert!(put(&image, &source_dir).wait().unwrap().success());
    let whole = begun_all.elapsed().max(begun.elapsed() / 10);
    fs::write(&image, &empty).unwrap();
    let mut killed = 0;
    for round in 0..KILLS {
        // Spread over the time that it takes, with no two rounds alike.
        let part = (u64::from(round) * 7919 + u64::from(std::process::id())) % 1000;
        let mut child = put(&image, &source_dir);
        std::thread::sleep(Duration::from_micros(
            whole.as_micros() as u64 * part / 1000,
        ));
        let _ = child.kill();
        killed += u32::from(!child.wait().unwrap().success());
        // Readers see a sound file system before any thread has written to it again.
        let checked = uext4(&["check", text(&image)]);
        let printed = String::from_utf8_lossy(&checked.stdout);
        assert!(checked.status.success(), "round {round}: {printed}");
        uext4_ok(&["sync", text(&image)]);
        judge(&image);
        let kept = scratch.path().join("kept");
        uext4_ok(&["get", text(&image), "/safe/dir1", text(&kept)]);
        run("diff", &["-r", text(&safe), text(&kept)]);
        fs::remove_dir_all(&kept).unwrap();
        if round % 8 == 7 {
            fs::write(&image, &empty).unwrap();
        }
    }
    assert!(killed >= KILLS / 3, "only {killed} were killed in time");
    assert!(put(&image, &source_dir).wait().unwrap().success());
    let kept = scratch.path().join("kept");
    uext4_ok(&["get", text(&image), "/copy", text(&kept)]);
    run("diff", &["-r", text(&source_dir), text(&kept)]);
    judge(&image);
}

/// What is there after the first `count` lines of the script below, sorted as `ls` does.
fn after(count: usize) -> Vec<String> {
    let mut names = vec!["lost+found".to_owned()];
    for number in 0..count.div_ceil(2) {
        let moved = 2 * number + 1 < count;
        names.push(format!("{}{number}", if moved { "m" } else { "n" }));
    }
    names.sort();
    names
}

/// Lines done together before the script answers.
const ANSWER: usize = 100;
/// Lines that change something.
const CHANGES: usize = 4000;

/// Every two lines make a name and move it; in between lines that are answered, which makes all
/// before them durable.
fn lines() -> String {
    let mut lines = String::new();
    for line in 0..CHANGES {
        let number = line / 2;
        lines += &match line % 2 {
            0 => format!("touch /n{number}\n"),
            _ => format!("mv /n{number} /m{number}\n"),
        };
        if (line + 1) % ANSWER == 0 {
            lines += "stat --json /lost+found\n";
        }
    }
    lines
}

#[test]
fn of_a_killed_script_a_beginning_is_done() {
    if !has_tool("mke2fs") || !has_tool("e2fsck") {
        return;
    }
    let scratch = scratch();
    let image = scratch.path().join("image");
    let file = scratch.path().join("script");
    fs::write(&file, lines()).unwrap();
    let mut unfinished = 0;
    for round in 0..12 {
        mke2fs(&image, &["-t", "ext4", "-J", "size=4"], 64);
        let mut script = Command::new(env!("CARGO_BIN_EXE_uext4"))
            .args(["script", "-f", text(&file), text(&image)])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut answers = BufReader::new(script.stdout.take().unwrap()).lines();
        let mut answered = answers.by_ref().take(round * 3).count();
        std::thread::sleep(Duration::from_millis(round as u64 % 4));
        let _ = script.kill();
        script.wait().unwrap();
        // Those that were on their way.
        answered += answers.count();
        uext4_ok(&["check", text(&image)]);
        uext4_ok(&["sync", text(&image)]);
        judge(&image);
        let list = String::from_utf8(uext4_ok(&["ls", text(&image)])).unwrap();
        let names: Vec<_> = list.lines().map(str::to_owned).collect();
        let begin = |letter| names.iter().filter(|name| name.starts_with(letter)).count();
        let done = 2 * begin('m') + begin('n');
        assert_eq!(names, after(done), "round {round}");
        let durable = answered * ANSWER;
        assert!(done >= durable, "round {round}: {done} of {durable}");
        unfinished += u32::from(done < CHANGES);
    }
    assert!(unfinished >= 6, "only {unfinished} were killed in time");
}
