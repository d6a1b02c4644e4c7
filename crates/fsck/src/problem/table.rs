//! `docs/problems.md`: the tables as a document.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Problem;

/// The names of e2fsck 1.47.0's problems, one a line; a colon and a reason follow where no problem
/// of ours corresponds to it.
const CODES: &str = include_str!("e2fsck.txt");

/// The text of `docs/problems.md`.
pub fn document() -> String {
    let mut text = String::from(HEAD);
    let mut structure = "";
    for problem in Problem::all() {
        let info = problem.info();
        if problem.structure() != structure {
            structure = problem.structure();
            // A String takes all that is written.
            let _ = write!(text, "\n## Of {structure}\n\n{ROWS}");
        }
        let wrong = info.text.replace(['{', '}'], "*");
        let codes: Vec<String> = info.e2fsck.iter().map(|code| format!("`{code}`")).collect();
        let _ = writeln!(
            text,
            "| `{}` | {wrong} | {} | {} | {} | {} |",
            info.name,
            info.severity.name(),
            info.remedy.replace(['{', '}'], "*"),
            info.loss.name(),
            codes.join(" ")
        );
    }
    text.push_str(CODES_HEAD);
    let ours = ours();
    for (code, reason) in codes() {
        let by = match ours.get(code) {
            Some(names) => names.join(" "),
            None => reason.unwrap_or("not found").to_owned(),
        };
        let _ = writeln!(text, "| `{code}` | {by} |");
    }
    text
}

/// Our names of each code.
fn ours() -> BTreeMap<&'static str, Vec<String>> {
    let mut ours: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for info in Problem::all().map(Problem::info) {
        for code in info.e2fsck {
            let names = ours.entry(code).or_default();
            names.push(format!("`{}`", info.name));
        }
    }
    ours
}

/// All codes, with the reason why one has no problem of ours.
fn codes() -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
    CODES.lines().map(|line| match line.split_once(": ") {
        Some((code, reason)) => (code, Some(reason)),
        None => (line, None),
    })
}

const HEAD: &str = "\
# Problems

What `uext4 check` finds and `uext4 repair` mends: one row for each way in which a structure can be
wrong. This page is generated from the tables in `crates/fsck/src/problem`; a test holds it against
them, and `UEXT4_WRITE=1 cargo test -p uext4-fsck document` writes it.

Severity: a *note* is completed by the next mount; what is *safe* an unattended run (`-p`) mends;
*damage* is for a human to decide on. Loss is what the remedy takes at worst, beyond what the damage
took.
";

const ROWS: &str = "\
| name | what is wrong | severity | remedy | loss | e2fsck |
|---|---|---|---|---|---|
";

const CODES_HEAD: &str = "
## The problems of e2fsck 1.47.0

Each of its problems, and the name under which we find it, or why we do not.

| e2fsck | here |
|---|---|
";

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_document_is_that_of_the_tables() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/problems.md");
        if std::env::var_os("UEXT4_WRITE").is_some() {
            std::fs::write(&path, document()).unwrap();
        }
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(stored == document(), "write it by UEXT4_WRITE=1");
    }

    #[test]
    fn every_code_of_e2fsck_is_found_or_has_a_reason() {
        let ours = ours();
        let without: Vec<_> = codes()
            .filter(|(code, reason)| ours.contains_key(code) == reason.is_some())
            .map(|(code, _)| code)
            .collect();
        assert!(without.is_empty(), "neither or both: {without:?}");
        let known: HashSet<_> = codes().map(|(code, _)| code).collect();
        let unknown: Vec<_> = ours.keys().filter(|code| !known.contains(*code)).collect();
        assert!(unknown.is_empty(), "no such code: {unknown:?}");
    }
}
