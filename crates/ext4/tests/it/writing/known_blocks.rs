//! What is known of the blocks of files: too little memory for it, options, the calls that load
//! and clear.

use std::sync::Arc;

use uext4::data::Fallocate;
use uext4::tuning::Policies;
use uext4::{Creation, Error, NewInode, OpenInode, OpenOptions, SetAttributes, Volume};
use uext4_blockdev::BlockDevice;
use uext4_extent_status::{LeafQueue, LeafQueueOptions};

use super::device::{file, judge, made};

const BLOCK: usize = 4096;

/// Less memory than what is known of these files takes.
fn little() -> OpenOptions {
    let mut options = OpenOptions::default();
    options.memory = Some(3 << 20);
    options
}

fn open(device: Arc<dyn BlockDevice>, options: &str) -> Result<Volume, Error> {
    super::device::open(device, little(), options)
}

/// With extents that do not merge: there are many.
pub(super) fn apart() -> Policies {
    let options = LeafQueueOptions {
        merge: false,
        ..LeafQueueOptions::default()
    };
    Policies {
        extent_status: Some(Arc::new(LeafQueue::new(options))),
        ..Policies::default()
    }
}

/// Every second block of the file, two passes so that neighbours lie apart, and a hole in the
/// middle.
fn scatter(file: &OpenInode, blocks: usize, seed: u8, contents: &mut Vec<u8>) {
    contents.resize(blocks * BLOCK, 0);
    for pass in 0..2 {
        for block in (pass * 2..blocks).step_by(4) {
            let data = [seed ^ block as u8 | 1; BLOCK];
            file.write_at((block * BLOCK) as u64, &data).unwrap();
            contents[block * BLOCK..][..BLOCK].copy_from_slice(&data);
        }
        file.fsync().unwrap();
    }
    let (from, len) = (blocks / 3 * BLOCK, 10 * BLOCK);
    file.fallocate(Fallocate::PunchHole, from as u64, len as u64)
        .unwrap();
    contents[from..][..len].fill(0);
    contents.truncate(contents.len() - 5 * BLOCK);
    let size = Some(contents.len() as u64);
    file.set_attributes(&SetAttributes {
        size,
        ..SetAttributes::default()
    })
    .unwrap();
}

fn read(file: &OpenInode, len: usize) -> Vec<u8> {
    let mut all = vec![0; len];
    let mut done = 0;
    while done < len {
        match file.read_at(done as u64, &mut all[done..]).unwrap() {
            0 => break,
            more => done += more,
        }
    }
    all
}

#[test]
fn cached_statuses_agree_with_the_map() {
    for (what, policies) in [("merged", Policies::default()), ("apart", apart())] {
        let device = made("-t ext4 -b 4096", 16_384);
        let mut options = little();
        options.policies = policies;
        let fs = super::device::open(device.clone(), options, "es_stats=on").unwrap();
        let mut contents = vec![Vec::new(); 3];
        let files = [0, 1, 2].map(|i| file(&fs, &format!("f{i}")));
        for (i, file) in files.iter().enumerate() {
            scatter(file, 600, i as u8 * 17, &mut contents[i]);
        }
        for (file, contents) in files.iter().zip(&contents) {
            assert!(read(file, contents.len()) == *contents, "{what}");
            assert_eq!(file.check_extent_cache().unwrap(), None, "{what}");
            file.clear_extent_cache();
            assert!(read(file, contents.len()) == *contents, "{what}");
            assert_eq!(file.check_extent_cache().unwrap(), None, "{what}");
        }
        let stats = fs.stats().extent_status.unwrap();
        assert!(stats.es_stats_cache_hits > 0, "{what}: {stats:?}");
        assert_eq!(stats.lookup_hit_locks, 0, "{what}");
        drop(files);
        fs.close().unwrap();
        judge(&device, what);
    }
}

#[test]
fn a_leaf_is_known_once_a_block_of_it_is_asked_for() {
    let device = made("-t ext4 -b 4096", 16_384);
    let fs = open(device.clone(), "es_stats=on").unwrap();
    let scattered = file(&fs, "f");
    scatter(&scattered, 600, 3, &mut Vec::new());
    scattered.clear_extent_cache();
    let count = || fs.stats().extent_status.unwrap().es_stats_all_cnt;
    assert_eq!(count(), 0);
    // One part is reported; all others of its leaf are known then, with the holes between them.
    scattered.fiemap(0..4096, |_| false).unwrap();
    assert!(count() > 500, "{}", count());
    let misses = fs.stats().extent_status.unwrap().es_stats_cache_misses;
    scattered.precache_extents().unwrap();
    let stats = fs.stats().extent_status.unwrap();
    assert!(stats.es_stats_cache_misses - misses <= 2, "{stats:?}");
    let mut reported = 0;
    scattered
        .fiemap(0..u64::MAX, |part| {
            assert!(part.physical.is_some());
            reported += 1;
            true
        })
        .unwrap();
    assert!(reported > 250, "{reported}");
    drop(scattered);
    fs.close().unwrap();
    judge(&device, "whole leaves");
}

#[test]
fn appending_does_not_read_the_map_each_time() {
    let device = made("-t ext4 -b 4096", 16_384);
    let fs = open(device.clone(), "es_stats=on").unwrap();
    let file = file(&fs, "log");
    scatter(&file, 100, 7, &mut Vec::new());
    file.fsync().unwrap();
    let misses = || fs.stats().extent_status.unwrap().es_stats_cache_misses;
    // Delayed blocks stay, what is behind them is dropped with all else.
    file.append(&[3; BLOCK]).unwrap();
    file.clear_extent_cache();
    let before = misses();
    for _ in 0..200 {
        file.append(&[3; BLOCK]).unwrap();
    }
    let asked = misses() - before;
    assert!((1..4).contains(&asked), "{asked}");
    drop(file);
    fs.close().unwrap();
    judge(&device, "appended");
}

#[test]
fn the_map_of_a_directory_follows_its_growth() {
    let device = made("-t ext4 -b 1024", 16_384);
    let fs = open(device.clone(), "").unwrap();
    let root = fs.root().unwrap();
    let dir = root.create(b"d", NewInode::Directory, &Creation::default());
    let dir = dir.unwrap();
    let reported = || {
        let mut bytes = 0;
        dir.fiemap(0..u64::MAX, |part| {
            bytes += part.len;
            true
        })
        .unwrap();
        bytes
    };
    dir.precache_extents().unwrap();
    assert_eq!(reported(), 1024);
    for number in 0..200 {
        let name = format!("a long name for number {number}");
        dir.create(name.as_bytes(), NewInode::File, &Creation::default())
            .unwrap();
    }
    assert!(dir.inode().size > 4096);
    assert_eq!(reported(), dir.inode().size);
    assert_eq!(dir.check_extent_cache().unwrap(), None);
    drop((root, dir));
    fs.close().unwrap();
    judge(&device, "a directory's map");
}

#[test]
fn options_have_names_and_values() {
    let device = made("-t ext4 -b 4096", 16_384);
    let error = open(device.clone(), "es_stats=some").unwrap_err();
    assert!(matches!(error, Error::Option { .. }), "{error}");
    assert!(error.to_string().contains("sampled"), "{error}");
    for option in ["es_shrinker=leaf-queue", "es_merge=on", "es_shards=4"] {
        let error = open(device.clone(), option).unwrap_err();
        assert!(matches!(error, Error::UnknownOption { .. }), "{error}");
    }
    open(device, "es_stats=off").unwrap().close().unwrap();
}
