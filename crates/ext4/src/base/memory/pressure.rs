//! What the machine's texts mean for the budget. Nothing is read here.

/// Bytes of the default budget at most.
const DEFAULT_MAX: u64 = 1 << 30;
/// The default where it is not known how much memory the process may take.
const DEFAULT_UNKNOWN: u64 = 256 << 20;

/// Per cent of the last ten seconds in which some task waited for memory, above which the limit is
/// lowered.
const HIGH: f64 = 10.0;
/// The same, below which it rises again. In between it stays.
const LOW: f64 = 5.0;

/// An eighth of the memory that the process may take, at most 1 GiB.
pub(crate) fn default_budget(memory: Option<u64>) -> u64 {
    memory.map_or(DEFAULT_UNKNOWN, |memory| (memory / 8).min(DEFAULT_MAX))
}

/// Per cent of the last ten seconds in which at least one task waited for memory, from the text of
/// `/proc/pressure/memory`. `None` if it does not say so.
pub(crate) fn some_avg10(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let avg10 = line.split(' ').find_map(|f| f.strip_prefix("avg10="))?;
    let share: f64 = avg10.parse().ok()?;
    (0.0..=100.0).contains(&share).then_some(share)
}

/// The limit after one more look at the pressure: an eighth less while it is high, down to a
/// quarter of the budget; a 64th of the budget more while it is low. Without a number it rises.
pub(crate) fn next_limit(limit: u64, budget: u64, share: Option<f64>) -> u64 {
    let share = share.unwrap_or(0.0);
    if share > HIGH {
        (limit - limit / 8).max(budget / 4)
    } else if share < LOW {
        limit.saturating_add(budget / 64).min(budget)
    } else {
        limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: &str = "some avg10=0.00 avg60=0.31 avg300=0.12 total=1849282694\n\
                        full avg10=0.00 avg60=0.00 avg300=0.00 total=1658765613\n";

    #[test]
    fn an_eighth_of_what_may_be_taken_is_the_default() {
        assert_eq!(default_budget(Some(100 << 20)), (100 << 20) / 8);
        assert_eq!(default_budget(Some(24 << 30)), 1 << 30);
        assert_eq!(default_budget(None), DEFAULT_UNKNOWN);
    }

    #[test]
    fn the_kernels_text_is_understood() {
        assert_eq!(some_avg10(CALM), Some(0.0));
        let text = CALM.replace("some avg10=0.00", "some avg10=37.25");
        assert_eq!(some_avg10(&text), Some(37.25));
        for bad in [
            "",
            "full avg10=1.00 avg60=0.00",
            "some avg60=1.00",
            "some avg10=",
            "some avg10=NaN avg60=0.00",
            "some avg10=-1.00",
            "some avg10=100.01",
        ] {
            assert_eq!(some_avg10(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_limit_falls_fast_and_rises_slowly() {
        let budget = 64 << 20;
        let mut limit = budget;
        let mut steps = 0;
        while limit > budget / 4 {
            limit = next_limit(limit, budget, Some(10.5));
            steps += 1;
        }
        assert_eq!((limit, steps), (budget / 4, 11));
        assert_eq!(next_limit(limit, budget, Some(99.0)), limit);
        assert_eq!(next_limit(limit, budget, Some(7.0)), limit);
        let mut steps = 0;
        while limit < budget {
            limit = next_limit(limit, budget, Some(4.9));
            steps += 1;
        }
        assert_eq!((limit, steps), (budget, 48));
        assert_eq!(next_limit(budget, budget, None), budget);
        assert_eq!(
            next_limit(budget / 2, budget, None),
            budget / 2 + budget / 64
        );
    }
}
