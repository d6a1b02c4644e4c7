//! Options out of range, and contents made to collide.

use uext4_mbcache::{Cache, Options, TUNABLES};
use uext4_tunables::set;

#[test]
fn sizes_out_of_range_name_the_range() {
    let mut options = Options::default();
    let says = "must be 0, or 16 to 4194304 entries";
    for option in [
        "mb_max_entries=15",
        "mb_max_entries=4194305",
        "mb_max_entries=-1",
    ] {
        let error = set(TUNABLES, &mut options, option).unwrap_err();
        assert_eq!(error.to_string(), format!("{option}: {says}"));
    }
    assert_eq!(options, Options::default());
    let bad = Options {
        users_max: 1,
        ..options
    };
    let error = Cache::new(&bad).unwrap_err().to_string();
    assert_eq!(error, "users_max=1: must be at least 2");
    let bad = Options {
        max_entries: 15,
        ..options
    };
    let error = Cache::new(&bad).unwrap_err().to_string();
    assert_eq!(error, format!("mb_max_entries=15: {says}"));
    assert_eq!(set(TUNABLES, &mut options, "mb_max_entries=16"), Ok(true));
    assert!(Cache::new(&options).is_ok());
}

#[test]
fn the_table_grows_with_the_file_system() {
    for (blocks, entries) in [
        (0, 32_768),
        (2_097_152, 32_768),
        (1 << 24, 262_144),
        (u64::MAX, 1 << 22),
    ] {
        assert_eq!(Options::default().for_blocks(blocks).max_entries, entries);
    }
}

/// A content is known by more than its hash on disk: contents that share it are not compared.
#[test]
fn collisions_are_not_compared() {
    let cache = Cache::new(&Options::default()).unwrap();
    let key = |content: u64| cache.key(0xDEAD_BEEF, &content.to_le_bytes());
    for content in 0..10_000 {
        _ = cache.created(key(content), content, 1);
    }
    assert_eq!(cache.find(key(5000)).unwrap().value(), 5000);
    assert!(cache.find(key(10_000)).is_none());
    let stats = cache.stats();
    assert_eq!((stats.compares, stats.chain_max), (1, 1));
}
