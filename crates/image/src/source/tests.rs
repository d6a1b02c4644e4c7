//! The rules by which sources are merged, each a test: OCI image-spec, layer.md, and what the
//! readers of layers that people use do where it is silent.

use std::io::Cursor;
use std::path::PathBuf;

use super::{ArchiveKind, Context, Input, Listing, Reader, SourceOptions, list};
use crate::error::Error;
use crate::limits::Limits;
use crate::progress::{Counter, Phase};
use crate::sparse::Holes;
use crate::tests::seen;
use crate::ustar;

/// A member of a layer.
#[derive(Clone, Copy)]
enum Member<'a> {
    /// A directory with these permissions.
    Dir(&'a str, u32),
    /// A file with these contents.
    File(&'a str, &'a str),
    /// A symbolic link to this target.
    Symlink(&'a str, &'a str),
    /// A hard link to this path.
    Link(&'a str, &'a str),
    /// A file with an extended attribute of this name.
    Xattr(&'a str, &'a str),
}

use Member::{Dir, File, Link, Symlink, Xattr};

fn block(name: &str, kind: u8, mode: u32, size: usize, target: &str) -> [u8; ustar::BLOCK] {
    let mut block = [0; ustar::BLOCK];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[ustar::MODE].copy_from_slice(format!("{mode:07o}\0").as_bytes());
    block[ustar::SIZE].copy_from_slice(format!("{size:011o}\0").as_bytes());
    block[ustar::TYPEFLAG] = kind;
    block[ustar::LINKNAME.start..][..target.len()].copy_from_slice(target.as_bytes());
    block[ustar::MAGIC].copy_from_slice(b"ustar\x0000");
    block[ustar::CHKSUM].fill(b' ');
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[ustar::CHKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

fn padded(tar: &mut Vec<u8>, bytes: &[u8]) {
    tar.extend_from_slice(bytes);
    tar.resize(tar.len().next_multiple_of(ustar::BLOCK), 0);
}

fn layer(members: &[Member<'_>]) -> Vec<u8> {
    let mut tar = Vec::new();
    for member in members {
        match *member {
            Dir(name, mode) => tar.extend(block(name, b'5', mode, 0, "")),
            File(name, text) => {
                tar.extend(block(name, b'0', 0o644, text.len(), ""));
                padded(&mut tar, text.as_bytes());
            }
            Symlink(name, target) => tar.extend(block(name, b'2', 0o777, 0, target)),
            Link(name, target) => tar.extend(block(name, b'1', 0o644, 0, target)),
            Xattr(name, xattr) => {
                let record = format!(" SCHILY.xattr.{xattr}=v\n");
                let record = format!("{}{record}", record.len() + 2);
                tar.extend(block("pax", b'x', 0o644, record.len(), ""));
                padded(&mut tar, record.as_bytes());
                tar.extend(block(name, b'0', 0o644, 0, ""));
            }
        }
    }
    tar.resize(tar.len() + 2 * ustar::BLOCK, 0);
    tar
}

fn reader(name: String, kind: ArchiveKind, members: &[Member<'_>]) -> Input {
    let bytes = layer(members);
    Input::Reader(Reader {
        open: Box::new(move || Ok(Box::new(Cursor::new(bytes)))),
        path: PathBuf::from(name),
        kind,
        check: None,
    })
}

fn listed(inputs: Vec<Input>, limits: Limits) -> Result<Listing, Error> {
    let options = SourceOptions {
        limits,
        ..SourceOptions::default()
    };
    let context = Context {
        options: &options,
        spool_dir: &std::env::temp_dir(),
        leave_out: None,
        counter: &Counter::begin(&(), Phase::Listing, None),
        holes: Holes::OfSource,
    };
    list(inputs, &context, None)
}

fn merged_within(limits: Limits, layers: &[&[Member<'_>]]) -> Result<Listing, Error> {
    let input = |(i, members): (usize, &&[Member<'_>])| {
        reader(format!("layer {}", i + 1), ArchiveKind::Layer, members)
    };
    listed(layers.iter().enumerate().map(input).collect(), limits)
}

fn merged(layers: &[&[Member<'_>]]) -> Result<Listing, Error> {
    merged_within(Limits::default(), layers)
}

/// Paths of all entries but the root, those of directories with a slash, and for hard links the
/// least path of the same inode.
fn paths(layers: &[&[Member<'_>]]) -> Vec<String> {
    let listing = merged(layers).unwrap();
    let mut paths = Vec::new();
    for (path, entry) in seen(&listing) {
        let slash = match entry.kind {
            uext4_ondisk::inode::FileType::Directory => "/",
            _ => "",
        };
        match (path.as_str(), entry.same_as == path) {
            (".", _) => {}
            (path, true) => paths.push(format!("{path}{slash}")),
            (path, false) => paths.push(format!("{path} = {}", entry.same_as)),
        }
    }
    assert_eq!(paths.len() + 1, listing.tree.len());
    paths
}

#[test]
fn a_directory_over_a_directory_keeps_its_entries_and_changes_its_mode() {
    let lower = [Dir("d", 0o755), File("d/a", "a")];
    let upper = [Dir("d", 0o700), File("d/b", "b")];
    assert_eq!(paths(&[&lower, &upper]), ["d/", "d/a", "d/b"]);
    let listing = merged(&[&lower, &upper]).unwrap();
    assert_eq!(seen(&listing)["d"].mode, 0o700);
}

#[test]
fn anything_else_replaces_what_is_below_with_all_in_it() {
    let lower = [
        Dir("d", 0o755),
        File("d/a", "a"),
        Dir("d/e", 0o755),
        File("d/e/x", "x"),
        File("f", "f"),
        Symlink("l", "d"),
    ];
    assert_eq!(paths(&[&lower, &[File("d", "file")]]), ["d", "f", "l"]);
    let upper = [Dir("f", 0o755), File("f/g", "g"), Dir("l", 0o755)];
    assert_eq!(
        paths(&[&lower, &upper]),
        ["d/", "d/a", "d/e/", "d/e/x", "f/", "f/g", "l/"]
    );
    // But not what the same layer has put there.
    let twice = [File("d/b", "b"), File("d", "file")];
    let error = merged(&[&lower, &twice]).unwrap_err().to_string();
    assert!(error.contains("would replace a directory"), "{error}");
}

#[test]
fn whiteouts_hide_lower_layers_only_whatever_the_order() {
    let lower = [
        Dir("d", 0o700),
        File("d/a", "old"),
        Dir("d/e", 0o755),
        File("d/e/x", "x"),
        File("f", "f"),
    ];
    let whiteout = File(".wh.d", "");
    let new = File("d/b", "new");
    assert_eq!(paths(&[&lower, &[whiteout]]), ["f"]);
    assert_eq!(paths(&[&lower, &[whiteout, new]]), ["d/", "d/b", "f"]);
    assert_eq!(paths(&[&lower, &[new, whiteout]]), ["d/", "d/b", "f"]);
    for members in [[whiteout, new], [new, whiteout]] {
        let listing = merged(&[&lower, &members]).unwrap();
        assert_eq!(
            seen(&listing)["d"].mode,
            0o755,
            "the lower directory is gone"
        );
    }
    // A file of the same layer stays, and one of the same name two layers below comes back never.
    assert_eq!(
        paths(&[&lower, &[File("f", "new"), File(".wh.f", "")]]).len(),
        5
    );
    assert_eq!(
        paths(&[&lower, &[File(".wh.f", "")], &[File("g", "")]]).len(),
        5
    );
    assert_eq!(paths(&[&lower, &[File(".wh.nothing", "")]]).len(), 5);
}

#[test]
fn opaque_directories_hide_lower_layers_only_whatever_the_order() {
    let lower = [
        Dir("d", 0o700),
        File("d/a", "old"),
        Dir("d/e", 0o755),
        File("d/e/x", "x"),
    ];
    let opaque = File("d/.wh..wh..opq", "");
    let new = [File("d/b", "new"), File("d/e/y", "y")];
    for members in [[opaque, new[0], new[1]], [new[0], new[1], opaque]] {
        assert_eq!(paths(&[&lower, &members]), ["d/", "d/b", "d/e/", "d/e/y"]);
    }
    let listing = merged(&[&lower, &[opaque]]).unwrap();
    assert_eq!(
        seen(&listing)["d"].mode,
        0o700,
        "the directory itself stays"
    );
    // Then the directory itself, in both orders.
    for members in [[opaque, File(".wh.d", "")], [File(".wh.d", ""), opaque]] {
        assert!(paths(&[&lower, &members]).is_empty());
    }
    // Through a symbolic link, as members below one go.
    let linked = [
        Symlink("l", "d"),
        File("l/.wh..wh..opq", ""),
        File("l/b", ""),
    ];
    assert_eq!(paths(&[&lower, &linked]), ["d/", "d/b", "l"]);
    // Of the root, twice, and of a directory below one that is opaque already.
    let all = [File(".wh..wh..opq", ""), new[1], opaque, opaque];
    assert_eq!(paths(&[&lower, &all]), ["d/", "d/e/", "d/e/y"]);
}

#[test]
fn whiteouts_of_no_name_and_of_dots_are_refused() {
    for name in [".wh.", "d/.wh..", ".wh..."] {
        let error = merged(&[&[File(name, "")]]).unwrap_err().to_string();
        assert!(error.contains("whiteout"), "{name}: {error}");
    }
}

#[test]
fn a_whiteout_may_be_a_hard_link() {
    let lower = [File("a", "a"), File("b", "b")];
    let upper = [File(".wh.a", ""), Link(".wh.b", ".wh.a")];
    assert!(paths(&[&lower, &upper]).is_empty());
}

#[test]
fn a_directory_or_link_with_the_name_of_a_whiteout_is_content() {
    let lower = [File("a", "a"), File("b", "b")];
    let upper = [Dir(".wh.a", 0o755), Symlink(".wh.b", "b")];
    assert_eq!(paths(&[&lower, &upper]), [".wh.a/", ".wh.b", "a", "b"]);
}

#[test]
fn whiteouts_in_an_archive_that_is_no_layer_are_files() {
    let members = [File("a", ""), File(".wh.a", "")];
    let input = reader("a.tar".to_owned(), ArchiveKind::Files, &members);
    let listing = listed(vec![input], Limits::default()).unwrap();
    assert_eq!(listing.tree.len(), 3);
}

#[test]
fn hard_links_into_lower_layers_name_the_inode_as_merged() {
    let lower = [File("a", "old")];
    let link = [Link("b", "a")];
    assert_eq!(paths(&[&lower, &link]), ["a", "b = a"]);
    // Replacing one name leaves the other as it was.
    let replaced = [&lower[..], &link, &[File("a", "replacement")]];
    assert_eq!(paths(&replaced), ["a", "b"]);
    let listing = merged(&replaced).unwrap();
    assert_eq!(
        (seen(&listing)["a"].size, seen(&listing)["b"].size),
        (11, 3)
    );
    // The name it came with may go; its contents stay where they are.
    assert_eq!(paths(&[&lower, &link, &[File(".wh.a", "")]]), ["b"]);
    // In one layer: what is hidden cannot be linked, whatever the order.
    for members in [[link[0], File(".wh.a", "")], [File(".wh.a", ""), link[0]]] {
        assert!(matches!(
            merged(&[&lower, &members]),
            Err(Error::HardLink { .. })
        ));
    }
}

#[test]
fn missing_parents_are_made() {
    let lower = [File("a/b/c", "")];
    let upper = [Link("x/y/z", "a/b/c"), File("q/.wh.r", "")];
    assert_eq!(
        paths(&[&lower, &upper]),
        ["a/", "a/b/", "a/b/c", "x/", "x/y/", "x/y/z = a/b/c"]
    );
}

#[test]
fn entries_below_symlinks_of_lower_layers_stay_inside_the_root() {
    let lower = [
        Dir("usr/lib", 0o755),
        File("usr/lib/old", ""),
        Symlink("lib", "usr/lib"),
        Symlink("up", "../../usr"),
    ];
    let upper = [
        File("lib/new", ""),
        File("lib/.wh.old", ""),
        File("up/inside", ""),
    ];
    assert_eq!(
        paths(&[&lower, &upper]),
        ["lib", "up", "usr/", "usr/inside", "usr/lib/", "usr/lib/new"]
    );
}

#[test]
fn attributes_of_overlays_are_stripped_and_capabilities_stay() {
    let members = [
        Xattr("a", "trusted.overlay.opaque"),
        Xattr("b", "user.overlay.origin"),
        Xattr("c", "security.capability"),
        Xattr("d", "user.other"),
    ];
    let listing = merged(&[&members]).unwrap();
    let seen = seen(&listing);
    let names = |path: &str| -> Vec<String> {
        seen[path]
            .xattrs
            .iter()
            .map(|(name, _)| name.clone())
            .collect()
    };
    assert!(names("a").is_empty() && names("b").is_empty());
    assert_eq!(names("c"), ["security.capability"]);
    assert_eq!(names("d"), ["user.other"]);
}

#[test]
fn the_index_and_marks_of_estargz_are_dropped() {
    let members = [
        File(".prefetch.landmark", "\u{f}"),
        File("stargz.index.json", "{}"),
        File("d/stargz.index.json", "{}"),
        File(".no.prefetch.landmark", "\u{f}"),
    ];
    assert_eq!(paths(&[&members]), ["d/", "d/stargz.index.json"]);
}

#[test]
fn every_limit_is_named_when_it_is_passed() {
    let layers: [&[Member<'_>]; 2] = [&[File("a/b/c", "12345")], &[Xattr("d", "user.x")]];
    let all = Limits::default();
    for (limits, named) in [
        (Limits { entries: 1, ..all }, "entries"),
        (Limits { bytes: 4, ..all }, "bytes of contents"),
        (Limits { depth: 2, ..all }, "names in one path"),
        (
            Limits {
                xattr_bytes: 5,
                ..all
            },
            "bytes of extended attributes",
        ),
    ] {
        let error = merged_within(limits, &layers).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
    let just = Limits {
        entries: 2,
        bytes: 5,
        depth: 3,
        xattr_bytes: 7,
        ..all
    };
    merged_within(just, &layers).unwrap();
}

#[test]
fn many_whiteouts_of_one_deep_tree_cost_one_visit_each() {
    let deep: String = "d/".repeat(45);
    let file = format!("{deep}f");
    let lower = [File(&file, "")];
    let mut names: Vec<String> = Vec::new();
    for depth in 1..45 {
        names.push(format!("{}.wh..wh..opq", "d/".repeat(depth)));
    }
    let new = format!("{deep}new");
    let mut upper: Vec<Member<'_>> = vec![File(&new, "")];
    upper.extend(names.iter().rev().map(|name| File(name, "")));
    assert_eq!(
        paths(&[&lower, &upper]).last().unwrap(),
        &format!("{deep}new")
    );
}
