//! Rules on any text: words that must not be there, names of files, paths of one machine, links.

use std::path::Path;

use super::{Complaint, File};

/// Words no source may hold. Spelled in halves, or this file would break its own rule.
const BANNED: &[&str] = &[
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("#[ig", "nore"),
    concat!("FIX", "ME"),
    concat!("TO", "DO"),
    concat!("XX", "X:"),
];
/// Names of files that say nothing.
const NAMELESS: &[&str] = &["utils", "util", "common", "helpers", "misc"];
/// Directories of one machine.
const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk"), concat!("/ro", "ot")];

/// Checks one text file.
pub fn check(root: &Path, file: &File, complaints: &mut Vec<Complaint>) {
    let stem = file.name().split('.').next().unwrap_or_default();
    let folder = file.path.rsplit('/').nth(1).unwrap_or_default();
    if file.is_rust() && (NAMELESS.contains(&stem) || NAMELESS.contains(&folder)) {
        complaints.push(file.complain(0, "a name that says nothing; name the noun"));
    }
    for (index, line) in file.text.lines().enumerate() {
        let number = index + 1;
        if file.is_rust() {
            for word in BANNED.iter().filter(|word| line.contains(**word)) {
                complaints.push(file.complain(number, format!("`{word}` must not be there")));
            }
        }
        for path in MACHINE_PATHS.iter().filter(|path| holds_path(line, path)) {
            complaints.push(file.complain(number, format!("`{path}` is a path of one machine")));
        }
        if file.path.ends_with(".md") {
            for target in dead_links(root, file, line) {
                complaints
                    .push(file.complain(number, format!("links to {target}, which is not there")));
            }
        }
    }
}

/// True if the absolute path stands in the line, whole and not inside a longer one.
fn holds_path(line: &str, path: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "._-$}/".contains(c);
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + path.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

/// Relative link targets of a line of Markdown that do not exist.
fn dead_links<'a>(root: &Path, file: &'a File, line: &'a str) -> Vec<&'a str> {
    let folder = root.join(&file.path);
    line.match_indices("](")
        .filter_map(|(at, mark)| line[at + mark.len()..].split(')').next())
        .filter(|target| !target.contains("://") && !target.starts_with(['#', '<']))
        .filter(|target| {
            let path = target.split('#').next().unwrap_or_default();
            !folder.with_file_name("").join(path).exists()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints_on(path: &str, text: &str) -> Vec<String> {
        let file = File {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let mut complaints = Vec::new();
        check(&crate::workspace_root(), &file, &mut complaints);
        complaints.into_iter().map(|c| c.to_string()).collect()
    }

    #[test]
    fn words_names_paths_and_links_are_found() {
        assert_eq!(complaints_on("crates/x/src/utils.rs", "").len(), 1);
        assert_eq!(complaints_on("crates/x/tests/common/a.rs", "").len(), 1);
        assert_eq!(
            complaints_on("a.rs", concat!("// FIX", "ME later")).len(),
            1
        );
        assert_eq!(complaints_on("a.sh", concat!("cd /wo", "rk/x")).len(), 1);
        assert_eq!(
            complaints_on("a.sh", concat!("cd /wo", "rkspace; $HOME/wo", "rk")).len(),
            0
        );
        assert_eq!(complaints_on("a.md", "[x](no-such-file.md)").len(), 1);
        assert_eq!(
            complaints_on("a.md", "[x](Cargo.toml#top) [y](https://a.b)").len(),
            0
        );
    }
}
