//! Random trees on random shapes, and random damage of what is to be filled.

use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use uext4::bulk::{Creator, CreatorOptions};
use uext4::{Ino, NewInode, Result};
use uext4_blockdev::MemoryDevice;

use super::maker::{Maker, attributes, bytes};

#[derive(Clone, Debug)]
enum Step {
    Dir,
    File {
        len: usize,
        hole: Option<(u32, u32)>,
    },
    Symlink {
        len: usize,
    },
    Fifo,
    Link {
        which: usize,
    },
}

#[derive(Clone, Debug)]
struct Entry {
    /// Which of the directories made so far.
    parent: usize,
    name: Vec<u8>,
    step: Step,
    xattr: Option<(u8, usize)>,
}

fn entry() -> impl Strategy<Value = Entry> {
    let len = prop_oneof![4 => 0usize..5_000, 1 => 0usize..300_000];
    let step = prop_oneof![
        2 => Just(Step::Dir),
        6 => (len, proptest::option::of(any::<(u32, u32)>()))
            .prop_map(|(len, hole)| Step::File { len, hole }),
        1 => (1usize..1_000).prop_map(|len| Step::Symlink { len }),
        1 => Just(Step::Fifo),
        1 => any::<usize>().prop_map(|which| Step::Link { which }),
    ];
    let byte = any::<u8>().prop_map(|b| match b {
        0 | b'/' => b'-',
        b => b,
    });
    let name = prop::collection::vec(byte, 1..60);
    let xattr = proptest::option::weighted(0.2, (any::<u8>(), 0usize..700));
    (any::<usize>(), name, step, xattr).prop_map(|(parent, name, step, xattr)| Entry {
        parent,
        name,
        step,
        xattr,
    })
}

const SHAPES: &[&[&str]] = &[
    &["-t", "ext4", "-b", "1024", "-N", "1000"],
    &["-t", "ext4", "-b", "4096", "-N", "1000"],
    &["-t", "ext3", "-b", "1024", "-N", "1000", "-I", "128"],
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-g",
        "1024",
        "-O",
        "^flex_bg,uninit_bg,^metadata_csum",
    ],
];

fn build(maker: &mut Maker, entries: &[Entry]) {
    let mut dirs = vec![Vec::new()];
    let mut files: Vec<Vec<u8>> = Vec::new();
    for (i, entry) in entries.iter().enumerate() {
        let mut path: Vec<u8> = dirs[entry.parent % dirs.len()].clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        // A number keeps names apart, and makes "." and ".." no name.
        path.extend_from_slice(&entry.name);
        path.extend_from_slice(i.to_string().as_bytes());
        let mut with = attributes(0o640, i as u32);
        if let Some((seed, len)) = entry.xattr {
            with.xattrs
                .push((b"user.value".to_vec(), bytes((seed % 4).into(), len)));
        }
        match &entry.step {
            Step::Dir => {
                maker.make(&path, NewInode::Directory, &with);
                dirs.push(path);
            }
            Step::File { len, hole } => {
                let mut data = bytes(i as u64 + 1, *len);
                let mut ranges = vec![0..*len as u64];
                if let Some((a, b)) = hole {
                    let at = *a as usize % (*len + 1);
                    let end = at + *b as usize % (*len - at + 1);
                    data[at..end].fill(0);
                    ranges = vec![0..at as u64, end as u64..*len as u64];
                }
                maker.sparse_file(&path, &data, &ranges, &with);
                files.push(path);
            }
            Step::Symlink { len } => {
                with.xattrs.clear();
                maker.make(&path, NewInode::Symlink(&vec![b's'; *len]), &with);
            }
            Step::Fifo => {
                with.xattrs.clear();
                maker.make(&path, NewInode::Fifo, &with);
            }
            Step::Link { which } => {
                if !files.is_empty() {
                    let old = files[which % files.len()].clone();
                    maker.link(&path, &old);
                }
            }
        }
    }
}

/// Each case is a file system, made and checked: a tenth of the usual number.
#[test]
fn trees_survive() {
    let mut config = ProptestConfig::with_source_file(file!());
    config.cases /= 10;
    config.max_shrink_iters = 200;
    let trees = (0..SHAPES.len(), prop::collection::vec(entry(), 0..200));
    let survive = |(shape, entries): (usize, Vec<Entry>)| {
        let mut maker = Maker::new("64M", SHAPES[shape]);
        build(&mut maker, &entries);
        maker.check(&SHAPES[shape].join(" "));
        Ok(())
    };
    TestRunner::new(config).run(&trees, survive).unwrap();
}

/// An empty file system without checksums, so that damage is not found by them.
static EMPTY: LazyLock<MemoryDevice> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let arguments = [
        "-t",
        "ext4",
        "-b",
        "1024",
        "-N",
        "64",
        "-O",
        "^metadata_csum,^uninit_bg",
    ];
    crate::mke2fs::mke2fs(&path, &arguments, None, "2M");
    MemoryDevice::from_bytes(std::fs::read(path).unwrap())
});

/// Fills what can be filled.
fn try_to_fill(device: MemoryDevice) -> Result<()> {
    let mut creator = Creator::open(Arc::new(device), &CreatorOptions::default())?;
    let with = attributes(0o644, 1);
    let dir = creator.create(Ino::ROOT, b"dir", NewInode::Directory, &with)?;
    for i in 0..20u8 {
        let ino = creator.create(dir, &[b'a' + i; 100], NewInode::File, &with)?;
        let data = [i; 9_000];
        creator.write_file(ino, 9_000, &[0..9_000], &mut &data[..])?;
    }
    creator.set_attributes(Ino::ROOT, &with)?;
    creator.finish()?;
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..Default::default() })]
    #[test]
    fn damaged_file_systems_do_not_panic(
        changes in prop::collection::vec((1024usize..40_000, any::<u8>()), 1..8),
        in_superblock in any::<bool>(),
    ) {
        let mut bytes = EMPTY.to_bytes();
        for (at, byte) in changes {
            let at = if in_superblock { 1024 + at % 1024 } else { at };
            bytes[at] = byte;
        }
        let _ = try_to_fill(MemoryDevice::from_bytes(bytes));
    }
}
