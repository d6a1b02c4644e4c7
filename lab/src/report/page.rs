//! The report: one HTML page that needs no other file.
//!
//! It is made of claims and records alone. Every verdict stands on the first screen that has room
//! for it, losses as large as wins; every figure leads to the record it was read from.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;

use crate::claim::{Claim, Subsystem};
use crate::experiment::Failure;
use crate::judge::Outcome;
use crate::machine;
use crate::record::{FORMAT, Folder, Record};

use super::thread;
use super::verdicts::{Judged, SUBSYSTEMS, WORDS, judge_all};

const STYLE: &str = include_str!("style.css");
const BIAS: &str = include_str!("../../BIAS.md");

/// What a page is made of.
pub struct Source<'a> {
    /// The claims.
    pub claims: &'a [Claim],
    /// The records.
    pub folder: &'a Folder,
}

/// What the records of one claim say.
pub struct Tried<'a> {
    /// The claim.
    pub claim: &'a Claim,
    /// Its record, if there is one that this lab can read.
    pub record: Option<Record>,
    /// Why there is none.
    pub missing: Option<String>,
    /// Its gates, judged.
    pub gates: Vec<Judged<'a>>,
}

/// The page.
///
/// # Errors
/// [`Failure::Run`] for a file of the folder that is no record.
pub fn page(source: &Source<'_>) -> Result<String, Failure> {
    let folder = source.folder;
    let machine = folder.json(machine::FILE)?;
    let tests = folder.json("tests.json")?;
    let tried = try_all(source)?;
    let title = format!(
        "uext4: five published experiments, re-run ({})",
        folder.name()
    );
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                // The page asks for nothing: an icon would be a request.
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { "Five published experiments, re-run and compared with the real kernel" }
                    p.about { "Record " code { (folder.name()) } (commit_of(machine.as_ref())) "." }
                    (contents())
                }
                main {
                    (verdicts(&tried))
                    (kernel(&tried))
                    @for (room, name) in SUBSYSTEMS {
                        (thread::section(&tried, room, name)?)
                    }
                    (machine_section(machine.as_ref()))
                    (tests_section(tests.as_ref()))
                    (tuned(&tried))
                    (bias())
                }
            }
        }
    };
    Ok(markup.into_string())
}

fn try_all<'a>(source: &Source<'a>) -> Result<Vec<Tried<'a>>, Failure> {
    let mut judged = judge_all(source.claims, source.folder)?
        .into_iter()
        .peekable();
    let mut all = Vec::new();
    for claim in source.claims {
        let found = source.folder.record(&claim.name)?;
        let (record, missing) = match found {
            None => (None, Some("no record of it in this folder".to_owned())),
            Some(record) if record.format != FORMAT => {
                let why = format!("a record of version {} of the lab", record.format);
                (None, Some(why))
            }
            Some(record) => {
                let why = record.not_run.clone();
                (Some(record), why)
            }
        };
        let mut gates = Vec::new();
        while let Some(one) = judged.next_if(|one| one.claim.name == claim.name) {
            gates.push(one);
        }
        all.push(Tried {
            claim,
            record,
            missing,
            gates,
        });
    }
    Ok(all)
}

fn commit_of(machine: Option<&Value>) -> String {
    let commit = machine.and_then(|page| page["commit"].as_str());
    commit.map_or_else(String::new, |commit| format!(", made by commit {commit}"))
}

fn contents() -> Markup {
    html! {
        nav aria-label="Contents" {
            ul {
                li { a href="#verdicts" { "Verdicts" } }
                li { a href="#kernel" { "The real kernel" } }
                @for (room, name) in SUBSYSTEMS {
                    li { a href={ "#" (room.id()) } { (name) } }
                }
                li { a href="#machine" { "The machine" } }
                li { a href="#tests" { "The tests" } }
                li { a href="#tuned" { "What was tuned" } }
                li { a href="#bias" { "Bias, and how to object" } }
            }
        }
    }
}

fn verdicts(tried: &[Tried<'_>]) -> Markup {
    let gates = || tried.iter().flat_map(|one| &one.gates);
    let is_used = |word: &str| gates().any(|one| one.verdict.word(one.gate) == word);
    let words: Vec<&str> = WORDS.into_iter().filter(|word| is_used(word)).collect();
    let count = |room: Subsystem, word: &str| {
        let is_it = |one: &&Judged| one.claim.room == room && one.verdict.word(one.gate) == word;
        gates().filter(is_it).count()
    };
    html! {
        section #verdicts {
            h2 { "Verdicts" }
            p {
                "A gate is one bound on one figure, written down before the figure was known, "
                "unless its claim says otherwise. "
                "Counted figures are the same in every run; timed ones are believed only where they "
                "differ by more than chance and by more than this machine's own noise. A bound that "
                "is struck was given up, with the proof in its claim; it is measured all the same."
            }
            div.wide {
                table {
                    thead { tr {
                        th { "subsystem" }
                        @for word in &words { th.n { (word) } }
                    } }
                    tbody {
                        @for (room, name) in SUBSYSTEMS {
                            tr {
                                th { a href={ "#" (room.id()) } { (name) } }
                                @for word in &words { td.n { (count(room, word)) } }
                            }
                        }
                    }
                }
            }
            h3 { "Every gate" }
            (thread::gates(gates(), true))
        }
    }
}

/// What is held against the running kernel, on one screen: whether "beats mainline" is true.
fn kernel(tried: &[Tried<'_>]) -> Markup {
    let next_to: Vec<&Tried> = tried
        .iter()
        .filter(|one| one.claim.is_compared_with_kernel)
        .collect();
    let gates = || next_to.iter().flat_map(|one| &one.gates);
    let count =
        |is_it: fn(Outcome) -> bool| gates().filter(|one| is_it(one.verdict.outcome)).count();
    let met = count(|outcome| outcome == Outcome::Met);
    let run = count(|outcome| outcome != Outcome::NotRun);
    html! {
        section #kernel {
            h2 { "The real kernel" }
            p {
                "\"Mainline\" in the other tables is a model of the kernel's policy. Here the running "
                "kernel itself is a subject: its trace events and counters stand next to the model's "
                "and to ours. Of " (run) " gates that were run against it, " (met) " hold."
                @if run == 0 { " Nothing is known of the kernel from this record." }
            }
            ul {
                @for one in &next_to {
                    li {
                        a href={ "#" (one.claim.name) } { (one.claim.name) } ": " (one.claim.title)
                        @if let Some(why) = &one.missing { " (not run: " (why) ")" }
                    }
                }
            }
            (thread::gates(gates(), true))
        }
    }
}

fn machine_section(machine: Option<&Value>) -> Markup {
    let empty = serde_json::Map::new();
    let fields = machine.and_then(Value::as_object).unwrap_or(&empty);
    let noise = fields.get("noise");
    let percent = |value: Option<f64>| {
        value.map_or("not measured".to_owned(), |value| {
            format!("{:.2} %", value * 100.0)
        })
    };
    let at = |name: &str| noise.and_then(|noise| noise[name].as_f64());
    html! {
        section #machine {
            h2 { "The machine" }
            div.wide { table { tbody {
                @for (name, value) in fields.iter().filter(|(name, _)| *name != "noise") {
                    tr { th { (name) } td { (plain(value)) } }
                }
                tr {
                    th { "a wake-up takes" }
                    td { (at("wake_up_us").map_or("not measured".to_owned(), |us| format!("{us:.1} µs"))) }
                }
                tr {
                    th { "a difference is believed above" }
                    td { (percent(at("floor"))) }
                }
            } } }
            p {
                "The noise was measured by the lab: one workload of the engine, the same binary on both "
                "sides, in turns. By chance alone the sides differed by:"
            }
            p { code {
                @for value in noise.and_then(|noise| noise["differences"].as_array()).into_iter().flatten() {
                    (percent(value.as_f64())) " "
                }
            } }
        }
    }
}

fn tests_section(tests: Option<&Value>) -> Markup {
    html! {
        section #tests {
            h2 { "The tests" }
            p { "Counted in the tree that made this record; what was not counted is left out." }
            @match tests.and_then(Value::as_object) {
                None => p { "Not counted in this record." },
                Some(counts) => div.wide { table { tbody {
                    @for (what, count) in counts {
                        tr { th { (what) } td.n { (plain(count)) } }
                    }
                } } },
            }
        }
    }
}

fn tuned(tried: &[Tried<'_>]) -> Markup {
    html! {
        section #tuned {
            h2 { "What was tuned for us and not for them" }
            dl {
                @for one in tried.iter().filter(|one| !one.claim.tuned.is_empty()) {
                    dt { a href={ "#" (one.claim.name) } { (one.claim.name) } }
                    dd { (one.claim.tuned) }
                }
            }
        }
    }
}

fn bias() -> Markup {
    let mut text = String::new();
    pulldown_cmark::html::push_html(&mut text, pulldown_cmark::Parser::new(BIAS));
    html! { section #bias { (PreEscaped(text)) } }
}

/// A value in the words of the page: text without quotes, nothing as "not known".
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "not known".to_owned(),
        other => other.to_string(),
    }
}
