//! What the tree has of tests, for the page of the lab: counted in the sources, as JSON.
//!
//! What only a run can count (power cuts tried, mutants caught, hours of fuzzing, lines covered) is
//! null: not known is not nothing.

use std::fmt::Write as _;
use std::path::Path;

use crate::tidy;

/// What is counted, and the texts of which it is the number.
const COUNTED: [(&str, &[&str]); 2] = [
    ("tests", &["#[test]"]),
    (
        "assertions in them",
        &["assert!(", "assert_eq!(", "assert_ne!(", "assert_matches!("],
    ),
];
/// What this cannot know.
const UNKNOWN: [&str; 4] = [
    "states at which the power was cut",
    "mutants that no test catches",
    "hours of fuzzing",
    "lines covered",
];

/// The counts of what git tracks below `root`.
///
/// # Errors
/// If git cannot be asked.
pub fn count(root: &Path) -> Result<String, String> {
    let files = tidy::tracked_files(root)?;
    let rust = || files.iter().filter(|file| file.is_rust());
    let number = |texts: &[&str]| {
        let of = |text: &str| {
            texts
                .iter()
                .map(|it| text.matches(it).count())
                .sum::<usize>()
        };
        rust().map(|file| of(&file.text)).sum::<usize>()
    };
    let below = |folder: &str| rust().filter(|file| file.path.starts_with(folder)).count();
    let mut lines: Vec<(String, String)> = COUNTED
        .iter()
        .map(|(what, texts)| ((*what).to_owned(), number(texts).to_string()))
        .collect();
    lines.push((
        "targets of fuzzing".to_owned(),
        below("fuzz/fuzz_targets/").to_string(),
    ));
    let models = rust().filter(|file| file.path.ends_with("tests/interleavings.rs"));
    let models: usize = models
        .map(|file| file.text.matches("#[test]").count())
        .sum();
    let what = "tests that try the interleavings of threads";
    lines.push((what.to_owned(), models.to_string()));
    lines.extend(UNKNOWN.map(|what| (what.to_owned(), "null".to_owned())));
    let mut json = String::new();
    for (what, count) in &lines {
        let comma = if json.is_empty() { "" } else { ",\n" };
        // Writing to a string cannot fail.
        _ = write!(json, "{comma}  \"{what}\": {count}");
    }
    Ok(format!("{{\n{json}\n}}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_tree_has_tests() {
        let json = count(&crate::workspace_root()).unwrap();
        let first = json.lines().nth(1).unwrap();
        let number = first.trim_end_matches(',').rsplit(' ').next().unwrap();
        assert!(number.parse::<usize>().unwrap() > 1000, "{json}");
        assert!(json.contains("\"hours of fuzzing\": null"));
    }
}
