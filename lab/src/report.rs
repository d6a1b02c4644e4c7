//! Printing: of definitions, records and verdicts, for people.

use std::fmt::Write as _;

use serde_json::Value;

use crate::claim::{Bound, Claim, Gate, Measure};
use crate::judge::Verdict;
use crate::record::Record;

/// All claims, one line each.
pub fn list(claims: &[&Claim]) -> String {
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

/// What a claim says and where it comes from.
pub fn definition(claim: &Claim) -> String {
    let mut out = format!("# {}: {}\n", claim.name, claim.title);
    let _ = writeln!(out, "source    {}", claim.source);
    let _ = writeln!(out, "shows     {}", claim.analysis);
    let _ = writeln!(
        out,
        "figures   {}",
        match claim.measure {
            Measure::Counted => "counted, the same in every run",
            Measure::Threads => "counted among real threads, differ from run to run",
        }
    );
    let _ = writeln!(out, "policies  {}", claim.policies.join(" "));
    for parameter in claim.parameters {
        let values = parameter.values.join("|");
        let _ = writeln!(
            out,
            "set       {}={values}: {}",
            parameter.name, parameter.what
        );
    }
    for figure in claim.figures {
        let _ = writeln!(out, "printed   {}: {}", figure.what, figure.printed);
    }
    out
}

/// The results of a run, one `place = value` a line.
pub fn results(record: &Record) -> String {
    let mut out = String::new();
    flatten(&mut String::new(), &record.results, &mut out);
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

/// One gate and what became of it, in one line.
pub fn verdict(claim: &Claim, gate: &Gate, verdict: Verdict) -> String {
    let word = if verdict.holds {
        "holds"
    } else {
        "FALLS SHORT"
    };
    let figure = match verdict.figure {
        Some(figure) => number(figure),
        None => "no figure".to_owned(),
    };
    let bound = match gate.bound {
        Bound::AtMost(most) => format!("at most {}", number(most)),
        Bound::AtLeast(least) => format!("at least {}", number(least)),
        Bound::Within(least, most) => format!("{} to {}", number(least), number(most)),
    };
    format!(
        "{word:11} {}: {}: {figure} ({bound})",
        claim.name, gate.what
    )
}

/// The last line of `gate`.
pub fn tally(holding: usize, short: usize) -> String {
    format!("{holding} gates hold, {short} fall short")
}

/// Whole numbers as they are, others to four digits.
fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        format!("{value}")
    } else {
        crate::ministat::general(value, 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(3.0), "3");
        assert_eq!(number(0.333_333), "0.3333");
        assert_eq!(number(12345.678), "1.235e+04");
        assert_eq!(number(0.0), "0");
    }

    #[test]
    fn the_last_line_is_exact() {
        assert_eq!(tally(12, 0), "12 gates hold, 0 fall short");
    }
}
