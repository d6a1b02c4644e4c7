//! `undelete`: what debugfs and the kernel have deleted is listed and comes back whole, judged by
//! e2fsck; what was overwritten is not claimed.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use serde_json::Value;

use crate::changing::{done, image, judge};
use crate::checking::ended;
use crate::host::{can_mount, debugfs, debugfs_write, mounted, run, text, uext4, uext4_ok};

/// The list, by path.
fn listed(image: &Path) -> Vec<Value> {
    let printed = uext4_ok(&["undelete", "--json", text(image)]);
    let list: Value = serde_json::from_slice(&printed).unwrap();
    list.as_array().unwrap().clone()
}

fn of<'a>(list: &'a [Value], path: &str) -> &'a Value {
    let found = list.iter().find(|file| file["path"] == path);
    found.unwrap_or_else(|| panic!("{path}: {list:?}"))
}

fn contents(len: usize, seed: u8) -> Vec<u8> {
    let byte = |at: usize| (at / 7) as u8 ^ (at / 1024) as u8 ^ seed;
    (0..len).map(byte).collect()
}

/// The lines of debugfs' lsdel: inode, owner, mode, size, blocks that are free and all, without
/// white space.
fn lsdel(image: &Path) -> Vec<String> {
    let printed = debugfs(image, "lsdel");
    let words = |line: &str| {
        line.split_whitespace()
            .take(6)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let is_file = |line: &&str| line.trim_start().starts_with(|c: char| c.is_ascii_digit());
    let lines = printed.lines().filter(is_file);
    let mut lines: Vec<_> = lines
        .filter(|line| !line.contains("deleted inodes found"))
        .map(|line| words(line).replace("/ ", "/"))
        .collect();
    lines.sort();
    lines
}

#[test]
fn what_debugfs_deletes_is_listed_as_it_lists_it_and_comes_back() {
    for options in [
        &["-t", "ext2", "-b", "1024"][..],
        &["-t", "ext3"],
        &["-t", "ext4", "-O", "quota,inline_data"],
    ] {
        let Some((scratch, image)) = image(options, 16) else {
            return;
        };
        let sizes = [("large", 700_000), ("small", 40)];
        for (name, size) in sizes {
            let from = scratch.path().join(name);
            fs::write(&from, contents(size, name.len() as u8)).unwrap();
            done(
                &image,
                &["put", "--owner=5:6", text(&from), &format!("/{name}")],
            );
        }
        done(&image, &["mkdir", "/to"]);
        debugfs_write(&image, ["rm large", "rm small"]);
        // debugfs counts no quotas.
        let fixed = std::process::Command::new("e2fsck")
            .args(["-fy", text(&image)])
            .output();
        assert!(fixed.unwrap().status.code().unwrap() < 4);
        let list = listed(&image);
        let mut ours: Vec<_> = list
            .iter()
            .filter(|file| file["blocks"] != 0)
            .map(|file| {
                let [ino, uid, size] = ["inode", "uid", "size"].map(|key| file[key].clone());
                let [free, blocks] = ["free", "blocks"].map(|key| file[key].clone());
                format!(
                    "{ino} {uid} 10{} {size} {free}/{blocks}",
                    file["mode"].as_str().unwrap()
                )
            })
            .collect();
        ours.sort();
        let all = lsdel(&image);
        assert!(
            ours.iter().all(|line| all.contains(line)),
            "{ours:?} {all:?}"
        );
        assert_eq!(of(&list, "/large")["whole"], true, "{list:?}");
        let large = of(&list, "/large")["inode"].to_string();
        done(&image, &["undelete", &large]);
        let place = format!("/lost+found/#{large}");
        assert_eq!(
            uext4_ok(&["cat", text(&image), &place]),
            contents(700_000, 5)
        );
        done(&image, &["undelete", "--to=/to", "sm*"]);
        assert_eq!(
            uext4_ok(&["cat", text(&image), "/to/small"]),
            contents(40, 5)
        );
        judge(&image);
        let stat = uext4_ok(&["stat", "--json", text(&image), "/to/small"]);
        let stat: Value = serde_json::from_slice(&stat).unwrap();
        assert_eq!((&stat[0]["uid"], &stat[0]["nlink"]), (&5.into(), &1.into()));
        assert!(listed(&image).is_empty());
        let (code, printed) = ended(&["undelete", text(&image), &large]);
        assert_eq!(code, Some(1), "{printed}");
    }
}

/// Writes every second block of a file, each to the device at once, so that its map has a block of
/// its own.
fn fragmented(path: &Path) -> Vec<u8> {
    let mut file = File::create(path).unwrap();
    let mut between = File::create(path.with_extension("other")).unwrap();
    let data = contents(24 * 4096, 1);
    for piece in data.chunks(4096) {
        file.write_all(piece).unwrap();
        file.seek(SeekFrom::Current(4096)).unwrap();
        file.sync_all().unwrap();
        between.write_all(&[1; 4096]).unwrap();
        between.sync_all().unwrap();
    }
    fs::read(path).unwrap()
}

/// Makes more commits than the log has blocks.
fn overwrite_log(path: &Path) {
    for round in 0..1100_u32 {
        let file = File::create(path).unwrap();
        (&file).write_all(&round.to_le_bytes()).unwrap();
        file.sync_all().unwrap();
    }
}

#[track_caller]
fn assert_nothing_is_left(image: &Path) {
    let (_, printed) = ended(&["undelete", text(image)]);
    assert!(
        printed.starts_with("0 of 0 deleted files can be put back"),
        "{printed}"
    );
    assert!(listed(image).is_empty());
    let before = fs::read(image).unwrap();
    let (code, printed) = ended(&["undelete", text(image), "whole"]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("nothing is left"), "{printed}");
    assert!(fs::read(image).unwrap() == before);
}

#[test]
fn what_the_kernel_deletes_comes_back_from_the_journal_until_that_is_overwritten() {
    if !can_mount() {
        return;
    }
    for options in [
        &["-t", "ext4", "-J", "size=4"][..],
        &["-t", "ext3", "-J", "size=4"],
    ] {
        let Some((scratch, image)) = image(options, 64) else {
            return;
        };
        let Some(mount) = mounted(&image, false) else {
            return;
        };
        let at = |name: &str| mount.path().join(name);
        fs::create_dir_all(at("gone/sub")).unwrap();
        fs::write(at("whole"), contents(300_000, 2)).unwrap();
        fs::write(at("gone/sub/deep"), contents(5000, 3)).unwrap();
        std::os::unix::fs::symlink("a target", at("link")).unwrap();
        let holes = fragmented(&at("pieces"));
        run("sync", &[]);
        fs::remove_dir_all(at("gone")).unwrap();
        for name in ["whole", "link", "pieces"] {
            fs::remove_file(at(name)).unwrap();
        }
        drop(mount);
        let kept = scratch.path().join("kept");
        fs::copy(&image, &kept).unwrap();
        let list = listed(&image);
        for path in ["/whole", "/gone/sub/deep", "/link", "/pieces"] {
            let file = of(&list, path);
            assert_eq!(
                (&file["whole"], &file["from"]),
                (&true.into(), &"journal".into())
            );
        }
        let into = scratch.path().join("into");
        uext4_ok(&[
            "undelete",
            "--into",
            text(&into),
            text(&image),
            "/whole",
            "/pieces",
        ]);
        assert!(fs::read(&image).unwrap() == fs::read(&kept).unwrap());
        assert!(fs::read(into.join("pieces")).unwrap() == holes);
        let printed = done(&image, &["undelete", "--all", "--to=/"]);
        assert!(printed.contains(": /pieces\n"), "{printed}");
        judge(&image);
        let mount = mounted(&image, false).unwrap();
        let at = |name: &str| mount.path().join(name);
        assert!(fs::read(at("whole")).unwrap() == contents(300_000, 2));
        assert!(fs::read(at("deep")).unwrap() == contents(5000, 3));
        assert!(fs::read(at("pieces")).unwrap() == holes);
        assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("a target"));
        for name in ["whole", "pieces"] {
            fs::remove_file(at(name)).unwrap();
        }
        overwrite_log(&at("round"));
        drop(mount);
        assert_nothing_is_left(&image);
    }
}

#[test]
fn a_file_whose_blocks_are_in_use_is_refused_with_their_number() {
    let Some((scratch, image)) = image(&["-t", "ext4", "-b", "1024"], 16) else {
        return;
    };
    let from = scratch.path().join("from");
    fs::write(&from, contents(9000, 1)).unwrap();
    done(&image, &["put", text(&from), "/file"]);
    done(&image, &["mkdir", "/dir"]);
    done(&image, &["put", text(&from), "/other"]);
    let [ino, twin] = ["/file", "/other"].map(|path| {
        let stat = uext4_ok(&["stat", "--json", text(&image), path]);
        let stat: Value = serde_json::from_slice(&stat).unwrap();
        stat[0]["ino"].as_u64().unwrap()
    });
    let copy = format!("copy_inode <{ino}> <{twin}>");
    debugfs_write(&image, ["rm file", "rm other", &copy]);
    let sound = scratch.path().join("sound");
    fs::copy(&image, &sound).unwrap();
    let block = debugfs(&image, &format!("bmap <{ino}> 3"));
    debugfs_write(&image, [&format!("setb {}", block.trim())]);
    let before = fs::read(&image).unwrap();
    let (code, printed) = ended(&["undelete", text(&image), &format!("<{ino}>")]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(
        printed.contains("of its 9 blocks, 1 are in use again"),
        "{printed}"
    );
    assert!(fs::read(&image).unwrap() == before);
    // Of two with the same blocks, one comes back.
    let both = [ino.to_string(), twin.to_string()];
    let output = uext4(&["undelete", text(&sound), &both[0], &both[1]]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("one of its blocks is in use"), "{stderr}");
    judge(&sound);
    let shown = done(&sound, &["ls", "/lost+found"]);
    assert_eq!(shown.lines().count(), 1, "{shown}");
    for (words, code) in [(&["--to", "/dir"][..], 2), (&["--to", "/none", "12"], 1)] {
        let words = [&["undelete", text(&sound)], words].concat();
        assert_eq!(uext4(&words).status.code(), Some(code), "{words:?}");
    }
}

#[test]
fn any_image_is_listed_without_a_panic() {
    let Some((scratch, image)) = image(&["-t", "ext4", "-b", "1024", "-J", "size=1"], 8) else {
        return;
    };
    let from = scratch.path().join("from");
    fs::write(&from, contents(90_000, 1)).unwrap();
    done(&image, &["put", text(&from), "/file"]);
    done(&image, &["put", text(&from), "/gone"]);
    debugfs_write(&image, ["rm gone"]);
    let sound = fs::read(&image).unwrap();
    let mut state = 7_u64;
    for _ in 0..40 {
        let mut bytes = sound.clone();
        for _ in 0..60 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let at = 2048 + (state >> 33) as usize % (1 << 20);
            bytes[at] = (state >> 20) as u8;
        }
        fs::write(&image, &bytes).unwrap();
        let output = uext4(&["undelete", text(&image)]);
        let code = output.status.code();
        assert!(matches!(code, Some(0 | 4 | 8)), "{output:?}");
    }
}
