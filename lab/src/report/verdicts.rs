//! The table of verdicts, as Markdown: how many gates of each subsystem came out how, and every one
//! that did not come out as it was claimed.

use std::fmt::Write as _;

use crate::claim::{Claim, Gate, Subsystem};
use crate::experiment::Failure;
use crate::judge::{Outcome, Verdict, judge};
use crate::machine::noise_floor;
use crate::record::{FORMAT, Folder};

use super::text;

/// The columns, in order.
pub const WORDS: [&str; 8] = [
    "reproduced",
    "beaten",
    "holds",
    "direction only",
    "no difference proven",
    "contrary",
    "not run",
    "no figure",
];
/// The rows, in order.
pub const SUBSYSTEMS: [(Subsystem, &str); 5] = [
    (Subsystem::ExtentStatus, "extent status"),
    (Subsystem::BhLru, "buffer-head LRU"),
    (Subsystem::Mballoc, "block allocator"),
    (Subsystem::Mbcache, "attribute block cache"),
    (Subsystem::Writeback, "dirty throttling"),
];

/// One gate, judged by a record.
pub struct Judged<'a> {
    /// The claim.
    pub claim: &'a Claim,
    /// Its gate.
    pub gate: &'a Gate,
    /// What became of it.
    pub verdict: Verdict,
}

/// Judges every gate of these claims by the records of a folder. A claim without a record, or with
/// one of another form, was not run.
///
/// # Errors
/// [`Failure::Run`] for a file that is no record.
pub fn judge_all<'a>(claims: &'a [Claim], folder: &Folder) -> Result<Vec<Judged<'a>>, Failure> {
    let noise = noise_floor(folder)?;
    let mut all = Vec::new();
    for claim in claims {
        let record = folder.record(&claim.name)?;
        let results = record
            .filter(|record| record.format == FORMAT)
            .and_then(|record| record.results);
        let verdict = |gate| match &results {
            Some(results) => judge(gate, results, noise),
            None => Verdict {
                figure: None,
                outcome: Outcome::NotRun,
            },
        };
        all.extend(claim.gates.iter().map(|gate| Judged {
            claim,
            gate,
            verdict: verdict(gate),
        }));
    }
    Ok(all)
}

/// The table, and below it every gate that is contrary or of which only the direction is right.
pub fn markdown(all: &[Judged<'_>], folder: &Folder) -> String {
    let is_used = |word: &&str| all.iter().any(|one| one.verdict.word(one.gate) == *word);
    let words: Vec<&str> = WORDS.iter().copied().filter(|word| is_used(word)).collect();
    // As long a head would make the row wider than a line may be.
    let head = words
        .join(" | ")
        .replace("no difference proven", "no difference");
    let mut out = format!("| subsystem | {head} |\n");
    let _ = writeln!(out, "|---|{}", "--:|".repeat(words.len()));
    for (room, name) in SUBSYSTEMS {
        let count = |word: &str| {
            let is_it =
                |one: &&Judged| one.claim.room == room && one.verdict.word(one.gate) == word;
            all.iter().filter(is_it).count().to_string()
        };
        let counts: Vec<_> = words.iter().map(|word| count(word)).collect();
        let _ = writeln!(out, "| {name} | {} |", counts.join(" | "));
    }
    let is_short = |one: &&Judged| {
        matches!(
            one.verdict.outcome,
            Outcome::Contrary | Outcome::DirectionOnly | Outcome::NoFigure
        )
    };
    let short: Vec<_> = all.iter().filter(is_short).collect();
    if !short.is_empty() {
        out.push_str("\nNot as claimed:\n\n");
    }
    for one in short {
        let figure = one.verdict.figure.map_or("-".to_owned(), text::number);
        let struck = match one.gate.struck {
            Some(_) => ", struck",
            None => "",
        };
        let item = format!(
            "`{}`: {}: {figure} ({}{struck}): {}",
            one.claim.name,
            one.gate.what,
            text::bound(one.gate),
            one.verdict.word(one.gate),
        );
        write_item(&mut out, &item);
    }
    let _ = writeln!(out, "\n[record: {}]", folder.name());
    out
}

/// Columns of a line of the list.
const WIDTH: usize = 98;

/// Writes an item of a list in Markdown, on as many lines as it takes.
fn write_item(out: &mut String, item: &str) {
    let mut column = 1;
    out.push('-');
    for word in item.split(' ') {
        let len = word.chars().count();
        if column + 1 + len > WIDTH {
            out.push_str("\n ");
            column = 1;
        }
        out.push(' ');
        out.push_str(word);
        column += 1 + len;
    }
    out.push('\n');
}
