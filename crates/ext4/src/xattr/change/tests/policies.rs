//! Changes with few entries in the cache of shared attributes, and without that cache.

use std::collections::BTreeSet;

use crate::mount::open_options::OpenOptions;
use crate::testing::mount_with;
use crate::xattr::block::merge;

use super::*;

/// With and without the cache.
fn options() -> impl Iterator<Item = (&'static str, OpenOptions)> {
    ["mb_max_entries=16", "nombcache"].into_iter().map(|word| {
        let mut options = OpenOptions::default();
        options.option(word).unwrap();
        (word, options)
    })
}

#[test]
fn changes_are_what_a_model_says_under_each() {
    for ((word, options), seed) in options().zip(500..) {
        println!("{word}");
        let device = device("-t ext4 -b 1024 -O ea_inode", 32_768);
        let mut game = Game::on(mount_with(&device, &options), seed);
        let free = |game: &Game| game.sbi.rw().unwrap().groups.total();
        let before = free(&game);
        for step in 0..300 {
            game.step();
            if step % 50 == 0 {
                let xattrs = &game.sbi.rw().unwrap().xattrs;
                crate::base::memory::Shrinker::scan(xattrs, 1000);
            }
        }
        game.compare();
        game.delete_everything();
        assert_eq!(free(&game), before, "{word}");
        unmount_and_check(&game.sbi, &device);
    }
}

#[test]
fn threads_share_and_part_again_under_each() {
    for (word, options) in options() {
        println!("{word}");
        let device = device("-t ext4 -b 4096 -O ea_inode", 32_768);
        let sbi = mount_with(&device, &options);
        // One that stays, so that there is something to share for any thread that comes first.
        let mut stays = find(&sbi, "d0");
        change(&sbi, &mut stays, "user.a", Some(&[0; 700]), SetMode::Any).unwrap();
        let free = sbi.rw().unwrap().groups.total();
        play_together(&sbi);
        assert_eq!(sbi.rw().unwrap().groups.total(), free, "{word}");
        let stats = sbi.rw().unwrap().xattrs.blocks.stats();
        assert_eq!(stats.is_none(), word == "nombcache");
        assert!(stats.is_none_or(|stats| stats.reuse_ok > 0), "{word}");
        unmount_and_check(&sbi, &device);
    }
}

#[test]
fn a_number_of_entries_is_checked_and_switches_nothing_on() {
    let mut options = OpenOptions::default();
    for (word, said) in [
        ("mb_max_entries=x", "must be 0, or 16 to 4194304 entries"),
        ("mb_max_entries=15", "must be 0, or 16 to 4194304 entries"),
        // No option of this program.
        ("mbcache=mainline", "mbcache"),
        ("mb_bucket_bits=12", "mb_bucket_bits"),
    ] {
        let error = options.option(word).unwrap_err();
        let is_refused = matches!(error, Error::Option { .. } | Error::UnknownOption { .. });
        assert!(is_refused, "{error:?}");
        assert!(error.to_string().contains(said), "{error}");
    }
    options.option("mb_max_entries=64").unwrap();
    assert_eq!(options.mbcache.unwrap().max_entries, 64);
    options.options("nombcache,mb_max_entries=128").unwrap();
    assert_eq!(options.mbcache, None);
}

#[test]
fn blocks_that_were_written_one_by_one_are_merged() {
    let device = device("-t ext4 -b 1024 -O ea_inode", 32_768);
    let mut options = OpenOptions::default();
    options.option("nombcache").unwrap();
    let sbi = mount_with(&device, &options);
    let free = |sbi: &Sbi| sbi.rw().unwrap().groups.total().free_blocks;
    let names = ["f0", "f1", "f2", "f3"];
    let mut model = BTreeMap::new();
    for name in names {
        let mut inode = find(&sbi, name);
        change(&sbi, &mut inode, "user.a", Some(&[7; 700]), SetMode::Create).unwrap();
        model = listed(&sbi, &inode);
    }
    let before = free(&sbi);
    unmount_and_check(&sbi, &device);
    let sbi = mount(&device);
    let mut blocks = BTreeSet::new();
    for name in names {
        let mut inode = find(&sbi, name);
        let handle = sbi.start(credits_set(&sbi)).unwrap();
        if let Some(at) = merge(&handle, &inode).unwrap() {
            inode.xattr_block = Some(at);
            store(&handle, &sbi, &inode).unwrap();
        }
        assert_eq!(listed(&sbi, &inode), model);
        blocks.insert(inode.xattr_block.unwrap().0);
    }
    assert_eq!((blocks.len(), free(&sbi)), (1, before + 3));
    unmount_and_check(&sbi, &device);
}
