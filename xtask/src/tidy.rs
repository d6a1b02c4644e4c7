//! The house rules, as tests.
//!
//! | file | rules |
//! |---|---|
//! | [`source`] | length of files and functions, names of parameters, module docs, proofs in addition to `unwrap` |
//! | [`crates`] | which crate may import which, licences, lints, who may lay out bytes |
//! | [`host`] | which crates open files, ask for the time of day, read the environment, print |
//! | [`modules`] | the order of the folders inside the engine, and the map of them |
//! | [`knots`] | no import cycle among the modules of any crate |
//! | [`packing`] | where the bytes of directories, extents and attributes are made |
//! | [`text`] | marks of unfinished work, names of files, paths of one machine, links |
//! | [`width`] | the width of comments and prose |
//!
//! Every rule sees the files that git tracks or would track. Formatting is rustfmt's business and
//! habits are clippy's; neither is repeated here.

mod crates;
mod host;
pub mod knots;
mod modules;
mod packing;
mod source;
mod text;
mod width;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use source::{is_product_code, is_test, takes_tuple};

/// One broken rule, with the place.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Complaint {
    /// File, relative to the root.
    path: String,
    /// Line from 1; 0 for the file as a whole.
    line: usize,
    /// What is wrong.
    what: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// A text file of the repository.
#[derive(Debug)]
pub struct File {
    /// Relative to the root, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl File {
    fn complain(&self, line: usize, what: impl Into<String>) -> Complaint {
        Complaint {
            path: self.path.clone(),
            line,
            what: what.into(),
        }
    }

    /// True for a Rust source file.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// How many complaints a rule has of a file with this text.
#[cfg(test)]
fn complaints_of(rule: fn(&File, &mut Vec<Complaint>), path: &str, text: &str) -> usize {
    let file = File {
        path: path.to_owned(),
        text: text.to_owned(),
    };
    let mut complaints = Vec::new();
    rule(&file, &mut complaints);
    complaints.len()
}

/// Checks every rule; the complaints come sorted.
pub fn run(root: &Path) -> Result<Vec<Complaint>, String> {
    let files = tracked_files(root)?;
    let mut complaints = Vec::new();
    for file in &files {
        if file.is_rust() {
            source::check(file, &mut complaints);
            packing::check(file, &mut complaints);
            host::check(file, &mut complaints);
        }
        text::check(root, file, &mut complaints);
        width::check(file, &mut complaints);
    }
    crates::check(&files, &mut complaints);
    knots::check(&files, &mut complaints);
    modules::check(&files, &mut complaints);
    complaints.sort();
    Ok(complaints)
}

/// Writes the map of the engine's folders into ARCHITECTURE.md.
///
/// # Errors
/// If git cannot be asked, the document has no place for the map, or it cannot be written.
pub fn write_map(root: &Path) -> Result<(), String> {
    let files = tracked_files(root)?;
    let document = root.join(modules::DOCUMENT);
    let failed = |error| format!("{}: {error}", document.display());
    let text = std::fs::read_to_string(&document).map_err(failed)?;
    let text = modules::with_map(&text, &files)
        .ok_or_else(|| format!("{}: has no place for the map", document.display()))?;
    std::fs::write(&document, text).map_err(failed)
}

/// The text files that git tracks, or would track after `git add`; binary ones are left out.
///
/// # Errors
/// If git cannot be asked.
pub fn tracked_files(root: &Path) -> Result<Vec<File>, String> {
    let output = Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files", "-z"])
        .args(["--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .map_err(|e| format!("git ls-files: {e}"))?;
    if !output.status.success() {
        return Err(format!(
            "git ls-files: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    let mut paths: Vec<PathBuf> = String::from_utf8_lossy(&output.stdout)
        .split_terminator('\0')
        .map(PathBuf::from)
        .collect();
    paths.sort();
    paths.dedup();
    Ok(paths
        .iter()
        .filter_map(|path| {
            // Deleted but still tracked, or not text: no rule applies.
            let text = std::fs::read_to_string(root.join(path)).ok()?;
            let path = path.to_str()?.replace('\\', "/");
            Some(File { path, text })
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let complaints = run(&crate::workspace_root()).unwrap();
        let list: Vec<String> = complaints.iter().map(Complaint::to_string).collect();
        assert!(list.is_empty(), "\n{}\n", list.join("\n"));
    }
}
