//! What the calls of a shrinker did, as figures.

use serde_json::{Map, Value, json};
use uext4_extent_status::Scan;

use crate::ministat::{Difference, Summary};

/// The calls of one run.
#[derive(Debug)]
pub struct Run {
    pub calls: Vec<Scan>,
    /// Readings of the moving average of steps.
    pub averages: Vec<f64>,
    /// Extents at the end, and how many of them may be dropped.
    pub extents: u64,
    pub reclaimable: u64,
}

impl Run {
    fn steps(&self) -> impl Iterator<Item = f64> {
        self.calls.iter().map(|scan| scan.steps() as f64)
    }

    fn mean(&self) -> f64 {
        self.steps().sum::<f64>() / self.calls.len() as f64
    }

    fn max(&self) -> f64 {
        self.steps().fold(0.0, f64::max)
    }
}

/// All runs of one policy.
#[derive(Debug, Default)]
pub struct Tally {
    pub runs: Vec<Run>,
}

impl Tally {
    fn scans(&self) -> impl Iterator<Item = &Scan> {
        self.runs.iter().flat_map(|run| &run.calls)
    }

    fn each(&self, of: impl Fn(&Run) -> f64) -> Option<Summary> {
        Summary::of(&self.runs.iter().map(of).collect::<Vec<_>>())
    }

    /// The means of the runs.
    pub fn means(&self) -> Option<Summary> {
        self.each(Run::mean)
    }

    /// The largest of each run.
    pub fn maxima(&self) -> Option<Summary> {
        self.each(Run::max)
    }

    /// All readings of the moving average.
    pub fn averages(&self) -> Option<Summary> {
        let all = self.runs.iter().flat_map(|run| &run.averages);
        Summary::of(&all.copied().collect::<Vec<_>>())
    }

    /// As the record reports it.
    pub fn report(&self) -> Value {
        let calls = self.scans().count().max(1) as f64;
        let sum = |of: fn(&Scan) -> u64| self.scans().map(of).sum::<u64>() as f64;
        let (steps, freed) = (sum(Scan::steps), sum(|scan| scan.freed as u64));
        let mut held: Vec<u64> = self.scans().map(|s| s.max_steps_under_lock).collect();
        held.sort_unstable();
        let percentile = held.get(held.len().saturating_sub(1) * 99 / 100);
        let share = |run: &Run| 1.0 - run.reclaimable as f64 / run.extents as f64;
        let delayed = self.runs.iter().map(share).sum::<f64>() / self.runs.len() as f64;
        json!({
            "calls": calls,
            "freed": freed,
            "steps": {
                "mean": round(steps / calls),
                "max": self.scans().map(Scan::steps).max(),
                "per_freed": round(steps / freed),
            },
            "mean_of_a_call": {
                "extents_looked_at": round(sum(|scan| scan.visited as u64) / calls),
                "delayed_among_them": round(sum(|scan| scan.delayed_seen as u64) / calls),
                "inodes": round(sum(|scan| scan.trees) / calls),
                "leaves": round(sum(|scan| scan.leaves) / calls),
                "index_rows_copied": round(sum(|scan| scan.copied) / calls),
                "compares": round(sum(|scan| scan.compares) / calls),
                "list_locks": round(sum(|scan| scan.list_locks) / calls),
                "trylock_failed": round(sum(|scan| scan.trylock_failed) / calls),
                "second_rounds": round(sum(|scan| scan.second_rounds) / calls),
            },
            "under_one_lock": { "p99": percentile, "max": held.last() },
            "delayed_share_at_the_end": round(delayed),
            "max_scan": self.maxima().map(|summary| summary.to_string()),
            "avg_scan": self.averages().map(|summary| summary.to_string()),
        })
    }
}

/// How `tally` differs from `reference`, as the thread printed it: of the longest scans, and of the
/// moving average.
pub fn against(tally: &Tally, reference: &Tally) -> Value {
    let said = |of: fn(&Tally) -> Option<Summary>| {
        let difference = of(tally)?.against(&of(reference)?).to_string();
        Some(difference.lines().map(str::to_owned).collect::<Vec<_>>())
    };
    json!({ "max_scan": said(Tally::maxima), "avg_scan": said(Tally::averages) })
}

/// The upper end of the confidence interval of what the mean of `tally` has more than that of
/// `reference`: below zero if it is proven to have less, nothing if no difference is proven.
pub fn at_most_more(tally: &Tally, reference: &Tally) -> Option<f64> {
    match tally.means()?.against(&reference.means()?) {
        Difference::Proven { by, error, .. } => Some(round(by + error)),
        Difference::NotProven => None,
    }
}

/// Every policy's figures, and how they compare where the policies to compare are there.
pub fn report(tallies: &[(String, Tally)]) -> Map<String, Value> {
    use super::policy::{LRU, ROUND_ROBIN, VANILLA};
    let mut results: Map<String, Value> = tallies
        .iter()
        .map(|(policy, tally)| (policy.clone(), tally.report()))
        .collect();
    let find = |name: &str| tallies.iter().find(|(policy, _)| policy == name);
    let mut compared = Map::new();
    if let Some((_, vanilla)) = find(VANILLA) {
        for (policy, tally) in tallies.iter().filter(|(policy, _)| policy != VANILLA) {
            compared.insert(format!("{policy} to vanilla"), against(tally, vanilla));
        }
    }
    if let (Some((_, lru)), Some((_, turns))) = (find(LRU), find(ROUND_ROBIN)) {
        let more = at_most_more(turns, lru);
        compared.insert("round_robin_more_than_lru_at_most".to_owned(), json!(more));
    }
    results.insert("compared".to_owned(), Value::Object(compared));
    results
}

/// Four decimals are what a record keeps.
pub fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
