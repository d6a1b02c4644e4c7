//! Blocks of attributes that many files share: whatever a cut leaves, each counts the files that
//! have it.
//!
//! The counts are stored once a transaction, and files come and go within one: so every state is
//! held against the inodes by our check, and every few by e2fsck.

use std::sync::Arc;

use uext4::xattr::SetMode;
use uext4::{Creation, NewInode, OpenInode, OpenOptions, Volume};
use uext4_blockdev::{MemoryDevice, VirtualClock};
use uext4_testkit::SplitMix64;

use super::judge::{read, recover};
use super::many;
use super::recorder::{Cuts, Event, Recorder};
use crate::writing::device::{judge, made};

const FILES: u64 = 24;
/// States, at least, and how many of them e2fsck sees: 200 and more.
const STATES: usize = 2000;
const JUDGED: usize = 8;
const BY: Creation = Creation {
    mode: 0o644,
    umask: 0,
    uid: 1000,
    gid: 1000,
};

fn name(number: u64) -> String {
    format!("f{number}")
}

fn create(root: &OpenInode, number: u64) -> OpenInode {
    let name = name(number);
    root.create(name.as_bytes(), NewInode::File, &BY).unwrap()
}

/// Files get and lose one of three values, some of which fit in no inode and one in no block, and
/// are made anew. Transactions have from one change to some dozens.
fn run(empty: &MemoryDevice, seed: u64) -> Vec<(usize, Event)> {
    let device = Arc::new(Recorder::new(empty));
    let clock = Arc::new(VirtualClock::new(1_700_000_000));
    let options = OpenOptions::default();
    let fs = Volume::open(Arc::clone(&device) as _, clock, &options).unwrap();
    let root = fs.root().unwrap();
    let mut files: Vec<OpenInode> = (0..FILES).map(|number| create(&root, number)).collect();
    let mut random = SplitMix64::new(seed);
    for _ in 0..250 {
        let number = random.below(FILES);
        let file = &files[number as usize];
        match random.below(20) {
            0 => fs.sync().unwrap(),
            1 => file.fsync().unwrap(),
            2 => {
                root.unlink(name(number).as_bytes()).unwrap();
                files[number as usize] = create(&root, number);
            }
            3..6 => file.set_xattr(b"user.a", None, SetMode::Any).unwrap(),
            _ => {
                let value = random.below(3);
                let len = [700, 800, 5000][value as usize];
                let value = vec![b'a' + value as u8; len];
                let set = file.set_xattr(b"user.a", Some(&value), SetMode::Any);
                set.unwrap();
            }
        }
    }
    drop((root, files));
    fs.close().unwrap();
    device.take_events()
}

#[test]
fn shared_blocks_count_their_files() {
    let empty = made("-t ext4 -b 1024 -J size=1 -O ea_inode", 8192);
    let (mut states, mut number) = (0, 0);
    while states < many(STATES) {
        let mut cuts = Cuts::new(&empty);
        for (at, (_, event)) in run(&empty, number).iter().enumerate() {
            cuts.push(event);
            let seed = number << 32 | at as u64;
            for image in [cuts.all(), cuts.some(seed)] {
                let origin = format!("run {number}, {at} changes");
                let recovered = Arc::new(image);
                recover(Arc::clone(&recovered) as _).expect(&origin);
                read(&recovered).expect(&origin);
                if states % JUDGED == 0 {
                    judge(&recovered, &origin);
                }
                states += 1;
            }
        }
        number += 1;
    }
    println!("{states} states of {number} runs");
}
