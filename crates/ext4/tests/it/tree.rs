//! What a tree holds, seen by the host and seen by the engine, in one form to compare.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use uext4::{FileType, FollowLast, Image, Inode, InodeFlags, OpenOptions};
use uext4_blockdev::{Access, FileDevice};

/// One file. Fields that an oracle cannot report are zero or empty on both sides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub nlink: u64,
    pub mtime: (i64, u32),
    pub rdev: Option<(u32, u32)>,
    /// Only from a mount.
    pub ino: u64,
    /// Only from a mount.
    pub blocks: u64,
    /// Contents of a file, which its names share, or target of a symlink.
    pub data: Arc<[u8]>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Node {
    /// The fields but for contents and attributes.
    fn without_data(&self) -> Self {
        Self {
            data: Arc::default(),
            xattrs: Vec::new(),
            ..*self
        }
    }
}

pub type Tree = BTreeMap<Vec<u8>, Node>;

/// What of a tree is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Oracle {
    /// The directory an image was made from: numbers, sizes and links of directories differ.
    Source,
    /// The kernel's mount of the same image: everything is equal.
    Mount,
    /// The same, after the kernel has replayed fast commits: it counts blocks and links of new
    /// directories anew, not always rightly, and gives directories the time of the replay.
    FastCommit,
}

/// Opens an image for reading.
pub fn open(image: &Path) -> Image {
    let device = Arc::new(FileDevice::open(image, Access::ReadOnly).unwrap());
    Image::open(device, &OpenOptions::default()).unwrap()
}

/// The tree below a directory of the host.
pub fn of_host(root: &Path, oracle: Oracle) -> Tree {
    let mut tree = Tree::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(path) = todo.pop() {
        let meta = path.symlink_metadata().unwrap();
        let file_type = meta.file_type();
        let rel = path
            .strip_prefix(root)
            .unwrap()
            .as_os_str()
            .as_bytes()
            .to_vec();
        let mut node = Node {
            mode: meta.mode(),
            uid: meta.uid(),
            gid: meta.gid(),
            size: meta.size(),
            nlink: meta.nlink(),
            mtime: (meta.mtime(), meta.mtime_nsec() as u32),
            xattrs: host_xattrs(&path),
            ..Node::default()
        };
        if oracle != Oracle::Source {
            node.ino = meta.ino();
            node.blocks = meta.blocks();
        }
        if file_type.is_char_device() || file_type.is_block_device() {
            node.rdev = Some((
                rustix::fs::major(meta.rdev()),
                rustix::fs::minor(meta.rdev()),
            ));
        } else if file_type.is_file() {
            node.data = std::fs::read(&path).unwrap().into();
        } else if file_type.is_symlink() {
            node.data = std::fs::read_link(&path)
                .unwrap()
                .as_os_str()
                .as_bytes()
                .into();
        } else if file_type.is_dir() {
            todo.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        }
        tree.insert(rel, normal(node, oracle));
    }
    tree
}

fn host_xattrs(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut names = vec![0; 65536];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
    let mut xattrs: Vec<_> = names[..len]
        .split(|&b| b == 0)
        .filter(|name| !name.is_empty())
        .map(|name| {
            let mut value = vec![0; 65536];
            let len = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
            value.truncate(len);
            (name.to_vec(), value)
        })
        .collect();
    xattrs.sort();
    xattrs
}

/// The tree of an image, walked by the engine. Every name is also looked up.
pub fn of_image(fs: &Image, oracle: Oracle) -> Tree {
    let mut tree = Tree::new();
    let mut contents = Contents::new();
    let mut todo = vec![(Vec::new(), fs.resolve(b"", FollowLast::No).unwrap())];
    while let Some((path, inode)) = todo.pop() {
        if inode.file_type == FileType::Directory {
            for entry in fs.read_dir(&inode).unwrap() {
                let entry = entry.unwrap();
                assert_eq!(fs.lookup(&inode, &entry.name).unwrap(), entry.ino);
                let child = fs.inode(entry.ino).unwrap();
                assert_eq!(entry.file_type.unwrap_or(child.file_type), child.file_type);
                let mut name = path.clone();
                if !name.is_empty() {
                    name.push(b'/');
                }
                name.extend_from_slice(&entry.name);
                todo.push((name, child));
            }
        }
        let node = node_of(fs, &inode, oracle, &mut contents);
        assert!(tree.insert(path, node).is_none(), "a name twice");
    }
    tree
}

/// Contents by the number of the inode: files with several names are read once.
type Contents = BTreeMap<u32, Arc<[u8]>>;

fn node_of(fs: &Image, inode: &Inode, oracle: Oracle, contents: &mut Contents) -> Node {
    let mut node = Node {
        mode: inode.mode.into(),
        uid: inode.uid,
        gid: inode.gid,
        size: inode.size,
        nlink: inode.links.into(),
        mtime: (inode.mtime.sec, inode.mtime.nsec),
        rdev: inode.rdev.map(|d| (d.major, d.minor)),
        xattrs: fs
            .xattrs(inode)
            .unwrap()
            .into_iter()
            .map(|x| (x.name, x.value))
            .collect(),
        ..Node::default()
    };
    if oracle != Oracle::Source {
        node.ino = inode.ino.0.into();
        node.blocks = inode.blocks;
        if inode.has(InodeFlags::INLINE_DATA) && inode.file_type == FileType::Regular {
            // So that no thread takes the file for a hole, stat adds this.
            node.blocks += inode.size.div_ceil(512);
        }
    }
    match inode.file_type {
        FileType::Regular => {
            let read = || read_file(fs, inode).into();
            node.data = Arc::clone(contents.entry(inode.ino.0).or_insert_with(read));
        }
        FileType::Symlink => node.data = fs.read_link(inode).unwrap().into(),
        _ => {}
    }
    normal(node, oracle)
}

/// Reads a file in pieces of an odd size, and makes sure that data lies only in the data ranges.
fn read_file(fs: &Image, inode: &Inode) -> Vec<u8> {
    let mut data = vec![0xAA; inode.size as usize + 1];
    let mut at = 0;
    loop {
        let end = data.len().min(at + 100_003);
        let len = fs.read_at(inode, at as u64, &mut data[at..end]).unwrap();
        if len == 0 {
            break;
        }
        at += len;
    }
    data.truncate(at);
    let mut last = 0;
    for range in fs.data_ranges(inode).unwrap() {
        let range = range.unwrap();
        assert!(range.start >= last && range.end > range.start && range.end <= inode.size);
        assert_zeroes(&data[last as usize..range.start as usize]);
        last = range.end;
    }
    assert_zeroes(&data[last as usize..]);
    data
}

fn assert_zeroes(hole: &[u8]) {
    let zeroes = [0; 4096];
    let mut pieces = hole.chunks(zeroes.len());
    assert!(
        pieces.all(|piece| piece == &zeroes[..piece.len()]),
        "data in a hole"
    );
}

/// Leaves out what the oracle cannot report.
fn normal(mut node: Node, oracle: Oracle) -> Node {
    let is_dir = node.mode & 0o170_000 == 0o040_000;
    let is_special = !matches!(node.mode & 0o170_000, 0o040_000 | 0o100_000 | 0o120_000);
    if oracle == Oracle::Source {
        // mke2fs -d keeps whole seconds only.
        node.mtime.1 = 0;
        if is_dir {
            (node.size, node.nlink) = (0, 0);
        }
        if node.mode & 0o170_000 == 0o120_000 {
            node.mode = 0o120_777;
        }
    }
    if oracle == Oracle::FastCommit {
        node.blocks = 0;
        if is_dir {
            (node.mtime, node.size, node.nlink) = ((0, 0), 0, 0);
        }
    }
    if is_special {
        node.size = 0;
    }
    node
}

/// Panics with the first difference.
pub fn assert_equal(expected: &Tree, found: &Tree, what: &str) {
    for (path, node) in expected {
        let name = String::from_utf8_lossy(path);
        let other = found
            .get(path)
            .unwrap_or_else(|| panic!("{what}: {name:?} is missing"));
        let is_same =
            |what_of: &str, same: bool| assert!(same, "{what}: {name:?}: {what_of} differ");
        is_same("contents", node.data == other.data);
        is_same("attributes", node.xattrs == other.xattrs);
        assert_eq!(
            node.without_data(),
            other.without_data(),
            "{what}: {name:?}"
        );
    }
    for path in found.keys() {
        let name = String::from_utf8_lossy(path);
        assert!(expected.contains_key(path), "{what}: {name:?} is too much");
    }
}
