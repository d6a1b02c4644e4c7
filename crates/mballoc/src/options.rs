//! The options of an allocator: the kernel's tunables that users know.

use uext4_tunables::{Tunable, TunableError, shown};

/// Bitmaps read ahead at once, at most (the kernel's `mb_prefetch`).
pub(crate) const PREFETCH: u32 = 32;
/// Bitmaps read ahead for one request, at most (the kernel's `mb_prefetch_limit`).
pub(crate) const PREFETCH_LIMIT: u32 = 128;

/// Tunables of one [`crate::Allocator`]: the names of the kernel's `/sys/fs/ext4/*/mb_*` files and mount
/// options, with the kernel's units and defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// `stripe=`: blocks of a full stripe of the RAID below, 0 for none.
    pub stripe: u32,
    /// Groups whose bitmaps lie together (`2^s_log_groups_per_flex`), at least 1.
    pub flex_groups: u32,
    /// `mb_stream_req`: blocks from which on a file is a stream of its own. Default: 16.
    pub stream_req: u32,
    /// `mb_group_prealloc`: blocks preallocated for small files at once. Default: 512.
    pub group_prealloc: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            stripe: 0,
            flex_groups: 16,
            stream_req: 16,
            group_prealloc: 512,
        }
    }
}

/// Why an option was not set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// There is none of this name.
    #[error("no option is called '{name}'")]
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
}

const NUMBERS: [Tunable<Options>; 3] = [
    Tunable {
        name: "stripe",
        range: 0..=1 << 19,
        field: |options| &mut options.stripe,
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
];

impl Options {
    /// Sets one option as it is written on a command line: `name=value`.
    ///
    /// # Errors
    /// [`OptionError::Unknown`], and [`OptionError::Tunable`] for a value out of its range; nothing is
    /// changed then.
    pub fn set(&mut self, option: &str) -> Result<(), OptionError> {
        let named = option.split_once('=').and_then(|(name, value)| {
            let number = Tunable::named(&NUMBERS, name)?;
            Some(number.set(self, value))
        });
        let unknown = || OptionError::Unknown {
            name: shown(option),
        };
        Ok(named.ok_or_else(unknown)??)
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
        for option in ["stripe=128", "mb_stream_req=0", "mb_group_prealloc=64"] {
            options.set(option).unwrap();
        }
        assert_eq!((options.stripe, options.stream_req), (128, 0));
        assert_eq!(options.group_prealloc, 64);
        options.check(128).unwrap();
        let error = options.check(127).unwrap_err().to_string();
        assert_eq!(error, "stripe=128: a group has only 127 blocks");
    }

    #[test]
    fn what_cannot_be_set_changes_nothing() {
        let mut options = Options::default();
        for (option, says) in [
            ("mb_stream_req=", "0 to 1048576"),
            ("mb_group_prealloc=32769", "0 to 32768"),
            ("mb_stream_req=99999999999", "0 to 1048576"),
            ("mb_more=1", "mb_more"),
            ("stripe", "stripe"),
            ("nodelalloc", "nodelalloc"),
        ] {
            let error = options.set(option).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        assert_eq!(options, Options::default());
    }
}
