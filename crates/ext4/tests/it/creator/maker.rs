//! Makes images through the creator and remembers what must be in them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use uext4::bulk::{Attributes, Creator, CreatorOptions, Summary};
use uext4::{Ino, NewInode, Timestamp};
use uext4_blockdev::{Access, BlockDevice, FileDevice};
use uext4_testkit::{complaints, run, scratch};

use crate::mke2fs::mke2fs;
use crate::tree::{Node, Oracle, Tree, assert_equal, of_host, of_image, open};
use uext4_testkit::{Mount, can_mount};

/// Attributes with times that need all the bits there are.
pub fn attributes(mode: u16, number: u32) -> Attributes {
    let time = |sec: i64| Timestamp {
        sec,
        nsec: number % 1_000_000_000,
    };
    Attributes {
        mode,
        uid: number,
        gid: number ^ 0x1_0001,
        atime: time(1_700_000_000),
        mtime: time(i64::from(number) * 7 - 2_000_000),
        ctime: time(5_000_000_000),
        crtime: time(1),
        ..Attributes::default()
    }
}

/// Bytes that differ from place to place.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

/// An image being filled.
pub struct Maker {
    pub dir: TempDir,
    pub creator: Option<Creator>,
    pub inos: BTreeMap<Vec<u8>, Ino>,
    expected: Tree,
    uncounted: bool,
}

impl Maker {
    /// On a file system that mke2fs made.
    pub fn new(size: &str, arguments: &[&str]) -> Self {
        Self::tuned(size, arguments, &[])
    }

    /// On a file system that mke2fs made and tune2fs changed.
    pub fn tuned(size: &str, arguments: &[&str], tune: &[&str]) -> Self {
        let dir = scratch();
        let image = dir.path().join("image");
        mke2fs(&image, arguments, None, size);
        if !tune.is_empty() {
            run(
                "tune2fs",
                tune.iter().map(OsStr::new).chain([image.as_os_str()]),
            );
        }
        let device = FileDevice::open(&image, Access::ReadWrite).unwrap();
        let creator = Creator::open(Arc::new(device), &CreatorOptions::default()).unwrap();
        Self {
            dir,
            creator: Some(creator),
            inos: [(Vec::new(), Ino::ROOT)].into(),
            expected: Tree::new(),
            uncounted: false,
        }
    }

    pub fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    pub fn creator(&mut self) -> &mut Creator {
        self.creator.as_mut().unwrap()
    }

    /// Creates what `kind` says at a path whose parent is there.
    pub fn make(&mut self, path: &[u8], kind: NewInode<'_>, attributes: &Attributes) -> Ino {
        let (parent, name) = split(path);
        let parent = self.inos[parent];
        let ino = self
            .creator()
            .create(parent, name, kind, attributes)
            .unwrap();
        self.inos.insert(path.to_vec(), ino);
        let mut node = node(attributes);
        let (bits, data, rdev) = match kind {
            NewInode::File => (0o100_000, vec![], None),
            NewInode::Directory => (0o040_000, vec![], None),
            NewInode::Symlink(target) => (0o120_000, target.to_vec(), None),
            NewInode::CharDevice(d) => (0o020_000, vec![], Some((d.major, d.minor))),
            NewInode::BlockDevice(d) => (0o060_000, vec![], Some((d.major, d.minor))),
            NewInode::Fifo => (0o010_000, vec![], None),
            NewInode::Socket => (0o140_000, vec![], None),
        };
        node.mode |= bits;
        node.size = data.len() as u64;
        (node.data, node.rdev, node.nlink) = (data.into(), rdev, 1);
        self.expected.insert(path.to_vec(), node);
        ino
    }

    pub fn dir(&mut self, path: &[u8]) -> Ino {
        let attributes = attributes(0o755, self.inos.len() as u32);
        self.make(path, NewInode::Directory, &attributes)
    }

    /// A file with all of `data`.
    pub fn file(&mut self, path: &[u8], data: &[u8], attributes: &Attributes) -> Ino {
        let whole = 0..data.len() as u64;
        self.sparse_file(path, data, &[whole], attributes)
    }

    /// A file whose data lies in `ranges` only.
    pub fn sparse_file(
        &mut self,
        path: &[u8],
        data: &[u8],
        ranges: &[Range<u64>],
        attributes: &Attributes,
    ) -> Ino {
        let ino = self.make(path, NewInode::File, attributes);
        let size = data.len() as u64;
        let mut source = data;
        self.creator()
            .write_file(ino, size, ranges, &mut source)
            .unwrap();
        let node = self.expected.get_mut(path).unwrap();
        node.size = size;
        node.data = data.into();
        ino
    }

    pub fn link(&mut self, path: &[u8], old: &[u8]) {
        let (parent, name) = split(path);
        let (parent, ino) = (self.inos[parent], self.inos[old]);
        self.creator().link(parent, name, ino).unwrap();
        let mut node = self.expected[old].clone();
        node.nlink += 1;
        let names: Vec<_> = self
            .inos
            .iter()
            .filter(|(_, i)| **i == ino)
            .map(|(p, _)| p.clone())
            .collect();
        for name in names {
            self.expected.get_mut(&name).unwrap().nlink = node.nlink;
        }
        self.inos.insert(path.to_vec(), ino);
        self.expected.insert(path.to_vec(), node);
    }

    /// As [`Maker::link`], many times: links are counted in the end only.
    pub fn link_uncounted(&mut self, path: &[u8], old: &[u8]) {
        let (parent, name) = split(path);
        let (parent, ino) = (self.inos[parent], self.inos[old]);
        self.creator().link(parent, name, ino).unwrap();
        self.inos.insert(path.to_vec(), ino);
        self.expected
            .insert(path.to_vec(), self.expected[old].clone());
        self.uncounted = true;
    }

    /// Expects nothing of this path any more.
    pub fn forget(&mut self, path: &[u8]) {
        self.expected.remove(path);
    }

    /// Sets the links of all files that have several names.
    fn count_links(&mut self) {
        let mut counts: BTreeMap<Ino, u64> = BTreeMap::new();
        self.inos
            .values()
            .for_each(|ino| *counts.entry(*ino).or_default() += 1);
        for (path, node) in &mut self.expected {
            node.nlink = counts[&self.inos[path]];
        }
    }

    /// Finishes, and asks e2fsck.
    pub fn finish_and_fsck(&mut self, what: &str) -> Summary {
        let summary = self.creator.take().unwrap().finish().unwrap();
        e2fsck(&self.image(), what);
        summary
    }

    /// Finishes, and asks e2fsck, the engine's reader and the kernel whether all is there.
    pub fn check(&mut self, what: &str) -> Summary {
        let summary = self.finish_and_fsck(what);
        if self.uncounted {
            self.count_links();
        }
        let image = self.image();
        let fs = open(&image);
        assert_eq!(fs.superblock().free_blocks_count(), summary.free_blocks);
        let device: Arc<dyn BlockDevice> =
            Arc::new(FileDevice::open(&image, Access::ReadOnly).unwrap());
        assert_eq!(uext4_fsck::findings(&device).unwrap(), [], "{what}");
        let mut found = of_image(&fs, Oracle::Source);
        assert!(found.remove(&b"lost+found"[..]).is_some());
        found.remove(&b""[..]);
        // Whole seconds within what the inodes hold; nanoseconds are compared in stored.rs.
        let small = fs.geometry().inode_size == 128;
        let mut expected = self.expected.clone();
        for node in expected.values_mut() {
            if small {
                node.mtime.0 = node.mtime.0.clamp(i32::MIN.into(), i32::MAX.into());
            }
            node.mtime.1 = 0;
            if node.mode & 0o170_000 == 0o040_000 {
                node.nlink = 0;
            }
            if node.mode & 0o170_000 == 0o120_000 {
                node.mode = 0o120_777;
            }
            node.xattrs.sort();
        }
        assert_equal(&expected, &found, what);
        if can_mount() {
            let mount = Mount::new(&image, "ro");
            let kernel = of_host(mount.path(), Oracle::Mount);
            assert_equal(&kernel, &of_image(&open(&image), Oracle::Mount), what);
        }
        summary
    }
}

fn node(attributes: &Attributes) -> Node {
    Node {
        mode: attributes.mode.into(),
        uid: attributes.uid,
        gid: attributes.gid,
        mtime: (attributes.mtime.sec, attributes.mtime.nsec),
        xattrs: attributes.xattrs.clone(),
        ..Node::default()
    }
}

/// Parent and last name of a path.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&b| b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// Panics unless e2fsck finds nothing at all.
pub fn e2fsck(image: &Path, what: &str) {
    assert_eq!(complaints(image), None, "{what}");
}
