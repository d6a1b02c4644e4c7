//! `chattr` and `lsattr`: the same flags as the programs of the same names set on a mount of the
//! kernel, and the same lines as they print.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::changing::{image, judge};
use crate::host::{can_mount, has_tool, mounted, run, text, uext4, uext4_ok};

/// Makes the same tree in each image.
fn fill(image: &Path, scratch: &Path) {
    let script = scratch.join("script");
    let lines = "mkdir -p /tree/sub\ntouch /f /g /.dot /tree/a /tree/.b /tree/sub/c\n\
                 ln -s f /link\nln -s a /tree/link\n";
    fs::write(&script, lines).unwrap();
    uext4_ok(&["script", "-f", text(&script), text(image)]);
}

/// The words of a line, with the image in the place of IMAGE.
fn words<'a>(line: &'a str, image: &'a Path) -> Vec<&'a str> {
    let word = |word| if word == "IMAGE" { text(image) } else { word };
    line.split(' ').map(word).collect()
}

/// Lines of lsattr with paths from the root, sorted, without what lies outside the mount.
fn lines(printed: &[u8]) -> Vec<String> {
    let printed = String::from_utf8(printed.to_vec()).unwrap();
    let mut lines: Vec<_> = printed
        .lines()
        .map(|line| match line.strip_prefix("./") {
            Some(path) => format!("/{path}"),
            None => line.replace(" ./", " /"),
        })
        .filter(|line| !line.ends_with(" /..") && !line.starts_with("/.. "))
        .map(|line| match line.contains(":") || line.contains("-----") {
            true => line,
            // Names stand in a column.
            false => line.split_whitespace().collect::<Vec<_>>().join(" "),
        })
        .collect();
    lines.sort();
    lines
}

/// `lsattr` says of the image what the kernel says of its mount.
fn compare(image: &Path) {
    let Some(mount) = mounted(image, true) else {
        return;
    };
    for options in ["-R", "-Ra", "-Rl", "-Rpv", "-d", "-a", "-v"] {
        let theirs = Command::new("lsattr")
            .args([options, "."])
            .current_dir(mount.path())
            .output()
            .unwrap();
        let ours = uext4_ok(&["lsattr", options, text(image), "/"]);
        let ours = match options {
            "-d" => String::from_utf8(ours)
                .unwrap()
                .replace(" /", " .")
                .into_bytes(),
            _ => ours,
        };
        assert_eq!(lines(&ours), lines(&theirs.stdout), "{options}");
    }
}

/// What both programs are asked, the image or nothing in the place of IMAGE.
const CHANGES: [&str; 18] = [
    "chattr IMAGE +i /f",
    "chattr -v 5 IMAGE /f",
    "chattr IMAGE +A -i /f",
    "chattr IMAGE +i /f",
    "chattr IMAGE +aS /g",
    "chattr -v 6 IMAGE /g",
    "chattr IMAGE -a +d /g",
    "chattr -R IMAGE +dA /tree",
    "chattr -R IMAGE -A /tree",
    "chattr IMAGE +DT /tree",
    "chattr IMAGE +D /tree/a",
    "chattr IMAGE +suct /tree/sub/c",
    "chattr IMAGE =eA /tree/a",
    "chattr IMAGE +e /tree/sub",
    "chattr IMAGE -d /tree/.b",
    "chattr -v 99 IMAGE /g",
    "chattr -v 7 IMAGE +A /tree/sub",
    "chattr IMAGE +P /tree/sub",
];

#[test]
fn flags_are_those_that_the_kernel_would_have_set_and_shows() {
    if !has_tool("lsattr") || !has_tool("chattr") {
        return;
    }
    for options in [
        &["-t", "ext4", "-O", "^metadata_csum"][..],
        &["-t", "ext4", "-O", "inline_data"],
        &["-t", "ext3", "-b", "1024"],
    ] {
        let Some((scratch, image)) = image(options, 16) else {
            return;
        };
        fill(&image, scratch.path());
        let other = scratch.path().join("other");
        fs::copy(&image, &other).unwrap();
        // The kernel converts what has no extents, and changes no generation that is in checksums.
        let has_extents = options.contains(&"^metadata_csum");
        let has_sums = options.contains(&"inline_data");
        let changes = CHANGES.iter().filter(|line| {
            (has_extents || !line.contains("+e") && !line.contains("=e"))
                && (!has_sums || !line.contains("-v"))
        });
        for line in changes.clone() {
            uext4_ok(&words(line, &image));
        }
        judge(&image);
        if !can_mount() {
            return;
        }
        compare(&image);
        let Some(mount) = mounted(&other, false) else {
            continue;
        };
        for line in changes {
            let line = line.replace("IMAGE ", "").replace(" /", " ");
            let words: Vec<_> = line.split(' ').collect();
            let program = Command::new(words[0])
                .args(&words[1..])
                .current_dir(mount.path())
                .output()
                .unwrap();
            // It complains of symbolic links below directories.
            assert!(
                program.status.success() || line.contains("-R"),
                "{line}: {program:?}"
            );
        }
        drop(mount);
        let shown = |image: &Path| lines(&uext4_ok(&["lsattr", "-Ra", text(image), "/"]));
        assert_eq!(shown(&image), shown(&other));
    }
}

#[test]
fn a_project_of_a_tree_is_counted_and_handed_on() {
    let options = [
        "-t",
        "ext4",
        "-O",
        "project,quota",
        "-E",
        "quotatype=prjquota",
    ];
    let Some((scratch, image)) = image(&[&options[..], &["-I", "256"]].concat(), 16) else {
        return;
    };
    fill(&image, scratch.path());
    uext4_ok(&words("chattr -R -p 42 IMAGE +P /tree", &image));
    uext4_ok(&words("touch IMAGE /tree/sub/new", &image));
    uext4_ok(&words("chattr -p 43 IMAGE +i /g", &image));
    judge(&image);
    let printed = uext4_ok(&words("lsattr -Rap --json IMAGE /", &image));
    let printed: serde_json::Value = serde_json::from_slice(&printed).unwrap();
    let of = |path: &str| {
        let all = printed.as_array().unwrap();
        let one = all.iter().find(|one| one["path"] == path).unwrap();
        (one["project"].as_u64().unwrap(), one["names"].to_string())
    };
    for path in ["/tree", "/tree/sub"] {
        let (project, names) = of(path);
        assert!(
            project == 42 && names.contains("Project_Hierarchy"),
            "{path}: {names}"
        );
    }
    for path in ["/tree/a", "/tree/.b", "/tree/sub/c", "/tree/sub/new"] {
        assert_eq!(of(path).0, 42, "{path}");
    }
    assert_eq!(of("/f").0, 0);
    assert_eq!(of("/g").0, 43);
    assert!(of("/g").1.contains("Immutable"));
    let listed = uext4_ok(&words("lsattr -p IMAGE /g", &image));
    let listed = String::from_utf8(listed).unwrap();
    assert_eq!(listed, "   43 ----i---------e------- /g\n");
    // One that is immutable before and after.
    uext4_ok(&words("chattr -p 44 IMAGE +d /g", &image));
    let listed = uext4_ok(&words("lsattr -p IMAGE /g", &image));
    let listed = String::from_utf8(listed).unwrap();
    assert_eq!(listed, "   44 ----i-d-------e------- /g\n");
    // Unlike one that is append-only.
    let refused = uext4(&words("chattr -p 46 IMAGE /g", &image));
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    uext4_ok(&words("chattr IMAGE +a /f", &image));
    uext4_ok(&words("chattr -p 45 IMAGE /f", &image));
    let listed = uext4_ok(&words("lsattr -p IMAGE /f", &image));
    let listed = String::from_utf8(listed).unwrap();
    assert_eq!(listed, "   45 -----a--------e------- /f\n");
    judge(&image);
    let debugfs = run("debugfs", &["-R", "stat /tree/sub/new", text(&image)]);
    let debugfs = String::from_utf8(debugfs).unwrap();
    let project = debugfs.split("Project:").nth(1).unwrap();
    assert!(project.trim_start().starts_with("42"), "{debugfs}");
}

#[test]
fn what_cannot_be_changed_is_refused_with_the_reason() {
    let Some((scratch, image)) = image(&["-t", "ext4", "-O", "^project"], 16) else {
        return;
    };
    fill(&image, scratch.path());
    uext4_ok(&words("chattr IMAGE +i /f", &image));
    for (line, code, said) in [
        (
            "chattr IMAGE +E /g",
            2,
            "E cannot be changed: only encryption",
        ),
        ("chattr IMAGE +m /g", 2, "m cannot be changed"),
        ("chattr IMAGE -e /g", 2, "does not convert"),
        ("chattr IMAGE +z /g", 2, "'z' is no letter"),
        ("chattr IMAGE +i -R /g", 2, "options come before"),
        ("chattr IMAGE +i -i /g", 2, "both set and removed"),
        ("chattr IMAGE /g", 2, "give what to change"),
        ("chattr IMAGE +i", 2, "and a path"),
        ("chattr IMAGE +T /g", 8, "T and P of what is no directory"),
        ("chattr IMAGE +d /link", 8, "no file and no directory"),
        ("chattr IMAGE +d /none", 1, "no such file"),
        ("chattr IMAGE +d /f", 1, "immutable"),
        ("chattr -p 5 IMAGE /g", 8, "projects"),
        ("chattr -v 5 IMAGE /g", 8, "metadata_csum"),
        ("rm IMAGE /f", 1, "immutable"),
        ("mv IMAGE /g /f", 1, "immutable"),
        ("chmod IMAGE 600 /f", 1, "immutable"),
        ("truncate -s1 IMAGE /f", 1, "immutable"),
        ("lsattr IMAGE /link", 8, "no file and no directory"),
        ("lsattr IMAGE /none", 1, "no such file"),
    ] {
        let output = uext4(&words(line, &image));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {stderr}");
        assert!(stderr.contains(said), "{line}: {stderr}");
    }
    let script = scratch.path().join("script");
    fs::write(&script, "chattr -i +A /f\nlsattr -l /f\nrm /f\n").unwrap();
    let printed = uext4_ok(&["script", "-f", text(&script), text(&image)]);
    let printed = String::from_utf8(printed).unwrap();
    assert!(printed.contains("No_Atime, Extents"), "{printed}");
    judge(&image);
}

#[test]
fn a_new_generation_leaves_what_is_in_memory_usable() {
    let Some((scratch, image)) = image(&["-t", "ext4", "-O", "^metadata_csum", "-b", "1024"], 16)
    else {
        return;
    };
    let mut lines = "mkdir /dir\n".to_owned();
    for round in 0..2 {
        for number in 0..200 {
            lines += &format!("touch /dir/name-{round}-{number}\n");
        }
        lines += &format!("chattr -v {round}7 /dir\n");
    }
    lines += "rm /dir/name-0-7 /dir/name-1-7\nls /dir\n";
    let script = scratch.path().join("script");
    fs::write(&script, lines).unwrap();
    let printed = uext4_ok(&["script", "-f", text(&script), text(&image)]);
    assert_eq!(String::from_utf8(printed).unwrap().lines().count(), 398);
    judge(&image);
    let shown = uext4_ok(&["lsattr", "-dv", text(&image), "/dir"]);
    assert!(shown.starts_with(b"17         -"));
}
