//! `quota`: limits that are set are reported, judged by e2fsck and known to the kernel.

use std::path::Path;

use serde_json::Value;

use crate::changing::{done, image, judge};
use crate::host::{Mount, can_mount, run, text, uext4, uext4_ok};

const GIB: u64 = 1 << 30;

fn report(image: &Path, options: &[&str]) -> Value {
    let words = [&["quota", "--json"], options].concat();
    serde_json::from_str(&done(image, &words)).unwrap()
}

#[test]
fn limits_are_set_and_reported() {
    let Some((scratch, image)) = image(&["-t", "ext4", "-O", "quota,project"], 64) else {
        return;
    };
    let source = scratch.path().join("source");
    std::fs::write(&source, vec![1; 10_000]).unwrap();
    done(&image, &["put", text(&source), "/file"]);
    done(&image, &["chown", "1000:1001", "/file"]);
    let set = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        uext4_ok(&[&["quota", text(&image)], &words[..]].concat());
    };
    set("-u --set 1000 8 1G 1 5");
    set("-gP --set 7 0 2M 0 0");
    judge(&image);
    let all = report(&image, &[]);
    let user = &all["user"].as_array().unwrap()[1];
    for (key, value) in [
        ("id", 1000),
        ("space", 10_240),
        ("space_soft", 8 << 10),
        ("space_hard", GIB),
        ("inodes", 1),
        ("inodes_soft", 1),
        ("inodes_hard", 5),
        ("inodes_grace_end", 0),
    ] {
        assert_eq!(user[key], value, "{key}: {user}");
    }
    assert!(user["space_grace_end"].as_u64() > Some(0), "{user}");
    let projects = report(&image, &["-P"]);
    assert!(projects.get("user").is_none());
    let project = projects["project"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&project["id"], &project["space_hard"]),
        (&7.into(), &(2 << 20).into())
    );
    let lines = done(&image, &["quota", "-u"]);
    let words: Vec<&str> = lines.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(words[..5], ["1000", "+-", "10", "8", "1048576"], "{lines}");
    if can_mount() {
        // The kernel counts on, and its numbers are still right.
        let mount = match Mount::attempt(&image, "rw") {
            Ok(mount) => mount,
            Err(why) => return println!("skipped: the kernel may be built without quotas: {why}"),
        };
        std::fs::remove_file(mount.path().join("file")).unwrap();
        drop(mount);
        judge(&image);
        let user = report(&image, &["-u"])["user"][1].clone();
        assert_eq!(
            (&user["space"], &user["space_hard"]),
            (&0.into(), &GIB.into())
        );
    }
}

#[test]
fn kinds_that_are_not_counted_are_refused() {
    let Some((_scratch, image)) = image(&["-t", "ext4", "-O", "quota"], 16) else {
        return;
    };
    assert!(report(&image, &[]).get("project").is_none());
    let set = ["--set", "1", "0", "0", "0", "0"];
    for (options, code, what) in [
        (&["-P"][..], 8, "quotas of projects"),
        (
            &["-P", "--set", "1", "0", "0", "0", "0"],
            8,
            "quotas of projects",
        ),
        (&set, 2, "--user"),
        (
            &["-u", "--set", "4294967296", "0", "0", "0", "0"],
            2,
            "too large",
        ),
        (
            &["-u", "--set", "1", "1x", "0", "0", "0"],
            2,
            "unknown unit",
        ),
    ] {
        let output = uext4(&[&["quota"], options, &[text(&image)]].concat());
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{options:?}: {printed}");
        assert!(printed.contains(what), "{options:?}: {printed}");
    }
    run("tune2fs", &["-O", "^quota", text(&image)]);
    let output = uext4(&["quota", text(&image)]);
    assert_eq!(output.status.code(), Some(8));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("tune2fs -O quota")
    );
}

#[test]
fn options_of_writing_are_refused_where_nothing_is_written() {
    let Some((_scratch, image)) = image(&["-t", "ext4", "-O", "quota"], 16) else {
        return;
    };
    let output = uext4(&["quota", "--options", "nonsense=1", text(&image)]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("use --set"));
}
