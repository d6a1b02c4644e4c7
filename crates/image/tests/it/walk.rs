//! A directory as the system calls show it, to be compared with another.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// What there is to know of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub mode: u32,
    pub owner: (u32, u32),
    /// Access (not of directories), modification, change; nanoseconds since 1970.
    pub times: [i128; 3],
    /// 0 for directories.
    pub size: u64,
    pub rdev: u64,
    pub links: u64,
    /// The least name of the same inode.
    pub same_as: String,
    pub target: String,
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// Where data begins and ends.
    pub pieces: Vec<(u64, u64)>,
    /// Of the data.
    pub contents: Vec<u8>,
}

/// Everything below `root`, and `root` itself as ".", but not what only file systems have.
pub fn walk(root: &Path) -> BTreeMap<String, Entry> {
    let mut all = BTreeMap::new();
    let mut inodes = BTreeMap::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(path) = todo.pop() {
        let inside = path.strip_prefix(root).unwrap();
        let name = match inside.as_os_str().as_bytes() {
            b"" => ".".to_owned(),
            bytes => bytes.escape_ascii().to_string(),
        };
        let meta = fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        }
        let least = inodes.entry(meta.ino()).or_insert(name.clone());
        *least = name.clone().min(std::mem::take(least));
        all.insert(name, (meta.ino(), entry(&path, &meta)));
    }
    let same = |(name, (ino, mut entry)): (String, (u64, Entry))| {
        entry.same_as.clone_from(&inodes[&ino]);
        (name, entry)
    };
    all.into_iter().map(same).collect()
}

/// The same as an image of the directory has it: reading a file, or copying it, changes nothing
/// of that, so times of access and change are that of the contents.
pub fn walk_source(root: &Path) -> BTreeMap<String, Entry> {
    let mut all = walk(root);
    for entry in all.values_mut() {
        // What was not looked at is 0.
        let changed = entry.times[1];
        for time in entry.times.iter_mut().filter(|time| **time != 0) {
            *time = changed;
        }
    }
    all
}

/// The same of a mounted image, without lost+found.
pub fn walk_image(root: &Path) -> BTreeMap<String, Entry> {
    let mut all = walk(root);
    all.remove("lost+found").expect("lost+found is missing");
    all.get_mut(".").unwrap().links -= 1;
    all
}

fn entry(path: &Path, meta: &fs::Metadata) -> Entry {
    let time = |sec: i64, nsec: i64| i128::from(sec) * 1_000_000_000 + i128::from(nsec);
    let kind = meta.file_type();
    let target = match kind.is_symlink() {
        true => fs::read_link(path)
            .unwrap()
            .as_os_str()
            .as_bytes()
            .escape_ascii()
            .to_string(),
        false => String::new(),
    };
    // Only now, for reading a link is an access to it.
    let meta = fs::symlink_metadata(path).unwrap();
    let (pieces, contents) = match kind.is_file() {
        true => data(path, meta.size()),
        false => Default::default(),
    };
    let is_device = kind.is_char_device() || kind.is_block_device();
    Entry {
        mode: meta.mode(),
        owner: (meta.uid(), meta.gid()),
        times: [
            // Looking into a directory is an access to it.
            if kind.is_dir() {
                0
            } else {
                time(meta.atime(), meta.atime_nsec())
            },
            time(meta.mtime(), meta.mtime_nsec()),
            time(meta.ctime(), meta.ctime_nsec()),
        ],
        size: if kind.is_dir() { 0 } else { meta.size() },
        rdev: if is_device { meta.rdev() } else { 0 },
        links: meta.nlink(),
        same_as: String::new(),
        target,
        xattrs: xattrs(path),
        pieces,
        contents,
    }
}

fn data(path: &Path, size: u64) -> (Vec<(u64, u64)>, Vec<u8>) {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = fs::OpenOptions::new();
    let noatime = rustix::fs::OFlags::NOATIME.bits() as i32;
    let file = options.read(true).custom_flags(noatime).open(path).unwrap();
    let (mut pieces, mut contents, mut at) = (Vec::new(), Vec::new(), 0);
    while at < size {
        let from = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(from) => from,
            Err(Errno::NXIO) => break,
            Err(e) => panic!("{}: {e}", path.display()),
        };
        at = rustix::fs::seek(&file, SeekFrom::Hole(from)).unwrap();
        let start = contents.len();
        contents.resize(start + (at - from) as usize, 0);
        file.read_exact_at(&mut contents[start..], from).unwrap();
        pieces.push((from, at));
    }
    (pieces, contents)
}

fn xattrs(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut names = vec![0; 65536];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let names = names[..len].split(|&b| b == 0).filter(|n| !n.is_empty());
    let get = |name: &[u8]| {
        let name = std::str::from_utf8(name).unwrap();
        let mut value = vec![0; 65536];
        let len = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
        value.truncate(len);
        (name.to_owned(), value)
    };
    names.map(get).collect()
}

/// Compares entry by entry, so that what differs can be seen.
pub fn assert_same(got: &BTreeMap<String, Entry>, want: &BTreeMap<String, Entry>, what: &str) {
    for (path, want) in want {
        let got = got
            .get(path)
            .unwrap_or_else(|| panic!("{what}: {path} is missing"));
        let brief = |e: &Entry| Entry {
            contents: Vec::new(),
            ..e.clone()
        };
        assert_eq!(brief(got), brief(want), "{what}: {path}");
        assert!(got.contents == want.contents, "{what}: {path}: contents");
    }
    let more: Vec<_> = got.keys().filter(|k| !want.contains_key(*k)).collect();
    assert!(more.is_empty(), "{what}: also {more:?}");
}
