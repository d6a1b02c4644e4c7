//! Numbers that a user sets by name, as the kernel's in `/sys/fs/ext4`: each with its range and the
//! field of a room's options that keeps it.
//!
//! A room has one table of [`Tunable`]s; what is in it can be set, listed and checked, and a number
//! that is out of its range is refused with the range named.

use std::ops::RangeInclusive;

/// Most characters of what a user wrote that an error repeats.
const SHOWN_MAX: usize = 64;

/// A number of `T` by name.
#[derive(Debug)]
pub struct Tunable<T> {
    /// As users write it.
    pub name: &'static str,
    /// What it may be, both ends included.
    pub range: RangeInclusive<u32>,
    /// Where it is kept.
    pub field: fn(&mut T) -> &mut u32,
}

/// Why a number was not taken. `max` is the most it may be, `min` the least.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum TunableError {
    /// What it is to be is no whole number.
    #[error("{name}: '{value}' is no number from {min} to {max}")]
    NotNumber {
        name: &'static str,
        value: String,
        min: u32,
        max: u32,
    },
    /// The number is out of its range.
    #[error("{name}={value}: out of range, {min} to {max}")]
    Range {
        name: &'static str,
        value: u32,
        min: u32,
        max: u32,
    },
}

/// The beginning of what a user wrote, short enough for an error: 64 characters.
pub fn shown(text: &str) -> String {
    text.chars().take(SHOWN_MAX).collect()
}

impl<T> Tunable<T> {
    /// The tunable of this name in a table.
    pub fn named<'a>(table: &'a [Self], name: &str) -> Option<&'a Self> {
        table.iter().find(|tunable| tunable.name == name)
    }

    /// Sets it as it is written.
    ///
    /// # Errors
    /// [`TunableError`]; then nothing has changed.
    pub fn set(&self, options: &mut T, value: &str) -> Result<(), TunableError> {
        let number = value.parse().map_err(|_| TunableError::NotNumber {
            name: self.name,
            value: shown(value),
            min: *self.range.start(),
            max: *self.range.end(),
        })?;
        self.check(number)?;
        *(self.field)(options) = number;
        Ok(())
    }

    /// Whether it may be this number.
    ///
    /// # Errors
    /// [`TunableError::Range`].
    pub fn check(&self, value: u32) -> Result<(), TunableError> {
        match self.range.contains(&value) {
            true => Ok(()),
            false => Err(TunableError::Range {
                name: self.name,
                value,
                min: *self.range.start(),
                max: *self.range.end(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Options {
        few: u32,
        many: u32,
    }

    const TABLE: [Tunable<Options>; 2] = [
        Tunable {
            name: "few",
            range: 1..=8,
            field: |options| &mut options.few,
        },
        Tunable {
            name: "many",
            range: 0..=u32::MAX,
            field: |options| &mut options.many,
        },
    ];

    #[test]
    fn both_ends_of_a_range_are_taken() {
        let mut options = Options::default();
        for (name, value) in [("few", "1"), ("few", "8"), ("many", "4294967295")] {
            let tunable = Tunable::named(&TABLE, name).unwrap();
            tunable.set(&mut options, value).unwrap();
        }
        assert_eq!((options.few, options.many), (8, u32::MAX));
        assert!(Tunable::named(&TABLE, "fewer").is_none());
    }

    #[test]
    fn what_is_refused_names_the_range_and_changes_nothing() {
        let mut options = Options::default();
        for (value, says) in [
            ("0", "few=0: out of range, 1 to 8"),
            ("9", "few=9: out of range, 1 to 8"),
            ("", "few: '' is no number from 1 to 8"),
            ("-1", "few: '-1' is no number from 1 to 8"),
            ("4294967296", "few: '4294967296' is no number from 1 to 8"),
        ] {
            let error = TABLE[0].set(&mut options, value).unwrap_err();
            assert_eq!(error.to_string(), says);
        }
        assert_eq!(options.few, 0);
        let long = "x".repeat(1000);
        let error = TABLE[0].set(&mut options, &long).unwrap_err().to_string();
        assert!(error.len() < 120, "{error}");
    }
}
