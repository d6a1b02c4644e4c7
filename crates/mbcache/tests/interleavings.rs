//! The shipped index in many schedules of several threads.

// The locks of the model checker, under the name of the product's.
extern crate shuttle_parking_lot as parking_lot;

#[path = "it/disk.rs"]
mod disk;
#[path = "it/schedules.rs"]
mod schedules;

use std::sync::Arc;

use shuttle::thread;
use uext4_mbcache::{Cache, Created, Options};

use disk::{Design, Limits};

const DESIGNS: &[Design] = &[Design {
    name: "one-donor",
    cache,
    stays: true,
}];

fn cache(limits: Limits) -> Cache {
    let options = Options {
        max_entries: limits.max_entries,
        users_max: limits.users_max,
        ..Options::default()
    };
    Cache::new(&options).unwrap()
}

/// Two threads make equal things at once, of which one becomes a spare: each serves when the other
/// has no room.
#[test]
fn a_spare_that_was_made_at_once_is_found() {
    let test = || {
        let cache = Arc::new(Cache::new(&Options::default()).unwrap());
        let threads = [10, 11].map(|value| {
            let cache = Arc::clone(&cache);
            thread::spawn(move || cache.created(cache.key(1, b"x"), value, 1))
        });
        let created = threads.map(|thread| thread.join().unwrap());
        assert_eq!(created, [Created::Inserted; 2]);
        let found: Vec<_> = std::iter::successors(cache.find(cache.key(1, b"x")), |found| {
            found.set_full();
            cache.find(cache.key(1, b"x"))
        })
        .take(2)
        .map(|candidate| candidate.value())
        .collect();
        assert_eq!(found.len(), 2, "{found:?}");
    };
    shuttle::check_random(test, 400);
    shuttle::check_pct(test, 400, 3);
}
