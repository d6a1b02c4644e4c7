//! What was counted, as modelled time.

use serde_json::{Value, json};
use uext4_lab_policies::bh_lru::Stats;

use crate::experiment::Failure;

/// Nanoseconds of each: a compare, a slot written, an uncontended atomic, a lookup in the table,
/// a lock taken there, a byte copied. The design paper's.
const COMPARE: f64 = 0.6;
const SLOT_WRITE: f64 = 0.4;
const ATOMIC: f64 = 5.0;
const SLOW_LOOKUP: f64 = 60.0;
const LOCK: f64 = 25.0;
const BYTE: f64 = 0.03;

/// What so many operations did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    pub operations: u64,
    pub lookups: u64,
    pub hits: u64,
    pub compares: u64,
    pub slot_writes: u64,
    pub atomics: u64,
    pub bytes_copied: u64,
    pub installs: u64,
    pub held: u64,
    pub invalidations: u64,
}

impl Counted {
    /// Between two readings of the counters.
    pub fn between(operations: u64, before: &Stats, after: &Stats) -> Self {
        let since = |of: fn(&Stats) -> u64| of(after).saturating_sub(of(before));
        Self {
            operations,
            lookups: since(|stats| stats.hits() + stats.misses),
            hits: since(Stats::hits),
            compares: since(|stats| stats.compares),
            slot_writes: since(|stats| stats.slot_writes),
            atomics: since(|stats| stats.atomics),
            bytes_copied: since(|stats| stats.bytes_copied),
            installs: since(|stats| stats.installs),
            held: after.held,
            invalidations: since(|stats| stats.invalidations),
        }
    }

    fn misses(&self) -> u64 {
        self.lookups - self.hits
    }

    /// Modelled nanoseconds of one operation.
    pub fn cost(&self) -> f64 {
        let sum = COMPARE * self.compares as f64
            + SLOT_WRITE * self.slot_writes as f64
            + ATOMIC * self.atomics as f64
            + (SLOW_LOOKUP + LOCK) * self.misses() as f64
            + BYTE * self.bytes_copied as f64;
        sum / self.operations.max(1) as f64
    }

    pub fn hit_ratio(&self) -> f64 {
        self.hits as f64 / self.lookups.max(1) as f64
    }

    /// For the record.
    pub fn json(&self) -> Value {
        let each = |count: u64, of: u64| round(count as f64 / of.max(1) as f64);
        json!({
            "cost_ns": round(self.cost()),
            "lookups": each(self.lookups, self.operations),
            "hit_ratio": round(self.hit_ratio()),
            "compares": each(self.compares, self.lookups),
            "slot_writes": each(self.slot_writes, self.lookups),
            "slow_lookups": each(self.misses(), self.operations),
            "install_bytes": each(self.bytes_copied, self.installs),
            "held_by_lru": self.held,
            "invalidations": self.invalidations,
        })
    }
}

/// To four digits behind the point.
pub fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// Gain of the first over the second in per cent, as the thread prints it: by rates.
pub fn gain(first: &Value, second: &Value) -> Result<f64, Failure> {
    let cost = |value: &Value| value["cost_ns"].as_f64();
    match (cost(first), cost(second)) {
        (Some(first), Some(second)) if first > 0.0 => Ok(round((second / first - 1.0) * 100.0)),
        _ => Err(Failure::Run("a cell without look-ups".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_those_of_the_model() {
        let counted = Counted {
            operations: 2,
            lookups: 10,
            hits: 8,
            compares: 100,
            slot_writes: 50,
            atomics: 12,
            bytes_copied: 1000,
            ..Counted::default()
        };
        // (60 + 20 + 60 + 170 + 30) / 2
        assert!((counted.cost() - 170.0).abs() < 1e-9);
        assert_eq!(counted.json()["slow_lookups"], 1.0);
        let faster = json!({"cost_ns": 100.0});
        assert_eq!(gain(&faster, &counted.json()).unwrap(), 70.0);
    }
}
