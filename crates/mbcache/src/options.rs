//! What a cache is made with.

use uext4_tunables::{Tunable, TunableError, check, number};

/// Limits of one [`crate::Cache`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// `mb_max_entries`: 16 to 2²², or 0 for what [`Options::for_blocks`] says, else 16,384.
    pub max_entries: u32,
    /// Most users of one thing: 1024 for blocks (a rule of the format), at least 2.
    pub users_max: u32,
    /// Seed of the hash of contents; it must be secret from those who choose the contents.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_entries: 0,
            users_max: 1024,
            seed: 0,
        }
    }
}

/// Most entries of any cache: what [`Options::for_blocks`] gives the largest file systems.
const ENTRIES_MAX: u32 = 1 << 22;
/// Entries that even the smallest file system may have: as many as Linux ever has.
const ENTRIES_MIN: u64 = 1 << 15;
/// Entries where the file system is not known: `c_max_entries` of Linux.
const ENTRIES_DEFAULT: u32 = 1 << 14;
/// Blocks for which there is an entry.
const BLOCKS_PER_ENTRY: u64 = 64;

/// What users set by name.
pub const TUNABLES: &[Tunable<Options>] = &[Tunable::or_zero(number!(
    "mb_max_entries",
    max_entries,
    16..=ENTRIES_MAX as u64,
    "entries",
    "Attributes known for sharing; 0: one for 64 blocks of the file system",
))];

impl Options {
    /// With entries in proportion to a file system of so many blocks, if no number was given: one
    /// for 64 blocks, 2¹⁵ at least and 2²² at most.
    #[must_use]
    pub fn for_blocks(mut self, blocks: u64) -> Self {
        if self.max_entries == 0 {
            let entries = blocks / BLOCKS_PER_ENTRY;
            // OK to truncate: 2^22 at most.
            self.max_entries = entries.clamp(ENTRIES_MIN, ENTRIES_MAX.into()) as u32;
        }
        self
    }

    /// Refuses numbers out of their ranges.
    pub(crate) fn check(&self) -> Result<(), TunableError> {
        if self.users_max < 2 {
            let option = format!("users_max={}", self.users_max);
            return Err(TunableError::new(&option, "must be at least 2"));
        }
        check(TUNABLES, self)
    }

    /// The greatest number of entries.
    pub(crate) fn max(&self) -> usize {
        let max = match self.max_entries {
            0 => ENTRIES_DEFAULT,
            max => max,
        };
        max as usize
    }
}
