//! `diff`: each kind of difference alone, random ones against a walk over two manifests, and layers
//! that make the new tree of the old one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;

use rustix::fs::{CWD, FileType, Mode, XattrFlags};
use serde_json::Value;
use tempfile::TempDir;
use uext4_testkit::SplitMix64;

use crate::commands::{exit_code, stderr, stdout};
use crate::host::{
    copy_image, debugfs_write, has_tool, is_long, run, scratch, text, uext4, uext4_ok,
};
use crate::statuses::unread;

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

/// What `manifest` says of each path.
fn manifest(image: &Path) -> BTreeMap<String, Value> {
    let lines = stdout(&uext4(&["manifest", text(image)]));
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut paths = BTreeMap::new();
    for mut line in lines {
        // `diff` writes a path as a whole.
        let path = line["path"].as_str().unwrap();
        let path = match path {
            "." => "/".to_owned(),
            path => format!("/{path}"),
        };
        let flags = u32::from_str_radix(line["flags"].as_str().unwrap(), 16).unwrap();
        line["flags"] = (flags & !0x1008_1000).into();
        paths.insert(path, line);
    }
    paths
}

/// What differs, by path: the word for the change and what differs.
type Differences = BTreeMap<String, (String, BTreeSet<String>)>;

/// What the manifests of two images say.
fn expected(old: &Path, new: &Path, times: bool) -> Differences {
    let [old, new] = [old, new].map(manifest);
    let mut found = Differences::new();
    let mut one = |path: &str, change: &str, differs: BTreeSet<String>| {
        found.insert(path.to_owned(), (change.to_owned(), differs));
    };
    // Of each file, the number in the other image that its first name has there.
    let mut firsts: [HashMap<u64, u64>; 2] = Default::default();
    let mut paths: Vec<&String> = old.keys().chain(new.keys()).collect();
    paths.sort_by_key(|path| path.split('/').collect::<Vec<_>>());
    paths.dedup();
    for path in paths {
        let (a, b) = match (old.get(path), new.get(path)) {
            (Some(a), Some(b)) => (a, b),
            (Some(_), None) => {
                one(path, "removed", BTreeSet::new());
                continue;
            }
            _ => {
                one(path, "added", BTreeSet::new());
                continue;
            }
        };
        if a["type"] != b["type"] {
            one(path, "type", BTreeSet::new());
            continue;
        }
        let is_file = a["type"] == "file";
        let mut differs = BTreeSet::new();
        for (key, name, counts) in [
            ("mode", "mode", true),
            ("uid", "owner", true),
            ("gid", "owner", true),
            ("size", "size", is_file),
            ("sha256", "content", true),
            ("target", "target", true),
            ("rdev", "device", true),
            ("xattrs", "xattrs", true),
            ("flags", "flags", true),
            ("mtime", "mtime", times),
        ] {
            if counts && a[key] != b[key] {
                differs.insert(name.to_owned());
            }
        }
        for (at, one, other) in [(0, a, b), (1, b, a)] {
            let [one, other_ino] = [one, other].map(|inode| inode["ino"].as_u64().unwrap());
            let first = *firsts[at].entry(one).or_insert(other_ino);
            if a["type"] != "dir" && first != other_ino {
                differs.insert("links".to_owned());
            }
        }
        if !differs.is_empty() {
            one(path, "changed", differs);
        }
    }
    found
}

/// What `diff --json` says.
fn found(old: &Path, new: &Path, options: &[&str]) -> Differences {
    let output = uext4(&[&["diff", "--json"], options, &[text(old), text(new)]].concat());
    assert!(exit_code(&output) < 2, "{}", stderr(&output));
    let mut found = Differences::new();
    for line in stdout(&output).lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let differs = line["differs"].as_array();
        let differs = differs.map_or(BTreeSet::new(), |all| all.iter().map(text).collect());
        let one = (text(&line["change"]), differs);
        assert!(found.insert(text(&line["path"]), one).is_none(), "{line}");
    }
    found
}

/// A tree under random changes.
struct Garden {
    top: PathBuf,
    random: SplitMix64,
    count: u32,
}

impl Garden {
    /// The paths in the tree, the top first.
    fn paths(&self) -> Vec<PathBuf> {
        let mut paths = vec![self.top.clone()];
        let mut next = 0;
        while let Some(dir) = paths.get(next).cloned() {
            next += 1;
            if dir.symlink_metadata().unwrap().is_dir() {
                let mut names: Vec<_> = fs::read_dir(dir)
                    .unwrap()
                    .map(|e| e.unwrap().path())
                    .collect();
                names.sort();
                paths.extend(names);
            }
        }
        paths
    }

    fn any(&mut self, is_wanted: impl Fn(&fs::Metadata) -> bool) -> Option<PathBuf> {
        let mut paths = self.paths();
        paths.retain(|path| is_wanted(&path.symlink_metadata().unwrap()));
        match paths.len() {
            0 => None,
            len => Some(paths.swap_remove(self.random.index(len))),
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = [0, 3, 59, 4096, 5000, 70_000][self.random.index(6)];
        let seed = self.random.below(3) as u8;
        let mut bytes: Vec<u8> = (0..len).map(|at| (at / 100) as u8 ^ seed).collect();
        if len > 20_000 {
            bytes[4096..16_384].fill(0);
        }
        bytes
    }

    /// A path that may be there already, or not.
    fn place(&mut self) -> PathBuf {
        self.count += 1;
        let dir = self.any(fs::Metadata::is_dir).unwrap();
        match self.random.below(3) {
            0 => dir.join(["a", "b", "grün", "x y"][self.random.index(4)]),
            _ => dir.join(format!("n{}", self.count)),
        }
    }

    fn clear(&mut self, place: &Path) {
        match place.symlink_metadata() {
            Ok(found) if found.is_dir() => fs::remove_dir_all(place).unwrap(),
            Ok(_) => fs::remove_file(place).unwrap(),
            Err(_) => {}
        }
    }

    fn step(&mut self) {
        let place = self.place();
        match self.random.below(12) {
            0 | 1 => {
                let bytes = self.bytes();
                self.clear(&place);
                fs::write(&place, bytes).unwrap();
            }
            2 | 3 if !place.exists() => drop(fs::create_dir(&place)),
            4 => {
                self.clear(&place);
                symlink(["a", "b", "../c"][self.random.index(3)], &place).unwrap();
            }
            5 | 6 => {
                if let Some(file) = self.any(fs::Metadata::is_file)
                    && !file.starts_with(&place)
                {
                    self.clear(&place);
                    fs::hard_link(file, &place).unwrap();
                }
            }
            7 => {
                self.clear(&place);
                rustix::fs::mknodat(CWD, &place, FileType::Fifo, Mode::from_raw_mode(0o600), 0)
                    .unwrap();
            }
            8 => {
                if let Some(file) = self.any(fs::Metadata::is_file) {
                    let bytes = self.bytes();
                    fs::write(file, bytes).unwrap();
                }
            }
            9 => {
                if let Some(path) = self.any(|found| !found.is_symlink()) {
                    let mode = [0o700, 0o755, 0o1777][self.random.index(3)];
                    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
                }
            }
            10 => {
                if let Some(path) = self.any(|found| found.is_file() || found.is_dir()) {
                    let value = [self.random.below(4) as u8];
                    let name = ["user.a", "user.b"][self.random.index(2)];
                    // Not every file system has them.
                    _ = rustix::fs::setxattr(path, name, &value, XattrFlags::empty());
                }
            }
            _ => {
                if let Some(path) = self.any(|_| true)
                    && path != self.top
                {
                    self.clear(&path);
                }
            }
        }
    }
}

/// Makes an image of the new tree from the old one and the layer between them, which must be the
/// new one.
#[track_caller]
fn layer_makes_new(scratch: &Path, old: &Path, new: &Path) {
    let [layer, again, tar, made] = ["layer", "again", "tar", "made"].map(|n| scratch.join(n));
    for layer in [&layer, &again] {
        _ = fs::remove_file(layer);
        let output = uext4(&[
            "diff",
            "--times",
            "--tar",
            text(layer),
            text(old),
            text(new),
        ]);
        assert!(exit_code(&output) < 2, "{}", stderr(&output));
    }
    let bytes = fs::read(&layer).unwrap();
    assert!(
        bytes == fs::read(&again).unwrap(),
        "another layer in a second run"
    );
    let piped = uext4(&["diff", "--times", "--tar", "-", text(old), text(new)]);
    assert!(piped.stdout == bytes, "another layer on standard output");
    fs::write(&tar, uext4_ok(&["tar", text(old)])).unwrap();
    let source = format!("layer:{}", text(&layer));
    uext4_ok(&["build", "--force", text(&tar), &source, "-o", text(&made)]);
    let output = uext4(&["diff", "--times", text(&made), text(new)]);
    assert_eq!(
        exit_code(&output),
        0,
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
}

#[test]
fn random_changes_are_those_that_two_manifests_show_and_a_layer_makes_them() {
    let rounds = if is_long() { 200 } else { 12 };
    for seed in 0..rounds {
        let scratch = scratch();
        let top = scratch.path().join("tree");
        fs::create_dir(&top).unwrap();
        let random = SplitMix64::new(seed);
        let mut garden = Garden {
            top,
            random,
            count: 0,
        };
        (0..80).for_each(|_| garden.step());
        let [old, new] = ["old.img", "new.img"].map(|name| scratch.path().join(name));
        uext4_ok(&["build", text(&garden.top), "-o", text(&old)]);
        let steps = 1 + garden.random.below(40);
        (0..steps).for_each(|_| garden.step());
        let features = ["^extents,^64bit", "inline_data", "dir_index"][garden.random.index(3)];
        uext4_ok(&["build", text(&garden.top), "-o", text(&new), "-O", features]);
        for (options, times) in [(&[][..], false), (&["--times"], true)] {
            let expected = expected(&old, &new, times);
            assert_eq!(
                found(&old, &new, options),
                expected,
                "seed {seed}, {options:?}"
            );
        }
        layer_makes_new(scratch.path(), &old, &new);
    }
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
}
