//! The same under each policy of the cache of shared attributes, and without.

use std::collections::BTreeSet;

use crate::mount::open_options::OpenOptions;
use crate::testing::mount_with;
use crate::xattr::block::merge;
use uext4_mbcache::Policy;

use super::*;

/// Each policy as a mount option, and none.
fn options() -> impl Iterator<Item = (String, OpenOptions)> {
    let policies = Policy::ALL.map(|policy| format!("mbcache={policy},mb_max_entries=16"));
    let words = policies.into_iter().chain(["nombcache".to_owned()]);
    words.map(|word| {
        let mut options = OpenOptions::default();
        options.options(&word).unwrap();
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
        // One that stays, so that there is something to share for whoever comes first.
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
fn what_is_no_option_is_refused_with_what_there_is() {
    let mut options = OpenOptions::default();
    for (word, said) in [
        (
            "mbcache=best",
            "one of mb1, mbcache2, mbcache2-touch-fixed, mainline, one-donor",
        ),
        ("mb_bucket_bits=0", "out of range, 1 to 20"),
        ("mb_max_entries=x", "is no number from 16 to 4194304"),
    ] {
        let error = options.option(word).unwrap_err();
        assert!(matches!(error, Error::MbcacheOption(_)));
        assert!(error.to_string().contains(said), "{error}");
    }
    for list in ["nombcache,mb_bucket_bits=12", "mb_max_entries=64"] {
        options.options(list).unwrap();
        assert_eq!(options.mbcache, None, "{list} switches nothing on");
    }
    options.option("mb_bucket_bits=21").unwrap_err();
    options
        .options("mbcache=mainline,mb_bucket_bits=12")
        .unwrap();
    let on = options.mbcache.unwrap();
    assert_eq!((on.policy, on.bucket_bits), (Policy::Mainline, 12));
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
