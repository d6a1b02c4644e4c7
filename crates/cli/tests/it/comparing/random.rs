//! Random changes, as two manifests show them, and the layers between two trees.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, XattrFlags};
use serde_json::Value;
use uext4_testkit::SplitMix64;

use crate::commands::{exit_code, stderr, stdout};
use crate::host::{is_long, scratch, text, uext4, uext4_ok};

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
pub fn layer_makes_new(scratch: &Path, old: &Path, new: &Path) {
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
