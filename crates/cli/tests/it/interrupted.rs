//! `put` killed at any moment: the image is consistent, and whole files stay whole.

use std::fs;
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
        // Readers see a sound file system before anybody has written to it again.
        let checked = uext4(&["check", text(&image)]);
        let told = String::from_utf8_lossy(&checked.stdout);
        assert!(checked.status.success(), "round {round}: {told}");
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
