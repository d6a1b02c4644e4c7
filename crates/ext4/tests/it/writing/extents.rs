//! Where parts of files lie, and copies of parts.

use std::process::Command;

use uext4::data::WriteMode;
use uext4::data::{ExtentState, Fallocate, FileExtent};
use uext4::{Creation, Error, InodeFlags, NewInode, OpenInode, SetAttributes, Volume};
use uext4_blockdev::MemoryDevice;

use super::device::{judge, made, mount};
use uext4_testkit::{Mount, can_mount};

fn file(fs: &Volume, name: &[u8]) -> OpenInode {
    let root = fs.root().unwrap();
    root.create(name, NewInode::File, &Creation::default())
        .unwrap()
}

fn all(file: &OpenInode) -> Vec<FileExtent> {
    let mut found = Vec::new();
    file.fiemap(0..u64::MAX, |part| {
        found.push(part);
        true
    })
    .unwrap();
    found
}

/// What the kernel says: offset, length and place in blocks, and whether it is unwritten.
fn of_the_kernel(device: &MemoryDevice, name: &str) -> Vec<(u64, u64, u64, bool)> {
    let image = uext4_testkit::stored(device);
    let mount = Mount::new(image.path(), "ro");
    let mut command = Command::new("filefrag");
    let output = command.arg("-ve").arg(mount.path().join(name)).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let rows = text.lines().filter_map(|line| {
        let mut parts = line.split(':').map(str::trim);
        parts.next()?.parse::<u32>().ok()?;
        let first = |range: &str| range.split("..").next()?.trim().parse::<u64>().ok();
        let offset = first(parts.next()?)?;
        let place = first(parts.next()?)?;
        let len = parts.next()?.parse().ok()?;
        Some((offset, len, place, line.contains("unwritten")))
    });
    rows.collect()
}

#[test]
fn extents_are_those_of_the_kernel() {
    if !can_mount() {
        return;
    }
    for flags in ["-t ext4", "-t ext4 -b 1024", "-t ext3 -b 1024"] {
        let device = made(flags, 65_536);
        let fs = mount(device.clone());
        let file = file(&fs, b"f");
        let block = u64::from(fs.geometry().block_size.bytes());
        for at in [0, 7, 8, 9, 300, 301, 5000] {
            file.write_at(at * block, &vec![at as u8; block as usize])
                .unwrap();
        }
        let extents = file.inode().has(InodeFlags::EXTENTS);
        if extents {
            let how = Fallocate::Allocate { keep_size: true };
            file.fallocate(how, 6000 * block, 40 * block).unwrap();
            let part = all(&file)[0];
            assert_eq!((part.state, part.physical), (ExtentState::Delayed, None));
        }
        let before: Vec<u64> = all(&file).iter().map(|part| part.offset / block).collect();
        assert_eq!(before[..4], [0, 7, 300, 5000], "{flags}");
        file.fsync().unwrap();
        let ours: Vec<_> = all(&file)
            .iter()
            .map(|part| {
                let place = part.physical.unwrap() / block;
                let unwritten = part.state == ExtentState::Unwritten;
                (part.offset / block, part.len / block, place, unwritten)
            })
            .collect();
        let mut first = None;
        file.fiemap(8 * block..9 * block, |part| first.replace(part).is_none())
            .unwrap();
        let first = first.unwrap();
        assert_eq!((first.offset, first.len), (8 * block, block), "{flags}");
        fs.close().unwrap();
        let theirs = of_the_kernel(&device, "f");
        assert!(!theirs.is_empty());
        assert_eq!(ours, theirs, "{flags}");
        judge(&device, flags);
    }
}

#[test]
fn what_has_no_blocks_has_no_extents() {
    let fs = mount(made("-t ext4", 16_384));
    let root = fs.root().unwrap();
    let link = NewInode::Symlink(b"short");
    let link = root.create(b"l", link, &Creation::default()).unwrap();
    let asked = link.fiemap(0..u64::MAX, |_| true);
    assert!(matches!(asked, Err(Error::Invalid { .. })), "{asked:?}");
    assert_eq!(all(&root).len(), 1);
    fs.close().unwrap();
}

#[test]
fn parts_are_copied() {
    let device = made("-t ext4", 65_536);
    let fs = mount(device.clone());
    let (from, to) = (file(&fs, b"from"), file(&fs, b"to"));
    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i * 7 / 3) as u8).collect();
    from.write_at(0, &bytes).unwrap();
    assert_eq!(
        from.copy_to(1000, &to, 5, 2_500_000, WriteMode::default())
            .unwrap(),
        2_500_000
    );
    assert_eq!(
        from.copy_to(2_999_000, &to, 0, 5000, WriteMode::default())
            .unwrap(),
        1000
    );
    assert_eq!(
        from.copy_to(4_000_000, &to, 0, 5000, WriteMode::default())
            .unwrap(),
        0
    );
    let mut found = vec![0; 2_600_000];
    assert_eq!(to.read_at(0, &mut found).unwrap(), 2_500_005);
    assert!(found[..1000] == bytes[2_999_000..]);
    assert!(found[1000..2_500_005] == bytes[1995..2_501_000]);
    for (at, len) in [(10, 100), (0, 11), (u64::MAX, 2)] {
        let result = from.copy_to(10, &from, at, len, WriteMode::default());
        assert!(matches!(result, Err(Error::Invalid { .. })), "{result:?}");
    }
    assert_eq!(
        from.copy_to(0, &from, 3_000_000, 3_000_000, WriteMode::default())
            .unwrap(),
        3_000_000
    );
    // What does not fit is not copied: a short copy, then an error.
    let free = 64 << 20;
    let copied = from
        .copy_to(0, &to, free, 3_000_000, WriteMode::default())
        .unwrap();
    assert_eq!(copied, 3_000_000);
    let big = file(&fs, b"big");
    big.set_attributes(&SetAttributes {
        size: Some(1 << 30),
        ..SetAttributes::default()
    })
    .unwrap();
    let short = big
        .copy_to(0, &to, 0, 1 << 30, WriteMode::default())
        .unwrap();
    assert!((1 << 20..64 << 20).contains(&short), "{short}");
    let full = big.copy_to(0, &to, short + (1 << 20), 1 << 20, WriteMode::default());
    assert!(matches!(full, Err(Error::NoSpace { .. })), "{full:?}");
    fs.close().unwrap();
    judge(&device, "copies");
}

#[test]
fn a_write_is_short_where_space_ends() {
    let device = made("-t ext4 -O ^has_journal", 8192);
    let fs = mount(device.clone());
    let file = file(&fs, b"f");
    let bytes = vec![7; 16 << 20];
    let taken = file.write_at(0, &bytes).unwrap();
    assert!(taken > 1 << 20 && taken < 8 << 20, "{taken}");
    assert_eq!(file.inode().size, taken as u64);
    assert!(matches!(
        file.write_at(taken as u64, &bytes),
        Err(Error::NoSpace { .. })
    ));
    let mut found = vec![0; taken];
    assert_eq!(file.read_at(0, &mut found).unwrap(), taken);
    assert!(found == bytes[..taken]);
    fs.close().unwrap();
    judge(&device, "full");
}

/// What the journal may know of is revoked when it is freed, and that takes room in the log.
#[test]
fn a_large_file_with_journaled_data_is_deleted_with_a_small_journal() {
    const LEN: u64 = 160 << 20;
    let device = made("-t ext4 -b 1024 -J size=1", 196_608);
    let fs = mount(device.clone());
    let large = file(&fs, b"large");
    let how = Fallocate::Allocate { keep_size: false };
    large.fallocate(how, 0, LEN).unwrap();
    let change = SetAttributes {
        flags: Some(InodeFlags::JOURNAL_DATA),
        ..SetAttributes::default()
    };
    large.set_attributes(&change).unwrap();
    assert!(large.inode().flags.contains(InodeFlags::JOURNAL_DATA));
    fs.sync().unwrap();
    large.fallocate(Fallocate::PunchHole, 0, LEN / 2).unwrap();
    fs.root().unwrap().unlink(b"large").unwrap();
    drop(large);
    fs.sync().unwrap();
    fs.close().unwrap();
    judge(&device, "deleted");
}
