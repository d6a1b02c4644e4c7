//! Logs of the kernel in which one block is not what was written: e2fsck replays the others, and so
//! does a repair.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use uext4_blockdev::MemoryDevice;
use uext4_jbd2::{LogRun, Recovery, recover};
use uext4_ondisk::{Ino, Pblk};
use uext4_testkit::damage::{Contents, Hurt, Survey};
use uext4_testkit::e2fsprogs::{e2fsck, mke2fs};
use uext4_testkit::{Mount, can_mount, has_tool, scratch};

use crate::judge::{Asked, Judge, applied, ask};

/// Makes files, each durable by a transaction of its own.
fn fill(root: &Path) {
    for n in 0..6 {
        let dir = root.join(format!("dir-{n}"));
        fs::create_dir(&dir).unwrap();
        for name in ["one", "two"] {
            fs::write(dir.join(name), vec![b'0' + n; 3000]).unwrap();
        }
        File::open(&dir).unwrap().sync_all().unwrap();
    }
}

/// The image as the power cut leaves it: the log holds everything.
fn cut_off(dir: &Path) -> Vec<u8> {
    let image = dir.join("image");
    let options = "-t ext4 -b 1024 -J size=4 -O ^fast_commit,^resize_inode";
    mke2fs(&image, options.split_whitespace(), "16M");
    let mount = Mount::new(&image, "commit=600");
    fill(mount.path());
    // Of the loop device's file: what the device has written is there.
    fs::read(&image).unwrap()
}

fn recovery(image: &[u8]) -> Recovery {
    let survey = Survey::new(image.to_vec());
    let journal = survey.known(Ino::JOURNAL).unwrap();
    let run = |at: &uext4_testkit::damage::Mapped| LogRun {
        start: at.pblk,
        len: 1,
    };
    let runs: Vec<LogRun> = journal.blocks.iter().map(run).collect();
    let geometry = &survey.geometry;
    let device = Arc::new(MemoryDevice::from_bytes(image.to_vec()));
    recover(&*device, geometry.block_size, geometry.blocks_count, &runs).unwrap()
}

#[test]
fn what_e2fsck_keeps_of_a_log_with_a_damaged_block_is_kept() {
    if !can_mount() || !has_tool("e2fsck") {
        return;
    }
    let dir = scratch();
    let image = cut_off(dir.path());
    let whole = recovery(&image);
    assert!(whole.replay.len() > 10);
    let judge = Judge::new();
    for block in whole.replay.blocks() {
        let Pblk(at) = block.log;
        let mut damaged = image.clone();
        damaged[at as usize * 1024 + 500] ^= 0x10;
        let theirs = dir.path().join("theirs");
        fs::write(&theirs, &damaged).unwrap();
        e2fsck(&theirs, "-fy");
        e2fsck(&theirs, "-fy");
        let theirs = Contents::new(&Survey::new(fs::read(&theirs).unwrap()));
        let outcome = ask(Asked::Plan, &damaged).unwrap();
        let names = outcome.findings.iter();
        let mut names = names.map(|(_, finding)| finding.problem.info().name);
        // Where the block was written home before, nothing is lost.
        let damage = ["journal-block-left-out", "journal-block-in-place"];
        assert!(names.any(|name| damage.contains(&name)), "{at}");
        let mended = applied(&damaged, &outcome);
        assert_eq!(judge.e2fsck(&mended).code, 0, "{at}");
        let ours = Contents::new(&Survey::new(mended));
        let missing = theirs.missing(&ours, &Hurt::default());
        assert_eq!(missing, [""; 0], "home {:?}", block.home);
    }
}

/// How many blocks of the log are not what lies in their places.
fn waiting(image: &[u8], whole: &Recovery) -> u64 {
    let at = |Pblk(block): Pblk| &image[block as usize * 1024..][..1024];
    let blocks = whole.replay.blocks().iter();
    blocks
        .filter(|block| at(block.log) != at(block.home))
        .count() as u64
}

#[test]
fn what_an_emptied_log_held_is_counted() {
    if !can_mount() || !has_tool("e2fsck") {
        return;
    }
    let dir = scratch();
    let image = cut_off(dir.path());
    let whole = recovery(&image);
    let waiting = waiting(&image, &whole);
    assert!(waiting > 10, "{waiting}");
    let survey = Survey::new(image.clone());
    let first = survey.known(Ino::JOURNAL).unwrap().blocks[0].pblk.0 as usize * 1024;
    // Of the journal's superblock: magic, size of blocks, length, first block, known features.
    for (field, mask) in [(0, 1), (0xC, 1), (0x10, 0x80), (0x17, 1), (0x2B, 2)] {
        let mut damaged = image.clone();
        damaged[first + field] ^= mask;
        let outcome = ask(Asked::Plan, &damaged).unwrap();
        let names = outcome.findings.iter();
        let mut names = names.map(|(_, finding)| finding.problem.info().name);
        assert!(names.any(|name| name == "journal-damaged"), "{field}");
        let lost = outcome.lost.unwrap();
        assert!(!lost.is_nothing());
        assert!(lost.journal_blocks >= waiting, "{field}: {lost:?}");
        assert_eq!(lost.with_structures, 0, "-y is not refused");
    }
    // Sound, and replayed: nothing is lost.
    let outcome = ask(Asked::Plan, &image).unwrap();
    assert!(outcome.lost.unwrap().is_nothing());
    // Where a transaction is damaged, those before it are no loss.
    let commits = survey.known(Ino::JOURNAL).unwrap().blocks.iter();
    let is_commit = |at: &&uext4_testkit::damage::Mapped| {
        let block = &image[at.pblk.0 as usize * 1024..][..12];
        block.starts_with(&[0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 2])
    };
    let commits: Vec<_> = commits.filter(is_commit).collect();
    let mut last = waiting + 1;
    for commit in [commits[1], commits[commits.len() / 2]] {
        let mut damaged = image.clone();
        damaged[commit.pblk.0 as usize * 1024 + 0x10] ^= 1;
        let outcome = ask(Asked::Plan, &damaged).unwrap();
        let lost = outcome.lost.unwrap().journal_blocks;
        assert!((1..last).contains(&lost), "{lost} of {waiting}");
        last = lost;
    }
}
