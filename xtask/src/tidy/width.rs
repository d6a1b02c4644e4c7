//! The width of comments and of prose.

use super::{Complaint, File};

/// Files that quote others.
const QUOTING: [&str; 4] = ["lab/claims/", "lab/data/", "lab/records/", "lab/threads/"];
/// Columns of a line of prose.
const WIDTH: usize = 100;

/// Checks one text file.
pub fn check(file: &File, complaints: &mut Vec<Complaint>) {
    let is_prose = file.path.ends_with(".md");
    let is_checked = is_prose || file.is_rust();
    if !is_checked || QUOTING.iter().any(|path| file.path.starts_with(path)) {
        return;
    }
    for (line, text) in (1..).zip(file.text.lines()) {
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

#[cfg(test)]
mod tests {
    use super::super::complaints_of;
    use super::*;

    #[test]
    fn prose_and_comments_have_at_most_100_columns() {
        let wide = format!("// {}", "x".repeat(98));
        assert_eq!(complaints_of(check, "a.rs", &wide), 1);
        assert_eq!(complaints_of(check, "a.md", &wide), 1);
        assert_eq!(complaints_of(check, "lab/records/a.md", &wide), 0);
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
