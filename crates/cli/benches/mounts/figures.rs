//! What was measured, and its medians as a table.

use std::fmt::Write;

use serde_json::{Value, json};

/// What a figure counts, and how it is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    PerSecond,
    Seconds,
    MibPerSecond,
    Mib,
}

impl Unit {
    pub fn name(self) -> &'static str {
        match self {
            Self::PerSecond => "/s",
            Self::Seconds => "s",
            Self::MibPerSecond => "MiB/s",
            Self::Mib => "MiB",
        }
    }
}

/// All figures of one row: of each subject, one a round.
#[derive(Debug)]
struct Row {
    what: String,
    unit: Unit,
    by_subject: Vec<(&'static str, Vec<f64>)>,
}

#[derive(Debug, Default)]
pub struct Figures {
    rows: Vec<Row>,
}

impl Figures {
    /// One round's figure.
    pub fn add(&mut self, what: &str, unit: Unit, subject: &'static str, figure: f64) {
        let at = self.rows.iter().position(|row| row.what == what);
        let at = at.unwrap_or_else(|| {
            self.rows.push(Row {
                what: what.to_owned(),
                unit,
                by_subject: Vec::new(),
            });
            self.rows.len() - 1
        });
        let row = &mut self.rows[at].by_subject;
        match row.iter_mut().find(|(name, _)| *name == subject) {
            Some((_, figures)) => figures.push(figure),
            None => row.push((subject, vec![figure])),
        }
    }

    /// The median of a row of a subject, if it was measured.
    pub fn median(&self, what: &str, subject: &str) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.what == what)?;
        row.median(subject)
    }

    /// The largest of a row of a subject.
    pub fn most(&self, what: &str, subject: &str) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.what == what)?;
        row.figures(subject)?;
        Some(row.spread(subject).1)
    }

    /// For people; the smallest and largest round in brackets.
    pub fn text(&self) -> String {
        let mut text = String::from("| what");
        let subjects = crate::subject::ALL.map(|subject| subject.name());
        for subject in subjects {
            _ = write!(text, " | {subject}");
        }
        _ = writeln!(text, " |\n|---{}|", "|---".repeat(subjects.len()));
        for row in &self.rows {
            _ = write!(text, "| {}, {}", row.what, row.unit.name());
            for subject in subjects {
                text.push_str(" | ");
                if let Some(median) = row.median(subject) {
                    let (least, most) = row.spread(subject);
                    let digits = if median < 100.0 { 2 } else { 0 };
                    _ = write!(text, "{median:.digits$} ({least:.digits$}–{most:.digits$})");
                }
            }
            text.push_str(" |\n");
        }
        _ = writeln!(text, "\nload average {}", load_average());
        text
    }

    /// For programs: each round's figure.
    pub fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let by_subject = row.by_subject.iter().map(|(subject, rounds)| {
                let median = row.median(subject);
                (
                    (*subject).to_owned(),
                    json!({"median": median, "rounds": rounds}),
                )
            });
            let by_subject: serde_json::Map<String, Value> = by_subject.collect();
            json!({"what": row.what, "unit": row.unit.name(), "of": by_subject})
        });
        json!({"rows": rows.collect::<Vec<_>>(), "load_average": load_average()})
    }
}

impl Row {
    fn figures(&self, subject: &str) -> Option<&[f64]> {
        let found = self.by_subject.iter().find(|(name, _)| *name == subject);
        Some(&found?.1)
    }

    fn median(&self, subject: &str) -> Option<f64> {
        let mut sorted = self.figures(subject)?.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }

    fn spread(&self, subject: &str) -> (f64, f64) {
        let figures = self.figures(subject).unwrap_or_default();
        let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
        (least, figures.iter().copied().fold(0.0, f64::max))
    }
}

fn load_average() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').take(3).collect::<Vec<_>>().join(" ")
}
