//! The records in the repository are whole, and documents say what they say.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::lab;

/// A section with figures of the lab that were measured before there were records says this, and
/// the day.
const UNRECORDED: &str = "[unrecorded: ";
const RECORD: &str = "[record: ";

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The folders of records, by name.
fn folders() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("lab/records")).unwrap();
    let mut all: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    all.retain(|path| path.is_dir());
    all.sort();
    all
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

fn claims() -> BTreeSet<String> {
    let output = lab(&["list", "--json"]);
    let claims: Value = serde_json::from_slice(&output.stdout).unwrap();
    let claims = claims.as_array().unwrap().iter();
    claims
        .map(|claim| claim["name"].as_str().unwrap().to_owned())
        .collect()
}

fn verdicts(folder: &Path) -> String {
    let output = lab(&["verdicts", folder.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What stands between two marks of a document.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let (_, rest) = text
        .split_once(begin)
        .unwrap_or_else(|| panic!("no {begin}"));
    rest.split_once(end)
        .unwrap_or_else(|| panic!("no {end}"))
        .0
        .trim()
}

#[test]
fn records_are_whole_and_name_machine_and_commit() {
    let claims = claims();
    assert!(!folders().is_empty());
    for folder in folders() {
        let machine: Value = serde_json::from_str(&read(&folder.join("machine.json"))).unwrap();
        assert!(
            machine["noise"]["floor"].as_f64().unwrap() > 0.0,
            "{}",
            name(&folder)
        );
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let file = name(&path);
            if ["machine.json", "tests.json"].contains(&file.as_str()) {
                continue;
            }
            let record: Value = serde_json::from_str(&read(&path)).unwrap();
            let claim = record["claim"].as_str().unwrap();
            assert_eq!(file, format!("{claim}.json"));
            assert!(claims.contains(claim), "{file}");
            assert!(!record["commit"].as_str().unwrap().is_empty(), "{file}");
            // What was not run says why.
            assert_ne!(
                record["results"].is_null(),
                record["not_run"].is_null(),
                "{file}"
            );
        }
    }
}

#[test]
fn the_readme_has_the_verdicts_of_the_newest_quick_record() {
    let folder = folders()
        .into_iter()
        .rfind(|path| name(path).ends_with("-quick"))
        .unwrap();
    let all = verdicts(&folder);
    let (table, _) = all.split_once("\n\n").unwrap();
    let readme = read(&root().join("README.md"));
    let shown = between(&readme, "<!-- verdicts -->", "<!-- /verdicts -->");
    assert_eq!(shown, format!("{table}\n\n[record: {}]", name(&folder)));
}

#[test]
fn the_list_of_missed_gates_agrees_with_the_records() {
    let document = read(&root().join("docs/lab-verdicts.md"));
    for folder in folders() {
        assert!(
            document.contains(verdicts(&folder).trim()),
            "{}",
            name(&folder)
        );
    }
}

/// A section of a document that names a claim and has a figure names the record of it.
#[test]
fn figures_of_the_lab_name_their_records() {
    let claims = claims();
    let known: BTreeSet<_> = folders().iter().map(|path| name(path)).collect();
    let mut documents = vec![root().join("README.md"), root().join("ARCHITECTURE.md")];
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        documents.push(entry.unwrap().path());
    }
    documents.retain(|path| path.extension().is_some_and(|end| end == "md"));
    let mut seen = 0;
    for document in documents {
        let text = read(&document);
        for section in text.split("\n#") {
            let has_claim = claims
                .iter()
                .any(|claim| section.contains(&format!("`{claim}")));
            if !has_claim || !has_figure(section) {
                continue;
            }
            seen += 1;
            let title = section.lines().next().unwrap_or_default();
            let place = format!("{}: {title}", document.display());
            let mut names = section.split(RECORD).skip(1).peekable();
            let is_named = names.peek().is_some() || section.contains(UNRECORDED);
            assert!(is_named, "{place}: has figures and names no record");
            for rest in names {
                let id = rest.split([']', '/']).next().unwrap_or_default();
                assert!(known.contains(id), "{place}: no record {id:?}");
            }
        }
    }
    assert!(seen > 3, "{seen} sections");
}

/// Whether there is a number with a decimal point.
fn has_figure(text: &str) -> bool {
    let chars: Vec<char> = text.chars().collect();
    chars
        .windows(3)
        .any(|w| w[0].is_ascii_digit() && w[1] == '.' && w[2].is_ascii_digit())
}
