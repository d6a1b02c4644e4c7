//! Holds a record against the gates of its claim.

use serde_json::Value;

use crate::claim::{Bound, Figure, Gate};

/// What became of one gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// The figure; `None` if the results do not hold it, and then the gate falls short.
    pub figure: Option<f64>,
    /// Whether the gate holds.
    pub holds: bool,
}

/// Judges `results` by one gate.
pub fn judge(gate: &Gate, results: &Value) -> Verdict {
    let figure = read(&gate.figure, results).filter(|f| f.is_finite());
    let holds = figure.is_some_and(|figure| match gate.bound {
        Bound::AtMost(most) => figure <= most,
        Bound::AtLeast(least) => figure >= least,
        Bound::Within(least, most) => (least..=most).contains(&figure),
    });
    Verdict { figure, holds }
}

fn read(figure: &Figure, results: &Value) -> Option<f64> {
    let at = |place: &str| results.pointer(place).and_then(Value::as_f64);
    // Nothing of nothing is not a proof of anything: 0/0 has no figure.
    let ratio = |(of, to): &(&str, &str)| Some(at(of)? / at(to)?).filter(|r| !r.is_nan());
    let all = |pairs: &[(&str, &str)]| pairs.iter().map(ratio).collect::<Option<Vec<_>>>();
    match figure {
        Figure::At(place) => at(place),
        Figure::Ratio(of, to) => ratio(&(*of, *to)),
        Figure::LargestRatio(pairs) => all(pairs)?.into_iter().reduce(f64::max),
        Figure::SmallestRatio(pairs) => all(pairs)?.into_iter().reduce(f64::min),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn gate(figure: Figure, bound: Bound) -> Gate {
        Gate {
            what: "",
            figure,
            bound,
        }
    }

    #[test]
    fn figures_are_read_and_bounds_are_allowed() {
        let results = json!({"a": {"n": 3}, "b": {"n": 6.0}, "none": 0});
        let half = gate(Figure::Ratio("/a/n", "/b/n"), Bound::AtMost(0.5));
        assert_eq!(
            judge(&half, &results),
            Verdict {
                figure: Some(0.5),
                holds: true
            }
        );
        let least = gate(Figure::At("/b/n"), Bound::AtLeast(6.5));
        assert!(!judge(&least, &results).holds);
        let pairs = &[("/a/n", "/b/n"), ("/b/n", "/a/n")];
        let worst = gate(Figure::LargestRatio(pairs), Bound::Within(1.5, 2.0));
        assert!(judge(&worst, &results).holds);
        let worst = gate(Figure::SmallestRatio(pairs), Bound::Within(1.5, 2.0));
        assert!(!judge(&worst, &results).holds);
    }

    #[test]
    fn what_was_not_measured_falls_short() {
        let results = json!({"zero": 0, "one": 1});
        for figure in [
            Figure::At("/missing"),
            Figure::Ratio("/zero", "/missing"),
            Figure::Ratio("/zero", "/zero"),
            Figure::Ratio("/one", "/zero"),
            Figure::LargestRatio(&[("/one", "/one"), ("/missing", "/one")]),
        ] {
            let verdict = judge(&gate(figure, Bound::AtMost(1e9)), &results);
            assert_eq!(
                verdict,
                Verdict {
                    figure: None,
                    holds: false
                }
            );
        }
    }
}
