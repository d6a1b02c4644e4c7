//! How a room decides: which shrinker it has, and the switches around it. One spelling everywhere.

use std::fmt;
use std::str::FromStr;

/// `es_shrinker=`: what is dropped when memory is short. Each is a file of this crate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Shrinker {
    /// Trees by last use, sorted under the list's lock; walks over delayed extents.
    Vanilla,
    /// As `vanilla`, but each tree lists what may be dropped.
    Lru,
    /// Trees in turn, from where the last scan stopped; each lists what may be dropped.
    RoundRobin,
    /// Trees in turn, each from where it was left; the budget counts what is looked at.
    Mainline,
    /// Leaves in sharded queues that resist scans; look-ups take no lock.
    #[default]
    LeafQueue,
    /// Leaves as in `leaf-queue`, in sharded clocks.
    Clock,
}

impl Shrinker {
    /// Every shrinker there is, the oldest first.
    pub const ALL: [Self; 6] = [
        Self::Vanilla,
        Self::Lru,
        Self::RoundRobin,
        Self::Mainline,
        Self::LeafQueue,
        Self::Clock,
    ];

    /// The name, as options spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vanilla => "vanilla",
            Self::Lru => "lru",
            Self::RoundRobin => "round-robin",
            Self::Mainline => "mainline",
            Self::LeafQueue => "leaf-queue",
            Self::Clock => "clock",
        }
    }

    /// True if it drops whole leaves; else it drops extents of listed trees.
    pub const fn drops_leaves(self) -> bool {
        matches!(self, Self::LeafQueue | Self::Clock)
    }
}

impl fmt::Display for Shrinker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// `es_stats=`: how look-ups and scans are counted. What `count` needs is always counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StatsMode {
    /// Nothing is.
    Off,
    /// Every scan, and one look-up in 64 of a thread's, for 64.
    #[default]
    Sampled,
    /// Every scan and every look-up.
    On,
}

impl StatsMode {
    /// Every mode there is.
    pub const ALL: [Self; 3] = [Self::Off, Self::Sampled, Self::On];

    /// The name, as options spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Sampled => "sampled",
            Self::On => "on",
        }
    }
}

impl fmt::Display for StatsMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why an option was not set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// There is none of this name.
    #[error("no option of the extent status is called '{name}'")]
    Unknown {
        /// The name.
        name: String,
    },
    /// No shrinker is called so.
    #[error(
        "es_shrinker={value}: must be vanilla, lru, round-robin, mainline, leaf-queue or clock"
    )]
    Shrinker {
        /// What was asked for.
        value: String,
    },
    /// Statistics have no such mode.
    #[error("es_stats={value}: must be off, sampled or on")]
    Stats {
        /// What was asked for.
        value: String,
    },
    /// Neither on nor off.
    #[error("es_merge={value}: must be on or off")]
    Merge {
        /// What was asked for.
        value: String,
    },
    /// Not a power of two in range.
    #[error(
        "es_shards={value}: must be a power of two from 1 to {}",
        Options::SHARDS_MAX
    )]
    Shards {
        /// What was asked for.
        value: String,
    },
}

impl FromStr for Shrinker {
    type Err = OptionError;

    fn from_str(value: &str) -> Result<Self, OptionError> {
        let found = Self::ALL.into_iter().find(|s| s.name() == value);
        found.ok_or_else(|| OptionError::Shrinker {
            value: value.to_owned(),
        })
    }
}

impl FromStr for StatsMode {
    type Err = OptionError;

    fn from_str(value: &str) -> Result<Self, OptionError> {
        let found = Self::ALL.into_iter().find(|s| s.name() == value);
        found.ok_or_else(|| OptionError::Stats {
            value: value.to_owned(),
        })
    }
}

/// What a [`Room`](crate::Room) is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// `es_shrinker=`. Default: `leaf-queue`.
    pub shrinker: Shrinker,
    /// `es_stats=`. Default: `sampled`.
    pub stats: StatsMode,
    /// `es_merge=`: neighbours of one kind become one extent. Default: on; off is for experiments.
    pub merge: bool,
    /// `es_shards=`: queues of leaves, a power of two up to [`Self::SHARDS_MAX`]; others are
    /// brought there. 0, the default: two a processor.
    pub shards: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            shrinker: Shrinker::default(),
            stats: StatsMode::default(),
            merge: true,
            shards: 0,
        }
    }
}

impl From<Shrinker> for Options {
    fn from(shrinker: Shrinker) -> Self {
        Self {
            shrinker,
            ..Self::default()
        }
    }
}

impl Options {
    /// The most shards there may be.
    pub const SHARDS_MAX: usize = 256;

    /// Whether an option of this name is one of the extent status.
    pub fn knows(name: &str) -> bool {
        name.starts_with("es_")
    }

    /// Sets `es_shrinker`, `es_stats`, `es_merge` or `es_shards`.
    ///
    /// # Errors
    /// An unknown name, and a value that is none of the option's. Nothing has changed then.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), OptionError> {
        let owned = || value.to_owned();
        match name {
            "es_shrinker" => self.shrinker = value.parse()?,
            "es_stats" => self.stats = value.parse()?,
            "es_merge" => {
                self.merge = match value {
                    "on" => true,
                    "off" => false,
                    _ => return Err(OptionError::Merge { value: owned() }),
                }
            }
            "es_shards" => {
                let shards = value.parse().ok();
                let fits = |shards: &usize| shards.is_power_of_two() && *shards <= Self::SHARDS_MAX;
                self.shards = shards
                    .filter(fits)
                    .ok_or_else(|| OptionError::Shards { value: owned() })?;
            }
            _ => {
                return Err(OptionError::Unknown {
                    name: name.to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Shards to make.
    pub(crate) fn shard_count(&self) -> usize {
        let asked = match self.shards {
            0 => std::thread::available_parallelism().map_or(2, |count| count.get() * 2),
            asked => asked,
        };
        asked.min(Self::SHARDS_MAX).next_power_of_two()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for shrinker in Shrinker::ALL {
            assert_eq!(shrinker.to_string().parse(), Ok(shrinker));
        }
        for mode in StatsMode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        let mut options = Options::default();
        for (name, value) in [
            ("es_shrinker", "clock"),
            ("es_stats", "on"),
            ("es_merge", "off"),
            ("es_shards", "8"),
        ] {
            options.set(name, value).unwrap();
        }
        let expected = Options {
            shrinker: Shrinker::Clock,
            stats: StatsMode::On,
            merge: false,
            shards: 8,
        };
        assert_eq!((options, options.shard_count()), (expected, 8));
    }

    #[test]
    fn what_is_no_option_is_refused_by_name() {
        let mut options = Options::default();
        for (name, value) in [
            ("es_shrinker", "newest"),
            ("es_stats", "1"),
            ("es_merge", ""),
            ("es_shards", "0"),
            ("es_shards", "3"),
            ("es_shards", "512"),
            ("es_shard", "4"),
        ] {
            let error = options.set(name, value).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
        assert_eq!(options, Options::default());
        let many = Options {
            shards: usize::MAX,
            ..options
        };
        assert_eq!(many.shard_count(), Options::SHARDS_MAX);
    }
}
