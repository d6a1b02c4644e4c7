//! The tree as the kernel shows it, in the keys of the manifest.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// Lines of a manifest by path.
pub type Tree = BTreeMap<String, Map<String, Value>>;

/// Walks over a directory of this machine.
pub fn walk(top: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut to_do = vec![(top.to_owned(), String::new())];
    while let Some((dir, prefix)) = to_do.pop() {
        let here = if prefix.is_empty() {
            "."
        } else {
            prefix.trim_end_matches('/')
        };
        tree.insert(here.to_owned(), describe(&dir));
        for entry in std::fs::read_dir(&dir).unwrap() {
            let entry = entry.unwrap();
            let name = match entry.file_name().to_str() {
                Some(name) => name.to_owned(),
                None => format!("hex:{}", hex(entry.file_name().as_bytes())),
            };
            let path = format!("{prefix}{name}");
            if entry.file_type().unwrap().is_dir() {
                to_do.push((entry.path(), path + "/"));
            } else {
                tree.insert(path, describe(&entry.path()));
            }
        }
    }
    tree
}

fn describe(path: &Path) -> Map<String, Value> {
    let stat = path.symlink_metadata().unwrap();
    let kind = stat.file_type();
    let time = |sec: i64, nsec: i64| Value::from(sec * 1_000_000_000 + nsec);
    let word = match () {
        () if kind.is_dir() => "dir",
        () if kind.is_file() => "file",
        () if kind.is_symlink() => "symlink",
        () if kind.is_char_device() => "chr",
        () if kind.is_block_device() => "blk",
        () if kind.is_fifo() => "fifo",
        () => "sock",
    };
    let mut keys = Map::new();
    let mut put = |key: &str, value: Value| keys.insert(key.to_owned(), value);
    put("type", word.into());
    put("mode", format!("{:04o}", stat.mode() & 0o7777).into());
    put("uid", stat.uid().into());
    put("gid", stat.gid().into());
    put("size", stat.size().into());
    put("nlink", stat.nlink().into());
    put("ino", stat.ino().into());
    put("blocks", stat.blocks().into());
    put("atime_ns", time(stat.atime(), stat.atime_nsec()));
    put("mtime_ns", time(stat.mtime(), stat.mtime_nsec()));
    put("ctime_ns", time(stat.ctime(), stat.ctime_nsec()));
    if word == "chr" || word == "blk" {
        let (major, minor) = (
            rustix::fs::major(stat.rdev()),
            rustix::fs::minor(stat.rdev()),
        );
        put("rdev", format!("{major}:{minor}").into());
    }
    if word == "symlink" {
        let target = std::fs::read_link(path).unwrap();
        put("target", show(target.as_os_str().as_bytes()));
    }
    if word == "file" || word == "dir" {
        let file = File::open(path).unwrap();
        if let Ok(flags) = rustix::fs::ioctl_getflags(&file) {
            put("flags", format!("{:08x}", flags.bits()).into());
        }
    }
    if word == "file" && stat.size() <= 64 << 20 {
        put("sha256", sha256(path).into());
    }
    put("xattrs", xattrs(path));
    keys
}

fn show(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => format!("hex:{}", hex(bytes)).into(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn sha256(path: &Path) -> String {
    let mut hasher = Sha256::new();
    let mut file = File::open(path).unwrap();
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece).unwrap() {
            0 => return hex(&hasher.finalize()),
            got => hasher.update(&piece[..got]),
        }
    }
}

fn xattrs(path: &Path) -> Value {
    let mut names = vec![0; 1 << 16];
    let len = rustix::fs::llistxattr(path, &mut names).unwrap_or(0);
    let mut found = Map::new();
    for name in names[..len]
        .split(|&b| b == 0)
        .filter(|name| !name.is_empty())
    {
        let mut value = vec![0; 1 << 16];
        let len = rustix::fs::lgetxattr(path, name, &mut value).unwrap();
        found.insert(
            show(name).as_str().unwrap().to_owned(),
            hex(&value[..len]).into(),
        );
    }
    found.into()
}

/// Reads a manifest, and makes sure that its lines are in order.
pub fn parse(manifest: &[u8]) -> Tree {
    let mut tree = Tree::new();
    let mut last: Option<String> = None;
    for line in std::str::from_utf8(manifest).unwrap().lines() {
        let Value::Object(mut keys) = serde_json::from_str(line).unwrap() else {
            panic!("not an object: {line}");
        };
        let path = keys.remove("path").unwrap().as_str().unwrap().to_owned();
        assert!(
            last.as_ref() < Some(&path),
            "{last:?} comes before {path:?}"
        );
        last = Some(path.clone());
        for key in ["atime", "mtime", "ctime"] {
            let text = keys.remove(key);
            let number = keys.get(&format!("{key}_ns")).and_then(Value::as_i64);
            if let Some(number) = number.filter(|number| *number >= 0) {
                let (sec, nsec) = (number / 1_000_000_000, number % 1_000_000_000);
                assert_eq!(text.unwrap(), format!("{sec}.{nsec:09}"), "{path}");
            }
        }
        tree.insert(path, keys);
    }
    tree
}

/// Panics with the first differences; keys in `but` may differ or be absent.
pub fn assert_equal(ours: &Tree, theirs: &Tree, but: &[&str]) {
    let mut differences = Vec::new();
    for path in ours.keys().chain(theirs.keys()) {
        let (Some(our), Some(their)) = (ours.get(path), theirs.get(path)) else {
            let whose = if ours.contains_key(path) {
                "only ours"
            } else {
                "only theirs"
            };
            differences.push(format!("{path:?}: {whose}"));
            continue;
        };
        for key in our.keys().chain(their.keys()) {
            // The kernel returns flags of files and directories only, and to stat(2) no birth; of
            // large files no digest is computed here.
            let may_lack = ["flags", "crtime", "crtime_ns", "sha256"].contains(&key.as_str());
            let unreported = may_lack && !their.contains_key(key);
            if our.get(key) != their.get(key) && !but.contains(&key.as_str()) && !unreported {
                let (our, their) = (json!(our.get(key)), json!(their.get(key)));
                differences.push(format!("{path:?} {key}: ours {our}, theirs {their}"));
            }
        }
    }
    differences.sort();
    differences.dedup();
    let count = differences.len();
    differences.truncate(20);
    assert!(
        count == 0,
        "{count} differences:\n{}",
        differences.join("\n")
    );
}
