//! What a policy is known by.

use uext4_mbcache::{Cache, Created, Options, Policy};

use crate::disk::Disk;

fn cache(policy: Policy, max_entries: u32) -> Cache {
    let options = Options {
        policy,
        max_entries,
        ..Options::default()
    };
    Cache::new(&options).unwrap()
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
    assert_eq!(Policy::Mb1.entry_bytes(), 104);
    assert_eq!(Policy::Mbcache2.entry_bytes(), 56);
    assert_eq!(Policy::Mainline.entry_bytes(), 56);
}

#[test]
fn the_posted_touch_makes_the_next_victim() {
    for (policy, gone) in [
        (Policy::Mbcache2, [3, 4]),
        (Policy::Mbcache2TouchFixed, [0, 1]),
    ] {
        let cache = cache(policy, 0);
        create(&cache, 0..6);
        assert!(finds(&cache, 3, true));
        assert_eq!(cache.scan(2), 2);
        let left: Vec<u64> = (0..6).filter(|&v| !finds(&cache, v, false)).collect();
        assert_eq!(left, gone, "{policy}");
    }
}

#[test]
fn mainline_gives_a_second_chance() {
    let cache = cache(Policy::Mainline, 0);
    create(&cache, 0..4);
    assert!(finds(&cache, 0, true));
    // The first is looked at and goes to the end.
    assert_eq!(cache.scan(3), 2);
    assert!(finds(&cache, 0, false) && finds(&cache, 3, false));
    assert!(!finds(&cache, 1, false));
    assert_eq!(cache.stats().referenced_second_chances, 1);
    // Its chance is used up.
    assert_eq!(cache.scan(2), 2);
    assert_eq!(cache.count(), 0);
}

#[test]
fn mainline_leaves_it_to_the_worker_first() {
    let cache = cache(Policy::Mainline, 64);
    create(&cache, 0..64);
    assert!(!cache.is_work_due());
    create(&cache, 64..128);
    assert!(cache.is_work_due());
    assert_eq!(cache.stats().shrunk_sync, 0);
    create(&cache, 128..129);
    assert_eq!((cache.stats().shrunk_sync, cache.count()), (64, 65));
    assert_eq!((cache.work(), cache.count()), (4, 61));
    assert!(!cache.is_work_due());
}

#[test]
fn mb1_takes_the_lists_lock_twice_a_handle() {
    let cache = cache(Policy::Mb1, 16);
    create(&cache, 0..16);
    let before = cache.stats();
    assert!(finds(&cache, 9, true));
    let after = cache.stats();
    assert_eq!(after.list_locks - before.list_locks, 2);
    // The oldest makes room; the one that was found is the youngest now.
    create(&cache, 16..31);
    assert_eq!((cache.count(), cache.stats().alloc_walk), (16, 15));
    assert!(finds(&cache, 9, false) && !finds(&cache, 15, false));
}

#[test]
fn searches_take_as_many_locks_as_they_are_known_to() {
    for (policy, bucket, list) in [
        (Policy::Mbcache2, 1, 1),
        (Policy::Mainline, 1, 0),
        (Policy::OneDonor, 0, 0),
    ] {
        let cache = cache(policy, 0);
        create(&cache, 0..10);
        let before = cache.stats();
        assert!(finds(&cache, 5, true));
        let after = cache.stats();
        let locks = (
            after.bucket_locks - before.bucket_locks,
            after.list_locks - before.list_locks,
        );
        assert_eq!(locks, (bucket, list), "{policy}");
    }
}

/// Many equal blocks full of users: mbcache2 reads each, mainline passes over them, and with one donor
/// there is nothing to pass over.
#[test]
fn full_blocks_are_not_compared() {
    let compares = |policy| {
        let options = Options {
            policy,
            users_max: 8,
            ..Options::default()
        };
        let disk = Disk::new(&options, 600, 10);
        let mut inodes = vec![None; 4000];
        inodes.iter_mut().for_each(|inode| disk.set(inode, 1));
        let stats = disk.cache.stats();
        assert_eq!((stats.saturated, stats.creates), (500, 500), "{policy}");
        (stats.compares, stats.chain_steps, stats.chain_max)
    };
    let (mainline, one) = (compares(Policy::Mainline), compares(Policy::OneDonor));
    assert_eq!(mainline.0, 3500);
    assert_eq!((one.0, one.1, one.2), (3500, 3500, 1));
    assert!(mainline.1 > 3500 && mainline.2 == 499);
    assert!(compares(Policy::Mbcache2).0 >= 20 * one.0);
}

#[test]
fn one_donor_lets_in_what_is_read_twice() {
    let cache = cache(Policy::OneDonor, 0);
    let body = [7; 100];
    let seen = || cache.seen(7, &body, 70, || 3);
    assert_eq!([seen(), seen()], [Created::Refused, Created::Inserted]);
    assert_eq!(seen(), Created::Refused);
    let stats = cache.stats();
    assert_eq!((stats.content_hashes, stats.ghost_refused), (1, 2));
    assert!(cache.find(cache.key(7, &body)).is_some());
    for policy in Policy::ALL {
        if policy != Policy::OneDonor {
            let cache = self::cache(policy, 0);
            assert_eq!(
                cache.seen(7, &body, 70, || 3),
                Created::Inserted,
                "{policy}"
            );
        }
    }
}

#[test]
fn one_donor_keeps_what_is_used() {
    let cache = cache(Policy::OneDonor, 64);
    create(&cache, 0..16);
    for _ in 0..3 {
        assert!((0..16).all(|value| finds(&cache, value, false)));
    }
    create(&cache, 100..200);
    assert!(cache.count() <= 64);
    let kept = (0..16).filter(|&value| finds(&cache, value, false)).count();
    assert!(kept >= 12, "{kept} of 16");
}

#[test]
fn a_full_donor_makes_room_for_the_oldest_spare() {
    let options = Options {
        users_max: 2,
        ..Options::default()
    };
    let cache = Cache::new(&options).unwrap();
    let key = cache.key(1, b"one");
    // Equal ones, made at the same time by others, are spares.
    for value in [10, 11, 12] {
        assert_eq!(cache.created(key, value, 1), Created::Inserted);
        assert_eq!(cache.created(key, value, 1), Created::Present);
    }
    cache.find(key).unwrap().taken(2).unwrap();
    let second = cache.find(key).unwrap();
    // While all room of the donor is promised the next gives.
    let third = cache.find(key).unwrap();
    assert_eq!((second.value(), third.value()), (11, 12));
    assert!(cache.find(key).is_none());
    drop(second);
    _ = cache.release(key, 12).remove().unwrap_err();
    third.taken(2).unwrap();
    assert_eq!((cache.find(key).unwrap().value(), cache.count()), (11, 1));
    cache.release(key, 11).remove().unwrap();
    assert!(cache.find(key).is_none());
    // The full ones have room again, and one of them goes.
    for value in [12, 10] {
        cache.release(key, value).left(1);
    }
    assert_eq!((cache.find(key).unwrap().value(), cache.count()), (12, 2));
    cache.release(key, 12).remove().unwrap();
    assert_eq!(cache.find(key).unwrap().value(), 10);
    assert_eq!((cache.scan(10) + cache.scan(10), cache.count()), (1, 0));
}

#[test]
fn there_are_so_many_spares_and_any_may_go() {
    let cache = cache(Policy::OneDonor, 0);
    let key = cache.key(1, b"one");
    let made = (0..1200).map(|value| cache.created(key, value, 1));
    let inserted = made.filter(|made| *made == Created::Inserted).count();
    assert_eq!((inserted, cache.count()), (1025, 1025));
    // The donor, one in the middle, the last: another gives each time.
    for value in [0, 700, 1024, 1] {
        cache.release(key, value).remove().unwrap();
        assert_eq!(cache.created(key, value, 1024), Created::Refused);
        assert!(![0, 700, 1024].contains(&cache.find(key).unwrap().value()));
    }
    while cache.scan(1000) > 0 {}
    assert_eq!((cache.count(), cache.find(key).is_none()), (0, true));
}

#[test]
fn who_is_not_the_last_any_more_waits_for_nobody_else() {
    let cache = cache(Policy::OneDonor, 0);
    let key = cache.key(1, b"one");
    // All it has had but one have gone, of which nobody was told.
    assert_eq!(cache.created(key, 10, 5), Created::Inserted);
    let (first, second) = (cache.find(key).unwrap(), cache.find(key).unwrap());
    let in_use = cache.release(key, 10).remove().unwrap_err();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            in_use.wait();
            tell.send(()).unwrap();
        });
        let soon = std::time::Duration::from_millis(20);
        assert!(told.recv_timeout(soon).is_err(), "nobody has come yet");
        first.taken(2).unwrap();
        told.recv_timeout(soon * 500).unwrap();
    });
    drop(second);
}

#[test]
fn statistics_can_be_switched_off() {
    for policy in Policy::ALL {
        let cache = cache(policy, 0);
        cache.set_stats(false);
        create(&cache, 0..10);
        assert!(finds(&cache, 5, true));
        let stats = cache.stats();
        assert_eq!((stats.entries, stats.creates, stats.finds), (10, 0, 0));
        assert_eq!((stats.list_locks, stats.chain_steps), (0, 0));
        cache.set_stats(true);
        assert!(finds(&cache, 5, true));
        assert_eq!((cache.stats().finds, cache.stats().hits), (1, 1));
    }
}
