//! The guide as mdBook takes it. In the repository its pages link to documents outside of it, so
//! that every link works where the repository is shown; mdBook wants all pages in one directory.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// Where the guide lies in the repository.
const BOOK: &str = "docs/book";
const PAGES: &str = "docs/book/src";
/// Documents that are pages of the guide, besides all of `docs`.
const DOCUMENTS: [&str; 4] = [
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "STYLE.md",
    "lab/BIAS.md",
];

/// Copies the guide and the documents that its summary lists into the new directory `to`.
///
/// # Errors
/// What cannot be read or written.
pub fn stage(root: &Path, to: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", to.display());
    copy(root, Path::new(BOOK), to)?;
    let summary = fs::read_to_string(root.join(PAGES).join("SUMMARY.md")).map_err(failed)?;
    for link in links(&summary) {
        let Some(place) = place(&target_of(Path::new(PAGES), link)) else {
            continue;
        };
        let staged = to.join("src").join(&place);
        fs::create_dir_all(staged.parent().unwrap_or(to)).map_err(failed)?;
        fs::copy(root.join(&place), staged).map_err(failed)?;
    }
    Ok(())
}

/// Copies a directory of the guide; the links of its pages lead to where the documents are then.
fn copy(root: &Path, dir: &Path, to: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
    fs::create_dir_all(to).map_err(failed)?;
    for entry in fs::read_dir(root.join(dir)).map_err(failed)?.flatten() {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(root, &dir.join(entry.file_name()), &to)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let page = fs::read_to_string(&path).map_err(failed)?;
            fs::write(to, inside(&page, dir)).map_err(failed)?;
        } else {
            fs::copy(path, to).map_err(failed)?;
        }
    }
    Ok(())
}

/// A page of the directory `dir` of the repository, whose links stay inside the guide.
fn inside(page: &str, dir: &Path) -> String {
    let depth = dir
        .strip_prefix(PAGES)
        .map_or(0, |below| below.components().count());
    let mut out = String::with_capacity(page.len());
    let mut rest = page;
    while let Some(at) = rest.find("](") {
        let (before, link) = rest.split_at(at + 2);
        out.push_str(before);
        let len = link.find([')', '#']).unwrap_or(link.len());
        let (link, after) = link.split_at(len);
        match place(&target_of(dir, link)) {
            Some(place) => {
                out.push_str(&"../".repeat(depth));
                out.push_str(&place.to_string_lossy());
            }
            None => out.push_str(link),
        }
        rest = after;
    }
    out + rest
}

/// Where a file of the repository is in the guide, if it is one of its documents.
fn place(file: &Path) -> Option<PathBuf> {
    let is_document = DOCUMENTS.iter().any(|document| file == Path::new(document))
        || file.parent() == Some(Path::new("docs")) && file.extension() == Some("md".as_ref());
    is_document.then(|| file.to_owned())
}

/// The targets of a page's links to files, without what follows `#`.
fn links(page: &str) -> impl Iterator<Item = &str> {
    let links = page.split("](").skip(1);
    let links = links.filter_map(|rest| rest.split([')', '#']).next());
    links.filter(|link| !link.is_empty() && !link.contains([':', ' ', '\n']))
}

/// The file of the repository that a link of a page in `dir` leads to.
fn target_of(dir: &Path, link: &str) -> PathBuf {
    let mut target = PathBuf::new();
    for part in dir.join(link).components() {
        match part {
            Component::ParentDir => drop(target.pop()),
            part => target.push(part),
        }
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All pages of the guide below `dir`, a directory of the repository.
    fn pages(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(crate::workspace_root().join(dir)).unwrap() {
            let path = dir.join(entry.unwrap().file_name());
            match crate::workspace_root().join(&path).is_dir() {
                true => pages(&path, found),
                false if path.extension() == Some("md".as_ref()) => found.push(path),
                false => {}
            }
        }
    }

    #[test]
    fn every_link_of_the_guide_leads_to_a_file_where_the_repository_is_shown() {
        let root = crate::workspace_root();
        let mut all = Vec::new();
        pages(Path::new(PAGES), &mut all);
        assert!(all.len() > 15);
        for page in all {
            let text = fs::read_to_string(root.join(&page)).unwrap();
            assert!(
                !text.contains("{{#"),
                "{}: no forge includes a file",
                page.display()
            );
            for link in links(&text) {
                let target = target_of(page.parent().unwrap(), link);
                assert!(root.join(&target).exists(), "{}: {link}", page.display());
            }
        }
    }

    #[test]
    fn the_staged_guide_has_all_pages_that_it_links_to() {
        let root = crate::workspace_root();
        let to = root.join(format!("target/staged-{}", std::process::id()));
        stage(&root, &to).unwrap();
        let src = to.join("src");
        for page in ["SUMMARY.md", "images.md", "subsystems/mballoc.md"] {
            let text = fs::read_to_string(src.join(page)).unwrap();
            for link in links(&text) {
                let target = src.join(page).parent().unwrap().join(link);
                let target = target_of(Path::new(""), target.to_str().unwrap());
                assert!(Path::new("/").join(&target).exists(), "{page}: {link}");
            }
        }
        fs::remove_dir_all(&to).unwrap();
    }

    #[test]
    fn programs_in_the_guide_are_those_that_are_tested() {
        let root = crate::workspace_root();
        let path = root.join(PAGES).join("library.md");
        let page = fs::read_to_string(&path).unwrap();
        let mut written = page.clone();
        for name in ["list", "edit", "build", "custom_device"] {
            let file = format!("crates/ext4/examples/{name}.rs");
            let mark = format!(
                "<!-- {file}, written by UPDATE_DOCS=1 cargo test -p xtask -->\n\n```rust\n"
            );
            let (before, rest) = written.split_once(&mark).expect(&mark);
            let (_, after) = rest.split_once("```\n").unwrap();
            let program = fs::read_to_string(root.join(&file)).unwrap();
            written = format!("{before}{mark}{program}```\n{after}");
        }
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&path, &written).unwrap();
        } else {
            assert!(
                page == written,
                "UPDATE_DOCS=1 cargo test -p xtask writes library.md anew"
            );
        }
    }
}
