//! Memory: long lists in an image are printed as they are read, not stored.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::host::{debugfs_write, has_tool, mke2fs, scratch, text};

const BLOCK: u64 = 4096;
/// Extents of the file; as JSON they are 75 MB.
const EXTENTS: u32 = 1_000_000;
/// KiB of data, to which the program's own text does not belong; a list of the extents that grows
/// does not fit. The allocator of memory takes 12 MiB for itself.
const LITTLE: u32 = 40 << 10;
/// The same for a check, which keeps six bytes an inode and some bits a block.
const ENOUGH: u32 = 256 << 10;
/// Entries of a node.
const FANOUT: usize = 340;

/// A node at `level` above the leaves: a header, and what its entries are.
fn node(level: u16, capacity: u16, entries: &[[u8; 12]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for half in [0xF30A, entries.len() as u16, capacity, level, 0, 0] {
        bytes.extend(half.to_le_bytes());
    }
    bytes.extend(entries.iter().flatten());
    bytes
}

/// An entry: the first block in the file, and two numbers whose meaning the level decides.
fn entry(lblk: u32, middle: u32, end: u32) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&lblk.to_le_bytes());
    bytes[4..8].copy_from_slice(&middle.to_le_bytes());
    bytes[8..].copy_from_slice(&end.to_le_bytes());
    bytes
}

/// An image with a file `many` whose blocks lie backwards, each an extent; `None` without the
/// tools.
fn image_of_many_extents() -> Option<(TempDir, PathBuf)> {
    if !has_tool("mke2fs") || !has_tool("debugfs") {
        return None;
    }
    let scratch = scratch();
    let image = scratch.path().join("image");
    mke2fs(
        &image,
        &[
            "-t",
            "ext4",
            "-b",
            "4096",
            "-O",
            "^metadata_csum,^has_journal",
        ],
        5000,
    );
    let file = File::options().write(true).open(&image).unwrap();
    let mut free = 1_200_000u32;
    let mut level = 0;
    let mut entries: Vec<[u8; 12]> = (0..EXTENTS)
        .map(|lblk| entry(lblk, 1, 1_100_000 - lblk))
        .collect();
    while entries.len() > 4 {
        let mut above = Vec::new();
        for some in entries.chunks(FANOUT) {
            let bytes = node(level, FANOUT as u16, some);
            file.write_all_at(&bytes, u64::from(free) * BLOCK).unwrap();
            let lblk = u32::from_le_bytes(some[0][..4].try_into().unwrap());
            above.push(entry(lblk, free, 0));
            free += 1;
        }
        entries = above;
        level += 1;
    }
    let mut root = node(level, 4, &entries);
    root.resize(60, 0);
    let empty = scratch.path().join("empty");
    fs::write(&empty, "x").unwrap();
    let mut commands = vec![format!("write {} many", text(&empty))];
    for (index, word) in root.chunks_exact(4).enumerate() {
        let name = match index {
            12 => "IND".to_owned(),
            13 => "DIND".to_owned(),
            14 => "TIND".to_owned(),
            _ => index.to_string(),
        };
        let word = u32::from_le_bytes(word.try_into().unwrap());
        commands.push(format!("sif many block[{name}] {word}"));
    }
    commands.push(format!("sif many size {}", u64::from(EXTENTS) * BLOCK));
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    debugfs_write(&image, &commands);
    Some((scratch, image))
}

/// Runs a command on a path in the image with so much memory; its exit code and standard output.
fn run(image: &Path, limit: u32, arguments: &[&str], path: &str) -> (Option<i32>, String) {
    let output = Command::new("sh")
        .args(["-c", &format!("ulimit -d {limit}; exec \"$0\" \"$@\"")])
        .arg(env!("CARGO_BIN_EXE_uext4"))
        .args(arguments)
        .arg(image)
        .args((!path.is_empty()).then_some(path))
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(!printed.contains("memory"), "{arguments:?}: {printed}");
    let lines = String::from_utf8(output.stdout).unwrap();
    (output.status.code(), lines)
}

#[test]
fn extents_are_shown_as_they_are_read() {
    let Some((_scratch, image)) = image_of_many_extents() else {
        return;
    };
    let (exit, lines) = run(&image, LITTLE, &["frag"], "/many");
    assert_eq!(exit, Some(0));
    assert_eq!(lines.lines().last(), Some("extents: 1000000"));
    let (_, lines) = run(&image, LITTLE, &["stat", "--extents"], "/many");
    assert!(lines.ends_with("extent    999999..1000000 at 100001..100002\n"));
    for command in ["frag", "stat"] {
        let (_, json) = run(&image, LITTLE, &[command, "--json"], "/many");
        assert_eq!(json.matches("\"physical\":").count(), EXTENTS as usize);
        assert!(json.contains("{\"logical\":999999,\"physical\":100001,\"length\":1,"));
    }
    let (_, json) = run(&image, LITTLE, &["frag", "--json"], "");
    assert!(json.contains("\"most_extents\":[{\"path\":\"many\",\"extents\":1000000}]"));
    // Nothing marked the blocks as used.
    assert_eq!(run(&image, ENOUGH, &["check"], "").0, Some(4));
}
