//! Rules on language: words that only this project would understand, names of tests, and the width
//! of lines. [STYLE.md](../../../STYLE.md) says what is written instead.

use super::{Complaint, File};

/// Words that must not come back, in any text, comment or name; in small letters.
const PRIVATE: [&str; 27] = [
    "told",
    "tell",
    "tells",
    "telling", // reported, returned, notified, logged
    "nobody",
    "somebody",
    "whoever", // no thread, another thread, any caller that
    "beside",  // next to, in addition to, compared with
    "stranger",
    "strangers", // another process, an unknown user
    "promise",
    "promises",
    "promised",
    "untake", // reservation, reserved, cancel
    "ticket",
    "tickets", // flush number, pending reply
    "seal",
    "sealed",
    "sealer",
    "sealing", // checksum at commit, pre-commit callbacks
    "parting",
    "breaker",
    "dialect",
    "parked", // status of unmounting, panic guard, negotiated
    "rooms",
    "glance",
    "dearer", // subsystems, snapshot, costs more
];
/// Files that quote others, or this list.
const QUOTING: [&str; 5] = [
    "lab/claims/",
    "lab/data/",
    "lab/records/",
    "lab/threads/",
    "xtask/src/tidy/words.rs",
];
/// Columns of a line of prose.
const WIDTH: usize = 100;

/// Checks one text file.
pub fn check(file: &File, complaints: &mut Vec<Complaint>) {
    if QUOTING.iter().any(|path| file.path.starts_with(path)) {
        return;
    }
    let is_prose = file.path.ends_with(".md");
    if !(is_prose
        || file.is_rust()
        || file.name() == "Makefile"
        || file.path.starts_with("scripts/"))
    {
        return;
    }
    for (line, text) in (1..).zip(file.text.lines()) {
        for word in words(text).filter(|word| PRIVATE.contains(&word.as_str())) {
            let what = format!("`{word}` is a private word: STYLE.md says what to write");
            complaints.push(file.complain(line, what));
        }
        let is_comment = file.is_rust() && text.trim_start().starts_with("//");
        // An address and a row of a table cannot be divided.
        let content = text.trim_start_matches(['/', '!', ' ']);
        let is_whole = content.starts_with('|') || text.contains("://");
        let is_wide = text.chars().count() > WIDTH && !is_whole;
        if is_wide && (is_prose || is_comment) {
            complaints.push(file.complain(line, format!("longer than {WIDTH} columns")));
        }
    }
}

/// The words of a line, in small letters; names are divided where their words meet.
fn words(line: &str) -> impl Iterator<Item = String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in line.chars() {
        let is_new = c.is_uppercase() && before.is_lowercase();
        if !c.is_alphabetic() || is_new {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphabetic()) {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words.into_iter().filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::complaints_of;
    use super::*;

    #[test]
    fn private_words_are_found_in_names_and_prose() {
        for bad in [
            "// A caller is told.",
            "fn nobody_waits() {}",
            "struct PartingWord;",
            "let x = \"Whoever\";",
        ] {
            assert_eq!(complaints_of(check, "crates/x/src/a.rs", bad), 1, "{bad}");
            assert_eq!(complaints_of(check, "lab/records/a.md", bad), 0);
        }
        for good in ["// besides, a stall", "fn retold() {}", "// `untakeable`"] {
            assert_eq!(complaints_of(check, "crates/x/src/a.rs", good), 0, "{good}");
        }
    }

    #[test]
    fn prose_and_comments_have_at_most_100_columns() {
        let wide = format!("// {}", "x".repeat(98));
        assert_eq!(complaints_of(check, "a.rs", &wide), 1);
        assert_eq!(complaints_of(check, "a.md", &wide), 1);
        assert_eq!(
            complaints_of(check, "a.rs", &format!("let x = \"{wide}\";")),
            0
        );
        assert_eq!(
            complaints_of(check, "a.md", &format!("{wide} https://x")),
            0
        );
    }
}
