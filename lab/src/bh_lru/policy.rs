//! How the lab spells a policy and its size: `mainline`, `vanilla+16`; and what all claims have to set.

use uext4::{BhLruOptions, BhLruScope};

use crate::claim::{Parameter, Scale, Setting};

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

/// Whose fronts are.
pub const SCOPE: Parameter = Parameter {
    name: "scope",
    what: "whose fronts are: of two cores that all tasks share, or of each task's own thread",
    values: &["core", "thread"],
};

/// How many of the thread's files a quick run has.
pub const FILES: Parameter = Parameter {
    name: "files",
    what: "the part of the thread's files that a quick run has",
    values: &["1/100", "1/10"],
};

/// The scope that is set.
pub fn scope(setting: &Setting) -> BhLruScope {
    match setting.value(SCOPE.name) {
        "thread" => BhLruScope::Thread,
        _ => BhLruScope::Core,
    }
}

/// What the thread's numbers of files are divided by.
pub fn divisor(setting: &Setting) -> u64 {
    match (setting.scale, setting.value(FILES.name)) {
        (Scale::Full, _) => 1,
        (Scale::Quick, "1/10") => 10,
        (Scale::Quick, _) => 100,
    }
}

/// Reads a spelling.
///
/// # Errors
/// What is wrong with it.
pub fn parse(policy: &str, scope: BhLruScope) -> Result<BhLruOptions, String> {
    let (name, size) = match policy.split_once('+') {
        Some((name, size)) => (name, Some(size)),
        None => (policy, None),
    };
    let mut options = BhLruOptions {
        scope,
        ..BhLruOptions::default()
    };
    let set = |options: &mut BhLruOptions, name, value| {
        let done = options.set(name, value);
        done.map_err(|error: uext4::BhLruError| error.to_string())
    };
    set(&mut options, "bh_lru", name)?;
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
    parse(policy, BhLruScope::Core).map(|_| ())
}

#[cfg(test)]
mod tests {
    use uext4::BhLruPolicy;

    use super::*;

    #[test]
    fn policies_and_sizes_are_read() {
        for policy in ALL {
            for scope in [BhLruScope::Core, BhLruScope::Thread] {
                assert_eq!(parse(policy, scope).unwrap().scope, scope);
            }
        }
        let parse = |policy| parse(policy, BhLruScope::Core);
        let options = parse(VANILLA_16).unwrap();
        assert_eq!(
            (options.policy, options.size),
            (BhLruPolicy::Vanilla, Some(16))
        );
        assert!(parse("vanilla+0").is_err() && parse("vanilla+").is_err());
    }
}
