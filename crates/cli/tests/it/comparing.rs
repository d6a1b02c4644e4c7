//! `diff`: each kind of difference alone, random ones against a walk over two manifests, and layers
//! that make the new tree of the old one.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;

use crate::commands::{exit_code, stderr, stdout};
use crate::host::{copy_image, debugfs_write, has_tool, run, scratch, text, uext4, uext4_ok};
use crate::statuses::unread;

mod random;

use self::random::layer_makes_new;

/// An image of a small tree, and a copy of it to be changed.
struct Images {
    scratch: TempDir,
    old: PathBuf,
    new: PathBuf,
}

impl Images {
    fn new() -> Self {
        let scratch = scratch();
        let source = scratch.path().join("source");
        fs::create_dir_all(source.join("dir/sub")).unwrap();
        for (path, contents) in [
            ("dir/file", "one\n"),
            ("dir/sub/inner", "inner\n"),
            ("dir!", "after dir and its contents\n"),
            ("linked", "linked\n"),
        ] {
            fs::write(source.join(path), contents).unwrap();
            let mode = fs::Permissions::from_mode(0o644);
            fs::set_permissions(source.join(path), mode).unwrap();
        }
        fs::hard_link(source.join("linked"), source.join("linked too")).unwrap();
        symlink("dir/file", source.join("link")).unwrap();
        fs::write(source.join("large"), vec![0x5a; 3 << 20]).unwrap();
        let old = scratch.path().join("old.img");
        let arguments = ["build", text(&source), "-o", text(&old), "--owner", "0:0"];
        let entries = ["--mknod", "/null=c:1:3", "-O", "project,quota"];
        uext4_ok(&[&arguments[..], &entries].concat());
        let new = copy_image(&old, "new.img");
        Self { scratch, old, new }
    }

    fn diff(&self, options: &[&str]) -> Output {
        uext4(&[&["diff"], options, &[text(&self.old), text(&self.new)]].concat())
    }

    /// The lines of `diff`, which must end with 0 if there are none and else with 1.
    #[track_caller]
    fn lines(&self, options: &[&str]) -> Vec<String> {
        let output = self.diff(options);
        let lines: Vec<String> = stdout(&output).lines().map(str::to_owned).collect();
        assert_eq!(
            exit_code(&output),
            i32::from(!lines.is_empty()),
            "{output:?}"
        );
        assert!(output.stderr.is_empty(), "{}", stderr(&output));
        lines
    }

    /// Makes the new image from the old one by the lines of a script.
    #[track_caller]
    fn change(&self, lines: &str) {
        copy_image(&self.old, "new.img");
        let script = self.path("script");
        fs::write(&script, lines).unwrap();
        uext4_ok(&["script", "-f", text(&script), text(&self.new)]);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }
}

#[test]
fn each_kind_of_difference_is_found_and_no_other() {
    let images = Images::new();
    let [other, last] = ["other", "last"].map(|name| images.path(name));
    fs::write(&other, "two\n").unwrap();
    fs::write(&last, [vec![0x5a; (3 << 20) - 1], vec![0]].concat()).unwrap();
    for file in [&other, &last] {
        fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
    }
    let put = "put --overwrite --owner 0:0";
    let put_other = format!("{put} {} /dir/file", text(&other));
    let put_last = format!("{put} {} /large", text(&last));
    let dir = ["D /dir/file", "D /dir/sub", "D /dir/sub/inner"];
    for (script, expected) in [
        ("", &[][..]),
        ("touch /dir/file /dir", &[]),
        ("chmod 600 /dir/file", &["M /dir/file (mode 0644 -> 0600)"]),
        ("chown 7:8 /dir", &["M /dir (owner 0:0 -> 7:8)"]),
        (
            "setfattr -n user.a -v 1 /linked",
            &["M /linked (xattrs user.a)", "M /linked too (xattrs user.a)"],
        ),
        (
            "truncate -s 3 /dir/file",
            &["M /dir/file (content, size 4 -> 3)"],
        ),
        (&put_other, &["M /dir/file (content)"]),
        (&put_last, &["M /large (content)"]),
        ("rm -r /dir", &["D /dir", dir[0], dir[1], dir[2]]),
        ("rm /dir!\nmkdir /dir!", &["T /dir! (file -> dir)"]),
        (
            "rm -r /dir\nln -s link /dir",
            &["T /dir (dir -> symlink)", dir[0], dir[1], dir[2]],
        ),
        (
            "rm /link\nln -s dir/sub /link",
            &["M /link (target dir/file -> dir/sub)"],
        ),
        ("ln /linked /dir/also", &["A /dir/also"]),
        ("rm /linked", &["D /linked"]),
        (
            "rm /dir/sub/inner\nln /dir/file /dir/sub/inner",
            &["M /dir/sub/inner (content, size 6 -> 4, links)"],
        ),
        ("mkdir 'a\tb'", &["A /a\\tb"]),
        (
            "touch '/dir/zz'\nchmod 7 /dir!\nmkdir /dir/a",
            &["A /dir/a", "A /dir/zz", "M /dir! (mode 0644 -> 0007)"],
        ),
    ] {
        images.change(script);
        assert_eq!(images.lines(&[]), expected, "{script}");
    }
}

#[test]
fn what_only_debugfs_changes_is_found() {
    if !has_tool("debugfs") {
        return;
    }
    let images = Images::new();
    for (request, expected) in [
        (
            "sif /dir flags 0x80080",
            &["M /dir (flags none -> noatime)"][..],
        ),
        ("sif /dir projid 5", &["M /dir (project 0 -> 5)"]),
        ("sif /null block[0] 0x105", &["M /null (device 1:3 -> 1:5)"]),
        ("sif /dir/file generation 5", &[]),
        ("sif /dir atime 5", &[]),
    ] {
        copy_image(&images.old, "new.img");
        debugfs_write(&images.new, [request]);
        assert_eq!(images.lines(&[]), expected, "{request}");
    }
}

#[test]
fn options_choose_what_is_compared() {
    let images = Images::new();
    images.change("touch -m -d @5 /dir/file\nchmod 600 /dir!\nchown 5 /dir!\nmkdir /new\nrm /link");
    let times = images.lines(&["--times"]);
    let file = times.iter().find(|line| line.starts_with("M /dir/file"));
    let file = file.expect("a line of /dir/file");
    assert!(
        file.ends_with(" -> 1970-01-01 00:00:05.000000000 UTC)"),
        "{file}"
    );
    assert!(
        times.iter().any(|line| line.starts_with("M / (mtime ")),
        "{times:?}"
    );
    let all = [
        "D /link",
        "M /dir! (mode 0644 -> 0600, owner 0:0 -> 5:0)",
        "A /new",
    ];
    let mut sorted = all;
    sorted.sort_by_key(|line| line[2..].to_owned());
    assert_eq!(images.lines(&[]), sorted);
    let fewer = images.lines(&["--ignore", "mode,owner"]);
    assert_eq!(fewer, ["D /link", "A /new"]);
    // The time of the file has changed, its contents have not.
    let quick = images.lines(&["--quick"]);
    assert!(
        quick
            .iter()
            .any(|line| line.starts_with("M /dir/file (mtime ")),
        "{quick:?}"
    );
    let quiet = images.diff(&["-q"]);
    assert!(exit_code(&quiet) == 1 && quiet.stdout.is_empty());
    let stat = stdout(&images.diff(&["--stat"]));
    assert!(stat.contains("changed           1 entries, 0 B"), "{stat}");
    let stat: Value = serde_json::from_slice(&images.diff(&["--stat", "--json"]).stdout).unwrap();
    assert_eq!(stat["added"]["entries"], 1);
    assert_eq!(stat["removed"]["entries"], 1);
    let [old, new] = [text(&images.old), text(&images.new)];
    // Parts of the trees: of both, and of different paths.
    assert_eq!(exit_code(&uext4(&["diff", old, new, "/dir"])), 0);
    assert_eq!(exit_code(&uext4(&["diff", old, new, "/dir!"])), 1);
    let moved = stdout(&uext4(&["diff", old, new, "/dir/sub", "/dir"]));
    assert_eq!(
        moved,
        "A /dir/sub/file\nD /dir/sub/inner\nA /dir/sub/sub\nA /dir/sub/sub/inner\n"
    );
}

#[test]
fn exit_codes_are_those_of_diff() {
    let images = Images::new();
    let [old, new] = [text(&images.old), text(&images.new)];
    let code = |arguments: &[&str]| exit_code(&uext4(&[&["diff"], arguments].concat()));
    assert_eq!(code(&[old, new]), 0);
    assert_eq!(code(&["-q", old, new]), 0);
    assert_eq!(code(&[old, "/no/such.img"]), 2);
    assert_eq!(code(&[old]), 2);
    assert_eq!(code(&["--tar", "-", "--json", old, new]), 2);
    assert_eq!(code(&["--tar", "-", old, new, "/large"]), 2);
    let missing = uext4(&["diff", old, new, "/none"]);
    assert_eq!(exit_code(&missing), 2);
    assert!(
        stderr(&missing).contains("old.img: /none: no such file"),
        "{}",
        stderr(&missing)
    );
    images.change("mkdir /new");
    assert_eq!(code(&[old, new]), 1);
    for (options, expected) in [
        (&[][..], 1),
        (&["--json"], 1),
        (&["--stat"], 1),
        (&["--tar", "-"], 2),
    ] {
        let output = unread(&[&["diff"], options, &[old, new]].concat());
        assert_eq!(output.status.code(), Some(expected), "{options:?}");
    }
    assert_eq!(unread(&["diff", "--stat", old, old]).status.code(), Some(0));
}

#[test]
fn damage_is_reported_and_nothing_below_it_is_called_removed() {
    if !has_tool("debugfs") {
        return;
    }
    let images = Images::new();
    // Not the directory's checksum any more, in one copy.
    let mut bytes = fs::read(&images.new).unwrap();
    let at = bytes.windows(5).position(|five| five == b"inner").unwrap();
    bytes[at] = b'j';
    fs::write(&images.new, &bytes).unwrap();
    let output = images.diff(&[]);
    assert_eq!(exit_code(&output), 2);
    assert_eq!(stdout(&output), "");
    assert!(
        stderr(&output).contains("new.img:/dir/sub: "),
        "{}",
        stderr(&output)
    );
    let layer = images.diff(&["--tar", "-"]);
    assert_eq!(exit_code(&layer), 2);
    assert_eq!(layer.stdout, [0; 1024]);
    // What the inode says cannot be: the file is neither the same nor another.
    copy_image(&images.old, "new.img");
    debugfs_write(&images.new, ["sif /dir/file block[5] 0x7fffffff"]);
    let output = images.diff(&[]);
    assert_eq!((exit_code(&output), stdout(&output)), (2, String::new()));
    assert!(
        stderr(&output).contains("new.img:/dir/file: "),
        "{}",
        stderr(&output)
    );
    // A directory that lies in itself.
    copy_image(&images.old, "new.img");
    debugfs_write(&images.new, ["link /dir /dir/sub/loop"]);
    let output = images.diff(&[]);
    assert_eq!(exit_code(&output), 2, "{}", stdout(&output));
    assert!(
        stderr(&output).contains("new.img:/dir/sub/loop: "),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_layer_that_could_not_be_written_is_no_file() {
    let images = Images::new();
    images.change("chmod 600 /large");
    let layer = images.path("layer");
    let program = env!("CARGO_BIN_EXE_uext4");
    let [old, new] = [&images.old, &images.new].map(|image| text(image));
    let line = format!(
        "ulimit -f 64; {program} diff --tar {} {old} {new}",
        text(&layer)
    );
    let output = std::process::Command::new("sh")
        .args(["-c", &line])
        .output()
        .unwrap();
    assert_ne!(output.status.code(), Some(0), "{output:?}");
    assert_ne!(output.status.code(), Some(1), "{output:?}");
    assert!(!layer.exists());
    assert_eq!(exit_code(&images.diff(&["--tar", text(&layer)])), 1);
    assert!(fs::metadata(&layer).unwrap().len() > 3 << 20);
    assert_eq!(exit_code(&images.diff(&["--tar", text(&layer)])), 2);
}

#[test]
fn a_layer_has_whiteouts_links_and_directories_above_what_is_new() {
    let images = Images::new();
    let names = |script: &str| {
        images.change(script);
        layer_makes_new(images.scratch.path(), &images.old, &images.new);
        _ = fs::remove_file(images.path("layer"));
        let layer = images.path("layer");
        images.diff(&["--tar", text(&layer)]);
        let list = run("tar", &["-tvf", text(&layer)]);
        let list = String::from_utf8(list).unwrap();
        let names = list.lines().map(|line| line.split_whitespace().skip(5));
        names
            .map(|words| words.collect::<Vec<_>>().join(" "))
            .collect::<Vec<_>>()
    };
    assert_eq!(names("rm /link"), ["./", "./.wh.link"]);
    assert_eq!(names("rm -r /dir"), ["./", "./.wh.dir"]);
    assert_eq!(
        names("rm -r /dir\nmkdir /dir\ntouch /dir/new"),
        ["./", "./dir/", "./dir/.wh..wh..opq", "./dir/new"]
    );
    assert_eq!(names("rm -r /dir\ntouch /dir"), ["./", "./dir"]);
    assert_eq!(
        names("ln /linked '/dir/also'"),
        // The first name is new in the layer, so that the others become links of it.
        [
            "./",
            "./dir/",
            "./dir/also",
            "./linked link to ./dir/also",
            "./linked too link to ./dir/also"
        ]
    );
    assert_eq!(
        names("ln /linked /zz"),
        // It is in the layers below.
        ["./", "./zz link to ./linked"]
    );
    assert_eq!(
        names("chmod 600 /dir/sub/inner"),
        ["./", "./dir/", "./dir/sub/", "./dir/sub/inner"]
    );
    images.change("touch /.wh.file");
    let output = images.diff(&["--tar", "-"]);
    assert_eq!(exit_code(&output), 2);
    assert!(
        stderr(&output).contains("./.wh.file: a layer cannot"),
        "{}",
        stderr(&output)
    );
    // Another name of the same file does not become a link to it, and nothing is below it.
    images.change("touch /.wh.a\nln /.wh.a /z\nmkdir /.wh.d\ntouch /.wh.d/in");
    let layer = images.path("marked");
    let output = images.diff(&["--tar", text(&layer)]);
    assert_eq!(exit_code(&output), 2);
    let list = String::from_utf8(run("tar", &["-tf", text(&layer)])).unwrap();
    assert_eq!(list.lines().collect::<Vec<_>>(), ["./", "./z"]);
    let list = String::from_utf8(run("tar", &["-tvf", text(&layer)])).unwrap();
    assert!(!list.contains("link to"), "{list}");
}
