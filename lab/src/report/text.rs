//! Printing: of definitions, records and verdicts, for people at a terminal.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::claim::{Claim, Figure, Gate};
use crate::experiment::Experiment;
use crate::judge::Verdict;
use crate::record::Record;

/// All claims, one line each.
pub fn list(claims: &[Claim]) -> String {
    let widest = claims.iter().map(|c| c.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for claim in claims {
        let _ = writeln!(
            out,
            "{:widest$}  {:2} gates  {}",
            claim.name,
            claim.gates.len(),
            claim.title
        );
    }
    out
}

/// All claims as JSON.
pub fn list_json(claims: &[Claim]) -> Value {
    let one = |claim: &Claim| {
        json!({
            "name": claim.name,
            "title": claim.title,
            "source": claim.source,
            "room": claim.room,
            "thread": claim.thread,
            "experiment": claim.experiment,
            "policies": claim.policies,
            "gates": claim.gates.len(),
        })
    };
    claims.iter().map(one).collect()
}

/// What a claim says and where it comes from.
pub fn definition(claim: &Claim, experiment: &Experiment) -> String {
    let mut out = format!("# {}: {}\n", claim.name, claim.title);
    let mut line = |what: &str, text: &str| {
        if !text.is_empty() {
            let _ = writeln!(out, "{what:9} {text}");
        }
    };
    line("source", &claim.source);
    line("shows", &claim.analysis);
    line("workload", &claim.workload);
    line("device", &claim.device);
    line("threads", &claim.threads);
    line("tuned", &claim.tuned);
    line("figures", experiment.measure.text());
    line("policies", &claim.policies.join(" "));
    for parameter in experiment.parameters {
        let values = parameter.values.join("|");
        line(
            "set",
            &format!("{}={values}: {}", parameter.name, parameter.what),
        );
    }
    for figure in &claim.printed {
        line("printed", &format!("{}: {}", figure.what, figure.printed));
    }
    out
}

/// The results of a run, one `place = value` a line.
pub fn results(record: &Record) -> String {
    let mut out = String::new();
    if let Some(results) = &record.results {
        flatten(&mut String::new(), results, &mut out);
    }
    let _ = writeln!(out, "again     {}", record.command());
    if let Some(why) = &record.not_run {
        let _ = writeln!(out, "not run: {why}");
    }
    out
}

fn flatten(place: &mut String, value: &Value, out: &mut String) {
    let mut below = |key: &str, value: &Value| {
        let before = place.len();
        place.push('/');
        place.push_str(key);
        flatten(place, value, out);
        place.truncate(before);
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| below(key, value)),
        Value::Array(values) if values.iter().any(|v| v.is_object() || v.is_array()) => {
            for (index, value) in values.iter().enumerate() {
                below(&index.to_string(), value);
            }
        }
        _ => {
            let _ = writeln!(out, "{place} = {value}");
        }
    }
}

/// One gate and what became of it, in one line; a second one says why its bound was given up.
pub fn verdict(claim: &Claim, gate: &Gate, verdict: Verdict) -> String {
    let word = verdict.word(gate);
    let figure = verdict.figure.map_or("-".to_owned(), number);
    let bound = bound(gate);
    let struck = match &gate.struck {
        Some(why) => format!("\n{:20} struck: {why}", ""),
        None => String::new(),
    };
    format!(
        "{word:20} {}: {}: {figure} ({bound}){struck}",
        claim.name, gate.what
    )
}

/// What the figure must be, in words.
pub fn bound(gate: &Gate) -> String {
    if let Figure::Difference {
        lower_is_better, ..
    } = gate.figure
    {
        let better = if lower_is_better { "less" } else { "more" };
        return format!("{better} by more than chance and noise");
    }
    match (gate.bound.at_least, gate.bound.at_most) {
        (Some(least), Some(most)) => format!("{} to {}", number(least), number(most)),
        (Some(least), None) => format!("at least {}", number(least)),
        (None, Some(most)) => format!("at most {}", number(most)),
        (None, None) => "no bound".to_owned(),
    }
}

/// How many gates have each verdict: the last line of `gate`.
#[derive(Debug, Default)]
pub struct Tally {
    words: Vec<(&'static str, usize)>,
    struck: usize,
}

impl Tally {
    /// Counts one.
    pub fn count(&mut self, gate: &Gate, verdict: Verdict) {
        self.struck += usize::from(gate.struck.is_some());
        let word = verdict.word(gate);
        match self.words.iter_mut().find(|known| known.0 == word) {
            Some(known) => known.1 += 1,
            None => self.words.push((word, 1)),
        }
    }

    /// In one line.
    pub fn text(&self) -> String {
        let counts = self.words.iter();
        let mut parts: Vec<_> = counts.map(|(word, n)| format!("{n} {word}")).collect();
        parts.push(format!("{} with a bound that was struck", self.struck));
        parts.join(", ")
    }
}

/// Whole numbers as they are, others to four digits.
pub fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        format!("{value}")
    } else {
        crate::ministat::general(value, 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::judge;

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(3.0), "3");
        assert_eq!(number(0.333_333), "0.3333");
        assert_eq!(number(12345.678), "1.235e+04");
        assert_eq!(number(0.0), "0");
    }

    #[test]
    fn the_last_line_counts_verdicts() {
        let gate: Gate =
            toml::from_str("what = 'x'\nkind = 'beaten'\nat = '/a'\nat_most = 1.0").unwrap();
        let mut tally = Tally::default();
        for figure in [0.5, 0.6, 2.0] {
            tally.count(&gate, judge(&gate, &json!({"a": figure}), 0.0));
        }
        let expected = "2 beaten, 1 contrary, 0 with a bound that was struck";
        assert_eq!(tally.text(), expected);
    }
}
