//! Repairs where the file system has no room for the log that makes them safe in place: what the
//! refusal says to do is done here, word by word.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::changing::{image, judge};
use crate::checking::ended;
use crate::fsck::power_cut_of_a_full_one;
use crate::host::{UEXT4, debugfs_write, dumpe2fs, text, uext4, uext4_ok};

/// Blocks that are free, by the superblock.
fn free(image: &Path) -> u64 {
    let shown = dumpe2fs(image);
    let line = shown.lines().find(|line| line.starts_with("Free blocks:"));
    line.unwrap()
        .split_whitespace()
        .next_back()
        .unwrap()
        .parse()
        .unwrap()
}

/// An image with no more than three free blocks, damaged; in its name is what a shell would divide.
/// With `waits` its journal must be replayed.
fn full(options: &str, waits: bool) -> Option<(TempDir, PathBuf)> {
    let options: Vec<_> = options.split_whitespace().collect();
    let (scratch, made) = image(&options, 6)?;
    let image = scratch.path().join("it's full.img");
    fs::rename(made, &image).unwrap();
    let source = scratch.path().join("source");
    let write = |name: &str, bytes: &[u8]| {
        fs::write(&source, bytes).unwrap();
        debugfs_write(&image, [format!("write {} {name}", source.display())]);
    };
    write("kept", b"contents\n");
    // Large files have blocks of their own for their maps.
    for (n, spare) in [40, 8].into_iter().enumerate() {
        let blocks = free(&image).saturating_sub(spare) as usize;
        write(&format!("f{n}"), &vec![0x5A; blocks * 1024]);
    }
    while free(&image) > 3 {
        write(&format!("g{}", free(&image)), &[0x5A; 1024]);
    }
    if waits {
        power_cut_of_a_full_one(&image);
    }
    fs::remove_file(&source).unwrap();
    debugfs_write(&image, ["sif kept links_count 3", "sif f0 links_count 7"]);
    Some((scratch, image))
}

/// The command lines of a message, between grave accents.
fn commands(said: &str) -> Vec<String> {
    let parts = said.split('`').skip(1).step_by(2);
    parts.map(str::to_owned).collect()
}

/// Runs a command line as a shell does; its exit code.
fn in_shell(line: &str) -> Option<i32> {
    let program = Path::new(UEXT4).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("sh");
    command.args(["-c", line]);
    command.env("PATH", format!("{}:{path}", program.display()));
    command.output().unwrap().status.code()
}

#[test]
fn a_full_file_system_is_repaired_as_the_refusal_says() {
    for (options, waits) in [
        ("-t ext2 -b 1024 -m 0 -N 64 -O ^resize_inode", false),
        (
            "-t ext4 -b 1024 -m 0 -N 64 -J size=1 -O ^resize_inode",
            true,
        ),
    ] {
        let Some((scratch, image)) = full(options, waits) else {
            return;
        };
        let before = fs::read(&image).unwrap();
        let mut lines = Vec::new();
        for command in [&["repair", "-y"][..], &["fsck", "-fy"]] {
            let output = uext4(&[command, &[text(&image)]].concat());
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(4), "{options}: {said}");
            assert!(said.contains("no room is left"), "{options}: {said}");
            assert!(fs::read(&image).unwrap() == before, "{options}");
            lines = commands(&said);
            assert_eq!(lines.len(), 3, "{options}: {said}");
        }
        let (undo, new) = (
            scratch.path().join("it's full.img.undo"),
            scratch.path().join("it's full.img.repaired"),
        );
        // Into a new image; in place; and back.
        assert_eq!(in_shell(&lines[2]), Some(1), "{lines:?}");
        assert!(fs::read(&image).unwrap() == before, "{options}");
        judge(&new);
        assert_eq!(in_shell(&lines[0]), Some(1), "{lines:?}");
        judge(&image);
        assert_eq!(uext4_ok(&["cat", text(&image), "/kept"]), b"contents\n");
        assert_eq!(in_shell(&lines[1]), Some(0), "{lines:?}");
        assert!(fs::read(&image).unwrap() == before, "{options}");
        fs::remove_file(&undo).unwrap();
        let (code, said) = ended(&["fsck", "-fy", "-z", text(&undo), text(&image)]);
        assert_eq!(code, Some(1), "{options}: {said}");
        judge(&image);
        assert_eq!(uext4_ok(&["cat", text(&image), "/kept"]), b"contents\n");
    }
}
