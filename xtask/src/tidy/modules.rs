//! The order of the engine's modules: imports go downwards only.
//!
//! Modules of one level may import each other; [`super::knots`] finds circles. Imports made by tests do
//! not count.

use super::knots::{Paths, module_path};
use super::source::is_product_code;
use super::{Complaint, File};

/// Where the engine's modules live.
const ENGINE: &str = "crates/ext4/src/";
/// The levels, top first. A new module gets its place here.
const LEVELS: &[&[&str]] = &[
    &["lib"],
    &["description", "paths"],
    &["filesystem"],
    &["open_inode"],
    &[
        "super_",
        "leave",
        "rename",
        "setattr",
        "copy_range",
        "fallocate",
        "fiemap",
    ],
    &[
        "create",
        "unlink",
        "file_change",
        "readdir",
        "statfs",
        "redo",
        "in_use",
        "open_options",
        "writeback_options",
    ],
    &["auto_da_alloc"],
    &["dir_change", "inode_ref", "inline_file"],
    &["evict", "htree_change", "inline_dir", "quota_change"],
    &["bulk", "dir_grow", "file_pages", "xattr_change"],
    &["data_blocks", "map_change", "xattr_layout"],
    &["acl", "check", "extents_change", "xattr_block"],
    &["xattr", "extent_path", "indirect_change"],
    &["ea_inode", "file_blocks", "fitrim", "label"],
    &["error_record", "handle", "namei", "space"],
    &["crypto", "reclaim", "rw"],
    &["mmp", "mount_limits", "reservations"],
    &[
        "file",
        "htree",
        "orphan_change",
        "quota",
        "sealer",
        "symlink",
        "taking",
        "unfinished",
    ],
    &["dir", "journal", "orphan", "quota_file", "readpage"],
    &["icache", "map", "owned"],
    &["delayed_tables"],
    &[
        "attr",
        "extents",
        "groups",
        "indirect",
        "inline",
        "inode_store",
        "reach",
    ],
    &[
        "bitmap",
        "dir_block",
        "discards",
        "dquot",
        "edit",
        "inode",
        "xattr_shared",
    ],
    &["sbi"],
    &["fast_commit", "rescue"],
    &[
        "acl_kind",
        "background",
        "caller",
        "dentry",
        "bits",
        "error",
        "ialloc",
        "lock_order",
        "mapping",
        "memory",
        "owner",
        "policies",
    ],
];

/// Checks all modules of the engine.
pub fn check(files: &[File], complaints: &mut Vec<Complaint>) {
    for file in files
        .iter()
        .filter(|f| f.is_rust() && f.path.starts_with(ENGINE) && is_product_code(&f.path))
    {
        let module = module_of(&file.path[ENGINE.len()..]);
        let Some((from_level, module)) = place(module) else {
            complaints.push(file.complain(0, "has no place in the order of modules (xtask)"));
            continue;
        };
        for (imported, line) in imports(file) {
            let Some((to_level, imported)) = place(&imported) else {
                // A name that is no module: something the root re-exports.
                let what = format!("imports `crate::{imported}`: name its module instead");
                complaints.push(file.complain(line, what));
                continue;
            };
            if to_level < from_level {
                let what = format!("{module} must not import {imported}, which is above it");
                complaints.push(file.complain(line, what));
            }
        }
    }
}

/// The top-level module a file belongs to; `super.rs` is called `super_`, for `super` is taken.
fn module_of(path: &str) -> &str {
    let first = path.split('/').next().unwrap_or_default();
    match first.strip_suffix(".rs").unwrap_or(first) {
        "super" => "super_",
        stem => stem,
    }
}

fn place(module: &str) -> Option<(usize, &'static str)> {
    LEVELS.iter().enumerate().find_map(|(level, names)| {
        let name = names.iter().find(|name| **name == module)?;
        Some((level, *name))
    })
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

    fn complaints_on(modules: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<File> = modules
            .iter()
            .map(|(name, text)| File {
                path: format!("{ENGINE}{name}"),
                text: (*text).to_owned(),
            })
            .collect();
        let mut complaints = Vec::new();
        check(&files, &mut complaints);
        complaints.into_iter().map(|c| c.to_string()).collect()
    }

    #[test]
    fn downward_imports_pass() {
        let found = complaints_on(&[
            ("super.rs", "use crate::sbi::Sbi;"),
            ("dir.rs", "use crate::{inode::Inode, sbi};"),
            (
                "dir/linear.rs",
                "use crate::dir::Entry; fn f(_: crate::sbi::Sbi) {}",
            ),
            (
                "sbi.rs",
                "#[cfg(test)] mod tests { use crate::super_::open; }",
            ),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn upward_imports_are_found() {
        let found = complaints_on(&[
            ("sbi.rs", "use crate::dir::Entry;"),
            ("inode.rs", "fn f(_: crate::super_::Open) {}"),
            ("map.rs", "use crate::Filesystem;"),
            ("oddity.rs", ""),
        ]);
        assert_eq!(found.len(), 4, "{found:?}");
    }
}
