//! Indexes of equal attributes: what any must do, and what the kernels' are known by.

#[path = "../../../../crates/mbcache/tests/it/answers.rs"]
mod answers;
#[path = "../../../../crates/mbcache/tests/it/disk.rs"]
mod disk;
mod engine;

use uext4_lab_policies::mbcache::{Options, Policy, Subject, Worker};
use uext4_mbcache::{Cache, Created};

use disk::{Design, Disk, Limits};

/// Every index there is, the product's included.
const DESIGNS: &[Design] = &[
    Design {
        name: "mb1",
        cache: |limits| with(Policy::Mb1, limits).cache,
        stays: true,
    },
    Design {
        name: "mbcache2",
        cache: |limits| with(Policy::Mbcache2, limits).cache,
        stays: false,
    },
    Design {
        name: "mbcache2-touch-fixed",
        cache: |limits| with(Policy::Mbcache2TouchFixed, limits).cache,
        stays: false,
    },
    Design {
        name: "mainline",
        cache: |limits| with(Policy::Mainline, limits).cache,
        stays: true,
    },
    Design {
        name: "one-donor",
        cache: |limits| with(Policy::OneDonor, limits).cache,
        stays: true,
    },
];

/// With few chains where there are few entries.
fn with(policy: Policy, limits: Limits) -> Subject {
    let options = Options {
        policy,
        max_entries: limits.max_entries,
        users_max: limits.users_max,
        bucket_bits: if limits.max_entries == 16 { 1 } else { 10 },
        ..Options::default()
    };
    Subject::new(&options, 0).unwrap()
}

/// With a worker that runs when the test says.
fn subject(policy: Policy, max_entries: u32) -> Subject {
    let options = Options {
        policy,
        max_entries,
        worker: Worker::ByCaller,
        ..Options::default()
    };
    Subject::new(&options, 0).unwrap()
}

fn create(cache: &Cache, values: impl IntoIterator<Item = u64>) {
    for value in values {
        let key = cache.key(value as u32, &value.to_le_bytes());
        assert_eq!(cache.created(key, value, 1), Created::Inserted);
    }
}

/// Whether it is found; ends with or without a user more.
fn finds(cache: &Cache, value: u64, takes: bool) -> bool {
    let key = cache.key(value as u32, &value.to_le_bytes());
    let Some(candidate) = cache.find(key) else {
        return false;
    };
    assert_eq!(candidate.value(), value);
    if takes {
        candidate.taken(2).unwrap();
    }
    true
}

#[test]
fn entries_are_as_large_as_they_were() {
    assert_eq!(Policy::Mb1.kernel_entry_bytes(), Some(104));
    assert_eq!(Policy::Mbcache2.kernel_entry_bytes(), Some(56));
    assert_eq!(Policy::Mainline.kernel_entry_bytes(), Some(56));
}

#[test]
fn the_posted_touch_makes_the_next_victim() {
    for (policy, gone) in [
        (Policy::Mbcache2, [3, 4]),
        (Policy::Mbcache2TouchFixed, [0, 1]),
    ] {
        let cache = subject(policy, 0).cache;
        create(&cache, 0..6);
        assert!(finds(&cache, 3, true));
        assert_eq!(cache.scan(2), 2);
        let left: Vec<u64> = (0..6).filter(|&v| !finds(&cache, v, false)).collect();
        assert_eq!(left, gone, "{policy}");
    }
}

#[test]
fn mainline_gives_a_second_chance() {
    let subject = subject(Policy::Mainline, 0);
    let cache = &subject.cache;
    create(cache, 0..4);
    assert!(finds(cache, 0, true));
    // The first is looked at and goes to the end.
    assert_eq!(cache.scan(3), 2);
    assert!(finds(cache, 0, false) && finds(cache, 3, false));
    assert!(!finds(cache, 1, false));
    assert_eq!(subject.stats().second_chances, 1);
    // Its chance is used up.
    assert_eq!(cache.scan(2), 2);
    assert_eq!(cache.count(), 0);
}

#[test]
fn mainline_leaves_it_to_the_worker_first() {
    let subject = subject(Policy::Mainline, 64);
    let cache = &subject.cache;
    create(cache, 0..64);
    assert_eq!(subject.work(), 0);
    create(cache, 64..128);
    assert_eq!(subject.stats().shrunk_sync, 0);
    create(cache, 128..129);
    assert_eq!((subject.stats().shrunk_sync, cache.count()), (64, 65));
    assert_eq!((subject.work(), cache.count()), (4, 61));
    assert_eq!((subject.work(), subject.stats().shrunk_worker), (0, 4));
}

#[test]
fn the_worker_of_mainline_runs_by_itself() {
    let options = Options {
        policy: Policy::Mainline,
        max_entries: 64,
        ..Options::default()
    };
    let subject = Subject::new(&options, 0).unwrap();
    create(&subject.cache, 0..65);
    let stats = subject.stats();
    assert_eq!((stats.shrunk_worker, subject.cache.count()), (4, 61));
}

#[test]
fn mb1_takes_the_lists_lock_twice_a_handle() {
    let subject = subject(Policy::Mb1, 16);
    let cache = &subject.cache;
    create(cache, 0..16);
    let before = subject.stats();
    assert!(finds(cache, 9, true));
    let after = subject.stats();
    assert_eq!(after.list_locks - before.list_locks, 2);
    // The oldest makes room; the one that was found is the youngest now.
    create(cache, 16..31);
    assert_eq!((cache.count(), subject.stats().alloc_walk), (16, 15));
    assert!(finds(cache, 9, false) && !finds(cache, 15, false));
}

#[test]
fn searches_take_as_many_locks_as_they_are_known_to() {
    for (policy, bucket, list) in [
        (Policy::Mbcache2, 1, 1),
        (Policy::Mainline, 1, 0),
        (Policy::OneDonor, 0, 0),
    ] {
        let subject = subject(policy, 0);
        create(&subject.cache, 0..10);
        let before = subject.stats();
        assert!(finds(&subject.cache, 5, true));
        let after = subject.stats();
        let locks = (
            after.bucket_locks - before.bucket_locks,
            after.list_locks - before.list_locks,
        );
        assert_eq!(locks, (bucket, list), "{policy}");
    }
}

/// Many equal blocks full of users: `mbcache2` reads each, `mainline` passes over them.
#[test]
fn full_blocks_are_passed_over() {
    let compares = |policy| {
        let design = DESIGNS.iter().find(|design| design.name == policy);
        let limits = Limits {
            users_max: 8,
            max_entries: 0,
        };
        let disk = Disk::new(design.unwrap(), limits, 600, 10);
        let mut inodes = vec![None; 4000];
        inodes.iter_mut().for_each(|inode| disk.set(inode, 1));
        let stats = disk.cache.stats();
        assert_eq!((stats.saturated, stats.creates), (500, 500), "{policy}");
        stats.compares
    };
    assert_eq!((compares("mainline"), compares("one-donor")), (3500, 3500));
    assert!(compares("mbcache2") >= 20 * 3500);
}

/// What is read comes in at once; the product's index lets in what is read twice.
#[test]
fn read_extents_are_cached() {
    for policy in Policy::ALL {
        let cache = subject(policy, 0).cache;
        let expected = match policy {
            Policy::OneDonor => Created::Refused,
            _ => Created::Inserted,
        };
        assert_eq!(cache.seen(7, &[7; 100], 70, || 3), expected, "{policy}");
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
        let max = Subject::new(&options, 0).unwrap().cache.stats().max;
        assert!(max <= 1 << 22, "{policy}: {max}");
    }
}

#[test]
fn names_are_read_as_they_are_written() {
    for policy in Policy::ALL {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    let error = "best".parse::<Policy>().unwrap_err().to_string();
    assert!(error.contains("'best' is no policy: one of mb1"), "{error}");
}
