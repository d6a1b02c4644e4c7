//! What holds for the shipped index alone.

use uext4_mbcache::{Cache, Created, Options};

use crate::DESIGNS;
use crate::disk::{Disk, Limits};

fn cache(max_entries: u32) -> Cache {
    let options = Options {
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

/// Whether it is found; then it gets a user.
fn shares(cache: &Cache, value: u64) -> bool {
    let key = cache.key(value as u32, &value.to_le_bytes());
    let Some(candidate) = cache.find(key) else {
        return false;
    };
    assert_eq!(candidate.value(), value);
    candidate.taken(2).unwrap();
    true
}

fn finds(cache: &Cache, value: u64) -> bool {
    let key = cache.key(value as u32, &value.to_le_bytes());
    cache.find(key).is_some()
}

#[test]
fn a_search_takes_no_lock() {
    let cache = cache(0);
    create(&cache, 0..10);
    let before = cache.stats().list_locks;
    assert!(shares(&cache, 5));
    assert_eq!(cache.stats().list_locks, before);
}

/// Many equal blocks full of users: there is nothing to pass over.
#[test]
fn full_blocks_are_not_compared() {
    let limits = Limits {
        users_max: 8,
        max_entries: 0,
    };
    let disk = Disk::new(&DESIGNS[0], limits, 600, 10);
    let mut inodes = vec![None; 4000];
    inodes.iter_mut().for_each(|inode| disk.set(inode, 1));
    let stats = disk.cache.stats();
    assert_eq!((stats.saturated, stats.creates), (500, 500));
    assert_eq!(
        (stats.compares, stats.chain_steps, stats.chain_max),
        (3500, 3500, 1)
    );
}

#[test]
fn blocks_read_twice_are_cached() {
    let cache = cache(0);
    let body = [7; 100];
    let seen = || cache.seen(7, &body, 70, || 3);
    assert_eq!([seen(), seen()], [Created::Refused, Created::Inserted]);
    assert_eq!(seen(), Created::Refused);
    let stats = cache.stats();
    assert_eq!((stats.content_hashes, stats.ghost_refused), (1, 2));
    assert!(cache.find(cache.key(7, &body)).is_some());
}

#[test]
fn used_entries_stay() {
    let cache = cache(64);
    create(&cache, 0..16);
    for _ in 0..3 {
        assert!((0..16).all(|value| finds(&cache, value)));
    }
    create(&cache, 100..200);
    assert!(cache.count() <= 64);
    let left = (0..16).filter(|&value| finds(&cache, value)).count();
    assert!(left >= 12, "{left} of 16");
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
    // While all room of the donor is reserved the next gives.
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
    let cache = cache(0);
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
fn a_user_that_is_not_the_last_any_more_does_not_wait() {
    let cache = cache(0);
    let key = cache.key(1, b"one");
    // All its users but one have gone, which was not reported.
    assert_eq!(cache.created(key, 10, 5), Created::Inserted);
    let (first, second) = (cache.find(key).unwrap(), cache.find(key).unwrap());
    let in_use = cache.release(key, 10).remove().unwrap_err();
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            in_use.wait();
            send.send(()).unwrap();
        });
        let soon = std::time::Duration::from_millis(20);
        assert!(receive.recv_timeout(soon).is_err(), "no user has come yet");
        first.taken(2).unwrap();
        receive.recv_timeout(soon * 500).unwrap();
    });
    drop(second);
}
