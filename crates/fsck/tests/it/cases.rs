//! Many cases, each thread with a judge of its own.

pub use uext4_testkit::cases::{assert_none, forget_panic, is_long, last_panic, pick};

use crate::judge::Judge;

/// Runs all cases, some at a time. `each` says what failed; `name` is for a case that does not end.
pub fn run<T: Sync>(
    cases: &[T],
    name: impl Fn(&T) -> String + Sync,
    each: impl Fn(&Judge, &T) -> Vec<String> + Sync,
) -> Vec<String> {
    uext4_testkit::cases::run(cases, name, Judge::new, each)
}
