//! The policies that the claims run.

use uext4_mbcache::{Cache, Options, Policy};

use crate::claim::Failure;

/// Handles and one list for all: the kernel before the thread.
pub const MB1: &str = "mb1";
/// The thread's patch.
pub const MBCACHE2: &str = "mbcache2";
/// Linux today.
pub const MAINLINE: &str = "mainline";
/// The default.
pub const DEFAULT: &str = "one-donor";
/// All that a claim runs if nothing is said.
pub const ALL: &[&str] = &[MB1, MBCACHE2, MAINLINE, DEFAULT];

/// Whether it is one.
///
/// # Errors
/// What is wrong with the spelling.
pub fn accepts(policy: &str) -> Result<(), String> {
    parse(policy).map(|_| ())
}

fn parse(policy: &str) -> Result<Policy, String> {
    let parsed = policy.parse();
    parsed.map_err(|error: uext4_mbcache::UnknownPolicy| error.to_string())
}

/// An empty cache under a policy, of a file system of so many blocks.
///
/// # Errors
/// [`Failure::Usage`] for what is no policy.
pub fn cache(policy: &str, blocks: u64) -> Result<Cache, Failure> {
    let options = Options {
        policy: parse(policy).map_err(Failure::Usage)?,
        ..Options::default()
    };
    Cache::new(&options.for_blocks(blocks)).map_err(|error| Failure::Usage(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read() {
        for policy in ALL {
            assert_eq!(
                cache(policy, 1 << 20).unwrap().policy().to_string(),
                *policy
            );
        }
        assert!(accepts("mb3").is_err());
    }
}
