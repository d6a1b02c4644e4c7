//! Exit codes, help, JSON, partitions, backups and pipes. None of it needs root.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::host::{dumpe2fs, has_tool, mke2fs, scratch, text, uext4, uext4_ok};

pub const COMMANDS: [&str; 17] = [
    "info", "ls", "lsattr", "tree", "find", "grep", "diff", "du", "cat", "stat", "get", "tar",
    "manifest", "frag", "stats", "check", "scan",
];

/// Those that write.
pub const CHANGING: [&str; 31] = [
    "build",
    "mkfs",
    "clone",
    "put",
    "untar",
    "mkdir",
    "rm",
    "mv",
    "ln",
    "chmod",
    "chown",
    "chattr",
    "setfacl",
    "getfacl",
    "setfattr",
    "getfattr",
    "truncate",
    "fallocate",
    "touch",
    "sync",
    "dedup-xattrs",
    "grow",
    "trim",
    "quota",
    "script",
    "repair",
    "undo",
    "tune",
    "fsck",
    "salvage",
    "undelete",
];

/// A small image with a known tree; `None` without mke2fs.
fn image(options: &[&str]) -> Option<(TempDir, PathBuf)> {
    if !has_tool("mke2fs") {
        return None;
    }
    let scratch = scratch();
    let source = scratch.path().join("source");
    fs::create_dir_all(source.join("dir/sub")).unwrap();
    fs::write(source.join("dir/file"), "contents\n").unwrap();
    fs::write(source.join("dir/esc\x1b[31m"), "").unwrap();
    fs::write(source.join("dir/sub/big"), vec![7; 3_000_000]).unwrap();
    std::os::unix::fs::symlink("dir/file", source.join("link")).unwrap();
    let image = scratch.path().join("image");
    let mut arguments = vec!["-t", "ext4", "-d", text(&source)];
    arguments.extend(options);
    mke2fs(&image, &arguments, 16);
    Some((scratch, image))
}

pub fn exit_code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn every_command_has_help_with_examples() {
    let all = stdout(&uext4(&["--help"]));
    assert!(all.contains("Exit codes:"));
    for command in COMMANDS.iter().chain(&CHANGING) {
        assert!(all.contains(command), "{command}");
        let help = uext4(&[command, "--help"]);
        assert_eq!(exit_code(&help), 0);
        assert!(stdout(&help).contains("Examples:"), "{command}");
        assert_eq!(uext4_ok(&["help", command]), help.stdout, "{command}");
    }
    assert!(stdout(&uext4(&["--version"])).starts_with("uext4 "));
}

#[test]
fn nonsense_is_a_usage_error() {
    for arguments in [
        &[][..],
        &["no-such-command"],
        &["ls"],
        &["ls", "--nonsense", "x"],
        &["ls", "--drop-verity", "x"],
        &["check", "--drop-verity", "x"],
        &["mkdir", "--options", "mb_stream_req=9999999", "x", "/d"],
        &[
            "mkdir",
            "--options",
            "discard,mb_group_prealloc=all",
            "x",
            "/d",
        ],
    ] {
        let output = uext4(arguments);
        assert_eq!(exit_code(&output), 2, "{arguments:?}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_missing_image_is_named() {
    for command in COMMANDS {
        let mut arguments = vec![command, "/no/such.img"];
        arguments.extend(match command {
            "cat" | "stat" => &["/x"][..],
            "get" => &["/x", "/y"],
            // The pattern comes first.
            "grep" => &["/no/such.img"],
            "diff" => &["/no/other.img"],
            _ => &[],
        });
        let code = match command {
            "grep" | "diff" => 2,
            _ => 8,
        };
        let output = uext4(&arguments);
        assert_eq!(exit_code(&output), code, "{command}");
        assert!(stderr(&output).contains("/no/such.img"), "{command}");
    }
}

#[test]
fn other_contents_are_not_reported_as_damage() {
    let scratch = scratch();
    for (name, len, contents) in [
        ("empty", 0, "no bytes at all"),
        ("short", 1500, "zeroes"),
        ("zeroes", 1 << 20, "zeroes"),
    ] {
        let path = scratch.path().join(name);
        File::create(&path).unwrap().set_len(len).unwrap();
        let output = uext4(&["ls", text(&path)]);
        assert_eq!(exit_code(&output), 8, "{name}: {}", stderr(&output));
        assert!(stderr(&output).contains(contents), "{name}");
    }
}

#[test]
fn a_missing_path_is_reported_and_the_rest_is_done() {
    let Some((_scratch, image)) = image(&[]) else {
        return;
    };
    let output = uext4(&["cat", text(&image), "/no/such", "/dir/file"]);
    assert_eq!(exit_code(&output), 1);
    assert_eq!(stdout(&output), "contents\n");
    assert!(stderr(&output).contains("/no/such: no such file"));
    assert_eq!(exit_code(&uext4(&["cat", text(&image), "/dir"])), 1);
    assert_eq!(exit_code(&uext4(&["ls", text(&image), "/no/such"])), 1);
}

#[test]
fn names_are_shown_escaped_and_links_are_followed() {
    let Some((_scratch, image)) = image(&[]) else {
        return;
    };
    let list = stdout(&uext4(&["ls", text(&image), "/dir"]));
    assert_eq!(list, "esc\\033[31m\nfile\nsub\n");
    assert_eq!(uext4_ok(&["cat", text(&image), "link"]), b"contents\n");
    let long = stdout(&uext4(&["ls", "-l", text(&image)]));
    assert!(long.contains(" link -> dir/file\n"), "{long}");
    let tree = stdout(&uext4(&["tree", text(&image), "dir"]));
    let drawn = "├── esc\\033[31m\n├── file\n└── sub\n    └── big\n";
    assert!(tree.contains(drawn), "{tree}");
    assert!(!stdout(&uext4(&["tree", "-L", "1", text(&image)])).contains("sub"));
    let all = stdout(&uext4(&["ls", "-R", text(&image), "/dir"]));
    assert!(all.ends_with("\n\n/dir/sub:\nbig\n"), "{all}");
}

#[test]
fn json_parses() {
    let Some((_scratch, image)) = image(&[]) else {
        return;
    };
    let json = |arguments: &[&str]| -> Value {
        let (command, rest) = arguments.split_first().unwrap();
        let mut all = vec![*command, "--json", text(&image)];
        all.extend(rest);
        serde_json::from_slice(&uext4_ok(&all)).unwrap()
    };
    let info = json(&["info", "--groups"]);
    assert_eq!(info["kind"], "ext4");
    assert_eq!(info["group_descriptors"].as_array().unwrap().len(), 2);
    assert!(
        info["features"]
            .as_array()
            .unwrap()
            .iter()
            .any(|f| f["name"] == "extent")
    );
    let list = json(&["ls", "/dir"]);
    assert_eq!(list.as_array().unwrap().len(), 3);
    assert_eq!(list[1]["path"], "/dir/file");
    assert_eq!(json(&["ls", "-R"]).as_array().unwrap().len(), 7);
    assert_eq!(json(&["tree"])[0]["type"], "dir");
    let stat = json(&["stat", "/dir/sub/big", "<2>"]);
    assert_eq!(stat[0]["size"], 3_000_000);
    assert_eq!(stat[0]["extents"][0]["logical"], 0);
    assert_eq!(stat[1]["ino"], 2);
    let frag = json(&["frag"]);
    assert_eq!(frag["files"], 8);
    assert_eq!(frag["free_clusters"], info["free_blocks"]);
    assert_eq!(json(&["frag", "/dir/sub/big"])["size"], 3_000_000);
    let each = json(&["frag", "-v"]);
    assert_eq!(each["each"].as_array().unwrap().len(), 8);
    assert_eq!(json(&["check"])["clean"], true);
}

/// The numbers of e2freefrag: free blocks, KiB of the shortest, longest and average free run, and
/// how many runs and blocks there are from each power of two of KiB on.
fn e2freefrag(image: &Path) -> (u64, [u64; 3], Vec<(u64, u64)>) {
    let output = Command::new("e2freefrag").arg(image).output().unwrap();
    let text = stdout(&output);
    let number = |name: &str| -> u64 {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        let words = line[name.len()..].split_whitespace();
        words
            .into_iter()
            .find_map(|word| word.parse().ok())
            .unwrap()
    };
    let runs = [
        "Min. free extent:",
        "Max. free extent:",
        "Avg. free extent:",
    ]
    .map(number);
    let rows = text
        .lines()
        .filter(|line| line.contains("...") && line.contains("-  :"));
    let histogram = rows.map(|row| {
        let numbers = row.split_once(':').unwrap().1;
        let mut numbers = numbers.split_whitespace();
        let mut next = || numbers.next().unwrap().parse().unwrap();
        (next(), next())
    });
    (number("Free blocks:"), runs, histogram.collect())
}

#[test]
fn free_runs_are_those_of_e2freefrag() {
    if !has_tool("e2freefrag") {
        return;
    }
    for options in [&["-b", "1024"][..], &["-b", "4096"]] {
        let Some((_scratch, image)) = image(options) else {
            return;
        };
        let frag: Value =
            serde_json::from_slice(&uext4_ok(&["frag", "--json", text(&image)])).unwrap();
        let number = |key: &str| frag[key].as_u64().unwrap();
        let (free, [min, max, average], histogram) = e2freefrag(&image);
        assert_eq!(number("free_clusters"), free);
        assert_eq!(number("free_extent_min") >> 10, min);
        assert_eq!(number("free_extent_max") >> 10, max);
        assert_eq!(number("free_extent_average") >> 10, average);
        let ours = frag["free_histogram"].as_array().unwrap();
        let rows = ours.iter().map(|row| {
            let number = |key: &str| row[key].as_u64().unwrap();
            (number("extents"), number("clusters"))
        });
        assert_eq!(rows.collect::<Vec<_>>(), histogram, "{options:?}");
        assert_eq!((number("extents_p50"), number("extents_p99")), (1, 1));
    }
}

#[test]
fn groups_are_summed_up_as_the_superblock_says() {
    let Some((_scratch, image)) = image(&["-b", "1024"]) else {
        return;
    };
    let read = |arguments: &[&str]| -> Value {
        let all = [arguments, &["--json", text(&image)]].concat();
        serde_json::from_slice(&uext4_ok(&all)).unwrap()
    };
    let stats = read(&["stats", "-v"]);
    assert_eq!(stats["free"], read(&["info"])["free_blocks"]);
    assert_eq!(stats["groups_with_wrong_counts"], 0);
    let each = stats["each"].as_array().unwrap();
    assert_eq!(each.len() as u64, stats["groups"].as_u64().unwrap());
    for group in each {
        let counters = group["counters"].as_array().unwrap();
        let chunks = counters.iter().enumerate();
        let blocks: u64 = chunks.map(|(order, n)| n.as_u64().unwrap() << order).sum();
        assert_eq!(group["free"], blocks);
    }
    let text = String::from_utf8(uext4_ok(&["stats", "-v", text(&image)])).unwrap();
    assert!(text.contains("max_free_order_lists:\n\tlist_order_0_groups:"));
    assert_eq!(
        text.lines().filter(|line| line.starts_with('#')).count(),
        each.len() + 1
    );
}

#[test]
fn free_space_is_what_the_superblock_says() {
    for options in [
        &["-b", "1024"][..],
        &["-b", "4096"],
        &["-O", "^metadata_csum,^uninit_bg"],
    ] {
        let Some((_scratch, image)) = image(options) else {
            return;
        };
        let read = |command| -> Value {
            serde_json::from_slice(&uext4_ok(&[command, "--json", text(&image)])).unwrap()
        };
        assert_eq!(
            read("frag")["free_clusters"],
            read("info")["free_blocks"],
            "{options:?}"
        );
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let Some((_scratch, image)) = image(&[]) else {
        return;
    };
    let mut child = Command::new(env!("CARGO_BIN_EXE_uext4"))
        .args(["cat", text(&image), "/dir/sub/big"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 10];
    let mut pipe = child.stdout.take().unwrap();
    pipe.read_exact(&mut first).unwrap();
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    assert_eq!(exit_code(&output), 0);
    assert_eq!(stderr(&output), "");
}

/// A disk with an MBR and the image in two partitions.
fn disk(scratch: &Path, image: &Path) -> PathBuf {
    let contents = fs::read(image).unwrap();
    let disk = scratch.join("disk");
    let file = File::create(&disk).unwrap();
    let sectors = contents.len() as u32 / 512;
    file.set_len(u64::from(sectors) * 512 * 2 + (4 << 20))
        .unwrap();
    let mut table = [0; 512];
    for (index, start) in [2048, 4096 + sectors].into_iter().enumerate() {
        let entry = &mut table[446 + 16 * index..][..16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&u32::to_le_bytes(start));
        entry[12..].copy_from_slice(&u32::to_le_bytes(sectors));
        file.write_all_at(&contents, u64::from(start) * 512)
            .unwrap();
    }
    table[510..].copy_from_slice(&[0x55, 0xAA]);
    file.write_all_at(&table, 0).unwrap();
    disk
}

#[test]
fn partitions_are_found_by_themselves() {
    let Some((scratch, image)) = image(&[]) else {
        return;
    };
    let disk = disk(scratch.path(), &image);
    let several = uext4(&["ls", text(&disk)]);
    assert_eq!(exit_code(&several), 8);
    assert!(
        stderr(&several).contains("--partition N: 1 ("),
        "{}",
        stderr(&several)
    );
    for choice in [
        ["--partition", "1"],
        ["--partition", "2"],
        ["--offset", "1M"],
    ] {
        let output = uext4(&["cat", choice[0], choice[1], text(&disk), "/dir/file"]);
        assert_eq!(
            stdout(&output),
            "contents\n",
            "{choice:?}: {}",
            stderr(&output)
        );
    }
    assert_eq!(
        exit_code(&uext4(&["ls", "--partition", "3", text(&disk)])),
        8
    );
    // One that has lost its superblock is still one of two.
    let file = File::options().write(true).open(&disk).unwrap();
    file.write_all_at(&[0; 2048], 1 << 20).unwrap();
    let several = uext4(&["ls", text(&disk)]);
    assert_eq!(exit_code(&several), 8);
    assert!(stderr(&several).contains("its superblock is lost), 2 ("));
    // With nothing left of it there is no question.
    file.write_all_at(&vec![0; 16 << 20], 1 << 20).unwrap();
    assert_eq!(uext4_ok(&["cat", text(&disk), "/dir/file"]), b"contents\n");
}

#[test]
fn a_backup_superblock_serves() {
    let Some((_scratch, image)) = image(&["-b", "1024"]) else {
        return;
    };
    let file = File::options().write(true).open(&image).unwrap();
    file.write_all_at(&[0; 1024], 1024).unwrap();
    let without = uext4(&["ls", text(&image)]);
    assert_eq!(exit_code(&without), 0);
    assert!(stderr(&without).contains("the backup in block 8193 is used"));
    let missing = uext4(&["ls", "--superblock", "8194", text(&image)]);
    assert_eq!(exit_code(&missing), 4);
    assert!(stderr(&missing).contains("superblock"));
    let with = uext4(&["cat", "--superblock", "8193", text(&image), "/dir/file"]);
    assert_eq!(stdout(&with), "contents\n", "{}", stderr(&with));
}

#[test]
fn info_agrees_with_dumpe2fs() {
    let Some((_scratch, image)) = image(&["-L", "label", "-m", "3"]) else {
        return;
    };
    let info: Value = serde_json::from_slice(&uext4_ok(&["info", "--json", text(&image)])).unwrap();
    let printed = dumpe2fs(&image);
    let field = |name: &str| {
        let line = printed.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].trim().to_owned()
    };
    assert_eq!(info["label"], "label");
    assert_eq!(info["uuid"], field("Filesystem UUID:"));
    assert_eq!(info["hash_seed"], field("Directory Hash Seed:"));
    for (ours, theirs) in [
        ("blocks", "Block count:"),
        ("reserved_blocks", "Reserved block count:"),
        ("free_blocks", "Free blocks:"),
        ("inodes", "Inode count:"),
        ("free_inodes", "Free inodes:"),
        ("block_size", "Block size:"),
        ("inode_size", "Inode size:"),
        ("inodes_per_group", "Inodes per group:"),
        ("flex_group_size", "Flex block group size:"),
        ("journal_inode", "Journal inode:"),
    ] {
        assert_eq!(info[ours].to_string(), field(theirs), "{ours}");
    }
    let ours: Vec<&str> = info["features"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["name"].as_str().unwrap())
        .collect();
    assert_eq!(ours.join(" "), field("Filesystem features:"));
}
