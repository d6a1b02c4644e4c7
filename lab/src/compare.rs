//! Two folders of records side by side: what is not the same, and how much of it is proven.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::claim::Claim;
use crate::experiment::Failure;
use crate::judge::judge;
use crate::machine::noise_floor;
use crate::ministat::{Difference, Summary, general};
use crate::record::{FORMAT, Folder, Record};

/// What two folders say of one claim.
#[derive(Debug, PartialEq)]
pub struct Comparison {
    /// The claim.
    pub claim: String,
    /// Why it cannot be compared; then nothing else is said.
    pub refused: Option<String>,
    /// Figures of both that differ.
    pub changes: Vec<Change>,
    /// Gates whose verdict is another one.
    pub verdicts: Vec<String>,
}

/// A figure that differs.
#[derive(Debug, PartialEq)]
pub struct Change {
    /// Its place, as a JSON pointer.
    pub place: String,
    /// In the first folder; of samples, their mean.
    pub before: f64,
    /// In the second.
    pub after: f64,
}

/// Compares all claims that either folder has, in the order of the registry.
///
/// # Errors
/// [`Failure::Usage`] for a folder that is not there, [`Failure::Run`] for a file that is no
/// record.
pub fn compare(before: &Path, after: &Path, claims: &[Claim]) -> Result<Vec<Comparison>, Failure> {
    let folders = [Folder::open(before)?, Folder::open(after)?];
    let noise = f64::max(noise_floor(&folders[0])?, noise_floor(&folders[1])?);
    let mut all = Vec::new();
    for claim in claims {
        let records = [
            folders[0].record(&claim.name)?,
            folders[1].record(&claim.name)?,
        ];
        match records {
            [None, None] => {}
            [Some(before), Some(after)] => all.push(of_claim(claim, &before, &after, noise)),
            [before, _] => all.push(refused(
                claim,
                match before {
                    None => "only the second folder has it",
                    Some(_) => "only the first folder has it",
                },
            )),
        }
    }
    Ok(all)
}

fn refused(claim: &Claim, why: &str) -> Comparison {
    Comparison {
        claim: claim.name.clone(),
        refused: Some(why.to_owned()),
        changes: Vec::new(),
        verdicts: Vec::new(),
    }
}

fn of_claim(claim: &Claim, before: &Record, after: &Record, noise: f64) -> Comparison {
    if before.format != FORMAT || after.format != FORMAT {
        return refused(claim, "a record of another version of the lab");
    }
    if !before.is_same_setting(after) {
        return refused(claim, "the runs had different settings");
    }
    let (Some(old), Some(new)) = (&before.results, &after.results) else {
        return refused(claim, "one of them was not run");
    };
    let mut changes = Vec::new();
    walk(&mut String::new(), old, new, noise, &mut changes);
    let changed = claim.gates.iter().filter_map(|gate| {
        let words = [old, new].map(|results| judge(gate, results, noise).word(gate));
        let [old, new] = words;
        (old != new).then(|| format!("{}: {old}, now {new}", gate.what))
    });
    Comparison {
        claim: claim.name.clone(),
        refused: None,
        verdicts: changed.collect(),
        changes,
    }
}

/// Numbers that differ, and sets of samples whose difference is proven.
fn walk(place: &mut String, old: &Value, new: &Value, noise: f64, changes: &mut Vec<Change>) {
    let change = |before: f64, after: f64| Change {
        place: place.clone(),
        before,
        after,
    };
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (key, old) in old {
                let Some(new) = new.get(key) else { continue };
                let end = place.len();
                let _ = write!(place, "/{}", key.replace('~', "~0").replace('/', "~1"));
                walk(place, old, new, noise, changes);
                place.truncate(end);
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            if let (Some(old), Some(new)) = (samples(old), samples(new))
                && let Difference::Proven { by, .. } = new.against(&old)
                && by.abs() > noise * old.avg.abs()
            {
                changes.push(change(old.avg, new.avg));
            }
        }
        (Value::Number(old), Value::Number(new)) if old != new => {
            let [old, new] = [old, new].map(|number| number.as_f64().unwrap_or(f64::NAN));
            changes.push(change(old, new));
        }
        _ => {}
    }
}

fn samples(values: &[Value]) -> Option<Summary> {
    let values: Option<Vec<f64>> = values.iter().map(Value::as_f64).collect();
    Summary::of(&values?)
}

/// For people: a line a claim, and what changed below it.
pub fn text(all: &[Comparison]) -> String {
    let mut out = String::new();
    for one in all {
        let _ = match (&one.refused, one.changes.len(), one.verdicts.len()) {
            (Some(why), ..) => writeln!(out, "{}: not compared: {why}", one.claim),
            (None, 0, 0) => writeln!(out, "{}: the same", one.claim),
            (None, figures, verdicts) => writeln!(
                out,
                "{}: {figures} figures differ, {verdicts} verdicts",
                one.claim
            ),
        };
        for verdict in &one.verdicts {
            let _ = writeln!(out, "    {verdict}");
        }
        for change in &one.changes {
            let ratio = change.after / change.before;
            let [before, after, ratio] =
                [change.before, change.after, ratio].map(|value| general(value, 4));
            let _ = writeln!(out, "    {}: {before} -> {after} ({ratio})", change.place);
        }
    }
    out
}

/// The same as JSON.
pub fn to_json(all: &[Comparison]) -> Value {
    let one = |one: &Comparison| {
        let mut object = Map::new();
        object.insert("claim".to_owned(), json!(one.claim));
        object.insert("not_compared".to_owned(), json!(one.refused));
        object.insert("verdicts".to_owned(), json!(one.verdicts));
        let changes = one.changes.iter().map(
            |change| json!({"place": change.place, "before": change.before, "after": change.after}),
        );
        object.insert("changes".to_owned(), changes.collect());
        Value::Object(object)
    };
    all.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(old: &Value, new: &Value) -> Vec<String> {
        let mut changes = Vec::new();
        walk(&mut String::new(), old, new, 0.05, &mut changes);
        changes.into_iter().map(|change| change.place).collect()
    }

    #[test]
    fn counts_differ_if_they_are_not_equal_and_samples_if_it_is_proven() {
        let old = json!({"n": 1, "same": 2, "t": [1.0, 1.01, 0.99], "u": [1.0, 1.0, 1.0]});
        let new = json!({"n": 2, "same": 2, "t": [1.01, 0.99, 1.0], "u": [2.0, 2.0, 2.0]});
        assert_eq!(changes(&old, &new), ["/n", "/u"]);
        assert!(changes(&old, &old).is_empty());
        // Within the noise, however exact the samples are.
        let near = json!({"u": [1.04, 1.04, 1.04]});
        assert!(changes(&old, &near).is_empty());
    }
}
