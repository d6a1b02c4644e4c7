//! The record of a run: what was run, with which setting, and what came out. Nothing is judged here.

use serde_json::{Value, json};

use crate::claim::{Claim, Measure, Scale, Setting};

/// What one run of one claim produced.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The claim's name.
    pub claim: &'static str,
    /// What it was run with.
    pub setting: Setting,
    /// How the figures came about.
    pub measure: Measure,
    /// What came out; objects are sorted by key, so equal results are equal bytes.
    pub results: Value,
}

impl Record {
    /// Of this run.
    pub fn new(claim: &Claim, setting: Setting, results: Value) -> Self {
        Self {
            claim: claim.name,
            setting,
            measure: claim.measure,
            results,
        }
    }

    /// As JSON: no time of day, no name of a machine, nothing that changes when nothing changed.
    pub fn to_json(&self) -> Value {
        let parameters: serde_json::Map<_, _> = self
            .setting
            .values
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Value::from(value.as_str())))
            .collect();
        json!({
            "claim": self.claim,
            "scale": match self.setting.scale {
                Scale::Quick => "quick",
                Scale::Full => "full",
            },
            "seed": self.setting.seed,
            "policies": self.setting.policies,
            "parameters": parameters,
            "measure": match self.measure {
                Measure::Counted => "counted",
                Measure::Threads => "threads",
            },
            "results": self.results,
        })
    }
}
