//! Threads at the shipped design, in orders as the model checker `shuttle` chooses them. It knows
//! every atomic that lookups without a lock read, one by one, but no order of memory weaker than
//! one after the other. `UEXT4_LONG=1` tries many more.

mod orders;

use std::sync::Arc;
use std::time::Duration;

use uext4_extent_status::{ExtentStatusCache, LeafQueue, LeafQueueOptions, Options};

/// Schedules for each test.
fn schedules() -> usize {
    match std::env::var_os("UEXT4_LONG") {
        Some(_) => 50_000,
        None => 2000,
    }
}

/// Tries random schedules, and some that switch at few unlikely places.
fn check(test: impl Fn(&Arc<ExtentStatusCache>) + Send + Sync + Copy + 'static) {
    let test = move || test(&room());
    shuttle::check_random(test, schedules());
    shuttle::check_pct(test, schedules(), 3);
}

fn room() -> Arc<ExtentStatusCache> {
    let shrinker = LeafQueue::new(LeafQueueOptions {
        shards: 1,
        ..LeafQueueOptions::default()
    });
    let options = Options {
        shrinker: Some(Arc::new(shrinker)),
        ..Options::default()
    };
    ExtentStatusCache::with_options(options, || Duration::ZERO)
}
