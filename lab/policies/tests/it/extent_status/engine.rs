//! Each design under the whole engine, with less memory than what is known of the files takes.

use std::sync::Arc;

use uext4::data::Fallocate;
use uext4::tuning::{Policies, StatsMode};
use uext4::{Creation, NewInode, OpenInode, OpenOptions, SetAttributes, Volume};
use uext4_blockdev::{MemoryDevice, VirtualClock};
use uext4_lab_policies::extent_status::Policy;
use uext4_mkfs::BlockSizeWish;
use uext4_ondisk::BlockSize;

use super::conformance::Merge;
use super::shrinker;

const BLOCK: usize = 4096;
const BLOCKS: usize = 600;
const TIME: i64 = 1_700_000_000;

fn formatted() -> Arc<MemoryDevice> {
    let device = MemoryDevice::new(64 << 20);
    let mut wishes = uext4_mkfs::Options::new([7; 16], [9; 16], TIME as u32);
    wishes.block_size = BlockSize::from_bytes(BLOCK as u32).map(BlockSizeWish::Exactly);
    let layout = uext4_mkfs::layout(&wishes, 64 << 20).unwrap();
    uext4_mkfs::format(&layout, &device).unwrap();
    Arc::new(device)
}

fn open(device: &Arc<MemoryDevice>, policy: Policy, merge: Merge) -> Volume {
    let mut options = OpenOptions::default();
    options.memory = Some(3 << 20);
    options.es_stats = StatsMode::On;
    options.policies = Policies {
        extent_status: Some(shrinker(policy, merge)),
        ..Policies::default()
    };
    let clock = Arc::new(VirtualClock::new(TIME));
    Volume::open(Arc::<MemoryDevice>::clone(device), clock, &options).unwrap()
}

/// Every second block of the file in two passes, so that neighbours lie apart; then a hole in the
/// middle, and a shorter end. Returns what the file holds.
fn scatter(file: &OpenInode, seed: u8) -> Vec<u8> {
    let mut contents = vec![0; BLOCKS * BLOCK];
    for pass in 0..2 {
        for block in (pass * 2..BLOCKS).step_by(4) {
            let data = [seed ^ block as u8 | 1; BLOCK];
            file.write_at((block * BLOCK) as u64, &data).unwrap();
            contents[block * BLOCK..][..BLOCK].copy_from_slice(&data);
        }
        file.fsync().unwrap();
    }
    let (from, len) = (BLOCKS / 3 * BLOCK, 10 * BLOCK);
    file.fallocate(Fallocate::PunchHole, from as u64, len as u64)
        .unwrap();
    contents[from..][..len].fill(0);
    contents.truncate(contents.len() - 5 * BLOCK);
    file.set_attributes(&SetAttributes {
        size: Some(contents.len() as u64),
        ..SetAttributes::default()
    })
    .unwrap();
    contents
}

/// Asserts that a file holds `contents`, and that what is known of it does not contradict its map.
fn judge(file: &OpenInode, contents: &[u8], what: &str) {
    let mut all = vec![0; contents.len()];
    let mut done = 0;
    while done < all.len() {
        match file.read_at(done as u64, &mut all[done..]).unwrap() {
            0 => break,
            more => done += more,
        }
    }
    assert!(all == contents, "{what}");
    assert_eq!(file.check_extent_cache().unwrap(), None, "{what}");
}

fn run(policy: Policy, merge: Merge) {
    let what = format!("{policy}, merge {merge:?}");
    let device = formatted();
    let fs = open(&device, policy, merge);
    let root = fs.root().unwrap();
    let names = [0_u8, 1, 2].map(|number| format!("f{number}"));
    let files = names.each_ref().map(|name| {
        let made = root.create(name.as_bytes(), NewInode::File, &Creation::default());
        made.unwrap()
    });
    // One thread a file, side by side.
    let contents: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let writers: Vec<_> = (1..)
            .zip(&files)
            .map(|(number, file)| scope.spawn(move || scatter(file, number * 17)))
            .collect();
        let done = writers.into_iter().map(|writer| writer.join());
        done.collect::<Result<_, _>>().unwrap()
    });
    for (file, contents) in files.iter().zip(&contents) {
        judge(file, contents, &what);
        file.clear_extent_cache();
        judge(file, contents, &what);
    }
    let stats = fs.stats().extent_status.unwrap();
    assert!(stats.es_stats_cache_hits > 0, "{what}: {stats:?}");
    assert!(
        stats.lookup_hit_locks > 0 || policy.drops_leaves(),
        "{what}: {stats:?}"
    );
    drop((root, files));
    fs.close().unwrap();
    let fs = open(&device, policy, merge);
    for (name, contents) in names.iter().zip(&contents) {
        let file = fs.root().unwrap().lookup(name.as_bytes()).unwrap();
        judge(&file, contents, &what);
    }
    fs.close().unwrap();
}

#[test]
fn cached_statuses_agree_with_the_map() {
    for policy in Policy::ALL {
        for merge in [Merge::On, Merge::Off] {
            run(policy, merge);
        }
    }
}
