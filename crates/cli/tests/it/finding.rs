//! `find`, `grep` and `du` against their namesakes, on the tree that an image was built from.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use uext4_testkit::SplitMix64;

use crate::commands::{exit_code, stderr, stdout};
use crate::host::{
    can_mount, debugfs_write, has_tool, mounted, run, scratch, text, uext4, uext4_ok,
};

/// Lines of a file that is larger than what is read at once.
const LARGE: usize = 60_000;

/// A tree and the image that was built from it, with data of small files in their inodes or not.
fn built(features: &str) -> (TempDir, PathBuf, PathBuf) {
    let scratch = scratch();
    let source = scratch.path().join("source");
    fs::create_dir_all(source.join("etc/sub")).unwrap();
    fs::create_dir_all(source.join("many")).unwrap();
    fs::create_dir(source.join("vacant")).unwrap();
    let file = |name: &str, contents: &[u8]| fs::write(source.join(name), contents).unwrap();
    file(
        "etc/one.conf",
        b"alpha\nbeta\nThe Gamma\ngamma_ray\nalphabet\nend",
    );
    file("etc/TWO.Conf", b"gamma\n(alpha|beta)\n\n");
    file("etc/sub/empty", b"");
    file("etc/sub/binary", b"alpha\0beta gamma\n");
    file(
        "etc/sub/late-binary",
        &[&b"gamma line\n".repeat(9000)[..], b"\0gamma"].concat(),
    );
    let wide: Vec<u8> = "gamma\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    file("etc/sub/utf16", &[b"\xff\xfe", &wide[..]].concat());
    let large: String = (0..LARGE)
        .map(|n| format!("line {n} of gamma rays\n"))
        .collect();
    file("large", large.as_bytes());
    file("large too", large.replace("gamma", "delta").as_bytes());
    for number in 0..300 {
        file(
            &format!("many/file-{number}.txt"),
            format!("number {number}\n").as_bytes(),
        );
    }
    fs::hard_link(source.join("large"), source.join("same as large")).unwrap();
    symlink("one.conf", source.join("etc/link")).unwrap();
    let set_mode = |name: &str, mode| {
        fs::set_permissions(source.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    set_mode("etc/one.conf", 0o4755);
    set_mode("etc/TWO.Conf", 0o600);
    let mut old = Command::new("touch");
    old.args(["-d", "2020-02-03"])
        .arg(source.join("etc/TWO.Conf"));
    assert!(old.status().unwrap().success());
    let image = scratch.path().join("image");
    uext4_ok(&["build", text(&source), "-o", text(&image), "-O", features]);
    (scratch, source, image)
}

/// Lines without what only the image has, as a set.
fn lines(output: &[u8]) -> BTreeSet<String> {
    let all = String::from_utf8(output.to_vec()).unwrap();
    let lines = all.lines().filter(|line| !line.contains("lost+found"));
    lines.map(str::to_owned).collect()
}

#[test]
fn find_finds_what_find_finds() {
    let (_scratch, source, image) = built("inline_data");
    let uid = fs::metadata(&source).unwrap().uid().to_string();
    let ino = uext4_ok(&["stat", "--json", text(&image), "/large"]);
    let ino: Value = serde_json::from_slice(&ino).unwrap();
    let ino = ino[0]["ino"].to_string();
    let host_ino = fs::metadata(source.join("large"))
        .unwrap()
        .ino()
        .to_string();
    let all: &[(&[&str], &[&str])] = &[
        (&[], &[]),
        (&["--name", "*.conf"], &["-name", "*.conf"]),
        (&["--iname", "*.[c]onf"], &["-iname", "*.[c]onf"]),
        (&["--path", "/*c/s*y"], &["-path", "*/etc/s*y"]),
        (&["--type", "d"], &["-type", "d"]),
        (&["--type", "f,l"], &["-type", "f,l"]),
        (
            &["--type", "f", "--size", "+1M"],
            &["-type", "f", "-size", "+1048576c"],
        ),
        (
            &["--type", "f", "--size", "-10"],
            &["-type", "f", "-size", "-10c"],
        ),
        (
            &["--type", "f", "--size", "=0"],
            &["-type", "f", "-size", "0c"],
        ),
        (&["--mtime", "+365"], &["-mtime", "+365"]),
        (&["--mtime", "-1"], &["-mtime", "-1"]),
        (&["--mtime", "0"], &["-mtime", "0"]),
        (
            &["--changed-before", "2021-01-01"],
            &["!", "-newermt", "2021-01-01 UTC"],
        ),
        (
            &["--changed-after", "2021-01-01"],
            &["-newermt", "2021-01-01 UTC"],
        ),
        (&["--user", &uid], &["-uid", &uid]),
        (&["--group", "12345"], &["-gid", "12345"]),
        (&["--perm", "600"], &["-perm", "600"]),
        (&["--perm", "-4000"], &["-perm", "-4000"]),
        (&["--perm", "/u+s,o+t"], &["-perm", "/u+s,o+t"]),
        (
            &["--type", "f", "--links", "+1"],
            &["-type", "f", "-links", "+1"],
        ),
        (&["--empty"], &["-empty"]),
        (&["--max-depth", "1"], &["-maxdepth", "1"]),
        (&["--inum", &ino], &["-inum", &host_ino]),
    ];
    for (ours, theirs) in all {
        // What find(1) wants first stands first.
        let theirs = [&[text(&source)], *theirs, &["-printf", "/%P\\n"]].concat();
        let found = uext4_ok(&[&["find", text(&image)], *ours].concat());
        assert_eq!(lines(&found), lines(&run("find", &theirs)), "{ours:?}");
    }
}

#[test]
fn find_prints_objects_zero_bytes_and_the_names_of_images() {
    let (scratch, _source, image) = built("inline_data");
    let image = text(&image);
    let other = scratch.path().join("other");
    fs::copy(image, &other).unwrap();
    uext4_ok(&[
        "setfattr",
        "-n",
        "user.mark",
        "-v",
        "x",
        text(&other),
        "/etc/one.conf",
    ]);
    let found = uext4_ok(&[
        "find",
        image,
        text(&other),
        "--in",
        "/etc",
        "--xattr",
        "user.mark",
    ]);
    assert_eq!(
        stdout_of(&found),
        format!("{}:/etc/one.conf\n", other.display())
    );
    let zero = uext4_ok(&["find", image, "--in", "etc", "--name", "*.conf", "-0"]);
    assert_eq!(zero, b"etc/one.conf\0");
    let listed = uext4_ok(&["ls", "--json", image, "/etc"]);
    let listed: Value = serde_json::from_slice(&listed).unwrap();
    let found = uext4_ok(&["find", "--json", image, "--in", "/etc", "--max-depth", "1"]);
    let found = stdout_of(&found);
    let found = found
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert_eq!(
        found.skip(1).collect::<Vec<_>>(),
        *listed.as_array().unwrap()
    );
    let both = uext4_ok(&["find", "--json", image, text(&other), "--name", "large"]);
    let first: Value = serde_json::from_str(stdout_of(&both).lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["image"], &first["path"]),
        (&image.into(), &"/large".into())
    );
    // A part that is not there; the rest is done.
    let part = uext4(&["find", "/no/such/image", image, "--name", "large"]);
    assert_eq!(
        (exit_code(&part), stdout(&part)),
        (8, format!("{image}:/large\n"))
    );
    for (wrong, why) in [
        (["--size", "x"], "size"),
        (["--type", "q"], "one of f, d, l, b, c, p, s"),
        (["--perm", "9"], "octal"),
        (["--name", "["], "glob"),
        (["--mtime", "soon"], "no number"),
    ] {
        let output = uext4(&[&["find", image], &wrong[..]].concat());
        assert_eq!(exit_code(&output), 2, "{wrong:?}");
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
    }
}

fn stdout_of(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn grep_finds_what_grep_finds() {
    for features in ["inline_data", "^inline_data"] {
        let (_scratch, source, image) = built(features);
        let all: &[&[&str]] = &[
            &["gamma"],
            &["-n", "gamma"],
            &["-i", "gamma"],
            &["-w", "alpha"],
            &["-F", "(alpha|beta)"],
            &["-l", "gamma"],
            &["-h", "number 1.*2"],
            &["-o", "number [0-9]"],
            &["-m", "2", "a"],
            &["-c", "gamma"],
            &["-v", "gamma"],
            &["^$"],
        ];
        for options in all {
            let ours = lines(&uext4_ok(&[&["grep"], *options, &[text(&image)]].concat()));
            let theirs = [&["-rIE"], *options, &[text(&source)]].concat();
            let mut theirs = match options[0] {
                "-F" => run("grep", &[&["-rI"], *options, &[text(&source)]].concat()),
                _ => run("grep", &theirs),
            };
            let whole = stdout_of(&theirs).replace(text(&source), "");
            // GNU grep also counts files without matches, and knows no UTF-16.
            theirs = whole.into_bytes();
            let mut expected = lines(&theirs);
            expected.retain(|line| options[0] != "-c" || !line.ends_with(":0"));
            let is_left_out =
                |line: &String| line.contains("/utf16") || line.contains("late-binary");
            let both = |lines: BTreeSet<String>| {
                lines
                    .into_iter()
                    .filter(|line| !is_left_out(line))
                    .collect::<Vec<_>>()
            };
            assert_eq!(both(ours), both(expected), "{options:?} {features}");
        }
        let (image, in_etc) = (text(&image), text(&source).to_owned() + "/etc/one.conf");
        for context in [["-A", "1"], ["-B", "1"], ["-C", "1"]] {
            let ours = [
                "grep",
                "-n",
                context[0],
                context[1],
                "amma",
                image,
                "--in",
                "/etc/one.conf",
            ];
            let theirs = ["-Hn", context[0], context[1], "amma", &in_etc];
            let theirs = stdout_of(&run("grep", &theirs)).replace(text(&source), "");
            assert_eq!(stdout_of(&uext4_ok(&ours)), theirs, "{context:?}");
        }
    }
}

#[test]
fn grep_knows_binary_files_encodings_and_globs() {
    let (_scratch, _source, image) = built("inline_data");
    let image = text(&image);
    let found = |options: &[&str]| {
        let output = uext4(&[&["grep", "-l"], options, &[image, "--sort", "path"]].concat());
        assert!(exit_code(&output) < 2, "{}", stderr(&output));
        stdout(&output).replace('\n', " ")
    };
    let texts = "/etc/TWO.Conf /etc/one.conf /etc/sub/late-binary /etc/sub/utf16 /large \
                 /same as large ";
    assert_eq!(found(&["gamma"]), texts);
    let with_binary = texts.replace("/etc/sub/late", "/etc/sub/binary /etc/sub/late");
    assert_eq!(found(&["-a", "gamma"]), with_binary);
    assert_eq!(found(&["gamma", "-g", "*.conf"]), "/etc/one.conf ");
    assert_eq!(found(&["gamma", "-g", "!etc"]), "/large /same as large ");
    assert_eq!(
        found(&["gamma", "-g", "/etc/*"]),
        "/etc/TWO.Conf /etc/one.conf "
    );
    assert_eq!(
        found(&["gamma", "-g", "!large", "--max-filesize", "50"]),
        "/etc/TWO.Conf /etc/one.conf /etc/sub/utf16 "
    );
    assert_eq!(found(&["GAMMA", "-S"]), "");
    assert_eq!(
        found(&["rays", "-S", "-w"]),
        "/large /large too /same as large "
    );
    // What is after the zero byte is not searched, and that is said.
    let late = ["grep", "gamma", image, "--in", "/etc/sub/late-binary"];
    let late = stdout_of(&uext4_ok(&late));
    let last = late.lines().last().unwrap();
    assert!(last.contains("stopped searching binary file"), "{last}");
    let colored = uext4_ok(&["grep", "--color", "gamma$", image, "--in", "/etc"]);
    assert!(stdout_of(&colored).contains("\u{1b}["));
    // The order of the paths, and all lines of two large files, each in one piece.
    let all = stdout_of(&uext4_ok(&["grep", "-h", "^line", image]));
    let mut file = 0;
    for (at, line) in all.lines().enumerate() {
        assert!(
            line.starts_with(&format!("line {} of", at % LARGE)),
            "{line}"
        );
        file = at / LARGE + 1;
    }
    assert_eq!(file, 3);
}

#[test]
fn grep_ends_as_grep_does() {
    let (scratch, _source, image) = built("inline_data");
    let image = text(&image);
    let code = |arguments: &[&str]| {
        let output = uext4(&[&["grep"], arguments].concat());
        (exit_code(&output), stdout(&output), stderr(&output))
    };
    assert_eq!(
        code(&["no such text", image]),
        (1, String::new(), String::new())
    );
    assert_eq!(
        code(&["-q", "gamma", image]),
        (0, String::new(), String::new())
    );
    let (exit, out, _) = code(&["^beta", "/no/such/image", image]);
    assert_eq!((exit, out), (2, format!("{image}:/etc/one.conf:beta\n")));
    assert_eq!(code(&["-q", "gamma", image, "/no/such/image"]).0, 0);
    assert_eq!(code(&["gamma", image, "--in", "/nowhere"]).0, 2);
    let (exit, _, why) = code(&["(", image]);
    assert!(exit == 2 && why.contains("PATTERN"), "{why}");
    assert_eq!(code(&["gamma", image, "-g", "["]).0, 2);
    assert_eq!(code(&["gamma"]).0, 2);
    let (exit, out, _) = code(&["--json", "^gamma", image, "-g", "*.Conf"]);
    let messages = out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let messages: Vec<Value> = messages.collect();
    let kinds: Vec<&str> = messages
        .iter()
        .map(|m| m["type"].as_str().unwrap())
        .collect();
    assert_eq!((exit, kinds), (0, vec!["begin", "match", "end"]));
    assert_eq!(messages[1]["data"]["path"]["text"], "/etc/TWO.Conf");
    assert_eq!(messages[1]["data"]["line_number"], 1);
    if !has_tool("debugfs") {
        return;
    }
    // A damaged file is reported, and the others are searched.
    let damaged = scratch.path().join("damaged");
    fs::copy(image, &damaged).unwrap();
    debugfs_write(&damaged, ["set_inode_field /large block[0] 0x1234"]);
    let (exit, out, why) = code(&["-l", "rays|bet", text(&damaged), "--sort", "path"]);
    assert_eq!(exit, 2);
    assert_eq!(out, "/etc/TWO.Conf\n/etc/one.conf\n/large too\n");
    assert!(
        why.contains("/large: ") && why.contains("/same as large: "),
        "{why}"
    );
    assert_eq!(code(&["-q", "rays", text(&damaged)]).0, 0);
}

#[test]
fn du_adds_up_what_du_adds_up() {
    let (_scratch, source, image) = built("^inline_data");
    let path = text(&image);
    let sizes = lines(&uext4_ok(&["du", "-ab", path]));
    let theirs = run(
        "find",
        &[
            text(&source),
            "-type",
            "f,l",
            "-links",
            "1",
            "-printf",
            "%s\t/%P\\n",
        ],
    );
    assert!(lines(&theirs).is_subset(&sizes));
    let total: u64 = lines(&theirs)
        .iter()
        .map(|line| line.split('\t').next().unwrap().parse::<u64>().unwrap())
        .sum();
    let large = fs::metadata(source.join("large")).unwrap().len();
    let sum = uext4_ok(&["du", "-sb", path]);
    assert_eq!(stdout_of(&sum), format!("{}\t/\n", total + large));
    let json = stdout_of(&uext4_ok(&[
        "du",
        "--json",
        "-sc",
        path,
        "/large",
        "/same as large",
    ]));
    let json: Vec<Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(json.len(), 2, "a second name of a file counts nothing");
    assert_eq!(
        (&json[0]["path"], &json[1]["total"]),
        (&"/large".into(), &true.into())
    );
    assert_eq!(json[1]["apparent_bytes"], large);
    assert_eq!(json[0]["disk_bytes"], json[1]["disk_bytes"]);
    let human = stdout_of(&uext4_ok(&["du", "-sh", path, "/large"]));
    assert_eq!(human, "1.5M\t/large\n");
    let gone = uext4(&["du", path, "/nowhere", "/etc/sub"]);
    assert_eq!((exit_code(&gone), stdout(&gone).lines().count()), (1, 1));
    if !can_mount() {
        return;
    }
    let Some(mount) = mounted(&image, true) else {
        return;
    };
    for options in [&[][..], &["-s"], &["-d", "1"], &["-h"], &["-c"]] {
        let theirs = run("du", &[options, &[text(mount.path())]].concat());
        let theirs = stdout_of(&theirs)
            .replace(text(mount.path()), "/")
            .replace("//", "/");
        let ours = uext4_ok(&[&["du"], options, &[path]].concat());
        assert_eq!(lines(&ours), lines(theirs.as_bytes()), "{options:?}");
    }
}

/// Whatever is wrong with an image, they end, with one of their exit codes.
#[test]
fn damage_makes_none_of_them_panic() {
    let (scratch, _source, image) = built("inline_data");
    let bytes = fs::read(&image).unwrap();
    let damaged = scratch.path().join("damaged");
    for seed in 0..4 {
        let mut random = SplitMix64::new(seed);
        let mut bytes = bytes.clone();
        // Mostly metadata: the tables lie at the beginning.
        for _ in 0..200 {
            let at = random.index(bytes.len() / 8).max(4096);
            bytes[at] = random.next_u64() as u8;
        }
        fs::write(&damaged, &bytes).unwrap();
        let image: &Path = &damaged;
        for (command, codes) in [
            (&["find", text(image), "--empty"][..], &[0, 1, 4, 8][..]),
            (&["grep", "gamma", text(image)], &[0, 1, 2]),
            (
                &["grep", "gamma", text(image), "--sort", "path"],
                &[0, 1, 2],
            ),
            (&["du", text(image)], &[0, 1, 4, 8]),
        ] {
            let output = uext4(command);
            assert!(codes.contains(&exit_code(&output)), "{seed} {command:?}");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!said.contains("panicked"), "{seed} {command:?}: {said}");
        }
    }
}
