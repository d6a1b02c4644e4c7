//! The shrinkers that go from tree to tree.

#[path = "../../../../crates/extent-status/tests/interleavings/orders.rs"]
mod orders;

use std::sync::Arc;
use std::time::Duration;

use uext4_extent_status::{ExtentStatusCache, Options};
use uext4_lab_interleavings::extent_status::{self, Policy};

/// Schedules for each test.
fn schedules() -> usize {
    match std::env::var_os("UEXT4_LONG") {
        Some(_) => 50_000,
        None => 2000,
    }
}

/// Tries random schedules, and some that switch at few unlikely places, with each kind of lock
/// there is.
fn check(test: impl Fn(&Arc<ExtentStatusCache>) + Send + Sync + Copy + 'static) {
    for policy in [Policy::Mainline, Policy::Vanilla] {
        let test = move || test(&room(policy));
        shuttle::check_random(test, schedules());
        shuttle::check_pct(test, schedules(), 3);
    }
}

fn room(policy: Policy) -> Arc<ExtentStatusCache> {
    let options = Options {
        shrinker: Some(policy.shrinker(extent_status::Options::default())),
        ..Options::default()
    };
    ExtentStatusCache::with_options(options, || Duration::ZERO)
}
