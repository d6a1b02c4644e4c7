//! How the lab spells a policy and its size: `mainline`, `vanilla+16`.

use uext4::BhLruOptions;

/// The kernel before the patch, and the constant 16 that the thread measured.
pub const VANILLA_8: &str = "vanilla";
pub const VANILLA_16: &str = "vanilla+16";
/// Linux today.
pub const MAINLINE: &str = "mainline";
/// The default.
pub const DEFAULT: &str = "set-associative";
/// All that a claim runs if nothing is said.
pub const ALL: &[&str] = &[
    VANILLA_8, VANILLA_16, "tunable", MAINLINE, "lru-hash", DEFAULT,
];

/// Reads a spelling.
///
/// # Errors
/// What is wrong with it.
pub fn parse(policy: &str) -> Result<BhLruOptions, String> {
    let (name, size) = match policy.split_once('+') {
        Some((name, size)) => (name, Some(size)),
        None => (policy, None),
    };
    let mut options = BhLruOptions::default();
    let set = |options: &mut BhLruOptions, name, value| {
        let done = options.set(name, value);
        done.map_err(|error: uext4::BhLruError| error.to_string())
    };
    set(&mut options, "bh_lru", name)?;
    set(&mut options, "bh_lru_scope", "core")?;
    if let Some(size) = size {
        set(&mut options, "bh_lru_size", size)?;
    }
    Ok(options)
}

/// Whether it is one.
///
/// # Errors
/// What is wrong with the spelling.
pub fn accepts(policy: &str) -> Result<(), String> {
    parse(policy).map(|_| ())
}

#[cfg(test)]
mod tests {
    use uext4::{BhLruPolicy, BhLruScope};

    use super::*;

    #[test]
    fn policies_and_sizes_are_read() {
        for policy in ALL {
            assert_eq!(parse(policy).unwrap().scope, BhLruScope::Core);
        }
        let options = parse(VANILLA_16).unwrap();
        assert_eq!(
            (options.policy, options.size),
            (BhLruPolicy::Vanilla, Some(16))
        );
        assert!(parse("vanilla+0").is_err() && parse("vanilla+").is_err());
    }
}
