//! The kernels' indexes of equal attributes.

#[path = "../../../../crates/mbcache/tests/it/disk.rs"]
mod disk;
#[path = "../../../../crates/mbcache/tests/it/schedules.rs"]
mod schedules;

use uext4_lab_interleavings::mbcache::{Options, Policy, Subject};
use uext4_mbcache::Cache;

use disk::{Design, Limits};

const DESIGNS: &[Design] = &[
    Design {
        name: "mb1",
        cache: |limits| cache(Policy::Mb1, limits),
        stays: true,
    },
    Design {
        name: "mbcache2",
        cache: |limits| cache(Policy::Mbcache2, limits),
        stays: false,
    },
    Design {
        name: "mbcache2-touch-fixed",
        cache: |limits| cache(Policy::Mbcache2TouchFixed, limits),
        stays: false,
    },
    Design {
        name: "mainline",
        cache: |limits| cache(Policy::Mainline, limits),
        stays: true,
    },
];

fn cache(policy: Policy, limits: Limits) -> Cache {
    let options = Options {
        policy,
        bucket_bits: 1,
        max_entries: limits.max_entries,
        users_max: limits.users_max,
        ..Options::default()
    };
    Subject::new(&options, 0).unwrap().cache
}
