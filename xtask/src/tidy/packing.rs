//! One packer: the bytes of directory blocks, extent nodes, htree nodes and attributes are made by
//! `ondisk`, and only those crates call it that write file systems.
//!
//! Reading the raw structures is free to all. Tests make and break bytes as they like.

use syn::visit::{self, Visit};

use super::source::{is_product_code, is_test};
use super::{Complaint, File};

/// Where the packer is.
const PACKER: &str = "crates/ondisk/";
/// Crates that write file systems: the journaled engine with the bulk creator, mkfs, repair, and
/// resizing.
const WRITERS: [&str; 4] = [
    "crates/ext4/",
    "crates/fsck/",
    "crates/mkfs/",
    "crates/resize/",
];
/// Modules of `uext4_ondisk` that pack.
const MODULES: [&str; 2] = ["pack", "dir_block"];
/// Raw structures that the packer alone builds and changes.
const PACKED: [&str; 11] = [
    "DirEntryHeader",
    "DirEntryTail",
    "DxCountLimit",
    "DxEntry",
    "DxRootInfo",
    "DxTail",
    "ExtentHeader",
    "ExtentIdx",
    "RawExtent",
    "RawXattrEntry",
    "XattrBlockHeader",
];
/// Beginnings of functions that build one of them, or let it be changed in its bytes.
const BUILDS: [&str; 4] = ["mut_from", "new_zeroed", "try_mut_from", "zeroed"];

/// Checks one Rust file.
pub fn check(file: &File, complaints: &mut Vec<Complaint>) {
    if file.path.starts_with(PACKER) || !is_product_code(&file.path) {
        return;
    }
    // Another rule complains of what does not parse.
    if let Ok(parsed) = syn::parse_file(&file.text) {
        let mut visitor = Visitor {
            file,
            is_writer: WRITERS.iter().any(|path| file.path.starts_with(path)),
            complaints,
        };
        visitor.visit_file(&parsed);
    }
}

struct Visitor<'a> {
    file: &'a File,
    is_writer: bool,
    complaints: &'a mut Vec<Complaint>,
}

impl Visitor<'_> {
    fn complain(&mut self, name: &syn::Ident, what: &str) {
        let line = name.span().start().line;
        self.complaints
            .push(self.file.complain(line, format!("{name}: {what}")));
    }

    /// Complains if `name` is a module of the packer that this crate must not use.
    fn module(&mut self, of_ondisk: bool, name: &syn::Ident) {
        if of_ondisk && !self.is_writer && MODULES.iter().any(|module| name == module) {
            self.complain(
                name,
                "only ext4, mkfs, fsck and resize write structures of the format",
            );
        }
    }

    fn tree(&mut self, of_ondisk: bool, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                self.module(of_ondisk, &path.ident);
                self.tree(path.ident == "uext4_ondisk", &path.tree);
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.tree(of_ondisk, tree);
                }
            }
            syn::UseTree::Name(name) => self.module(of_ondisk, &name.ident),
            syn::UseTree::Rename(name) => self.module(of_ondisk, &name.ident),
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
        self.tree(false, &item.tree);
    }

    fn visit_expr_struct(&mut self, literal: &'ast syn::ExprStruct) {
        let mut names = literal.path.segments.iter().map(|s| &s.ident).rev();
        let name = names
            .next()
            .filter(|name| PACKED.iter().any(|packed| *name == packed));
        // Behind the name of a type it is a variant, as of `Damage`.
        let is_variant = names.next().is_some_and(|before| {
            let before = before.to_string();
            before.starts_with(char::is_uppercase)
        });
        if let Some(name) = name.filter(|_| !is_variant) {
            self.complain(name, "only ondisk builds it");
        }
        visit::visit_expr_struct(self, literal);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path.segments.iter().map(|segment| &segment.ident);
        for (before, name) in names.clone().zip(names.skip(1)) {
            self.module(before == "uext4_ondisk", name);
            let builds = BUILDS
                .iter()
                .any(|start| name.to_string().starts_with(start));
            if builds && PACKED.iter().any(|packed| before == packed) {
                self.complain(before, "only ondisk builds it and changes its bytes");
            }
        }
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> usize {
        crate::tidy::complaints_of(check, path, text)
    }

    #[test]
    fn raw_structures_are_built_in_one_place() {
        let builds = "fn f() { let e = extent::RawExtent { ee_len: 1.into() }; g(e) }";
        let changes = "fn f(b: &mut [u8]) { DirEntryHeader::mut_from_prefix(b); }";
        let reads = "fn f(b: &[u8]) { DirEntryHeader::ref_from_prefix(b); RawExtent::get; }";
        let variant = "fn f() { g(Damage::ExtentHeader { block: None }) }";
        let test = "#[cfg(test)] mod tests { fn f() { DxEntry { hash: 1.into() }; } }";
        for (text, expected) in [
            (builds, 1),
            (changes, 1),
            (reads, 0),
            (variant, 0),
            (test, 0),
        ] {
            assert_eq!(complaints("crates/ext4/src/x.rs", text), expected, "{text}");
            assert_eq!(complaints("crates/ondisk/src/x.rs", text), 0, "{text}");
            assert_eq!(complaints("crates/ext4/tests/it/x.rs", text), 0, "{text}");
        }
    }

    #[test]
    fn only_writers_pack() {
        for text in [
            "use uext4_ondisk::pack::extent_tree::ExtentTree;",
            "use uext4_ondisk::{Ino, pack::PackError};",
            "fn f() { uext4_ondisk::dir_block::walk(); }",
        ] {
            assert_eq!(complaints("crates/image/src/x.rs", text), 1, "{text}");
            assert_eq!(complaints("crates/mkfs/src/x.rs", text), 0, "{text}");
        }
    }
}
