//! How the lab spells a shrinker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use uext4_extent_status::{ExtentStatusCache, Options, StatsMode};
use uext4_lab_policies::extent_status::{self as policies, Policy};

/// The kernel before the patches.
pub const VANILLA: &str = "vanilla";
/// The thread's third patch, and its fourth.
pub const LRU: &str = "lru";
pub const ROUND_ROBIN: &str = "round-robin";
/// Linux today.
pub const MAINLINE: &str = "mainline";
/// The default.
pub const DEFAULT: &str = "leaf-queue";

/// Queues of leaves, whatever the machine: a record must not depend on it.
const SHARDS: usize = 4;

/// Reads a spelling.
///
/// # Errors
/// What is wrong with it.
pub fn parse(policy: &str) -> Result<Policy, String> {
    policy
        .parse()
        .map_err(|error: policies::PolicyError| error.to_string())
}

/// Whether it is one.
///
/// # Errors
/// What is wrong with the spelling.
pub fn accepts(policy: &str) -> Result<(), String> {
    parse(policy).map(|_| ())
}

/// A subsystem that counts everything, on a clock that the caller moves, in nanoseconds.
pub fn room(policy: Policy, merge: bool, clock: &Arc<AtomicU64>) -> Arc<ExtentStatusCache> {
    let design = policies::Options {
        merge,
        shards: SHARDS,
    };
    let options = Options {
        stats: StatsMode::On,
        shrinker: Some(policy.shrinker(design)),
    };
    let clock = Arc::clone(clock);
    ExtentStatusCache::with_options(options, move || Duration::from_nanos(clock.load(Relaxed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_policies_are_known() {
        let all = [VANILLA, LRU, ROUND_ROBIN, MAINLINE, DEFAULT, "clock"];
        let parsed: Vec<_> = all.iter().map(|policy| parse(policy).unwrap()).collect();
        assert_eq!(parsed, Policy::ALL);
        assert!(accepts("best").is_err());
    }
}
