//! Names of policies and scopes.

use std::fmt;
use std::str::FromStr;

use uext4_buffer_cache::{BH_LRU_SIZE, BH_LRU_SIZE_MAX};

/// How blocks used last are remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// `none`: nothing is remembered, every lookup asks the table.
    None,
    /// `vanilla`: an array, newest first, copied at each install; Linux before 3.19.
    Vanilla,
    /// `tunable`: the same with 1…64 of 64 slots, all of which each install copies; as posted in
    /// 2014.
    Tunable,
    /// `mainline`: an array whose installs are in place; Linux since 4.12.
    Mainline,
    /// `lru-hash`: exact LRU, found by hash.
    LruHash,
    /// `set-associative`: sets of eight by hash, with predicted reuse.
    SetAssociative,
    /// `recent`: the product's, an array of weak handles.
    #[default]
    Recent,
}

impl Policy {
    /// Every policy there is.
    pub const ALL: [Policy; 7] = [
        Policy::None,
        Policy::Vanilla,
        Policy::Tunable,
        Policy::Mainline,
        Policy::LruHash,
        Policy::SetAssociative,
        Policy::Recent,
    ];

    /// Blocks one remembers where nothing is said.
    pub const fn default_size(self) -> usize {
        match self {
            Policy::None => 1,
            Policy::Vanilla => 8,
            Policy::Tunable | Policy::Mainline | Policy::LruHash | Policy::Recent => BH_LRU_SIZE,
            Policy::SetAssociative => BH_LRU_SIZE_MAX,
        }
    }

    /// True if it holds a reference to each block that it knows, as the kernel does.
    pub const fn holds_blocks(self) -> bool {
        matches!(self, Policy::Vanilla | Policy::Tunable | Policy::Mainline)
    }

    const fn name(self) -> &'static str {
        match self {
            Policy::None => "none",
            Policy::Vanilla => "vanilla",
            Policy::Tunable => "tunable",
            Policy::Mainline => "mainline",
            Policy::LruHash => "lru-hash",
            Policy::SetAssociative => "set-associative",
            Policy::Recent => "recent",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let found = Self::ALL.into_iter().find(|policy| policy.name() == text);
        found.ok_or_else(|| PolicyError::Policy(text.to_owned()))
    }
}

/// Which threads share an LRU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scope {
    /// `thread`: none, each thread has its own.
    #[default]
    Thread,
    /// `core`: the threads that run on one processor.
    Core,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Scope::Thread => "thread",
            Scope::Core => "core",
        })
    }
}

impl FromStr for Scope {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        match text {
            "thread" => Ok(Scope::Thread),
            "core" => Ok(Scope::Core),
            _ => Err(PolicyError::Scope(text.to_owned())),
        }
    }
}

/// What the LRUs of a cache are like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// How blocks are remembered.
    pub policy: Policy,
    /// How many, 1 to [`BH_LRU_SIZE_MAX`]; `None`: [`Policy::default_size`]. `set-associative`
    /// rounds it up to 8 times a power of two.
    pub size: Option<usize>,
    /// Whether threads or processors remember.
    pub scope: Scope,
}

impl Options {
    /// Reads a policy and its size as the lab spells them: `mainline`, `vanilla+16`.
    ///
    /// # Errors
    /// [`PolicyError`] for a policy or a size that is none.
    pub fn parse(spelling: &str, scope: Scope) -> Result<Self, PolicyError> {
        let (policy, size) = match spelling.split_once('+') {
            Some((policy, size)) => (policy, Some(size)),
            None => (spelling, None),
        };
        let number = |size: &str| {
            let number = size.parse().ok();
            let within = number.filter(|number| (1..=BH_LRU_SIZE_MAX).contains(number));
            within.ok_or_else(|| PolicyError::Size(size.to_owned()))
        };
        Ok(Self {
            policy: policy.parse()?,
            size: size.map(number).transpose()?,
            scope,
        })
    }

    /// Blocks that one LRU remembers.
    pub(crate) fn size(&self) -> usize {
        let size = self.size.unwrap_or(self.policy.default_size());
        size.clamp(1, BH_LRU_SIZE_MAX)
    }
}

/// A name or a size that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// Not the name of a policy.
    #[error(
        "policy {0:?}: use none, vanilla, tunable, mainline, lru-hash, set-associative or recent"
    )]
    Policy(String),
    /// Not the name of a scope.
    #[error("scope {0:?}: use thread or core")]
    Scope(String),
    /// Too few or too many.
    #[error("size {0:?}: use 1 to {BH_LRU_SIZE_MAX}")]
    Size(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for policy in Policy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        for scope in [Scope::Thread, Scope::Core] {
            assert_eq!(scope.to_string().parse(), Ok(scope));
        }
        let options = Options::parse("vanilla+16", Scope::Core).unwrap();
        assert_eq!((options.policy, options.size()), (Policy::Vanilla, 16));
        assert_eq!(options.scope, Scope::Core);
        let refused = |spelling| Options::parse(spelling, Scope::Core).unwrap_err();
        for size in ["vanilla+0", "vanilla+", "vanilla+65"] {
            assert!(matches!(refused(size), PolicyError::Size(_)));
        }
        let error = refused("lru").to_string();
        assert!(error.contains("\"lru\": use none, vanilla"), "{error}");
    }
}
