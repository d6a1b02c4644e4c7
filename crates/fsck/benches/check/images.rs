//! The images that are compared, made once.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use uext4_image::{BuildOptions, Builder, Size};
use uext4_testkit::{Mount, SplitMix64, can_mount, mke2fs};

use crate::tar::{Archive, Entry};

/// One image.
pub struct Image {
    /// Its name, and that of its file.
    pub name: &'static str,
    /// Makes it; false if this machine cannot.
    make: fn(&Path) -> bool,
}

/// All images.
pub const ALL: &[Image] = &[
    Image {
        name: "tree",
        make: |path| build(path, Size::Auto, tree(75_000, 5_000)),
    },
    Image {
        name: "one-directory",
        make: |path| build(path, Size::Auto, directories(1, 1_000_000)),
    },
    Image {
        name: "thousand-directories",
        make: |path| build(path, Size::Auto, directories(1_000, 1_000)),
    },
    Image {
        name: "four-tebibytes",
        make: |path| build(path, Size::Exact(4 << 40), directories(10_000, 1_000)),
    },
    Image {
        name: "extents",
        make: extents,
    },
];

impl Image {
    /// The image's file; made if it is not there.
    pub fn made(&self, dir: &Path) -> Option<PathBuf> {
        let path = dir.join(self.name);
        if !path.exists() {
            // Under another name until it is whole.
            let unfinished = path.with_extension("unfinished");
            _ = fs::remove_file(&unfinished);
            if !(self.make)(&unfinished) {
                return None;
            }
            fs::rename(&unfinished, &path).unwrap();
        }
        Some(path)
    }
}

fn build(path: &Path, size: Size, entries: impl Iterator<Item = Entry> + Send + 'static) -> bool {
    let mut options = BuildOptions {
        size,
        ..BuildOptions::default()
    };
    if size != Size::Auto {
        // A file system for small files, though the device is large.
        options.mkfs.inodes = Some(10_500_000);
    }
    let mut builder = Builder::new(options);
    builder.archive("entries", Archive::new(entries));
    builder.build(path, &()).unwrap();
    true
}

/// Empty files in directories of this many each.
fn directories(count: u32, files: u32) -> impl Iterator<Item = Entry> + Send {
    (0..count).flat_map(move |directory| {
        let parent = Entry {
            path: format!("directory-{directory:06}/"),
            len: 0,
        };
        let files = (0..files).map(move |file| Entry {
            path: format!("directory-{directory:06}/a file of number {file:07}"),
            len: 0,
        });
        std::iter::once(parent).chain(files)
    })
}

/// A tree as the sources of a kernel are: directories of some fifteen files, each below one of
/// those before it, and sizes around ten KiB, few of them large.
fn tree(files: u32, directories: u32) -> impl Iterator<Item = Entry> + Send {
    let mut random = SplitMix64::new(1);
    let mut paths = vec![String::new()];
    let per_directory = files / directories;
    (0..directories).flat_map(move |nr| {
        let shallow: Vec<_> = paths.iter().filter(|path| path.len() < 40).collect();
        let parent = shallow[random.index(shallow.len())].clone();
        let path = format!("{parent}d{nr}/");
        paths.push(path.clone());
        let mut entries = vec![Entry {
            path: path.clone(),
            len: 0,
        }];
        entries.extend((0..per_directory).map(|file| Entry {
            path: format!("{path}source-{file}.c"),
            len: (random.normal() * 1.6 + 8.6).exp().min(4e6) as u64,
        }));
        entries
    })
}

/// One file with a million extents: every other block of it is allocated.
fn extents(path: &Path) -> bool {
    if !can_mount() {
        return false;
    }
    mke2fs(
        path,
        ["-t", "ext4", "-b", "4096", "-O", "^has_journal"],
        "16G",
    );
    let mount = Mount::new(path, "defaults");
    let file = File::create(mount.path().join("file")).unwrap();
    for piece in 0..1_000_000 {
        fallocate(&file, FallocateFlags::empty(), piece * 8192, 4096).unwrap();
    }
    true
}
