//! The order of the engine's folders: imports go downwards only.
//!
//! Inside a folder the order is any in which no modules import each other in a circle
//! ([`super::knots`]). Imports made by tests do not count. The map in ARCHITECTURE.md is written
//! from the same table and the first sentence of each folder's `mod.rs`, by `cargo xtask map`.

use super::knots::{Paths, module_path};
use super::source::is_product_code;
use super::{Complaint, File};

/// Where the engine's modules live.
const ENGINE: &str = "crates/ext4/src/";
/// The folders, top first. A new folder gets its place here.
const FOLDERS: &[&str] = &[
    "api", "mount", "replay", "names", "file", "bulk", "xattr", "dir", "map", "journal", "quota",
    "orphan", "inode", "alloc", "base",
];
/// The one file next to them that others may import, for tests alone.
const TESTING: &str = "testing.rs";
/// The document with the map, and what stands around it there.
pub const DOCUMENT: &str = "ARCHITECTURE.md";
const BEGIN: &str = "<!-- The engine's folders, written by `cargo xtask map`. -->\n";
const END: &str = "<!-- The end of the engine's folders. -->\n";

/// Checks all modules of the engine, and the map of them.
pub fn check(files: &[File], complaints: &mut Vec<Complaint>) {
    for file in engine(files) {
        let path = &file.path[ENGINE.len()..];
        let Some((from_level, folder)) = path.split_once('/').and_then(|(name, _)| place(name))
        else {
            if !matches!(path, "lib.rs" | TESTING) {
                complaints.push(file.complain(0, "lies in no folder of the engine (xtask)"));
            }
            continue;
        };
        for (imported, line) in imports(file) {
            let Some((to_level, imported)) = place(&imported) else {
                // A name that is no folder: something the root re-exports.
                let what = format!("imports `crate::{imported}`: name its module instead");
                complaints.push(file.complain(line, what));
                continue;
            };
            if to_level < from_level {
                let what = format!("{folder} must not import {imported}, which is above it");
                complaints.push(file.complain(line, what));
            }
        }
    }
    if let Some(document) = files.iter().find(|file| file.path == DOCUMENT)
        && with_map(&document.text, files).as_ref() != Some(&document.text)
    {
        complaints.push(document.complain(0, "its map is stale: `cargo xtask map` writes it"));
    }
}

/// The document's text with the map as it is now; `None` if it has no place for one.
pub fn with_map(document: &str, files: &[File]) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{}{END}{after}", map(files)))
}

/// A line for each folder: its name, and the first sentence about it.
fn map(files: &[File]) -> String {
    let of_folder = |folder: &&str| {
        let path = format!("{ENGINE}{folder}/mod.rs");
        let file = files.iter().find(|file| file.path == path);
        let purpose = file.map_or("", |file| first_sentence(&file.text));
        format!("{folder:8} {purpose}\n")
    };
    let lines: String = FOLDERS.iter().map(of_folder).collect();
    format!("\n```text\n{lines}```\n\n")
}

/// The first line of a file's head.
fn first_sentence(text: &str) -> &str {
    let line = text.lines().next().unwrap_or_default();
    line.trim_start_matches("//!").trim()
}

fn engine(files: &[File]) -> impl Iterator<Item = &File> {
    files
        .iter()
        .filter(|f| f.is_rust() && f.path.starts_with(ENGINE) && is_product_code(&f.path))
}

fn place(folder: &str) -> Option<(usize, &'static str)> {
    let level = FOLDERS.iter().position(|name| *name == folder)?;
    Some((level, FOLDERS[level]))
}

/// The first name of every path into this crate outside tests, with its line.
fn imports(file: &File) -> Vec<(String, usize)> {
    let paths = Paths::of(module_path(&file.path[ENGINE.len()..]), &file.text);
    let first = |(path, line): (Vec<String>, usize)| {
        let name = path.into_iter().next();
        (name.unwrap_or_else(|| "*".to_owned()), line)
    };
    paths.named.into_iter().map(first).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(texts: &[(&str, &str)]) -> Vec<File> {
        let file = |(name, text): &(&str, &str)| File {
            path: format!("{ENGINE}{name}"),
            text: (*text).to_owned(),
        };
        texts.iter().map(file).collect()
    }

    fn complaints_on(files: &[File]) -> Vec<String> {
        let mut complaints = Vec::new();
        check(files, &mut complaints);
        complaints.into_iter().map(|c| c.to_string()).collect()
    }

    #[test]
    fn downward_imports_pass() {
        let found = complaints_on(&files(&[
            ("lib.rs", "pub use api::Filesystem;"),
            ("mount/super.rs", "use crate::base::sbi::Sbi;"),
            ("dir/mod.rs", "use crate::{inode::Inode, base::sbi};"),
            (
                "dir/htree.rs",
                "use crate::dir::Entry; fn f(_: crate::base::sbi::Sbi) {}",
            ),
            (
                "base/sbi.rs",
                "#[cfg(test)] mod tests { use crate::mount::super_::open; }",
            ),
        ]));
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn upward_imports_are_found() {
        let found = complaints_on(&files(&[
            ("base/sbi.rs", "use crate::dir::Entry;"),
            ("inode/mod.rs", "fn f(_: crate::mount::super_::Open) {}"),
            ("map/mod.rs", "use crate::Filesystem;"),
            ("oddity.rs", ""),
        ]));
        assert_eq!(found.len(), 4, "{found:?}");
    }

    #[test]
    fn a_stale_map_is_found_and_written() {
        let mut all = files(&[("map/mod.rs", "//! Where blocks lie.\n//!\n//! More.\n")]);
        all.push(File {
            path: DOCUMENT.to_owned(),
            text: format!("before\n{BEGIN}old\n{END}after\n"),
        });
        assert_eq!(complaints_on(&all).len(), 1);
        let text = with_map(&all[1].text, &all).unwrap();
        assert!(text.contains("\nmap      Where blocks lie.\n"), "{text}");
        assert!(text.starts_with("before\n") && text.ends_with("after\n"));
        all[1].text = text;
        assert!(complaints_on(&all).is_empty());
        assert_eq!(with_map("no place", &all), None);
    }
}
