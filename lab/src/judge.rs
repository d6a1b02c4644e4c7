//! Holds results against the gates of their claim.

use serde_json::Value;

use crate::claim::{Figure, Gate, Kind};
use crate::ministat::{Difference, Summary};

/// What became of one gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// The figure; `None` if the results do not hold it.
    pub figure: Option<f64>,
    /// What it means.
    pub outcome: Outcome,
}

/// What a figure says of its gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The bound holds; of a difference: it is proven, and in our favour.
    Met,
    /// The bound does not hold, but the direction is right.
    DirectionOnly,
    /// Two sets of samples do not differ by more than chance and the machine's noise.
    NotProven,
    /// The figure says the opposite.
    Contrary,
    /// The part of the experiment that gives the figure was not run here.
    NotRun,
    /// The experiment ran and did not give the figure: a fault of claim or experiment.
    NoFigure,
}

impl Verdict {
    /// Whether the claim stands, or nothing was learned about it.
    pub fn passes(&self, gate: &Gate) -> bool {
        gate.struck.is_some() && self.outcome != Outcome::NoFigure
            || !matches!(self.outcome, Outcome::Contrary | Outcome::NoFigure)
    }

    /// The word for it.
    pub fn word(&self, gate: &Gate) -> &'static str {
        match (self.outcome, gate.kind) {
            (Outcome::Met, Kind::Reproduced) => "reproduced",
            (Outcome::Met, Kind::Beaten) => "beaten",
            (Outcome::Met, Kind::Holds) => "holds",
            (Outcome::DirectionOnly, _) => "direction only",
            (Outcome::NotProven, _) => "no difference proven",
            (Outcome::Contrary, _) => "contrary",
            (Outcome::NotRun, _) => "not run",
            (Outcome::NoFigure, _) => "no figure",
        }
    }
}

/// Judges `results` by one gate.
///
/// `noise` is what two runs of the same binary differ by on that machine, as a part of one: a
/// smaller difference of samples proves nothing.
pub fn judge(gate: &Gate, results: &Value, noise: f64) -> Verdict {
    if let Figure::Difference {
        samples,
        lower_is_better,
    } = &gate.figure
    {
        return difference(samples, *lower_is_better, results, noise);
    }
    let figure = read(&gate.figure, results).filter(|f| f.is_finite());
    let outcome = match figure {
        Some(figure) if gate.bound.holds(figure) => Outcome::Met,
        Some(figure) if gate.direction.is_some_and(|d| d.holds(figure)) => Outcome::DirectionOnly,
        Some(_) => Outcome::Contrary,
        None => missing(&gate.figure, results),
    };
    Verdict { figure, outcome }
}

/// Judges two sets of samples.
fn difference(places: &[String; 2], lower: bool, results: &Value, noise: f64) -> Verdict {
    let samples = |place: &String| -> Option<Summary> {
        let values = results.pointer(place)?.as_array()?;
        let values: Option<Vec<f64>> = values.iter().map(Value::as_f64).collect();
        Summary::of(&values?)
    };
    let (Some(set), Some(reference)) = (samples(&places[0]), samples(&places[1])) else {
        return Verdict {
            figure: None,
            outcome: missing(&Figure::Ratio(places.clone()), results),
        };
    };
    let outcome = match set.against(&reference) {
        Difference::Proven { by, .. } if by.abs() > noise * reference.avg.abs() => {
            match (by < 0.0) == lower {
                true => Outcome::Met,
                false => Outcome::Contrary,
            }
        }
        _ => Outcome::NotProven,
    };
    let figure = Some(set.avg / reference.avg).filter(|f| f.is_finite());
    Verdict { figure, outcome }
}

/// Why a figure is not there: its part says that it was not run, or it should be there.
fn missing(figure: &Figure, results: &Value) -> Outcome {
    let places: Vec<&String> = match figure {
        Figure::At(place) => vec![place],
        Figure::Ratio(pair) | Figure::Difference { samples: pair, .. } => pair.iter().collect(),
        Figure::Largest(pairs) | Figure::Smallest(pairs) => pairs.iter().flatten().collect(),
    };
    match places.iter().any(|place| is_not_run(place, results)) {
        true => Outcome::NotRun,
        false => Outcome::NoFigure,
    }
}

/// Whether anything on the way to a place says `not_run`.
fn is_not_run(place: &str, results: &Value) -> bool {
    let ends = place.match_indices('/').map(|(at, _)| at);
    let mut above = ends.filter_map(|end| results.pointer(&place[..end]));
    above.any(|value| value.get("not_run").is_some())
}

fn read(figure: &Figure, results: &Value) -> Option<f64> {
    let at = |place: &String| results.pointer(place).and_then(Value::as_f64);
    // Nothing of nothing is not a proof of anything: 0/0 has no figure.
    let ratio = |[of, to]: &[String; 2]| Some(at(of)? / at(to)?).filter(|r| !r.is_nan());
    let all = |pairs: &[[String; 2]]| pairs.iter().map(ratio).collect::<Option<Vec<_>>>();
    match figure {
        Figure::At(place) => at(place),
        Figure::Ratio(pair) => ratio(pair),
        Figure::Largest(pairs) => all(pairs)?.into_iter().reduce(f64::max),
        Figure::Smallest(pairs) => all(pairs)?.into_iter().reduce(f64::min),
        Figure::Difference { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn outcome(gate: &str, results: &Value) -> Outcome {
        let gate = format!("what = 'x'\nkind = 'beaten'\n{gate}");
        judge(&toml::from_str(&gate).unwrap(), results, 0.02).outcome
    }

    #[test]
    fn figures_are_read_and_bounds_are_allowed() {
        let results = json!({"a": {"n": 3}, "b": {"n": 6.0}, "none": 0});
        for (gate, expected) in [
            ("ratio = ['/a/n', '/b/n']\nat_most = 0.5", Outcome::Met),
            ("at = '/b/n'\nat_least = 6.5", Outcome::Contrary),
            (
                "at = '/b/n'\nat_least = 6.5\ndirection = { at_least = 5.0 }",
                Outcome::DirectionOnly,
            ),
            (
                "largest = [['/a/n', '/b/n'], ['/b/n', '/a/n']]\nat_least = 1.5\nat_most = 2.0",
                Outcome::Met,
            ),
            (
                "smallest = [['/a/n', '/b/n'], ['/b/n', '/a/n']]\nat_least = 1.5",
                Outcome::Contrary,
            ),
        ] {
            assert_eq!(outcome(gate, &results), expected, "{gate}");
        }
    }

    #[test]
    fn what_was_not_measured_is_no_success() {
        let results = json!({"zero": 0, "one": 1, "kernel": {"not_run": "no root"}});
        for gate in [
            "at = '/missing'",
            "ratio = ['/zero', '/missing']",
            "ratio = ['/zero', '/zero']",
            "ratio = ['/one', '/zero']",
            "largest = [['/one', '/one'], ['/missing', '/one']]",
        ] {
            let gate = format!("{gate}\nat_most = 1e9");
            assert_eq!(outcome(&gate, &results), Outcome::NoFigure, "{gate}");
        }
        let gate = "ratio = ['/one', '/kernel/time']\nat_most = 1e9";
        assert_eq!(outcome(gate, &results), Outcome::NotRun);
    }

    #[test]
    fn samples_must_differ_by_more_than_chance_and_noise() {
        let results = json!({
            "slow": [10.0, 10.1, 9.9, 10.0],
            "fast": [5.0, 5.1, 4.9, 5.0],
            "same": [10.01, 10.0, 9.95, 10.05],
            "near": [9.9, 9.9, 9.9, 9.9],
            "text": ["1", "2", "3"],
        });
        let judged = |of: &str, to: &str, lower: bool| {
            let gate = format!("difference = ['/{of}', '/{to}']\nlower_is_better = {lower}");
            outcome(&gate, &results)
        };
        assert_eq!(judged("fast", "slow", true), Outcome::Met);
        assert_eq!(judged("fast", "slow", false), Outcome::Contrary);
        assert_eq!(judged("same", "slow", true), Outcome::NotProven);
        // Proven by ministat's rule, but within 2 % of noise.
        let exact = json!({"a": [9.9, 9.9, 9.9], "b": [10.0, 10.0, 10.0]});
        let gate = "difference = ['/a', '/b']\nlower_is_better = true";
        assert_eq!(outcome(gate, &exact), Outcome::NotProven);
        assert_eq!(judged("text", "slow", true), Outcome::NoFigure);
    }
}
