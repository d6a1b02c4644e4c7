//! `mount --help-options`: every option of `mount -o`, from the tables.

use std::io::{self, Write};

use uext4_tunables::Row;

use super::Output;
use crate::json::Json;
use crate::mount_options::{NOTED, REFUSED, WITHOUT_EFFECT, subjects};

/// Column in which the help of an option begins.
const HELP_AT: usize = 30;
/// Columns of a line at most.
pub const WIDTH: usize = 100;

/// Prints all options with their ranges and defaults, those that have no effect, and those that are
/// refused, on lines of so many columns.
pub fn print(out: &mut Output, width: usize) -> io::Result<()> {
    for subject in subjects() {
        writeln!(out, "{}:", subject.title)?;
        for row in &subject.rows {
            let help = format!("{}{}", row.help, details(row));
            entry(out, &row.usage, &help, width)?;
        }
        writeln!(out)?;
    }
    writeln!(
        out,
        "Accepted without effect, as they describe what is always so:"
    )?;
    write!(out, " ")?;
    paragraph(out, 1, 2, &WITHOUT_EFFECT.join(" "), width)?;
    writeln!(out, "\nAccepted with a note, without effect:")?;
    for noted in NOTED {
        entry(out, noted.name, noted.why, width)?;
    }
    writeln!(out, "\nRefused:")?;
    for refused in REFUSED {
        entry(out, refused.name, refused.why, width)?;
    }
    Ok(())
}

/// An option and its help, in two columns.
fn entry(out: &mut Output, usage: &str, help: &str, width: usize) -> io::Result<()> {
    write!(out, "  {usage}")?;
    let mut at = usage.len() + 2;
    if at >= HELP_AT {
        writeln!(out)?;
        at = 0;
    }
    write!(out, "{:1$}", "", HELP_AT - 1 - at)?;
    paragraph(out, HELP_AT - 1, HELP_AT, help, width)
}

/// Words on lines of `width` columns, the first of which is filled up to `at`.
fn paragraph(
    out: &mut Output,
    mut at: usize,
    indent: usize,
    text: &str,
    width: usize,
) -> io::Result<()> {
    for word in text.split(' ') {
        if at + 1 + word.len() > width {
            write!(out, "\n{:1$}", "", indent - 1)?;
            at = indent - 1;
        }
        write!(out, " {word}")?;
        at += 1 + word.len();
    }
    writeln!(out)
}

/// What an option may be and is by default, in parentheses.
fn details(row: &Row) -> String {
    let default = row
        .default
        .as_ref()
        .map(|default| format!("default {default}"));
    // A switch's two values stand in its usage, as does the form of a text.
    let is_said = row.usage.starts_with('[') || row.usage.ends_with(&row.values);
    let values = (!is_said).then(|| row.values.clone());
    let details: Vec<String> = values.into_iter().chain(default).collect();
    match details.join("; ") {
        details if details.is_empty() => details,
        details => format!(" ({details})"),
    }
}

/// All that [`print`] prints, as JSON.
pub fn json() -> Json {
    let mut json = Json::new();
    json.open_object();
    json.key("subjects").open_array();
    for subject in subjects() {
        json.open_object();
        json.key("title").text(subject.title.as_bytes());
        json.key("options").open_array();
        for row in &subject.rows {
            json.open_object();
            json.key("name").text(row.name.as_bytes());
            json.key("usage").text(row.usage.as_bytes());
            json.key("values").text(row.values.as_bytes());
            json.key("unit").text(row.unit.as_bytes());
            if let Some(default) = &row.default {
                json.key("default").text(default.as_bytes());
            }
            json.key("help").text(row.help.as_bytes());
            json.close_object();
        }
        json.close_array();
        json.close_object();
    }
    json.close_array();
    json.key("without_effect").open_array();
    for name in WITHOUT_EFFECT {
        json.text(name.as_bytes());
    }
    json.close_array();
    for (key, table) in [("noted", NOTED), ("refused", REFUSED)] {
        json.key(key).open_array();
        for option in table {
            json.open_object();
            json.key("name").text(option.name.as_bytes());
            json.key("why").text(option.why.as_bytes());
            json.close_object();
        }
        json.close_array();
    }
    json.close_object();
    json.end_line();
    json
}
