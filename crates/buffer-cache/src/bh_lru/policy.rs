//! Names: of policies, of scopes, and what a caller may say of a block's future.

use std::fmt;
use std::str::FromStr;

use super::BH_LRU_SIZE_MAX;

/// How blocks used last are remembered. `FromStr` and `Display` use the spellings of the option
/// `bh_lru=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// `vanilla`: an array, newest first, copied at each install; Linux before 3.19.
    Vanilla,
    /// `tunable`: the same with 1…64 of 64 slots, all of which each install copies; as posted in 2014.
    Tunable,
    /// `mainline`: an array whose installs are in place; Linux since 4.12.
    Mainline,
    /// `lru-hash`: exact LRU, found by hash.
    LruHash,
    /// `set-associative`: sets of eight by hash, with predicted reuse.
    #[default]
    SetAssociative,
}

impl Policy {
    /// Every policy there is.
    pub const ALL: [Policy; 5] = [
        Policy::Vanilla,
        Policy::Tunable,
        Policy::Mainline,
        Policy::LruHash,
        Policy::SetAssociative,
    ];

    /// Blocks one remembers where nothing is said.
    pub const fn default_size(self) -> usize {
        match self {
            Policy::Vanilla => 8,
            Policy::Tunable | Policy::Mainline | Policy::LruHash => 16,
            Policy::SetAssociative => BH_LRU_SIZE_MAX,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Policy::Vanilla => "vanilla",
            Policy::Tunable => "tunable",
            Policy::Mainline => "mainline",
            Policy::LruHash => "lru-hash",
            Policy::SetAssociative => "set-associative",
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

/// Who shares one. `FromStr` and `Display` use the spellings of the option `bh_lru_scope=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scope {
    /// `thread`: nobody, each thread has its own.
    #[default]
    Thread,
    /// `core`: the threads that run on one core.
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

/// What a caller knows of when a block is used again. Only `set-associative` listens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reuse {
    /// Nothing.
    #[default]
    Unknown,
    /// Soon: bitmaps, group descriptors, quota, the first block of a directory.
    Soon,
    /// Perhaps never: the other blocks of directories, data. Let in at its second use.
    Once,
}

/// What the small caches in front of a table are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BhLruOptions {
    /// `bh_lru=`: how blocks are remembered.
    pub policy: Policy,
    /// `bh_lru_size=`: how many, 1 to [`BH_LRU_SIZE_MAX`]; `None`: [`Policy::default_size`].
    /// `set-associative` rounds it up to 8 times a power of two.
    pub size: Option<usize>,
    /// `bh_lru_scope=`: whether threads or cores remember.
    pub scope: Scope,
    /// `bh_lru_hints=on|off`: whether what callers say of a block's future counts.
    pub hints: bool,
}

impl Default for BhLruOptions {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            size: None,
            scope: Scope::default(),
            hints: true,
        }
    }
}

impl BhLruOptions {
    /// Whether an option of this name is one of these.
    pub fn knows(name: &str) -> bool {
        ["bh_lru", "bh_lru_size", "bh_lru_scope", "bh_lru_hints"].contains(&name)
    }

    /// Sets the option of this name.
    ///
    /// # Errors
    /// [`PolicyError`] for a value that is none, or a name that [`knows`](Self::knows) does not know.
    /// Nothing has changed then.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), PolicyError> {
        match (name, value) {
            ("bh_lru", _) => self.policy = value.parse()?,
            ("bh_lru_size", _) => {
                let size = value.parse().ok();
                let within = size.filter(|size| (1..=BH_LRU_SIZE_MAX).contains(size));
                self.size = Some(within.ok_or_else(|| PolicyError::Size(value.to_owned()))?);
            }
            ("bh_lru_scope", _) => self.scope = value.parse()?,
            ("bh_lru_hints", "on") => self.hints = true,
            ("bh_lru_hints", "off") => self.hints = false,
            ("bh_lru_hints", _) => return Err(PolicyError::Hints(value.to_owned())),
            _ => return Err(PolicyError::Name(name.to_owned())),
        }
        Ok(())
    }

    /// Blocks one remembers: what was asked for, within its range.
    pub(crate) fn size(&self) -> usize {
        let size = self.size.unwrap_or(self.policy.default_size());
        size.clamp(1, BH_LRU_SIZE_MAX)
    }
}

/// A name or a size that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// Not the name of an option.
    #[error("{0}: the options are bh_lru, bh_lru_size, bh_lru_scope and bh_lru_hints")]
    Name(String),
    /// Neither on nor off.
    #[error("bh_lru_hints={0}: use on or off")]
    Hints(String),
    /// Not the name of a policy.
    #[error("bh_lru={0}: use vanilla, tunable, mainline, lru-hash or set-associative")]
    Policy(String),
    /// Not the name of a scope.
    #[error("bh_lru_scope={0}: use thread or core")]
    Scope(String),
    /// Too few or too many.
    #[error("bh_lru_size={0}: use 1 to {BH_LRU_SIZE_MAX}")]
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
        let mut options = BhLruOptions::default();
        for (name, value) in [
            ("bh_lru", "mainline"),
            ("bh_lru_size", "64"),
            ("bh_lru_scope", "core"),
            ("bh_lru_hints", "off"),
        ] {
            assert!(BhLruOptions::knows(name));
            options.set(name, value).unwrap();
        }
        assert_eq!((options.policy, options.size()), (Policy::Mainline, 64));
        assert_eq!((options.scope, options.hints), (Scope::Core, false));
        let error = "lru".parse::<Policy>().unwrap_err().to_string();
        assert!(
            error.contains("bh_lru=lru: use vanilla, tunable"),
            "{error}"
        );
    }
}
