//! Attributes against a model, e2fsck, and the kernel's view.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{XattrFlags, lgetxattr, llistxattr, lremovexattr, lsetxattr};
use uext4_blockdev::MemoryDevice;
use uext4_ondisk::Ino;
use uext4_testkit::SplitMix64;

mod policies;

use super::*;
use crate::dir::namei;
use crate::inode::iget;
use crate::inode::store::store;
use crate::testing::{kernel_mount, mke2fs, mount, unmount_and_check};
use crate::xattr::{self, get};

/// Names in the root, by what they begin with: f for files, d for directories, l for links.
const NAMES: [&str; 6] = ["f0", "f1", "f2", "f3", "d0", "l0"];

type Model = BTreeMap<String, BTreeMap<String, Vec<u8>>>;

/// A file system with those names.
fn device(flags: &str, kib: u64) -> Arc<MemoryDevice> {
    let source = tempfile::tempdir().unwrap();
    for name in NAMES {
        let path = source.path().join(name);
        match name.as_bytes()[0] {
            b'f' => std::fs::write(path, name).unwrap(),
            b'd' => std::fs::create_dir(path).unwrap(),
            _ => std::os::unix::fs::symlink("f0", path).unwrap(),
        }
    }
    mke2fs(&format!("{flags} -d {}", source.path().display()), kib)
}

fn find(sbi: &Sbi, name: &str) -> Inode {
    let root = iget(sbi, Ino::ROOT).unwrap();
    let ino = namei::lookup(sbi, &root, name.as_bytes()).unwrap();
    iget(sbi, ino).unwrap()
}

/// One change in a handle of its own, as an operation does it.
fn change(
    sbi: &Sbi,
    inode: &mut Inode,
    name: &str,
    value: Option<&[u8]>,
    mode: SetMode,
) -> Result<()> {
    let handle = sbi.start(credits_set(sbi)).unwrap();
    let before = inode.clone();
    let result = set(&handle, inode, name.as_bytes(), value, mode);
    if result.is_err() {
        let same = |a: &Inode, b: &Inode| format!("{a:?}") == format!("{b:?}");
        assert!(same(inode, &before), "{result:?} changed {inode:?}");
    }
    store(&handle, sbi, inode).unwrap();
    result
}

fn listed(sbi: &Sbi, inode: &Inode) -> BTreeMap<String, Vec<u8>> {
    let list = xattr::list(sbi, inode, Reader::Holder).unwrap();
    let pair = |x: xattr::Xattr| (String::from_utf8(x.name).unwrap(), x.value);
    list.into_iter().map(pair).collect()
}

fn host_xattrs(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut names = vec![0; 65536];
    let len = llistxattr(path, &mut names[..]).unwrap();
    let mut found = BTreeMap::new();
    for name in names[..len].split(|&b| b == 0).filter(|n| !n.is_empty()) {
        let mut value = vec![0; 65536];
        let len = lgetxattr(path, name, &mut value[..]).unwrap();
        value.truncate(len);
        found.insert(String::from_utf8(name.to_vec()).unwrap(), value);
    }
    found
}

/// The kernel sees what the model says.
fn compare_with_kernel(device: &MemoryDevice, model: &Model) {
    kernel_mount(device, |place| {
        for (name, expected) in model {
            let found = host_xattrs(&place.join(name));
            assert!(found == *expected, "{name}: {:?}", sizes(&found));
        }
    });
}

fn sizes(xattrs: &BTreeMap<String, Vec<u8>>) -> Vec<(&str, usize)> {
    xattrs.iter().map(|(n, v)| (n.as_str(), v.len())).collect()
}

/// Lengths at which something begins or ends, in file systems of this block size.
fn lengths(block: usize) -> [usize; 16] {
    let most = block - 32 - 4 - 20;
    [
        0,
        1,
        4,
        20,
        52,
        56,
        57,
        100,
        block / 3,
        most - 4,
        most,
        most + 1,
        block,
        5000,
        65_535,
        65_536,
    ]
}

struct Game {
    sbi: Arc<Sbi>,
    inodes: BTreeMap<&'static str, Inode>,
    model: Model,
    random: SplitMix64,
}

impl Game {
    fn new(device: &Arc<MemoryDevice>, seed: u64) -> Self {
        Self::on(mount(device), seed)
    }

    fn on(sbi: Arc<Sbi>, seed: u64) -> Self {
        let inodes: BTreeMap<_, _> = NAMES.map(|name| (name, find(&sbi, name))).into();
        let model = inodes
            .iter()
            .map(|(name, inode)| ((*name).to_owned(), listed(&sbi, inode)))
            .collect();
        Self {
            sbi,
            inodes,
            model,
            random: SplitMix64::new(seed),
        }
    }

    fn below(&mut self, end: usize) -> usize {
        (self.random.next_u64() % end as u64) as usize
    }

    /// Sets or removes something somewhere.
    fn step(&mut self) {
        let file = NAMES[self.below(NAMES.len())];
        let name = [
            "trusted.a",
            "user.b",
            "trusted.longer name",
            "security.d",
            "user.e",
        ][self.below(5)];
        let lengths = lengths(self.sbi.block_len());
        let len = lengths[self.below(lengths.len())];
        // Few different values, so that blocks and values come to be equal.
        let value = vec![b'a' + self.below(2) as u8; len];
        let value = (self.below(4) > 0).then_some(value.as_slice());
        let mode = match (self.below(4), value) {
            (0, Some(_)) => SetMode::Create,
            (1, _) => SetMode::Replace,
            _ => SetMode::Any,
        };
        let inode = self.inodes.get_mut(file).unwrap();
        let model = self.model.get_mut(file).unwrap();
        let known = model.contains_key(name);
        match change(&self.sbi, inode, name, value, mode) {
            Ok(()) => match value {
                Some(value) => _ = model.insert(name.to_owned(), value.to_vec()),
                None => _ = model.remove(name),
            },
            Err(Error::Exists) => assert!(known && mode == SetMode::Create),
            Err(Error::NoAttribute) => assert!(!known && mode == SetMode::Replace),
            Err(Error::NotPermitted { .. }) => assert!(file == "l0" && name.starts_with("user.")),
            Err(Error::XattrsTooBig { .. } | Error::NoSpace { .. }) => {}
            Err(error) => panic!("{file} {name} {len}: {error}"),
        }
        let expected = model.get(name);
        match get(&self.sbi, inode, Reader::Holder, name.as_bytes()) {
            Ok(found) => assert!(Some(&found) == expected, "{file} {name}"),
            Err(Error::NoAttribute) => assert!(expected.is_none(), "{file} {name}"),
            Err(error) => panic!("{file} {name}: {error}"),
        }
    }

    fn compare(&self) {
        for (name, inode) in &self.inodes {
            let found = listed(&self.sbi, inode);
            assert!(found == self.model[*name], "{name}: {:?}", sizes(&found));
        }
    }

    fn delete_everything(&mut self) {
        for inode in self.inodes.values_mut() {
            let handle = self.sbi.start(credits_delete(&self.sbi)).unwrap();
            delete_all(&handle, inode).unwrap();
            store(&handle, &self.sbi, inode).unwrap();
            assert!(listed(&self.sbi, inode).is_empty());
        }
    }
}

const SHAPES: [&str; 7] = [
    "-t ext4 -b 4096",
    "-t ext4 -b 4096 -O ea_inode",
    "-t ext4 -b 1024 -O ea_inode",
    "-t ext4 -b 1024 -I 1024 -O ea_inode,^metadata_csum",
    "-t ext3 -b 1024 -O ea_inode",
    "-t ext4 -b 4096 -I 128",
    "-t ext2 -b 1024 -O ^ext_attr",
];

#[test]
fn random_changes_are_what_a_model_says_and_the_kernel_sees() {
    for (shape, seed) in SHAPES.iter().zip(1..) {
        let device = device(shape, 32_768);
        let free = |sbi: &Sbi| sbi.rw().unwrap().groups.total();
        println!("{shape}");
        let mut game = Game::new(&device, seed);
        let before = free(&game.sbi);
        for step in 0..400 {
            game.step();
            if step % 97 == 0 {
                game.compare();
                game.sbi
                    .rw()
                    .unwrap()
                    .journal
                    .commit_now(&*game.sbi)
                    .unwrap();
            }
        }
        game.compare();
        unmount_and_check(&game.sbi, &device);
        compare_with_kernel(&device, &game.model);
        let mut again = Game::new(&device, seed + 100);
        again.compare();
        assert!(again.model == game.model, "{shape}");
        for _ in 0..100 {
            again.step();
        }
        again.delete_everything();
        assert_eq!(free(&again.sbi), before, "{shape}");
        unmount_and_check(&again.sbi, &device);
    }
}

#[test]
fn what_the_kernel_made_is_changed() {
    for (shape, seed) in SHAPES.iter().zip(40..) {
        let empty = device(shape, 32_768);
        let made = kernel_mount(&empty, |place| {
            let flags = XattrFlags::empty();
            for (i, name) in NAMES.iter().enumerate() {
                let path = place.join(name);
                for (j, len) in lengths(1024).into_iter().enumerate().take(5 + i * 2) {
                    let xattr = format!("trusted.{}", ["a", "x", "longer name", "b", "c"][j % 5]);
                    // Not all of it fits everywhere.
                    _ = lsetxattr(&path, xattr.as_str(), &vec![b'a'; len], flags);
                }
            }
            _ = lremovexattr(place.join("f0"), "trusted.x");
        });
        let Some(made) = made else {
            return;
        };
        println!("{shape}");
        let mut game = Game::new(&made, seed);
        for _ in 0..150 {
            game.step();
        }
        game.compare();
        unmount_and_check(&game.sbi, &made);
        compare_with_kernel(&made, &game.model);
        let mut again = Game::new(&made, seed);
        again.delete_everything();
        unmount_and_check(&again.sbi, &made);
    }
}

/// Whether the kernel takes a value, and whether this does, at every length near a boundary.
#[test]
fn the_same_values_fit_as_in_the_kernel() {
    for shape in [
        "-t ext4 -b 4096",
        "-t ext4 -b 1024 -O ea_inode",
        "-t ext4 -b 4096 -I 128",
    ] {
        let ours = device(shape, 16_384);
        let block = if shape.contains("1024") { 1024 } else { 4096 };
        let mut kernel = Vec::new();
        let lens: Vec<usize> = (40..80).chain(block - 80..block + 4).collect();
        let shown = kernel_mount(&ours, |place| {
            for &len in &lens {
                let path = place.join("f0");
                let set = lsetxattr(&path, "user.ab", &vec![1; len], XattrFlags::empty()).is_ok();
                kernel.push((set, std::fs::metadata(&path).map(|m| blocks(&m)).unwrap()));
                _ = lremovexattr(&path, "user.ab");
            }
        });
        if shown.is_none() {
            return;
        }
        let sbi = mount(&ours);
        let mut inode = find(&sbi, "f0");
        for (&len, expected) in lens.iter().zip(kernel) {
            let value = vec![1; len];
            let result = change(&sbi, &mut inode, "user.ab", Some(&value), SetMode::Any);
            let found = (result.is_ok(), inode.blocks);
            assert_eq!(found, expected, "{shape}: {len} bytes: {result:?}");
            change(&sbi, &mut inode, "user.ab", None, SetMode::Any).unwrap();
        }
        unmount_and_check(&sbi, &ours);
    }
}

fn blocks(metadata: &std::fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(metadata)
}

#[test]
fn equal_blocks_are_one_until_one_of_them_changes() {
    let device = device("-t ext4 -b 4096 -O ea_inode", 16_384);
    let sbi = mount(&device);
    let mut inodes = ["f0", "f1", "f2"].map(|name| find(&sbi, name));
    let (value, large) = (vec![5; 2000], vec![6; 9000]);
    for inode in &mut inodes {
        change(&sbi, inode, "user.a", Some(&value), SetMode::Create).unwrap();
        change(&sbi, inode, "user.large", Some(&large), SetMode::Create).unwrap();
        change(&sbi, inode, "user.l2", Some(&[7; 3000]), SetMode::Create).unwrap();
    }
    let users = |inode: &Inode| {
        let at = inode.xattr_block.unwrap();
        let data = xattr::read_block(&sbi, at).unwrap();
        let header = uext4_ondisk::xattr::verify_block(&data, at, None).unwrap();
        let xattrs = &sbi.rw().unwrap().xattrs;
        xattrs.users_of_block(at, header.h_refcount.get())
    };
    assert_eq!(inodes[0].xattr_block, inodes[1].xattr_block);
    assert_eq!(users(&inodes[2]), 3);
    change(
        &sbi,
        &mut inodes[1],
        "user.a",
        Some(&[8; 2000]),
        SetMode::Replace,
    )
    .unwrap();
    assert_ne!(inodes[0].xattr_block, inodes[1].xattr_block);
    assert_eq!((users(&inodes[0]), inodes[0].blocks), (2, inodes[2].blocks));
    change(
        &sbi,
        &mut inodes[1],
        "user.a",
        Some(&value),
        SetMode::Replace,
    )
    .unwrap();
    assert_eq!(users(&inodes[1]), 3);
    for inode in &mut inodes {
        let handle = sbi.start(credits_delete(&sbi)).unwrap();
        delete_all(&handle, inode).unwrap();
        store(&handle, &sbi, inode).unwrap();
    }
    unmount_and_check(&sbi, &device);
}

/// Nothing but counts in memory has changed when the value cannot be let go of: that is half-done
/// too.
#[test]
fn an_error_after_a_count_changed_aborts_the_journal() {
    let device = device("-t ext4 -b 4096 -O ea_inode", 16_384);
    let sbi = mount(&device);
    let mut inodes = ["f0", "f1", "f2"].map(|name| find(&sbi, name));
    for inode in &mut inodes {
        // The first fills what the inode itself has room for.
        change(&sbi, inode, "user.x", Some(&[4; 60]), SetMode::Create).unwrap();
        change(&sbi, inode, "user.a", Some(&[5; 2000]), SetMode::Create).unwrap();
    }
    let inode = &mut inodes[1];
    change(&sbi, inode, "user.l", Some(&[6; 9000]), SetMode::Create).unwrap();
    let data = xattr::read_block(&sbi, inode.xattr_block.unwrap()).unwrap();
    let at = uext4_ondisk::xattr::XattrPlace::Block(inode.xattr_block.unwrap());
    let entries = uext4_ondisk::xattr::parse_entries(&data, 32, at).unwrap();
    let value = crate::xattr::block::inos(&entries).next().unwrap();
    let handle = sbi.start(credits_set(&sbi)).unwrap();
    let mut damaged = iget(&sbi, value).unwrap();
    damaged
        .flags
        .remove(uext4_ondisk::inode::InodeFlags::EA_INODE);
    store(&handle, &sbi, &damaged).unwrap();
    drop(handle);
    let handle = sbi.start(credits_set(&sbi)).unwrap();
    let result = set(&handle, inode, b"user.l", None, SetMode::Any);
    assert!(result.is_err() && handle.has_changed(), "{result:?}");
}

/// Sets and removes one attribute of a file, of few values.
fn play(sbi: &Sbi, name: &str, seed: u64) {
    let (mut inode, mut random) = (find(sbi, name), SplitMix64::new(seed));
    let mut model = None;
    for _ in 0..400 {
        let len = [700, 800, 5000][(random.next_u64() % 3) as usize];
        let value = vec![random.next_u64() as u8 % 2; len];
        let value = (random.next_u64() % 4 > 0).then_some(value);
        match change(sbi, &mut inode, "user.a", value.as_deref(), SetMode::Any) {
            Ok(()) => model = value,
            Err(Error::XattrsTooBig { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(get(sbi, &inode, Reader::Holder, b"user.a").ok() == model);
    }
    change(sbi, &mut inode, "user.a", None, SetMode::Any).unwrap();
}

/// The same on four files at once, with commits in between.
fn play_together(sbi: &Sbi) {
    std::thread::scope(|scope| {
        for (name, seed) in ["f0", "f1", "f2", "f3"].into_iter().zip(1..) {
            scope.spawn(move || play(sbi, name, seed));
        }
        for _ in 0..20 {
            sbi.rw().unwrap().journal.commit_now(sbi).unwrap();
            std::thread::yield_now();
        }
    });
}

#[test]
fn threads_share_and_part_again() {
    for shape in ["-t ext4 -b 4096 -O ea_inode", "-t ext2 -b 1024"] {
        let device = device(shape, 32_768);
        let sbi = mount(&device);
        let free = sbi.rw().unwrap().groups.total();
        play_together(&sbi);
        assert_eq!(sbi.rw().unwrap().groups.total(), free);
        unmount_and_check(&sbi, &device);
    }
}

#[test]
fn a_full_file_system_refuses_and_stays_whole() {
    for shape in ["-t ext4 -b 1024 -O ea_inode", "-t ext2 -b 1024"] {
        let device = device(shape, 2048);
        let sbi = mount(&device);
        let mut inode = find(&sbi, "f0");
        let mut other = find(&sbi, "f1");
        let mut refused = 0;
        for i in 0..60u8 {
            let (name, value) = (format!("user.n{i}"), vec![i; 65_536]);
            let result = change(&sbi, &mut inode, &name, Some(&value), SetMode::Create);
            refused += u32::from(matches!(
                result,
                Err(Error::NoSpace { .. } | Error::XattrsTooBig { .. })
            ));
            let small = vec![i; 700];
            let result = change(&sbi, &mut other, "user.x", Some(&small), SetMode::Any);
            assert!(
                matches!(result, Ok(()) | Err(Error::NoSpace { .. })),
                "{result:?}"
            );
        }
        assert!(refused > 20, "{shape}: {refused}");
        unmount_and_check(&sbi, &device);
    }
}

#[test]
fn what_cannot_be_an_attribute_is_refused() {
    let device = device("-t ext4", 16_384);
    let sbi = mount(&device);
    let mut inode = find(&sbi, "f0");
    let mut try_name = |name: &str| change(&sbi, &mut inode, name, Some(b"x"), SetMode::Any);
    assert!(matches!(try_name(""), Err(Error::AttributeName { len: 0 })));
    let long = format!("user.{}", "x".repeat(251));
    assert!(matches!(
        try_name(&long),
        Err(Error::AttributeName { len: 256 })
    ));
    try_name(&long[..255]).unwrap();
    assert!(matches!(try_name("user."), Err(Error::Invalid { .. })));
    for unknown in [
        "nothing.x",
        "system.data",
        "user",
        "system.posix_acl_accessx",
    ] {
        assert!(
            matches!(try_name(unknown), Err(Error::Unsupported { .. })),
            "{unknown}"
        );
    }
    let large = vec![0; XATTR_SIZE_MAX + 1];
    let result = change(&sbi, &mut inode, "user.a", Some(&large), SetMode::Any);
    assert!(matches!(result, Err(Error::AttributeValue { .. })));
    unmount_and_check(&sbi, &device);
}

#[test]
fn damage_is_reported() {
    let device = device("-t ext4 -O ^metadata_csum", 16_384);
    let sbi = mount(&device);
    let mut inode = find(&sbi, "f0");
    change(&sbi, &mut inode, "user.a", Some(&[1; 500]), SetMode::Any).unwrap();
    let at = inode.xattr_block.unwrap();
    let whole = xattr::read_block(&sbi, at).unwrap();
    let mut random = SplitMix64::new(9);
    for _ in 0..300 {
        let handle = sbi.start(40).unwrap();
        let buffer = xattr::bread(&sbi, at).unwrap();
        let owner = crate::base::owner::Owner::of(crate::base::owner::Kind::Xattr);
        let offset = random.next_u64() as usize % 60;
        crate::base::edit::Edit::change(&handle, &buffer, owner, |bytes| {
            bytes.copy_from_slice(&whole);
            bytes[offset] ^= random.next_u64() as u8;
        });
        let mut copy = inode.clone();
        for value in [Some(&[3; 600][..]), None] {
            _ = set(&handle, &mut copy, b"user.a", value, SetMode::Any);
            _ = set(&handle, &mut copy, b"user.b", value, SetMode::Any);
        }
        _ = get(&sbi, &copy, Reader::Onlooker, b"user.a");
        if let Some(now) = copy.xattr_block.filter(|&now| now != at) {
            _ = crate::xattr::block::release(&handle, now);
        }
    }
}

#[test]
fn values_that_share_bytes_are_damage_before_anything_is_changed() {
    let device = device("-t ext4 -O ^metadata_csum", 16_384);
    let sbi = mount(&device);
    let mut inode = find(&sbi, "f0");
    change(&sbi, &mut inode, "user.a", Some(&[1; 28]), SetMode::Any).unwrap();
    let handle = sbi.start(8).unwrap();
    change_bytes(&sbi, &handle, inode.id(), |bytes| {
        let start = usize::from(inode.xattr_offset.unwrap()) + XATTR_IBODY_HEADER_LEN;
        let first: Vec<u8> = bytes[start..start + entry_len(1)].to_vec();
        for (i, name) in (1..).zip([b'b', b'c']) {
            let at = start + i * entry_len(1);
            bytes[at..at + entry_len(1)].copy_from_slice(&first);
            bytes[at + XATTR_ENTRY_LEN] = name;
        }
        Ok(())
    })
    .unwrap();
    drop(handle);
    assert_eq!(listed(&sbi, &inode).len(), 3);
    for value in [Some(&[2; 200][..]), Some(&[2; 4]), None] {
        let result = change(&sbi, &mut inode, "user.a", value, SetMode::Any);
        assert!(matches!(result, Err(Error::Corrupt(_))), "{result:?}");
    }
    let handle = sbi.start(8).unwrap();
    for result in [
        drop_inline_data(&handle, &mut inode),
        delete_all(&handle, &mut inode),
    ] {
        assert!(matches!(result, Err(Error::Corrupt(_))), "{result:?}");
    }
    assert_eq!(listed(&sbi, &inode).len(), 3);
}
