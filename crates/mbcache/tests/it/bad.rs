//! Options out of range, contents made to collide, memory that is short.

use uext4_mbcache::{Cache, Created, Options, Policy};

use crate::disk::Disk;

#[test]
fn sizes_out_of_range_name_the_range() {
    let mut options = Options::default();
    for (name, value, said) in [
        (
            "mb_bucket_bits",
            "0",
            "mb_bucket_bits=0: out of range, 1 to 20",
        ),
        (
            "mb_bucket_bits",
            "21",
            "mb_bucket_bits=21: out of range, 1 to 20",
        ),
        (
            "mb_max_entries",
            "15",
            "mb_max_entries=15: out of range, 16 to 4194304",
        ),
        (
            "mb_max_entries",
            "4194305",
            "mb_max_entries=4194305: out of range, 16 to 4194304",
        ),
        (
            "mb_max_entries",
            "-1",
            "mb_max_entries: '-1' is no number from 16 to 4194304",
        ),
        (
            "mb_max",
            "1",
            "no option of the attribute cache is called 'mb_max'",
        ),
        (
            "mbcache",
            "best",
            "mbcache: 'best' is no policy: one of mb1, mbcache2, mbcache2-touch-fixed, mainline, one-donor",
        ),
    ] {
        let error = options.set(name, value).unwrap_err();
        assert_eq!(error.to_string(), said);
    }
    assert_eq!(options, Options::default());
    let bad = Options {
        users_max: 1,
        ..options
    };
    let error = Cache::new(&bad).unwrap_err().to_string();
    assert_eq!(error, "users_max=1: out of range, 2 to 4294967295");
    let bad = Options {
        bucket_bits: 64,
        ..options
    };
    assert!(Cache::new(&bad).is_err());
    options.set("mb_max_entries", "16").unwrap();
    options.set("mbcache", "mainline").unwrap();
    assert_eq!(options.policy, Policy::Mainline);
    assert!(Cache::new(&options).is_ok());
}

#[test]
fn spellings_go_both_ways() {
    for policy in Policy::ALL {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
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
    let mainline = Options {
        policy: Policy::Mainline,
        ..Options::default()
    };
    assert_eq!(mainline.for_blocks(1 << 40), mainline);
}

/// Ten thousand contents with one hash on disk: each is found, or is not, as any other; only policies
/// that know no more than that hash look at them all.
#[test]
fn collisions_cost_time_only() {
    const CONTENTS: u64 = 10_000;
    for policy in Policy::ALL {
        let options = Options {
            policy,
            max_entries: 65_536,
            ..Options::default()
        };
        let cache = Cache::new(&options).unwrap();
        let key = |content: u64| cache.key(0xDEAD_BEEF, &content.to_le_bytes());
        for content in 0..CONTENTS {
            assert_eq!(cache.created(key(content), content, 1), Created::Inserted);
        }
        assert_eq!(cache.count() as u64, CONTENTS, "{policy}");
        for content in [0, 5000, CONTENTS - 1, CONTENTS] {
            let mut next = cache.find(key(content));
            while let Some(candidate) = next.take() {
                if candidate.value() == content {
                    candidate.taken(2).unwrap();
                    break;
                }
                next = candidate.next();
            }
        }
        let stats = cache.stats();
        assert_eq!(stats.reuse_ok, 3, "{policy}");
        match policy {
            Policy::OneDonor => assert_eq!((stats.compares, stats.chain_max), (3, 1)),
            _ => assert_eq!(stats.compares, CONTENTS + 5000 + 1 + CONTENTS),
        }
        for content in 0..CONTENTS {
            cache.release(key(content), content).remove().unwrap();
        }
        assert_eq!(cache.count(), 0, "{policy}");
    }
}

#[test]
fn without_memory_there_are_misses_and_no_errors() {
    for policy in Policy::ALL {
        let options = Options {
            policy,
            users_max: 4,
            ..Options::default()
        };
        let disk = Disk::new(&options, 300, 1000);
        let mut inodes = [None; 200];
        disk.cache.set_limit(0);
        for (content, inode) in inodes.iter_mut().enumerate() {
            disk.set(inode, content as u32 % 50);
        }
        assert_eq!(disk.cache.count(), 0, "{policy}");
        disk.check(&inodes, 50);
        assert!(disk.users().iter().all(|&users| users <= 1));
        // Room for ten.
        disk.cache.set_limit(10 * disk.cache.entry_memory());
        for (content, inode) in inodes.iter_mut().enumerate() {
            disk.set(inode, content as u32 % 50);
            assert!(disk.cache.count() <= 10, "{policy}");
        }
        disk.check(&inodes, 50);
        assert!(disk.cache.stats().shrunk_pressure > 0, "{policy}");
    }
}

#[test]
fn no_number_of_chains_makes_more_entries_than_there_may_be() {
    for policy in Policy::ALL {
        let options = Options {
            policy,
            bucket_bits: 20,
            ..Options::default()
        };
        let max = Cache::new(&options).unwrap().stats().max;
        assert!(max <= 1 << 22, "{policy}: {max}");
    }
}
