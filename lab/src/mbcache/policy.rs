//! The policies that the claims run.

use std::sync::Arc;

use uext4_lab_policies::mbcache::{
    Measured, Options, Policy, Stats, Subject, UnknownPolicy, Worker,
};
use uext4_ondisk::xattr::XATTR_REFCOUNT_MAX;

use crate::experiment::Failure;

/// Handles and one list for all: the kernel before the thread.
pub const MB1: &str = "mb1";
/// The thread's patch.
pub const MBCACHE2: &str = "mbcache2";
/// Linux today.
pub const MAINLINE: &str = "mainline";
/// The product's.
pub const DEFAULT: &str = "one-donor";
/// Linux today, with users counted as the product's engine counts them: so that only indexes
/// differ.
pub const MAINLINE_GATHERED: &str = "mainline+gathered";
/// Every policy that claims run.
pub const ALL: &[&str] = &[MB1, MBCACHE2, MAINLINE, MAINLINE_GATHERED, DEFAULT];

/// Behind the name of a policy of the models: users are counted in memory, and stored by the
/// commit.
const GATHERED: &str = "+gathered";

/// Whether the model gathers the counts of users until the commit. The engine does under any
/// policy; the kernel never does.
pub fn gathers(policy: &str) -> bool {
    policy == DEFAULT || policy.ends_with(GATHERED)
}

/// Whether it is one.
///
/// # Errors
/// What is wrong with the spelling.
pub fn accepts(policy: &str) -> Result<(), String> {
    parse(policy).map(|_| ())
}

fn parse(policy: &str) -> Result<Policy, String> {
    let parsed = policy.strip_suffix(GATHERED).unwrap_or(policy).parse();
    parsed.map_err(|error: UnknownPolicy| error.to_string())
}

/// An empty cache under a policy, of a file system of so many blocks. Its worker runs when the
/// model says.
///
/// # Errors
/// [`Failure::Usage`] for what is no policy.
pub fn cache(policy: &str, blocks: u64) -> Result<Subject, Failure> {
    let options = Options {
        policy: parse(policy).map_err(Failure::Usage)?,
        worker: Worker::ByCaller,
        ..Options::default()
    };
    Subject::new(&options, blocks).map_err(|error| Failure::Usage(error.to_string()))
}

/// What a cache and its index have counted so far.
#[derive(Debug)]
pub struct Counts {
    /// The cache, whatever its index.
    pub cache: uext4_mbcache::Stats,
    /// The index.
    pub index: Stats,
}

/// What was counted so far.
pub fn counts(subject: &Subject) -> Counts {
    Counts {
        cache: subject.cache.stats(),
        index: subject.stats(),
    }
}

/// The indexes of one file system: `None`, both: those of the product.
#[derive(Debug)]
pub struct Indexes {
    /// Of blocks of attributes.
    pub blocks: Option<Arc<dyn Measured>>,
    /// Of inodes with values.
    pub values: Option<Arc<dyn Measured>>,
}

/// Empty indexes under a policy.
///
/// # Errors
/// [`Failure::Usage`] for what is no policy.
pub fn indexes(policy: &str) -> Result<Indexes, Failure> {
    let blocks = Options {
        policy: parse(policy).map_err(Failure::Usage)?,
        users_max: XATTR_REFCOUNT_MAX,
        ..Options::default()
    };
    let values = Options {
        users_max: u32::MAX,
        ..blocks
    };
    Ok(Indexes {
        blocks: blocks.index(),
        values: values.index(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read() {
        for policy in ALL {
            let name = policy.trim_end_matches(GATHERED);
            assert_eq!(parse(policy).unwrap().to_string(), name);
            cache(policy, 1 << 20).unwrap();
            assert_eq!(
                indexes(policy).unwrap().blocks.is_none(),
                *policy == DEFAULT
            );
        }
        assert!(accepts("mb3").is_err());
    }
}
