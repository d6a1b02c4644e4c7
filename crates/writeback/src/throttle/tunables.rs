//! The tunables of throttling, with the kernel's names, units and defaults.

use std::fmt;
use std::str::FromStr;

/// Pages of a size of memory in bytes, rounded up, as the kernel rounds `dirty_bytes`.
fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(super::PAGE_SIZE)
}

/// What may be set: `vm.*`, what a device has under `bdi/`, and what is ours (`wb_*`).
///
/// The text form is `name=value` pairs with commas between them; [`fmt::Display`] writes all of
/// them and [`FromStr`] reads any of them over the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// Percent of dirtyable memory above which writers wait, 1…100. Default: 20. Only used while
    /// `dirty_bytes` is 0.
    pub dirty_ratio: u32,
    /// Percent of dirtyable memory above which flushers write whatever its age, 0…100. Default:
    /// 10. Only used while `dirty_background_bytes` is 0.
    pub dirty_background_ratio: u32,
    /// Bytes instead of `dirty_ratio`, at least two pages, and no more than memory counts; 0, the
    /// default: the ratio counts.
    pub dirty_bytes: u64,
    /// Bytes instead of `dirty_background_ratio`; 0, the default: the ratio counts.
    pub dirty_background_bytes: u64,
    /// Hundredths of a second after which dirty data is old enough to be written. Default: 3000.
    pub dirty_expire_centisecs: u32,
    /// Hundredths of a second between two looks of a flusher for old data; 0: none. Default: 500.
    pub dirty_writeback_centisecs: u32,
    /// Percent of the limit that the device has whatever it completes, 0…`max_ratio`. Default: 0.
    pub min_ratio: u32,
    /// Percent of the limit that the device never gets more than, 1…100. Default: 100.
    pub max_ratio: u32,
    /// The device is held to its own share even while all devices together are far below the
    /// limit. Default: off.
    pub strict_limit: bool,
    /// Flushers of the device, 0…64; 0, the default: one on a spindle, up to four elsewhere.
    pub wb_flushers: u32,
    /// Milliseconds a pause may last at most, 10…1000. Default: 200.
    pub wb_max_pause_ms: u32,
    /// Wake-ups of writers a second that are aimed at while few write, 10…10000. Default: 200.
    pub wb_wake_budget: u32,
    /// Milliseconds without progress after which writers get an error, at least 1000; 0: never,
    /// as in the kernel. Default: 30000.
    pub wb_stall_ms: u32,
}

impl Default for Tunables {
    fn default() -> Self {
        Self {
            dirty_ratio: 20,
            dirty_background_ratio: 10,
            dirty_bytes: 0,
            dirty_background_bytes: 0,
            dirty_expire_centisecs: 3000,
            dirty_writeback_centisecs: 500,
            min_ratio: 0,
            max_ratio: 100,
            strict_limit: false,
            wb_flushers: 0,
            wb_max_pause_ms: 200,
            wb_wake_budget: 200,
            wb_stall_ms: 30_000,
        }
    }
}

/// A tunable that cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TunableError {
    /// No tunable has this name.
    #[error("there is no tunable {name:?}")]
    Unknown {
        /// As it was given.
        name: String,
    },
    /// What stands there is not a number, or not `name=value`.
    #[error("{name}: {value:?} is not a number")]
    NotANumber {
        /// The tunable, or the whole piece of text.
        name: String,
        /// As it was given.
        value: String,
    },
    /// It belongs to a device, and is set when that is made.
    #[error("{name} belongs to a device: it is set when the device is opened")]
    OfDevice {
        /// The tunable.
        name: String,
    },
    /// The number lies outside the range.
    #[error("{name} = {value} lies outside {min} to {max}")]
    OutOfRange {
        /// The tunable.
        name: &'static str,
        /// As it was given.
        value: u64,
        /// The least that can be.
        min: u64,
        /// The most.
        max: u64,
    },
}

fn ranged(name: &'static str, value: u64, min: u64, max: u64) -> Result<u64, TunableError> {
    if (min..=max).contains(&value) {
        return Ok(value);
    }
    Err(TunableError::OutOfRange {
        name,
        value,
        min,
        max,
    })
}

impl Tunables {
    /// Sets one by name; `true` and `false` are 1 and 0. A ratio set ends the use of its bytes.
    ///
    /// # Errors
    ///
    /// An unknown name, no number, or one out of range; nothing has changed then.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), TunableError> {
        let number = match value {
            "true" => 1,
            "false" => 0,
            _ => match value.parse::<u64>() {
                Ok(number) => number,
                // An unknown name is said to be that, whatever stands behind it.
                Err(_) if !self.knows(name) => {
                    let name = name.to_owned();
                    return Err(TunableError::Unknown { name });
                }
                Err(_) => {
                    let (name, value) = (name.to_owned(), value.to_owned());
                    return Err(TunableError::NotANumber { name, value });
                }
            },
        };
        let mut changed = *self;
        changed.assign(name, number)?;
        changed.check()?;
        *self = changed;
        Ok(())
    }

    /// Whether there is a tunable of this name.
    fn knows(mut self, name: &str) -> bool {
        !matches!(self.assign(name, 0), Err(TunableError::Unknown { .. }))
    }

    fn assign(&mut self, name: &str, value: u64) -> Result<(), TunableError> {
        let word = |name, value| ranged(name, value, 0, u64::from(u32::MAX)).map(|v| v as u32);
        match name {
            "dirty_ratio" => {
                self.dirty_ratio = word("dirty_ratio", value)?;
                self.dirty_bytes = 0;
            }
            "dirty_background_ratio" => {
                self.dirty_background_ratio = word("dirty_background_ratio", value)?;
                self.dirty_background_bytes = 0;
            }
            "dirty_bytes" => self.dirty_bytes = value,
            "dirty_background_bytes" => self.dirty_background_bytes = value,
            "dirty_expire_centisecs" => {
                self.dirty_expire_centisecs = word("dirty_expire_centisecs", value)?;
            }
            "dirty_writeback_centisecs" => {
                self.dirty_writeback_centisecs = word("dirty_writeback_centisecs", value)?;
            }
            "min_ratio" => self.min_ratio = word("min_ratio", value)?,
            "max_ratio" => self.max_ratio = word("max_ratio", value)?,
            "strict_limit" => self.strict_limit = ranged("strict_limit", value, 0, 1)? == 1,
            "wb_flushers" => self.wb_flushers = word("wb_flushers", value)?,
            "wb_max_pause_ms" => self.wb_max_pause_ms = word("wb_max_pause_ms", value)?,
            "wb_wake_budget" => self.wb_wake_budget = word("wb_wake_budget", value)?,
            "wb_stall_ms" => self.wb_stall_ms = word("wb_stall_ms", value)?,
            _ => {
                let name = name.to_owned();
                return Err(TunableError::Unknown { name });
            }
        }
        Ok(())
    }

    /// Whether a tunable belongs to a device, rather than to all that share the limits.
    #[must_use]
    pub fn is_of_device(name: &str) -> bool {
        matches!(name, "min_ratio" | "max_ratio" | "strict_limit") || name.starts_with("wb_")
    }

    /// Whether every number lies in its range. That the background limit lies above the other is no
    /// error: it counts as half of it then, as in the kernel.
    ///
    /// # Errors
    ///
    /// The first number that does not.
    pub fn check(&self) -> Result<(), TunableError> {
        ranged("dirty_ratio", self.dirty_ratio.into(), 1, 100)?;
        let background = self.dirty_background_ratio.into();
        ranged("dirty_background_ratio", background, 0, 100)?;
        if self.dirty_bytes != 0 {
            ranged(
                "dirty_bytes",
                self.dirty_bytes,
                2 * super::PAGE_SIZE,
                1 << 62,
            )?;
        }
        ranged(
            "dirty_background_bytes",
            self.dirty_background_bytes,
            0,
            1 << 62,
        )?;
        ranged("max_ratio", self.max_ratio.into(), 1, 100)?;
        ranged("min_ratio", self.min_ratio.into(), 0, self.max_ratio.into())?;
        ranged("wb_flushers", self.wb_flushers.into(), 0, 64)?;
        ranged("wb_max_pause_ms", self.wb_max_pause_ms.into(), 10, 1000)?;
        ranged("wb_wake_budget", self.wb_wake_budget.into(), 10, 10_000)?;
        if self.wb_stall_ms != 0 {
            ranged(
                "wb_stall_ms",
                self.wb_stall_ms.into(),
                1000,
                u32::MAX.into(),
            )?;
        }
        Ok(())
    }

    /// Pages of the limit and of the background limit for so many pages of dirtyable memory: at
    /// least 2 and 1, and the second below the first.
    pub(super) fn limits(&self, dirtyable: u64) -> (u64, u64) {
        let ratio = |percent: u32| {
            let whole = dirtyable / 100 * u64::from(percent);
            whole.saturating_add(dirtyable % 100 * u64::from(percent) / 100)
        };
        let thresh = match self.dirty_bytes {
            0 => ratio(self.dirty_ratio),
            bytes => pages(bytes),
        };
        let background = match self.dirty_background_bytes {
            0 => ratio(self.dirty_background_ratio),
            bytes => pages(bytes),
        };
        // `dirty_bytes` may be more than there is.
        let thresh = thresh.min(dirtyable).clamp(2, 1 << 50);
        let background = match background {
            high if high >= thresh => thresh / 2,
            low => low,
        };
        (thresh, background.max(1))
    }
}

impl FromStr for Tunables {
    type Err = TunableError;

    fn from_str(text: &str) -> Result<Self, TunableError> {
        let mut tunables = Self::default();
        for piece in text.split(',').filter(|piece| !piece.is_empty()) {
            let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
            tunables.set(name.trim(), value.trim())?;
        }
        Ok(tunables)
    }
}

impl fmt::Display for Tunables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dirty_ratio={},", self.dirty_ratio)?;
        write!(f, "dirty_background_ratio={},", self.dirty_background_ratio)?;
        write!(f, "dirty_bytes={},", self.dirty_bytes)?;
        write!(f, "dirty_background_bytes={},", self.dirty_background_bytes)?;
        write!(f, "dirty_expire_centisecs={},", self.dirty_expire_centisecs)?;
        let periodic = self.dirty_writeback_centisecs;
        write!(f, "dirty_writeback_centisecs={periodic},")?;
        write!(
            f,
            "min_ratio={},max_ratio={},",
            self.min_ratio, self.max_ratio
        )?;
        write!(f, "strict_limit={},", u8::from(self.strict_limit))?;
        write!(f, "wb_flushers={},", self.wb_flushers)?;
        write!(f, "wb_max_pause_ms={},", self.wb_max_pause_ms)?;
        write!(f, "wb_wake_budget={},", self.wb_wake_budget)?;
        write!(f, "wb_stall_ms={}", self.wb_stall_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let mut tunables = Tunables::default();
        assert_eq!(tunables.to_string().parse(), Ok(tunables));
        tunables.set("dirty_bytes", "1048576").expect("in range");
        tunables.set("strict_limit", "1").expect("in range");
        assert_eq!(tunables.to_string().parse(), Ok(tunables));
        assert_eq!("".parse(), Ok(Tunables::default()));
    }

    #[test]
    fn numbers_out_of_range_are_named() {
        let error = "dirty_ratio=101".parse::<Tunables>();
        assert_eq!(
            error.expect_err("too much").to_string(),
            "dirty_ratio = 101 lies outside 1 to 100"
        );
        for bad in [
            "dirty_ratio=0",
            "dirty_bytes=4096",
            "min_ratio=60,max_ratio=50",
            "max_ratio=20,min_ratio=21",
            "wb_max_pause_ms=9",
            "wb_flushers=65",
            "dirty_ratio",
            "dirty_ratio=x",
            "dirty_ratio=99999999999999999999",
            "dirty_rate=5",
        ] {
            assert!(bad.parse::<Tunables>().is_err(), "{bad}");
        }
    }

    #[test]
    fn limits_as_the_kernel_makes_them() {
        let tunables = Tunables::default();
        // 4 GiB: 20 % and 10 % of 1 Mi pages.
        assert_eq!(tunables.limits(1 << 20), (209_715, 104_857));
        // A background limit that is not below the limit counts as half of it.
        let tunables: Tunables = "dirty_background_ratio=30".parse().expect("in range");
        assert_eq!(tunables.limits(1 << 20), (209_715, 104_857));
        let tunables: Tunables = "dirty_bytes=10000,dirty_background_bytes=1"
            .parse()
            .expect("ok");
        assert_eq!(tunables.limits(1 << 20), (3, 1));
        for dirtyable in [0, 1, u64::MAX] {
            let (thresh, background) = Tunables::default().limits(dirtyable);
            assert!(background < thresh, "{dirtyable}: {background} {thresh}");
        }
    }
}
