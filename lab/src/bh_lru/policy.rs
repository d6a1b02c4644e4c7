//! How the lab spells a policy and its size: `mainline`, `vanilla+16`; and what all claims have
//! to set.

use uext4_lab_policies::bh_lru::{Options, Scope};

use crate::experiment::{Parameter, Scale, Setting};

/// The kernel before the patch, and the constant 16 that the thread measured.
pub const VANILLA_8: &str = "vanilla";
pub const VANILLA_16: &str = "vanilla+16";
/// Linux today.
pub const MAINLINE: &str = "mainline";
/// Ours that gates are about: sets by hash.
pub const DEFAULT: &str = "set-associative";
/// The product's.
pub const PRODUCT: &str = "recent";
/// Every one there is.
#[cfg(test)]
pub const ALL: &[&str] = &[
    VANILLA_8, VANILLA_16, "tunable", MAINLINE, "lru-hash", DEFAULT, PRODUCT,
];

/// Which tasks share an LRU.
pub const SCOPE: Parameter = Parameter {
    name: "scope",
    what: "which tasks share an LRU: those of one of two processors, or none",
    values: &["core", "thread"],
};

/// How many of the thread's files a quick run has.
pub const FILES: Parameter = Parameter {
    name: "files",
    what: "the part of the thread's files that a quick run has",
    values: &["1/100", "1/10"],
};

/// The same where the product's own LRU is timed, which is a thread's.
pub const SCOPE_TIMED: Parameter = Parameter {
    values: &["thread", "core"],
    ..SCOPE
};

/// The scope that is set.
pub fn scope(setting: &Setting) -> Scope {
    match setting.value(SCOPE.name) {
        "thread" => Scope::Thread,
        _ => Scope::Core,
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
pub fn parse(policy: &str, scope: Scope) -> Result<Options, String> {
    Options::parse(policy, scope).map_err(|error| error.to_string())
}

/// Whether it is one.
///
/// # Errors
/// What is wrong with the spelling.
pub fn accepts(policy: &str) -> Result<(), String> {
    parse(policy, Scope::Core).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_and_sizes_are_read() {
        for policy in ALL {
            for scope in [Scope::Core, Scope::Thread] {
                assert_eq!(parse(policy, scope).unwrap().scope, scope);
            }
        }
    }
}
