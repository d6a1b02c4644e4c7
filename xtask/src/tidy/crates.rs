//! Rules on crates: who may import whom, licences, lints, and who may lay out bytes.

use super::{Complaint, File};

/// Crate (its folder) and the crates of ours it may import. A new crate gets a line here.
const ARROWS: &[(&str, &[&str])] = &[
    ("ondisk", &[]),
    ("blockdev", &[]),
    ("tunables", &[]),
    ("support", &[]),
    // For tests and the lab: no crate lists it, so none but the lab depends on it outside of tests.
    ("testkit", &["ondisk", "blockdev"]),
    ("extent-status", &["ondisk", "support", "tunables"]),
    ("buffer-cache", &["ondisk", "blockdev", "support"]),
    ("mballoc", &["ondisk", "support", "tunables"]),
    ("mbcache", &["support", "tunables"]),
    ("writeback", &["ondisk", "blockdev", "tunables"]),
    ("jbd2", &["ondisk", "blockdev", "buffer-cache", "support"]),
    ("redo", &["ondisk", "blockdev"]),
    (
        "ext4",
        &[
            "ondisk",
            "blockdev",
            "extent-status",
            "buffer-cache",
            "mballoc",
            "mbcache",
            "support",
            "tunables",
            "writeback",
            "jbd2",
            "redo",
        ],
    ),
    ("mkfs", &["ondisk", "blockdev", "support"]),
    ("fsck", &["ondisk", "blockdev", "support", "jbd2", "redo"]),
    ("remote", &["ondisk", "blockdev", "ext4"]),
    ("image", &["ondisk", "blockdev", "ext4", "mkfs", "remote"]),
    ("fuse", &["ondisk", "blockdev", "support", "ext4", "remote"]),
    (
        "resize",
        &[
            "ondisk",
            "blockdev",
            "support",
            "buffer-cache",
            "jbd2",
            "redo",
            "ext4",
            "mkfs",
            "fsck",
        ],
    ),
    (
        "cli",
        &[
            "ondisk", "blockdev", "tunables", "jbd2", "ext4", "mkfs", "image", "fuse", "fsck",
            "resize", "remote",
        ],
    ),
];
/// May import everything; nothing may import it.
const LAB: &str = "lab";
/// Imports nothing of ours.
const XTASK: &str = "xtask";
/// The licence of every package.
const LICENSE: &str = "MIT OR Apache-2.0";
/// Crates that may lay out bytes: the format itself, and the partition tables around it.
const LAYS_OUT_BYTES: [&str; 2] = ["ondisk", "blockdev"];
/// The one other file that may: what it lays out goes to the kernel, and never to a disk.
const LAYS_OUT_REQUESTS: &str = "crates/fuse/src/abi.rs";

/// The packages that speak to the kernel where only `unsafe` can, and the file of each that does.
const UNSAFE: [(&str, &str); 2] = [
    ("blockdev", "crates/blockdev/src/sys.rs"),
    ("fuse", "crates/fuse/src/transport/uring/commands.rs"),
];

/// Checks every manifest and the layout rule.
pub fn check(files: &[File], complaints: &mut Vec<Complaint>) {
    for file in files.iter().filter(|f| f.name() == "Cargo.toml") {
        match file.text.parse::<toml::Table>() {
            Ok(manifest) if file.path == "Cargo.toml" => workspace(file, &manifest, complaints),
            Ok(manifest) => package(file, &manifest, complaints),
            Err(error) => complaints.push(file.complain(0, format!("does not parse: {error}"))),
        }
    }
    for file in files.iter().filter(|f| f.is_rust()) {
        layout(file, complaints);
        no_unsafe(file, complaints);
    }
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        if !files.iter().any(|f| f.path == name) {
            complaints.push(Complaint {
                path: name.to_owned(),
                line: 0,
                what: "is missing".to_owned(),
            });
        }
    }
}

fn workspace(file: &File, manifest: &toml::Table, complaints: &mut Vec<Complaint>) {
    let lint = look_up(manifest, &["workspace", "lints", "rust", "unsafe_code"]);
    if lint.and_then(toml::Value::as_str) != Some("forbid") {
        complaints.push(file.complain(0, "unsafe code must be forbidden for the workspace"));
    }
    let license = look_up(manifest, &["workspace", "package", "license"]);
    if license.and_then(toml::Value::as_str) != Some(LICENSE) {
        complaints.push(file.complain(0, format!("the licence must be {LICENSE}")));
    }
}

fn package(file: &File, manifest: &toml::Table, complaints: &mut Vec<Complaint>) {
    let inherits =
        |path: &[&str]| look_up(manifest, path).and_then(toml::Value::as_bool) == Some(true);
    let license = look_up(manifest, &["package", "license"]).and_then(toml::Value::as_str);
    if !inherits(&["package", "license", "workspace"]) && license != Some(LICENSE) {
        complaints.push(file.complain(0, "no licence (`license.workspace = true`)"));
    }
    let Some(folder) = folder(&file.path) else {
        return;
    };
    if UNSAFE.iter().any(|(package, _)| *package == folder) {
        let lint = look_up(manifest, &["lints", "rust", "unsafe_code"]);
        if lint.and_then(toml::Value::as_str) != Some("deny") {
            complaints.push(file.complain(0, "unsafe code must be denied"));
        }
    } else if !inherits(&["lints", "workspace"]) {
        complaints.push(file.complain(0, "does not take the workspace's lints"));
    }
    for (kind, rooted) in [
        ("dependencies", true),
        ("dev-dependencies", false),
        ("build-dependencies", true),
    ] {
        let table = look_up(manifest, &[kind]).and_then(toml::Value::as_table);
        for imported in table.into_iter().flat_map(toml::Table::keys) {
            if let Some(imported) = ours(imported) {
                complaints
                    .extend(arrow(folder, imported, rooted).map(|what| file.complain(0, what)));
            }
        }
    }
}

/// What is wrong with `folder` importing `imported`; tests (`rooted` false) may look upwards.
fn arrow(folder: &str, imported: &str, rooted: bool) -> Option<String> {
    if folder == LAB {
        return None;
    }
    if imported == LAB || folder == XTASK {
        return Some(format!("{folder} must not import {imported}"));
    }
    let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == folder) else {
        return Some(format!(
            "{folder} has no line in the table of crates (xtask)"
        ));
    };
    let wrong = rooted && !allowed.contains(&imported);
    wrong.then(|| format!("{folder} must not import {imported}, only {allowed:?}"))
}

/// The folder of one of our packages: `uext4-mkfs` is `mkfs`, the engine `uext4` is `ext4`.
fn ours(package: &str) -> Option<&str> {
    match package {
        "uext4" => Some("ext4"),
        _ => package.strip_prefix("uext4-"),
    }
}

/// The folder of a manifest that belongs to the workspace.
fn folder(path: &str) -> Option<&str> {
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        ["crates", folder, "Cargo.toml"] => Some(folder),
        ["xtask", "Cargo.toml"] => Some(XTASK),
        ["lab", ..] => Some(LAB),
        _ => None,
    }
}

/// Only the format's own crate declares structs that lie on a disk.
fn layout(file: &File, complaints: &mut Vec<Complaint>) {
    let Some(folder) = file
        .path
        .strip_prefix("crates/")
        .and_then(|p| p.split('/').next())
    else {
        return;
    };
    if LAYS_OUT_BYTES.contains(&folder) || file.path == LAYS_OUT_REQUESTS {
        return;
    }
    for (index, line) in file.text.lines().enumerate() {
        let code = line.trim_start();
        let derives = code.starts_with("#[derive")
            && (code.contains("FromBytes") || code.contains("IntoBytes"));
        if derives || code.starts_with("#[repr(C") {
            complaints.push(file.complain(index + 1, "only ondisk lays out structs on disk"));
        }
    }
}

/// Only these files may allow what is denied or forbidden everywhere.
fn no_unsafe(file: &File, complaints: &mut Vec<Complaint>) {
    let allows = concat!("allow(", "unsafe_code");
    let files = UNSAFE.map(|(_, path)| path);
    if files.contains(&file.path.as_str()) {
        return;
    }
    for (index, line) in file.text.lines().enumerate() {
        if line.contains(allows) {
            let what = format!("only {} are unsafe", files.join(" and "));
            complaints.push(file.complain(index + 1, what));
        }
    }
}

fn look_up<'a>(table: &'a toml::Table, path: &[&str]) -> Option<&'a toml::Value> {
    let (first, rest) = path.split_first()?;
    let value = table.get(*first)?;
    if rest.is_empty() {
        Some(value)
    } else {
        look_up(value.as_table()?, rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_point_downwards() {
        for (index, (name, allowed)) in ARROWS.iter().enumerate() {
            for imported in *allowed {
                let below = ARROWS[..index].iter().any(|(lower, _)| lower == imported);
                assert!(
                    below,
                    "{name} imports {imported}, which does not stand above it"
                );
            }
        }
    }

    #[test]
    fn wrong_arrows_are_found() {
        assert!(arrow("ondisk", "blockdev", true).is_some());
        assert!(arrow("mkfs", "ext4", true).is_some());
        assert!(arrow("mkfs", "ext4", false).is_none());
        assert!(arrow("mkfs", LAB, false).is_some());
        assert!(arrow("cli", "lab-policies", true).is_some());
        assert!(arrow("jbd2", "testkit", true).is_some());
        assert!(arrow("jbd2", "testkit", false).is_none());
        assert!(arrow(LAB, "testkit", true).is_none());
        assert!(arrow("cli", "image", true).is_none());
        assert!(arrow("unmapped", "ondisk", true).is_some());
    }

    #[test]
    fn unsafe_code_has_two_places() {
        let text = concat!("#![allow(", "unsafe_code)]\n");
        for (path, complained) in [
            (UNSAFE[0].1, 0),
            (UNSAFE[1].1, 0),
            ("crates/fuse/src/mount.rs", 1),
        ] {
            let file = File {
                path: path.to_owned(),
                text: text.to_owned(),
            };
            let mut complaints = Vec::new();
            no_unsafe(&file, &mut complaints);
            assert_eq!(complaints.len(), complained, "{path}");
        }
        let file = File {
            path: "crates/fuse/Cargo.toml".to_owned(),
            text: "[package]\nlicense.workspace = true\n[lints.rust]\nunsafe_code = \"allow\"\n"
                .to_owned(),
        };
        let mut complaints = Vec::new();
        check(&[file], &mut complaints);
        assert_eq!(complaints.len(), 3, "{complaints:?}");
    }

    #[test]
    fn a_bare_manifest_is_complained_about() {
        let file = File {
            path: "crates/mkfs/Cargo.toml".to_owned(),
            text: "[package]\n[dependencies]\nuext4.workspace = true\n".to_owned(),
        };
        let mut complaints = Vec::new();
        check(&[file], &mut complaints);
        // Licence, lints, arrow, and the two missing licence texts.
        assert_eq!(complaints.len(), 5, "{complaints:?}");
    }
}
