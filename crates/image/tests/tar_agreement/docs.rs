//! The tables of `docs/tar-reader.md` are made from the classes.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::classes::{CLASSES, Class, Test};

const BEGIN: &str = "<!-- The classes, written by `UPDATE_DOCS=1`. -->\n";
const END: &str = "<!-- The end of the classes. -->\n";

/// Where the readers of a heading disagree.
type Holds = fn(&Test) -> bool;

fn tables() -> String {
    let mut text = String::new();
    let headings: [(&str, Holds); 3] = [
        ("We refuse, another reader accepts", |test| {
            matches!(test, Test::WeRefuse(_))
        }),
        ("We accept, another reader refuses", |test| {
            matches!(test, Test::TheyRefuse(..))
        }),
        ("Both accept, the trees differ", |test| {
            matches!(test, Test::TreesDiffer(..))
        }),
    ];
    for (heading, holds) in headings {
        _ = write!(text, "\n### {heading}\n\n");
        for Class {
            name, readers, why, ..
        } in CLASSES.iter().filter(|c| holds(&c.test))
        {
            text.push_str(&wrapped(&format!("- **{name}**: {readers} *Why*: {why}")));
        }
    }
    text.push('\n');
    text
}

/// An item of a list in lines of at most 100 columns.
fn wrapped(item: &str) -> String {
    let (mut text, mut column) = (String::new(), 0);
    for word in item.split(' ') {
        if column > 0 && column + 1 + word.len() > 100 {
            text.push_str("\n  ");
            column = 2;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += word.len();
    }
    text.push('\n');
    text
}

#[test]
fn the_page_has_the_classes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tar-reader.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let made = [before, BEGIN, &tables(), END, after].concat();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &made).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap() == made,
        "docs/tar-reader.md is stale: run `UPDATE_DOCS=1 cargo test -p uext4-image \
         --test tar_agreement`"
    );
}
