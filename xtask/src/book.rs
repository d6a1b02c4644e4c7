//! The guide as HTML: mdBook builds it, and every link inside it must lead somewhere.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use crate::staged;

/// Directories of the repository that pages link to; on the web they are in the repository.
const OUTSIDE: [&str; 3] = ["crates", "lab", "xtask"];

/// Builds the guide into `out`, and returns its dead links.
///
/// # Errors
/// mdBook is missing or fails; a page cannot be read.
pub fn build(root: &Path, out: &Path) -> Result<Vec<String>, String> {
    let out = &std::path::absolute(out).map_err(|error| format!("{}: {error}", out.display()))?;
    let pages = out.with_added_extension("pages");
    _ = fs::remove_dir_all(&pages);
    staged::stage(root, &pages)?;
    let built = Command::new("mdbook")
        .arg("build")
        .arg(&pages)
        .arg("--dest-dir")
        .arg(out)
        .output()
        .map_err(|error| format!("mdbook: {error} (`cargo install --locked mdbook`)"));
    _ = fs::remove_dir_all(&pages);
    let built = built?;
    if !built.status.success() {
        return Err(format!(
            "mdbook: {}",
            String::from_utf8_lossy(&built.stderr)
        ));
    }
    let mut dead = Vec::new();
    check(out, out, &mut dead)?;
    dead.sort();
    Ok(dead)
}

/// Collects the dead links of all pages in a directory.
fn check(top: &Path, dir: &Path, dead: &mut Vec<String>) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", dir.display());
    for entry in fs::read_dir(dir).map_err(failed)?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            check(top, &path, dead)?;
            continue;
        }
        // The page for printing is all others in one; its links are theirs.
        let name = entry.file_name();
        if name == "print.html" || path.extension().is_none_or(|extension| extension != "html") {
            continue;
        }
        let page = fs::read_to_string(&path).map_err(failed)?;
        for link in links(&page) {
            let target = plain(&dir.join(link));
            let inside = target.strip_prefix(top).unwrap_or(&target);
            if !target.exists() && !OUTSIDE.iter().any(|outside| inside.starts_with(outside)) {
                let page = path.strip_prefix(top).unwrap_or(&path).display();
                dead.push(format!("{page}: {link}"));
            }
        }
    }
    Ok(())
}

/// The targets of a page's links to files, without what follows `#`.
fn links(page: &str) -> impl Iterator<Item = &str> {
    page.split("href=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .filter_map(|link| link.split('#').next())
        .filter(|link| !link.is_empty() && !link.contains(':'))
}

/// A path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_builds_and_no_link_in_it_is_dead() {
        if Command::new("mdbook").arg("--version").output().is_err() {
            println!("skipped: needs mdbook (`cargo install --locked mdbook`)");
            return;
        }
        let out = crate::workspace_root().join(format!("target/book-{}", std::process::id()));
        let dead = build(&crate::workspace_root(), &out);
        _ = fs::remove_dir_all(&out);
        assert_eq!(dead.unwrap(), [""; 0]);
    }

    #[test]
    fn links_to_files_are_found() {
        let page = r##"<a href="a.html#x"><a href="#y"><a href="https://b"><a href="../c.css">"##;
        assert_eq!(links(page).collect::<Vec<_>>(), ["a.html", "../c.css"]);
        assert_eq!(plain(Path::new("/a/b/../c")), Path::new("/a/c"));
    }
}
