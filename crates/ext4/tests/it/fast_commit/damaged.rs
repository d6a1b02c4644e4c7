//! Records that no thread would write: refused by name, with nothing changed, or redone to
//! something sound; never a panic.

use std::sync::Arc;

use uext4::format::{GroupNr, Lblk};
use uext4::{Error, FileType, Ino};
use uext4_blockdev::MemoryDevice;
use uext4_testkit::SplitMix64;

use super::maker::{Left, Raw, Record, add, creat, del, link, one_of_everything, unlink};
use super::{complaints, open_and_close, repaired, repaired_unjudged, tree};
use crate::exercise::exercise;
use crate::tree::assert_equal;
use crate::writing::device::{judge, steps};

/// Opens an image with these records, which must be refused, and reports why. Nothing may have
/// changed but that blocks of the log are checkpointed, and a second try says the same.
fn refused(left: &Left, records: &[Record], what: &str) -> Error {
    let image = Arc::new(left.with(records));
    let Err(error) = open_and_close(Arc::clone(&image) as _) else {
        panic!("{what}: not refused");
    };
    unchanged(left, &image, what);
    // A repair leaves out what does not fit.
    repaired(&image, what);
    let again = open_and_close(Arc::clone(&image) as _).unwrap_err();
    assert_eq!(error.to_string(), again.to_string(), "{what}");
    error
}

/// Asserts that nothing but the blocks of the log is in an image that was not there before.
fn unchanged(left: &Left, image: &MemoryDevice, what: &str) {
    // One that is refused for sure, by a number that no file system has.
    let wild = Arc::new(left.with(&[del(Ino(u32::MAX), 0, 1)]));
    open_and_close(Arc::clone(&wild) as _).unwrap_err();
    let same = left.without_area(image) == left.without_area(&wild);
    assert!(same, "{what}: the image was changed");
}

/// Records, and what is wrong with them.
type Case = (&'static str, Vec<Record>);

fn all_refused(left: &Left, cases: Vec<Case>) {
    for (what, records) in cases {
        let error = refused(left, &records, what);
        println!("{what}: {error}");
        let typed = matches!(
            error,
            Error::Corrupt(_) | Error::Unsupported { .. } | Error::Journal { .. }
        );
        assert!(typed, "{what}: {error:?}");
    }
}

#[test]
fn numbers_and_blocks_that_fit_nothing_are_refused() {
    let left = Left::usual("-t ext4 -b 1024 -J size=2");
    let (f0, f1) = (left.ino("d/f0"), left.ino("d/f1"));
    let (root, journal, far) = (Ino::ROOT, Ino(8), Ino(1 << 30));
    let free = left.free_blocks(20);
    let file = Raw::new(FileType::Regular, 0, 5);
    let fs = left.fs();
    let used = fs.map(&fs.inode(f1).unwrap(), Lblk(0), 1).unwrap().pblk.0;
    let table = fs.group_desc(GroupNr(0)).unwrap().inode_table.0;
    let twice = vec![add(f0, 9, 1, free), add(f0, 11, 1, free)];
    let cases = vec![
        ("inode 0", vec![del(Ino(0), 0, 1)]),
        (
            "inode past the end",
            vec![file.record(far), creat(root, far, b"x")],
        ),
        ("the journal", vec![add(journal, 9000, 1, free)]),
        ("directory past the end", vec![link(far, f0, b"x")]),
        ("block past the end", vec![add(f0, 9, 1, 1 << 40)]),
        ("blocks over the end", vec![add(f0, 9, 100, 16_384 - 50)]),
        ("block 0", vec![add(f0, 9, 1, 0)]),
        ("another file's block", vec![add(f0, 9, 1, used)]),
        ("a block of the inode table", vec![add(f0, 9, 1, table)]),
        ("a block twice", twice),
        (
            "past the last logical block",
            vec![add(f0, u32::MAX - 1, 9, free)],
        ),
    ];
    all_refused(&left, cases);
}

#[test]
fn names_that_fit_nothing_are_refused() {
    let left = Left::usual("-t ext4 -b 1024 -J size=2");
    let (d, e, f0, f1) = (
        left.ino("d"),
        left.ino("e"),
        left.ino("d/f0"),
        left.ino("d/f1"),
    );
    let root = Ino::ROOT;
    let new = left.free_inodes();
    let other = Ino(new.0 + 1);
    let file = Raw::new(FileType::Regular, 0, 5);
    let dir = Raw::new(FileType::Directory, 1024, 6);
    let named = |name: &[u8]| vec![file.record(new), creat(root, new, name)];
    let circle = vec![
        dir.record(new),
        creat(other, new, b"x"),
        dir.record(other),
        creat(new, other, b"y"),
    ];
    let cases = vec![
        ("name in a file", vec![link(f0, f1, b"x")]),
        ("name of nothing", vec![creat(root, new, b"x")]),
        ("a name of dots", named(b"..")),
        ("a slash in a name", named(b"a/b")),
        ("a zero in a name", named(b"a\0b")),
        ("a directory's second name", vec![link(root, e, b"e2")]),
        ("a full directory goes", vec![unlink(root, d, b"d")]),
        (
            "a directory moves",
            vec![unlink(root, e, b"e"), link(d, e, b"e")],
        ),
        ("the root in itself", vec![link(root, root, b"x")]),
        (
            "a directory in itself",
            vec![dir.record(new), creat(new, new, b"x")],
        ),
        ("two directories in one another", circle),
    ];
    all_refused(&left, cases);
}

#[test]
fn inodes_that_fit_nothing_are_refused() {
    let left = Left::usual("-t ext4 -b 1024 -J size=2");
    let f0 = left.ino("d/f0");
    let fs = left.fs();
    let changed = |f: &dyn Fn(&mut Raw)| {
        let mut raw = Raw::of(&fs, f0);
        f(&mut raw);
        vec![raw.record(f0)]
    };
    let new = left.free_inodes();
    let symlink = |target: &[u8]| {
        let mut raw = Raw::new(FileType::Symlink, 6, 8);
        raw.put32(32, if target.is_empty() { 0x8_0000 } else { 0 });
        raw.0[40..40 + target.len()].copy_from_slice(target);
        vec![raw.record(new), creat(Ino::ROOT, new, b"link")]
    };
    let device = |size: u32, flags: u32| {
        let mut raw = Raw::new(FileType::CharDevice, size, 8);
        raw.put32(32, flags);
        vec![raw.record(new), creat(Ino::ROOT, new, b"device")]
    };
    let fine = Arc::new(left.with(&device(0, 0)));
    open_and_close(Arc::clone(&fine) as _).unwrap();
    judge(&fine, "a device");
    let fine = Arc::new(left.with(&symlink(b"target")));
    open_and_close(Arc::clone(&fine) as _).unwrap();
    judge(&fine, "a symbolic link");
    let cases = vec![
        ("a device with a size", device(6, 0)),
        ("a device with extents", device(0, 0x8_0000)),
        ("a target with a zero in it", symlink(b"t\0rget")),
        ("a short target in a block", symlink(b"")),
        (
            "a file becomes a directory",
            changed(&|raw| raw.put16(0, 0o040_755)),
        ),
        ("no type", changed(&|raw| raw.put16(0, 0o644))),
        (
            "another inode's block of attributes",
            changed(&|raw| raw.put32(104, 700)),
        ),
        ("encrypted", changed(&|raw| raw.put32(32, 0x8_0800))),
        ("without extents", changed(&|raw| raw.put32(32, 0))),
        ("another generation", changed(&|raw| raw.put32(100, 99))),
        ("a larger inode", changed(&|raw| raw.put16(128, 250))),
    ];
    all_refused(&left, cases);
}

#[test]
fn what_no_transaction_can_hold_is_refused() {
    let left = Left::usual("-t ext4 -b 1024 -J size=1,fast_commit_size=200 -N 8000");
    let new = left.free_inodes().0;
    // One in each block of the inode table.
    let records: Vec<Record> = (0..300)
        .flat_map(|i| {
            let ino = Ino(new + 4 * i);
            let raw = Raw::new(FileType::Regular, 0, i);
            [
                raw.record(ino),
                creat(Ino::ROOT, ino, format!("{i}").as_bytes()),
            ]
        })
        .collect();
    let error = refused(&left, &records, "too many");
    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
}

/// Changes one number of a record, or takes the record out, or puts it elsewhere.
fn damage(records: &mut Vec<Record>, random: &mut SplitMix64) {
    let at = random.below(records.len() as u64) as usize;
    let other = random.below(records.len() as u64) as usize;
    match random.below(8) {
        0 => _ = records.remove(at),
        1 => records.swap(at, other),
        2 => {
            let copy = records[at].clone();
            records.insert(other, copy);
        }
        3 => records[at].0 = 1 + random.below(6) as u16,
        _ => {
            // Not in the bytes of an inode, most of which mean nothing that could be wrong.
            let value = &mut records[at].1;
            let place = random.below(value.len().min(16) as u64) as usize;
            let small = random.below(2) == 0;
            value[place] = match small {
                true => value[place].wrapping_add(random.below(3) as u8),
                false => random.next_u64() as u8,
            };
        }
    }
}

#[test]
fn random_damage_is_refused_or_leaves_something_sound() {
    let left = Left::usual("-t ext4 -b 1024 -J size=2");
    let good = one_of_everything(&left);
    let mut random = SplitMix64::new(11);
    let (mut redone, mut other) = (0, 0);
    for round in 0..steps(600, 60_000) {
        let mut records = good.clone();
        for _ in 0..=random.below(3) {
            damage(&mut records, &mut random);
        }
        let image = Arc::new(left.with(&records));
        let what = format!("round {round}");
        let repaired = (round % 4 == 0).then(|| match round % 20 {
            0 => repaired(&image, &what).0,
            _ => repaired_unjudged(&image, &what).0,
        });
        match open_and_close(Arc::clone(&image) as _) {
            Ok(()) => {
                redone += 1;
                let complaints = complaints(&image);
                assert!(complaints.is_empty(), "{what}: {complaints:#?}");
                if let Some(repaired) = repaired {
                    let what = format!("{what}, repaired");
                    assert_equal(&tree(&image), &tree(&repaired), &what);
                }
                if round % 25 == 0 {
                    judge(&image, &what);
                }
            }
            Err(_) => {
                other += 1;
                unchanged(&left, &image, &what);
            }
        }
    }
    println!("{redone} redone, {other} refused");
    assert!(redone > 50 && other > 50);
}

#[test]
fn inodes_of_random_bytes_neither_panic_nor_hang() {
    let left = Left::usual("-t ext4 -b 1024 -J size=2 -O inline_data");
    let good = one_of_everything(&left);
    let mut random = SplitMix64::new(12);
    for round in 0..steps(300, 30_000) {
        let mut records = good.clone();
        for _ in 0..=random.below(6) {
            let at = random.below(records.len() as u64) as usize;
            let value = &mut records[at].1;
            let place = random.below(value.len() as u64) as usize;
            value[place] = random.next_u64() as u8;
        }
        let image = Arc::new(left.with(&records));
        repaired_unjudged(&image, &format!("round {round}"));
        let _ = open_and_close(Arc::clone(&image) as _);
        exercise(image);
    }
}
