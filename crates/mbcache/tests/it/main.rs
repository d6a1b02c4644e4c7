//! What holds for any index, run on the shipped one, and what holds for that alone.

mod answers;
mod bad;
mod disk;
mod one_donor;
mod tracing;

use uext4_mbcache::{Cache, Options};

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
