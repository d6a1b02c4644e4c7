//! Images made to do harm: nothing panics, hangs, or writes outside its place.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use uext4_testkit::SplitMix64;

use crate::host::{
    copy_image, debugfs_write, has_tool, is_long, mke2fs, run, scratch, text, uext4,
};
use crate::oracle;

/// No command takes longer than this on a small image.
const PATIENCE: Duration = Duration::from_secs(60);

/// An image without checksums, so that damage gets past the first look; `None` without the tools.
fn image(options: &[&str]) -> Option<(TempDir, PathBuf)> {
    if !has_tool("mke2fs") || !has_tool("debugfs") {
        return None;
    }
    let scratch = scratch();
    let source = scratch.path().join("source");
    fs::create_dir_all(source.join("dir/sub")).unwrap();
    for index in 0..300 {
        fs::write(
            source.join(format!("dir/name-{index:0>40}")),
            vec![7; index * 10],
        )
        .unwrap();
    }
    std::os::unix::fs::symlink("dir", source.join("link")).unwrap();
    let image = scratch.path().join("image");
    let mut arguments = vec!["-t", "ext4", "-d", text(&source)];
    arguments.extend(options);
    mke2fs(&image, &arguments, 8);
    Some((scratch, image))
}

/// Writes bytes over others of the same length, wherever they stand.
fn replace(image: &Path, old: &[u8], new: &[u8]) {
    assert_eq!(old.len(), new.len());
    let mut bytes = fs::read(image).unwrap();
    let mut found = 0;
    for at in 0..bytes.len() - old.len() {
        if bytes[at..].starts_with(old) {
            bytes[at..at + new.len()].copy_from_slice(new);
            found += 1;
        }
    }
    assert!(found > 0, "{}", String::from_utf8_lossy(old));
    fs::write(image, bytes).unwrap();
}

/// Runs a command that must end soon with one of the exit codes there are.
fn must_end(arguments: &[&str]) -> i32 {
    let mut child = Command::new(env!("CARGO_BIN_EXE_uext4"))
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("{arguments:?} does not end");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let output = child.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code().unwrap_or(-1);
    // As with rg and diff, 2 is an error of these.
    let known: &[i32] = match arguments[0] {
        "grep" | "diff" => &[0, 1, 2],
        _ => &[0, 1, 4, 8],
    };
    assert!(
        known.contains(&code),
        "{arguments:?}: exit {code}: {printed}"
    );
    code
}

#[test]
fn cycles_and_second_names_of_directories_are_reported() {
    let Some((_scratch, image)) = image(&[]) else {
        return;
    };
    debugfs_write(
        &image,
        [
            "ln <2> dir/sub/up",
            "ln /dir/sub dir/again",
            "ln /dir link-to-dir",
        ],
    );
    let output = uext4(&["manifest", text(&image)]);
    assert_eq!(output.status.code(), Some(4));
    let tree = oracle::parse(&output.stdout);
    let printed: Vec<&str> = tree
        .iter()
        .filter(|(_, keys)| keys.contains_key("error"))
        .map(|(path, keys)| {
            assert!(
                keys["error"].as_str().unwrap().contains("second name"),
                "{path}"
            );
            path.as_str()
        })
        .collect();
    // The first name in order is the directory; what is in it is below that name.
    assert_eq!(printed, ["dir/again/up", "dir/sub", "link-to-dir"]);
    for command in [
        &["ls", "-lR"][..],
        &["tree"],
        &["tar"],
        &["frag"],
        &["check"],
    ] {
        let mut arguments = command.to_vec();
        arguments.push(text(&image));
        must_end(&arguments);
    }
}

/// Many inodes over the same blocks, and many names of one inode: what is read stays within what
/// the file system can hold.
#[test]
fn shared_blocks_are_not_read_over_and_over() {
    let Some((scratch, image)) = image(&["-b", "1024", "-O", "^metadata_csum,^extent,^64bit"])
    else {
        return;
    };
    let file = |index: u32| format!("dir/name-{index:0>40}");
    let mut commands = Vec::new();
    // A table of numbers that all are the same block, as the data of the file that owns the table.
    let table = 2_000u32.to_le_bytes().repeat(256);
    let number = table_block(&image, &table);
    for index in 0..100 {
        for (field, value) in [("block[IND]", number), ("size", 260 << 10)] {
            commands.push(format!("sif {} {field} {value}", file(index)));
        }
    }
    commands.push(format!("sif {} size {}", file(200), 60 << 20));
    for index in 0..20 {
        commands.push(format!("ln {} dir/again-{index}", file(200)));
    }
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    debugfs_write(&image, &commands);
    let begun = Instant::now();
    let output = uext4(&["manifest", text(&image)]);
    assert_eq!(output.status.code(), Some(4));
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("more data than the file system holds"));
    assert!(printed.contains("it has more names than that"));
    assert!(begun.elapsed() < Duration::from_secs(10));
    let dest = scratch.path().join("dest");
    assert_eq!(must_end(&["get", text(&image), "/", text(&dest)]), 4);
    assert_eq!(must_end(&["tar", text(&image)]), 4);
    assert_eq!(must_end(&["check", text(&image)]), 4);
    // A file is one, whatever its link count says of its names.
    let output = uext4(&["frag", "--json", text(&image)]);
    let frag: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(frag["files"], 305);
}

/// Puts a table into a block that nothing owns.
fn table_block(image: &Path, table: &[u8]) -> u64 {
    use std::os::unix::fs::FileExt;
    let number = 7_000;
    let file = fs::File::options().write(true).open(image).unwrap();
    file.write_all_at(table, number * 1024).unwrap();
    number
}

#[test]
fn a_target_that_begins_with_zero_is_damage() {
    let Some((_scratch, image)) = image(&["-O", "^metadata_csum"]) else {
        return;
    };
    debugfs_write(&image, ["sif link block[0] 0"]);
    assert_eq!(must_end(&["manifest", text(&image)]), 4);
    assert_eq!(must_end(&["cat", text(&image), "/link/sub"]), 4);
}

/// A link and a directory of one name: whichever is made first, nothing goes through the link.
#[test]
fn planted_links_lead_nowhere() {
    let Some((scratch, image)) = image(&["-O", "^metadata_csum"]) else {
        return;
    };
    let outside = scratch.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let secret = scratch.path().join("secret");
    fs::write(&secret, "mine").unwrap();
    // Two names that differ until the second is made like the first.
    let file = "dir/name-0000000000000000000000000000000000000005";
    debugfs_write(
        &image,
        [
            &format!("symlink a-planted {}", text(&outside)),
            &format!("symlink b-planted {}", text(&secret)),
            "mkdir A-PLANTED",
            &format!("ln /{file} A-PLANTED/escaped"),
            &format!("ln /{file} B-PLANTED"),
        ],
    );
    replace(&image, b"A-PLANTED", b"a-planted");
    replace(&image, b"B-PLANTED", b"b-planted");
    for overwrite in [false, true] {
        let dest = scratch.path().join(format!("dest-{overwrite}"));
        let mut arguments = vec!["get", text(&image), "/", text(&dest)];
        if overwrite {
            arguments.insert(1, "--overwrite");
        }
        assert_ne!(must_end(&arguments), 0);
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        assert_eq!(fs::read(&secret).unwrap(), b"mine");
        assert!(dest.join(file).exists());
    }
    // Nor does a tar that extracts the archive as it comes.
    let output = uext4(&["tar", text(&image)]);
    assert_eq!(output.status.code(), Some(4));
    let archive = scratch.path().join("archive");
    fs::write(&archive, &output.stdout).unwrap();
    let listed = run("tar", &["-tf", text(&archive)]);
    let listed = String::from_utf8(listed).unwrap();
    let planted: Vec<&str> = listed
        .lines()
        .filter(|name| name.contains("planted"))
        .collect();
    assert_eq!(planted, ["./a-planted", "./b-planted"]);
}

/// Names that are paths, written over ordinary names in the directory's block.
#[test]
fn names_that_are_paths_lead_nowhere() {
    let Some((scratch, image)) = image(&["-O", "^metadata_csum"]) else {
        return;
    };
    for (index, evil) in [
        "../../escaped-from-its-directory-by-this-name",
        "/dev/shm/an/absolute/path/as-a-name-xxxxxxxxx",
    ]
    .into_iter()
    .enumerate()
    {
        replace(
            &image,
            format!("name-{index:0>40}").as_bytes(),
            evil.as_bytes(),
        );
    }
    let dest = scratch.path().join("dest/inner");
    fs::create_dir_all(&dest).unwrap();
    assert_eq!(must_end(&["get", text(&image), "/", text(&dest)]), 4);
    for dir in [scratch.path().join("dest"), scratch.path().to_owned()] {
        for entry in fs::read_dir(dir).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(
                ["inner", "dest", "source", "image"].contains(&name.as_str()),
                "{name}"
            );
        }
    }
    must_end(&["tar", text(&image)]);
    assert_eq!(must_end(&["manifest", text(&image)]), 4);
}

#[test]
fn a_cut_image_is_damaged() {
    let Some((_scratch, image)) = image(&[]) else {
        return;
    };
    for len in [1_000, 1_500, 2_048, 100_000, 4 << 20, (8 << 20) - 1] {
        let cut = copy_image(&image, "cut");
        fs::File::options()
            .write(true)
            .open(&cut)
            .unwrap()
            .set_len(len)
            .unwrap();
        for command in ["ls", "info", "manifest", "check"] {
            let found = must_end(&[command, text(&cut)]);
            // Of the first of them nothing says that it was a file system; of the last ones what is
            // there is read.
            let is_read = found == 0 && len >= 2_048 && command != "check";
            let code = if len < 1024 { 8 } else { 4 };
            assert!(
                found == code || is_read,
                "{command} of {len} bytes: {found}"
            );
        }
    }
}

/// Random bytes over random places of the metadata, from a fixed seed.
#[test]
fn random_damage_is_survived() {
    let rounds = if is_long() { 5_000 } else { 60 };
    let mut numbers = SplitMix64::new(15);
    let mut random = |below: u64| numbers.below(below);
    for options in [
        &["-O", "^metadata_csum"][..],
        &["-O", "^metadata_csum,inline_data", "-b", "1024"],
    ] {
        let Some((scratch, image)) = image(options) else {
            return;
        };
        let good = fs::read(&image).unwrap();
        let used: Vec<usize> = (0..good.len() / 1024)
            .filter(|i| good[i * 1024..][..1024] != [0; 1024])
            .collect();
        for round in 0..rounds {
            let mut bad = good.clone();
            for _ in 0..=random(40) {
                let block = used[random(used.len() as u64) as usize];
                let at = block * 1024 + random(1024) as usize;
                bad[at] = match random(3) {
                    0 => 0xFF,
                    1 => bad[at] ^ (1 << random(8)),
                    _ => random(256) as u8,
                };
            }
            fs::write(&image, &bad).unwrap();
            let dest = scratch.path().join(format!("dest-{round}"));
            let image = text(&image);
            must_end(&["manifest", image]);
            match round % 5 {
                0 => must_end(&["check", image]),
                1 => must_end(&["ls", "-lR", image]),
                2 => must_end(&["frag", "-v", image]),
                3 => must_end(&["info", "--groups", image]),
                _ => must_end(&["get", image, "/dir", text(&dest)]),
            };
            let _ = fs::remove_dir_all(&dest);
        }
    }
}

/// Commands that change everything below a directory come to an end where directories lie in
/// themselves, and name the directory.
#[test]
fn trees_that_lead_into_themselves_are_changed_once() {
    let Some((scratch, image)) = image(&["-O", "^metadata_csum"]) else {
        return;
    };
    debugfs_write(&image, ["ln <2> dir/sub/up", "ln /dir/sub dir/again"]);
    for (command, values) in [
        (&["chmod", "-R"][..], &["700", "/dir"][..]),
        (&["chown", "-R"], &["1:1", "/dir"]),
        (&["dedup-xattrs"], &[]),
        (&["rm", "-r"], &["/dir"]),
    ] {
        let copy = copy_image(&image, "copy");
        let arguments = [command, &[text(&copy)], values].concat();
        assert_eq!(must_end(&arguments), 4, "{arguments:?}");
    }
    drop(scratch);
}

/// The largest sizes that an inode can state.
#[test]
fn a_size_that_no_file_has_is_damage() {
    for size in [u64::MAX, u64::MAX - 4095, i64::MAX as u64, 1 << 63] {
        let Some((scratch, image)) = image(&["-O", "^metadata_csum,large_dir"]) else {
            return;
        };
        let file = "/dir/name-0000000000000000000000000000000000000005";
        let commands = [file, "/dir/sub"].map(|path| format!("sif {path} size {size}"));
        debugfs_write(&image, commands.each_ref().map(String::as_str));
        let name = text(&image);
        for command in [&["cat", name, file][..], &["get", name, file, "-"]] {
            let output = uext4(command);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(4), "{command:?}: {said}");
            assert!(said.contains("i_size"), "{command:?}: {said}");
        }
        let [dest, other, based] = ["dest", "other", "based"].map(|name| scratch.path().join(name));
        let commands: [&[&str]; 18] = [
            &["get", name, "/", text(&dest)],
            &["tar", name],
            &["tar", name, file],
            &["manifest", name],
            &["ls", "-lR", name],
            &["tree", name],
            &["stat", name, file],
            &["du", "-b", name],
            &["frag", name],
            &["frag", name, file],
            &["grep", "x", name],
            &["find", name, "--size", "+1K"],
            &["diff", name, name],
            &["check", name],
            &["undelete", name],
            &["salvage", name, "-o", text(&other)],
            &["build", "--base", name, "-o", text(&based)],
            &["info", name],
        ];
        for command in commands {
            must_end(command);
        }
    }
}
