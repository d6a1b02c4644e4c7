//! The part of the page about one subsystem: its thread's claims, one after another.

use std::collections::BTreeSet;

use maud::{Markup, PreEscaped, html};
use serde_json::Value;

use crate::claim::{Claim, Subsystem};
use crate::experiment::Failure;
use crate::judge::Outcome;
use crate::record::Record;
use crate::threads;
use crate::view::{Table, place};

use super::page::Tried;
use super::verdicts::Judged;
use super::{plot, text};

/// All claims of a subsystem.
///
/// # Errors
/// [`Failure::Run`] for a thread's file that says something else.
pub fn section(tried: &[Tried<'_>], room: Subsystem, name: &str) -> Result<Markup, Failure> {
    let markup = html! {
        section #(room.id()) {
            h2 { (name) }
            @for one in tried.iter().filter(|one| one.claim.room == room) {
                (claim(one))
            }
            @for number in threads_of(tried, room) {
                (without_claim(number)?)
            }
        }
    };
    Ok(markup)
}

/// The threads that a subsystem's claims try.
fn threads_of<'a>(tried: &'a [Tried<'_>], room: Subsystem) -> BTreeSet<&'a str> {
    let of = tried.iter().filter(|one| one.claim.room == room);
    of.filter_map(|one| one.claim.thread.as_deref()).collect()
}

/// What of a thread's figures no claim has, and why.
fn without_claim(number: &str) -> Result<Markup, Failure> {
    let Some(thread) = threads::thread(number)? else {
        return Ok(html! {});
    };
    let count = thread.count()?;
    let reasons = thread.reasons()?;
    let markup = html! {
        details {
            summary {
                "The thread \"" (thread.subject) "\" prints " (thread.numbers) " numbers: "
                (count.in_claims) " are in claims, " (count.not_tried) " are not tried, "
                (count.without) " are no results"
            }
            div.wide { table { tbody {
                @for (why, numbers) in &reasons {
                    tr { td.n { (numbers) } td { (why) } }
                }
            } } }
        }
    };
    Ok(markup)
}

/// Gates with their verdicts; `is_linked`: each leads to its claim.
pub fn gates<'a>(gates: impl Iterator<Item = &'a Judged<'a>>, is_linked: bool) -> Markup {
    html! {
        div.wide { table {
            thead { tr { th { "verdict" } th { "claim" } th.n { "figure" } th { "bound" } } }
            tbody {
                @for one in gates {
                    tr {
                        td class={ "v " (class(one)) } { (one.verdict.word(one.gate)) }
                        td.figures {
                            @if is_linked {
                                a href={ "#" (one.claim.name) } { (one.claim.name) } ": "
                            }
                            (one.gate.what)
                            @if let Some(why) = &one.gate.struck {
                                span.struck { "The bound is struck: " (why) }
                            }
                        }
                        td.n {
                            @match one.verdict.figure {
                                Some(figure) => a href={ "#raw-" (one.claim.name) } { (text::number(figure)) },
                                None => "-",
                            }
                        }
                        td { (text::bound(one.gate)) }
                    }
                }
            }
        } }
    }
}

/// The class of a verdict; its word says the same.
fn class(one: &Judged<'_>) -> &'static str {
    match one.verdict.outcome {
        Outcome::Met => "good",
        Outcome::DirectionOnly | Outcome::NotProven => "part",
        Outcome::Contrary | Outcome::NoFigure => "bad",
        Outcome::NotRun => "none",
    }
}

fn claim(tried: &Tried<'_>) -> Markup {
    let claim = tried.claim;
    let results = tried
        .record
        .as_ref()
        .and_then(|record| record.results.as_ref());
    html! {
        article id=(claim.name) {
            h3 { (claim.name) ": " (claim.title) }
            p.about { (claim.source) }
            p { (claim.analysis) }
            (conditions(claim))
            @if let Some(why) = &tried.missing {
                p.bad { "Not run: " (why) }
            }
            @if !claim.gates.is_empty() {
                (gates(tried.gates.iter(), false))
            }
            @if let Some(results) = results {
                @for table in &claim.tables { (figures(table, claim, results)) }
                @for plot in &claim.plots {
                    @if let Some(svg) = plot::svg(plot, results) {
                        figure {
                            figcaption { (plot.title) }
                            (PreEscaped(svg))
                        }
                    }
                }
            }
            (printed(claim))
            @if let Some(record) = &tried.record { (again(claim, record)) }
        }
    }
}

fn conditions(claim: &Claim) -> Markup {
    let all = [
        ("workload", &claim.workload),
        ("device", &claim.device),
        ("threads", &claim.threads),
    ];
    html! {
        @for (name, text) in all.into_iter().filter(|(_, text)| !text.is_empty()) {
            p { b { (name) ": " } (text) }
        }
    }
}

/// Figures of several policies, each leading to the record.
fn figures(table: &Table, claim: &Claim, results: &Value) -> Markup {
    let has_printed = table.rows.iter().any(|row| !row.printed.is_empty());
    let cell = |at: &str, column: &str| {
        let found = results.pointer(&place(at, column, ""));
        found.map_or("-".to_owned(), |value| match value.as_f64() {
            Some(number) => text::number(number),
            None => value.as_str().unwrap_or("-").to_owned(),
        })
    };
    html! {
        div.wide { table {
            caption { (table.title) }
            thead { tr {
                th { "figure" }
                @if has_printed { th.n { "printed" } }
                @for column in &table.columns { th.n { (column) } }
            } }
            tbody {
                @for row in &table.rows {
                    tr {
                        th { (row.what) }
                        @if has_printed { td.n { (row.printed) } }
                        @for column in &table.columns {
                            td.n { a href={ "#raw-" (claim.name) } { (cell(&row.at, column)) } }
                        }
                    }
                }
            }
        } }
    }
}

fn printed(claim: &Claim) -> Markup {
    html! {
        @if !claim.printed.is_empty() {
            details {
                summary { "The source's figures, as printed (" (claim.printed.len()) " rows)" }
                div.wide { table { tbody {
                    @for one in &claim.printed {
                        tr { th { (one.what) } td { (one.printed) } }
                    }
                } } }
            }
        }
    }
}

/// How to run it again, and everything that came out.
fn again(claim: &Claim, record: &Record) -> Markup {
    let commit = record.commit.trim_end_matches('+');
    let raw = record.results.as_ref().map(serde_json::to_string_pretty);
    html! {
        p { "To run it again (" (format!("{:.0}", record.seconds)) " s here):" }
        pre {
            @if !commit.is_empty() { "git checkout " (commit) "\n" }
            "cargo run --release --package uext4-lab -- " (record.command().trim_start_matches("uext4-lab "))
        }
        @if let Some(Ok(raw)) = raw {
            details id={ "raw-" (claim.name) } {
                summary { "The record: every figure and sample" }
                pre { (raw) }
            }
        }
    }
}
