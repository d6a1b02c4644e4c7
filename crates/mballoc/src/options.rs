//! How an allocator decides: its policies and the kernel's tunables.

use uext4_tunables::{Tunable, TunableError, shown};

use crate::{Normalize, ParseNormalizeError, Search, UnknownSearch};

/// Policies and tunables of one [`crate::Allocator`]; the names of the kernel's `/sys/fs/ext4/*/mb_*`
/// files, with the kernel's units and defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// `mb_normalize=`: how much is asked for beyond the need.
    pub normalize: Normalize,
    /// `mb_search=`: in which groups a run is looked for.
    pub search: Search,
    /// `stripe=`: blocks of a full stripe of the RAID below, 0 for none.
    pub stripe: u32,
    /// Groups whose bitmaps lie together (`2^s_log_groups_per_flex`), at least 1.
    pub flex_groups: u32,
    /// The device seeks: near groups are tried one by one before any index.
    pub rotational: bool,
    /// Whether what was taken beyond the need is kept for the file.
    pub preallocate: bool,
    /// `mb_max_to_scan`: free runs looked at before the best is taken. Default: 200.
    pub max_to_scan: u32,
    /// `mb_min_to_scan`: free runs looked at although one is good enough. Default: 10.
    pub min_to_scan: u32,
    /// `mb_order2_req`: log₂ of the shortest power of two that is looked for by order. Default: 2.
    pub order2_req: u32,
    /// `mb_stream_req`: blocks from which on a file is a stream of its own. Default: 16.
    pub stream_req: u32,
    /// `mb_group_prealloc`: blocks preallocated for small files at once. Default: 512.
    pub group_prealloc: u32,
    /// `mb_max_linear_groups`: groups tried one by one on a rotational device. Default: 4.
    pub max_linear_groups: u32,
    /// `mb_best_avail_max_trim_order`: orders a request may shrink before all groups are walked.
    /// Default: 3.
    pub best_avail_max_trim_order: u32,
    /// `mb_prefetch`: bitmaps read ahead at once. Default: 32.
    pub prefetch: u32,
    /// `mb_prefetch_limit`: bitmaps read ahead for one request. Default: 128.
    pub prefetch_limit: u32,
    /// Goals of streams kept at most; the kernel has as many as there are processors. Default: 16.
    pub stream_goals: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            normalize: Normalize::default(),
            search: Search::default(),
            stripe: 0,
            flex_groups: 16,
            rotational: false,
            preallocate: true,
            max_to_scan: 200,
            min_to_scan: 10,
            order2_req: 2,
            stream_req: 16,
            group_prealloc: 512,
            max_linear_groups: 4,
            best_avail_max_trim_order: 3,
            prefetch: 32,
            prefetch_limit: 128,
            stream_goals: 16,
        }
    }
}

/// Why an option was not set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// There is none of this name.
    #[error("no option of the allocator is called '{name}'")]
    Unknown {
        /// The name.
        name: String,
    },
    /// No number, or one out of its range.
    #[error(transparent)]
    Tunable(#[from] TunableError),
    /// A stripe must fit a group.
    #[error("stripe={stripe}: a group has only {blocks_per_group} blocks")]
    Stripe {
        /// The stripe, in blocks.
        stripe: u32,
        /// Blocks of a group.
        blocks_per_group: u32,
    },
    /// No request normalisation.
    #[error("mb_normalize: {0}")]
    Normalize(#[from] ParseNormalizeError),
    /// No search policy.
    #[error("mb_search: {0}")]
    Search(#[from] UnknownSearch),
}

const NUMBERS: [Tunable<Options>; 12] = [
    Tunable {
        name: "stripe",
        range: 0..=1 << 19,
        field: |options| &mut options.stripe,
    },
    Tunable {
        name: "mb_max_to_scan",
        range: 1..=1 << 20,
        field: |options| &mut options.max_to_scan,
    },
    Tunable {
        name: "mb_min_to_scan",
        range: 0..=1 << 20,
        field: |options| &mut options.min_to_scan,
    },
    Tunable {
        name: "mb_order2_req",
        range: 0..=17,
        field: |options| &mut options.order2_req,
    },
    Tunable {
        name: "mb_stream_req",
        range: 0..=1 << 20,
        field: |options| &mut options.stream_req,
    },
    Tunable {
        name: "mb_group_prealloc",
        range: 0..=1 << 15,
        field: |options| &mut options.group_prealloc,
    },
    Tunable {
        name: "mb_max_linear_groups",
        range: 0..=1 << 20,
        field: |options| &mut options.max_linear_groups,
    },
    Tunable {
        name: "mb_best_avail_max_trim_order",
        range: 0..=17,
        field: |options| &mut options.best_avail_max_trim_order,
    },
    Tunable {
        name: "mb_prefetch",
        range: 0..=1 << 16,
        field: |options| &mut options.prefetch,
    },
    Tunable {
        name: "mb_prefetch_limit",
        range: 0..=1 << 20,
        field: |options| &mut options.prefetch_limit,
    },
    Tunable {
        name: "mb_stream_goals",
        range: 1..=1 << 12,
        field: |options| &mut options.stream_goals,
    },
    Tunable {
        name: "flex_groups",
        range: 1..=1 << 31,
        field: |options| &mut options.flex_groups,
    },
];

/// Where what is on or off is kept.
type Switch = fn(&mut Options) -> &mut bool;

/// Options that are on or off: `name` and `noname`.
const SWITCHES: [(&str, Switch); 2] = [
    ("mb_preallocate", |options| &mut options.preallocate),
    ("mb_rotational", |options| &mut options.rotational),
];

impl Options {
    /// The spellings that [`Options::set`] takes, in the order of their meaning; `name` alone is a
    /// switch.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let policies = ["mb_normalize=", "mb_search="];
        let numbers = NUMBERS.iter().map(|number| number.name);
        policies
            .into_iter()
            .chain(numbers)
            .chain(SWITCHES.iter().map(|(name, _)| *name))
    }

    /// Sets one option as it is written on a command line: `name=value`, or `name` and `noname` for
    /// what is on or off.
    ///
    /// # Errors
    /// [`OptionError::Unknown`], and what keeps a value from being taken; nothing is changed then.
    pub fn set(&mut self, option: &str) -> Result<(), OptionError> {
        let unknown = || OptionError::Unknown {
            name: shown(option),
        };
        let Some((name, value)) = option.split_once('=') else {
            let (name, on) = match option.strip_prefix("no") {
                Some(name) => (name, false),
                None => (option, true),
            };
            let switch = SWITCHES.iter().find(|switch| switch.0 == name);
            let (_, field) = switch.ok_or_else(unknown)?;
            *field(self) = on;
            return Ok(());
        };
        match name {
            "mb_normalize" => self.normalize = value.parse()?,
            "mb_search" => self.search = value.parse()?,
            _ => {
                let number = Tunable::named(&NUMBERS, name).ok_or_else(unknown)?;
                number.set(self, value)?;
            }
        }
        Ok(())
    }

    /// Whether they can be kept on a file system of such groups.
    ///
    /// # Errors
    /// [`OptionError::Stripe`] for a stripe that is longer than a group.
    pub fn check(&self, blocks_per_group: u32) -> Result<(), OptionError> {
        if self.stripe > blocks_per_group {
            return Err(OptionError::Stripe {
                stripe: self.stripe,
                blocks_per_group,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_set_by_name_within_their_ranges() {
        let mut options = Options::default();
        for option in [
            "mb_normalize=table+logical",
            "mb_search=linear",
            "stripe=128",
            "mb_stream_req=0",
            "nomb_preallocate",
        ] {
            options.set(option).unwrap();
        }
        assert_eq!(options.normalize.to_string(), "table+logical");
        assert_eq!(options.search, Search::Linear);
        assert_eq!((options.stripe, options.stream_req), (128, 0));
        assert!(!options.preallocate);
        options.check(128).unwrap();
        let error = options.check(127).unwrap_err().to_string();
        assert_eq!(error, "stripe=128: a group has only 127 blocks");
    }

    #[test]
    fn what_cannot_be_set_changes_nothing() {
        let mut options = Options::default();
        for (option, says) in [
            ("mb_max_to_scan=0", "1 to 1048576"),
            ("mb_max_to_scan=", "1 to 1048576"),
            ("mb_order2_req=18", "0 to 17"),
            ("mb_order2_req=99999999999", "0 to 17"),
            ("mb_normalize=large", "pow2-stripe"),
            ("mb_search=all", "largest-run"),
            ("mb_more=1", "mb_more"),
            ("nodelalloc", "nodelalloc"),
        ] {
            let error = options.set(option).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        assert_eq!(options, Options::default());
    }
}
