//! What a cache is made with: its policy and tunables, each with its range.

use uext4_tunables::{Tunable, TunableError, shown};

use crate::policy::{Policy, UnknownPolicy};

/// Policy and tunables of one [`crate::Cache`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// `mbcache=`.
    pub policy: Policy,
    /// `mb_bucket_bits`: log₂ of the number of hash chains, 1 to 20. Default: 10, as ext4's. `one-donor`
    /// has none.
    pub bucket_bits: u32,
    /// `mb_max_entries`: 16 to 2²²; 0 for the policy's default: 16 a chain for `mb1` and `mainline`, 2²²
    /// at most; 2²² for `mbcache2`; for `one-donor` what [`Options::for_blocks`] says, else 16,384.
    pub max_entries: u32,
    /// Most users of one thing: 1024 for blocks (a rule of the format), at least 2.
    pub users_max: u32,
    /// Seed of the hash of contents, secret from who makes these.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            bucket_bits: 10,
            max_entries: 0,
            users_max: 1024,
            seed: 0,
        }
    }
}

/// Why options were refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// There is none of this name.
    #[error("no option of the attribute cache is called '{name}'")]
    Unknown {
        /// The name.
        name: String,
    },
    /// No number, or one out of its range.
    #[error(transparent)]
    Tunable(#[from] TunableError),
    /// There is no memory for so many chains.
    #[error("mb_bucket_bits={bits}: no memory for 2^{bits} chains")]
    NoMemory {
        /// log₂ of their number.
        bits: u32,
    },
    /// No policy.
    #[error("mbcache: {0}")]
    Policy(#[from] UnknownPolicy),
}

/// Most entries of any cache: what [`Options::for_blocks`] gives the largest file systems.
pub(crate) const ENTRIES_MAX: u32 = 1 << 22;
/// Entries that even the smallest file system may have: as many as `mainline` ever has.
const ENTRIES_MIN: u64 = 1 << 15;
/// Blocks for which there is an entry.
const BLOCKS_PER_ENTRY: u64 = 64;

const NUMBERS: [Tunable<Options>; 2] = [
    Tunable {
        name: "mb_bucket_bits",
        range: 1..=20,
        field: |options| &mut options.bucket_bits,
    },
    Tunable {
        name: "mb_max_entries",
        range: 16..=ENTRIES_MAX,
        field: |options| &mut options.max_entries,
    },
];

impl Options {
    /// With entries in proportion to a file system of so many blocks, if no number was given and the
    /// policy has none: one for 64 blocks, 2¹⁵ at least and 2²² at most.
    #[must_use]
    pub fn for_blocks(mut self, blocks: u64) -> Self {
        if self.max_entries == 0 && self.policy == Policy::OneDonor {
            let entries = blocks / BLOCKS_PER_ENTRY;
            // OK to truncate: 2^22 at most.
            self.max_entries = entries.clamp(ENTRIES_MIN, ENTRIES_MAX.into()) as u32;
        }
        self
    }

    /// Sets an option by its name: `mbcache`, `mb_bucket_bits`, `mb_max_entries`.
    ///
    /// # Errors
    /// [`OptionError`], which names the range; then nothing has changed.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), OptionError> {
        if name == "mbcache" {
            self.policy = value.parse()?;
            return Ok(());
        }
        let number = Tunable::named(&NUMBERS, name);
        let number = number.ok_or_else(|| OptionError::Unknown { name: shown(name) })?;
        Ok(number.set(self, value)?)
    }

    /// Refuses numbers out of their ranges.
    pub(crate) fn check(mut self) -> Result<(), OptionError> {
        for number in &NUMBERS {
            let value = *(number.field)(&mut self);
            // 0 entries: as many as the policy has.
            if number.name != "mb_max_entries" || value != 0 {
                number.check(value)?;
            }
        }
        let users: Tunable<Options> = Tunable {
            name: "users_max",
            range: 2..=u32::MAX,
            field: |options| &mut options.users_max,
        };
        Ok(users.check(self.users_max)?)
    }

    /// The greatest number of entries of a policy with `mb_max_entries` entries a chain.
    pub(crate) fn max_by_buckets(&self) -> usize {
        let max = match self.max_entries {
            0 => (16 << self.bucket_bits).min(ENTRIES_MAX),
            max => max,
        };
        max as usize
    }
}
