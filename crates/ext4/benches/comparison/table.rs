//! Figures, and their medians as a table.

use std::fmt::Write;

/// All figures: by row, by subject, of every round.
#[derive(Debug)]
pub struct Table {
    subjects: Vec<&'static str>,
    rows: Vec<(String, Vec<Vec<f64>>)>,
}

impl Table {
    pub fn new(subjects: &[&'static str]) -> Self {
        Self {
            subjects: subjects.to_vec(),
            rows: Vec::new(),
        }
    }

    /// One round's figure.
    pub fn add(&mut self, row: &str, subject: &str, figure: f64) {
        let column = self.subjects.iter().position(|s| *s == subject).unwrap();
        let at = match self.rows.iter().position(|(name, _)| name == row) {
            Some(at) => at,
            None => {
                let empty = vec![Vec::new(); self.subjects.len()];
                self.rows.push((row.to_owned(), empty));
                self.rows.len() - 1
            }
        };
        self.rows[at].1[column].push(figure);
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!("{:34}", "");
        for subject in &self.subjects {
            _ = write!(text, "{subject:>12}");
        }
        text.push('\n');
        for (row, figures) in &self.rows {
            _ = write!(text, "{row:34}");
            for figures in figures {
                _ = match median(figures) {
                    None => write!(text, "{:>12}", "–"),
                    Some(ratio) if row.contains(" : ") => write!(text, "{ratio:>12.2}"),
                    Some(figure) => write!(text, "{figure:>12.0}"),
                };
            }
            text.push('\n');
        }
        _ = writeln!(text, "load average {}", load_average());
        text
    }

    /// For programs.
    pub fn json(&self) -> String {
        let rows = self.rows.iter().map(|(row, figures)| {
            let by_subject = self.subjects.iter().zip(figures);
            let figures = by_subject.filter_map(|(s, f)| Some(format!("\"{s}\":{}", median(f)?)));
            format!("\"{row}\":{{{}}}", figures.collect::<Vec<_>>().join(","))
        });
        let rows = rows.collect::<Vec<_>>().join(",");
        format!(
            "{{\"load_average\":\"{}\",\"medians\":{{{rows}}}}}",
            load_average()
        )
    }
}

fn median(figures: &[f64]) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

fn load_average() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').take(3).collect::<Vec<_>>().join(" ")
}
