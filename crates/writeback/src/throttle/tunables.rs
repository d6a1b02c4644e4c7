//! The tunables of throttling, with the kernel's names, units and defaults.

use std::str::FromStr;

use uext4_tunables::{Tunable, TunableError, check, number, set, switch};

/// Pages of a size of memory in bytes, rounded up, as the kernel rounds `dirty_bytes`.
fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(super::PAGE_SIZE)
}

/// What may be set: `vm.*` ([`DOMAIN_TUNABLES`]), and what a device has under `bdi/` and of our own
/// ([`BDI_TUNABLES`]).
///
/// [`FromStr`] reads `name=value` pairs with commas between them over the defaults.
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
            wb_stall_ms: 30_000,
        }
    }
}

/// The tunables that all devices of a domain share; they may change while it is in use. Setting a
/// ratio ends the use of its bytes.
pub const DOMAIN_TUNABLES: &[Tunable<Tunables>] = &[
    Tunable::number(
        "dirty_ratio",
        1..=100,
        "percent",
        "Dirty part of the memory for data above which writers wait",
        |tunables| Some(tunables.dirty_ratio.into()),
        |tunables, ratio| {
            // Fits: the range is within the field's type.
            tunables.dirty_ratio = ratio.try_into().unwrap_or_default();
            tunables.dirty_bytes = 0;
        },
    ),
    Tunable::number(
        "dirty_background_ratio",
        0..=100,
        "percent",
        "Dirty part of the memory for data above which it is written at once",
        |tunables| Some(tunables.dirty_background_ratio.into()),
        |tunables, ratio| {
            // Fits: the range is within the field's type.
            tunables.dirty_background_ratio = ratio.try_into().unwrap_or_default();
            tunables.dirty_background_bytes = 0;
        },
    ),
    Tunable::or_zero(number!(
        "dirty_bytes",
        dirty_bytes,
        2 * super::PAGE_SIZE..=1 << 62,
        "bytes",
        "Replaces dirty_ratio; 0: that counts",
    )),
    number!(
        "dirty_background_bytes",
        dirty_background_bytes,
        0..=1 << 62,
        "bytes",
        "Replaces dirty_background_ratio; 0: that counts",
    ),
    number!(
        "dirty_expire_centisecs",
        dirty_expire_centisecs,
        0..=u32::MAX as u64,
        "centiseconds",
        "Age from which on dirty data is written",
    ),
    number!(
        "dirty_writeback_centisecs",
        dirty_writeback_centisecs,
        0..=u32::MAX as u64,
        "centiseconds",
        "Time between two searches for old dirty data; 0: none",
    ),
];

/// The tunables of one device, which are set when it is opened.
pub const BDI_TUNABLES: &[Tunable<Tunables>] = &[
    number!(
        "min_ratio",
        min_ratio,
        0..=100,
        "percent",
        "Part of the dirty limit that the device always has, at most max_ratio",
    ),
    number!(
        "max_ratio",
        max_ratio,
        1..=100,
        "percent",
        "Part of the dirty limit that the device never exceeds",
    ),
    switch!(
        "strict_limit",
        strict_limit,
        "Hold the device to its part even far below the limit",
    ),
    number!(
        "wb_flushers",
        wb_flushers,
        0..=64,
        "threads",
        "Threads that write data back; 0: one on a spindle, else up to four",
    ),
    Tunable::or_zero(number!(
        "wb_stall_ms",
        wb_stall_ms,
        1000..=u32::MAX as u64,
        "milliseconds",
        "Time without progress after which writers get an error; 0: never",
    )),
];

impl Tunables {
    /// Sets one as users write it: `name=value`. Returns false if there is none of this name.
    ///
    /// # Errors
    ///
    /// A value out of range; nothing has changed then.
    pub fn set(&mut self, option: &str) -> Result<bool, TunableError> {
        Ok(set(DOMAIN_TUNABLES, self, option)? || set(BDI_TUNABLES, self, option)?)
    }

    /// Whether every number lies in its range. That the background limit lies above the other is no
    /// error: it counts as half of it then, as in the kernel.
    ///
    /// # Errors
    ///
    /// The first number that does not, and `min_ratio` above `max_ratio`.
    pub fn check(&self) -> Result<(), TunableError> {
        check(DOMAIN_TUNABLES, self)?;
        check(BDI_TUNABLES, self)?;
        let (min, max) = (self.min_ratio, self.max_ratio);
        match min > max {
            true => Err(TunableError::new(
                &format!("min_ratio={min}"),
                format_args!("must be 0 to {max} percent, as max_ratio"),
            )),
            false => Ok(()),
        }
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
        for option in text.split(',').filter(|option| !option.is_empty()) {
            if !tunables.set(option)? {
                return Err(TunableError::new(option, NO_SUCH));
            }
        }
        Ok(tunables)
    }
}

/// What is wrong with a name that no tunable has.
pub(super) const NO_SUCH: &str = "no such tunable";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_ends_the_use_of_its_bytes() {
        let tunables: Tunables = "dirty_bytes=1048576,strict_limit=1"
            .parse()
            .expect("in range");
        assert!(tunables.dirty_bytes == 1 << 20 && tunables.strict_limit);
        let tunables: Tunables = "dirty_bytes=8192,dirty_ratio=5".parse().expect("in range");
        assert_eq!((tunables.dirty_bytes, tunables.dirty_ratio), (0, 5));
        assert_eq!("".parse(), Ok(Tunables::default()));
    }

    #[test]
    fn numbers_out_of_range_are_named() {
        for (bad, says) in [
            (
                "dirty_ratio=101",
                "dirty_ratio=101: must be 1 to 100 percent",
            ),
            ("dirty_ratio", "dirty_ratio: must be 1 to 100 percent"),
            (
                "dirty_bytes=4096",
                "dirty_bytes=4096: must be 0, or 8192 to 4611686018427387904 bytes",
            ),
            ("wb_flushers=65", "wb_flushers=65: must be 0 to 64 threads"),
            (
                "wb_stall_ms=999",
                "wb_stall_ms=999: must be 0, or 1000 to 4294967295 milliseconds",
            ),
            ("dirty_rate=5", "dirty_rate=5: no such tunable"),
        ] {
            let error = bad.parse::<Tunables>().expect_err("out of range");
            assert_eq!(error.to_string(), says);
        }
        let stored = Tunables {
            max_ratio: 0,
            ..Tunables::default()
        };
        assert!(stored.check().is_err());
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
