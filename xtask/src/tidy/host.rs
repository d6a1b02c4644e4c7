//! Which crates use which facilities of the host: files, the time of day, the environment, standard
//! output, exit codes. ARCHITECTURE.md says the same as invariants of crates.
//!
//! A facility is known by its name in a `use` or in a path. Tests use what they like.

use syn::visit::{self, Visit};

use super::source::{is_product_code, is_test};
use super::{Complaint, File};

/// Something of the host, and the beginnings of the paths of files that may use it.
struct Facility {
    /// A module or type of the standard library: the last names of its path.
    names: &'static [&'static str],
    allowed: &'static [&'static str],
    /// The rule, as a complaint says it.
    rule: &'static str,
}

/// Crates that open files: of devices, of mounts, of what becomes an image, of users, and of what a
/// repair keeps; and the one that passes them from one process to another.
const OPEN_FILES: [&str; 6] = [
    "crates/blockdev/",
    "crates/fsck/",
    "crates/fuse/",
    "crates/image/",
    "crates/cli/",
    "crates/remote/",
];

const FACILITIES: [Facility; 5] = [
    Facility {
        names: &["std::fs", "std::os::fd"],
        allowed: &OPEN_FILES,
        rule: "below image, fsck, fuse, remote and cli only blockdev opens files",
    },
    Facility {
        names: &["SystemTime"],
        allowed: &[
            "crates/blockdev/",
            "crates/fuse/src/unmount_status.rs",
            "crates/cli/",
        ],
        rule: "the time of day comes from a Clock",
    },
    Facility {
        names: &[
            "env::var",
            "env::var_os",
            "env::vars",
            "env::args",
            "env::args_os",
        ],
        allowed: &["crates/image/src/preload.rs", "crates/cli/"],
        rule: "only cli reads the environment",
    },
    Facility {
        names: &["io::stdout", "io::stderr"],
        allowed: &["crates/fuse/src/report.rs", "crates/cli/"],
        rule: "only cli prints",
    },
    Facility {
        names: &["ExitCode", "process::exit"],
        allowed: &["crates/cli/"],
        rule: "only cli knows exit codes",
    },
];

/// Macros that print, for which the rule on standard output holds.
const PRINTS: [&str; 4] = ["print", "println", "eprint", "eprintln"];
/// What they print to.
const PRINTED_TO: &str = "io::stdout";

/// Checks one Rust file.
pub fn check(file: &File, complaints: &mut Vec<Complaint>) {
    if !is_product_code(&file.path) {
        return;
    }
    // Another rule complains of what does not parse.
    if let Ok(parsed) = syn::parse_file(&file.text)
        && !is_test(&parsed.attrs)
    {
        Visitor { file, complaints }.visit_file(&parsed);
    }
}

struct Visitor<'a> {
    file: &'a File,
    complaints: &'a mut Vec<Complaint>,
}

impl Visitor<'_> {
    /// Complains if a path, its names joined, ends in a facility that this file must not use.
    fn path(&mut self, path: &str, line: usize) {
        let is_in = |name: &str| {
            let rest = path.strip_suffix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with("::"))
        };
        for facility in &FACILITIES {
            let mut allowed = facility.allowed.iter();
            let is_allowed = allowed.any(|start| self.file.path.starts_with(start));
            if !is_allowed && facility.names.iter().any(|name| is_in(name)) {
                self.complaints.push(
                    self.file
                        .complain(line, format!("{path}: {}", facility.rule)),
                );
            }
        }
    }

    /// Walks a `use`, whose names so far are `before`.
    fn tree(&mut self, before: &str, tree: &syn::UseTree) {
        let join = |name: &syn::Ident| match before {
            "" => name.to_string(),
            _ => format!("{before}::{name}"),
        };
        match tree {
            syn::UseTree::Path(path) => {
                let joined = join(&path.ident);
                self.path(&joined, path.ident.span().start().line);
                self.tree(&joined, &path.tree);
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.tree(before, tree);
                }
            }
            syn::UseTree::Name(syn::UseName { ident })
            | syn::UseTree::Rename(syn::UseRename { ident, .. }) => {
                self.path(&join(ident), ident.span().start().line);
            }
            syn::UseTree::Glob(_) => {}
        }
    }
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.tree("", &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut joined = String::new();
        for segment in &path.segments {
            if !joined.is_empty() {
                joined.push_str("::");
            }
            joined.push_str(&segment.ident.to_string());
            self.path(&joined, segment.ident.span().start().line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        let name = mac.path.get_ident();
        if let Some(name) = name.filter(|name| PRINTS.iter().any(|prints| *name == prints)) {
            self.path(PRINTED_TO, name.span().start().line);
        }
        visit::visit_macro(self, mac);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> usize {
        crate::tidy::complaints_of(check, path, text)
    }

    #[test]
    fn the_engine_uses_nothing_of_the_host() {
        for text in [
            "use std::fs::File;",
            "use std::{io, fs};",
            "fn f() { std::fs::read(p) }",
            "use std::time::SystemTime;",
            "use std::time::{Duration, SystemTime};",
            "use std::env::var_os;",
            "fn f() { eprintln!(\"x\") }",
            "fn f() { io::stdout().write(b) }",
            "use std::process::ExitCode;",
        ] {
            assert_eq!(complaints("crates/ext4/src/x.rs", text), 1, "{text}");
            assert_eq!(complaints("crates/cli/src/x.rs", text), 0, "{text}");
            assert_eq!(complaints("crates/ext4/tests/it/x.rs", text), 0, "{text}");
        }
        let test = "#[cfg(test)] mod tests { use std::fs::File; }";
        assert_eq!(complaints("crates/ext4/src/x.rs", test), 0);
        let others = "use std::time::Instant; fn f() { stdout.read(fs) }";
        assert_eq!(complaints("crates/ext4/src/x.rs", others), 0);
    }
}
