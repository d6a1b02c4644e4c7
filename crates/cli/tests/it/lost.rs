//! What `repair` says that it takes out of the tree, against what the engine reads of the tree
//! before and after; and what it does not write unless the user accepts the loss.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;
use uext4_testkit::damage::{Sums, images, kinds};

use crate::checking::ended;
use crate::host::{assert_clean, has_tool, is_long, mke2fs, scratch, text, uext4};

/// A tree as the engine reads it.
#[derive(Debug, Default)]
struct Tree {
    /// Directory, name and inode of each entry.
    names: BTreeSet<(u64, String, u64)>,
    /// Owner, permissions, times and extended attributes by inode.
    attributes: BTreeMap<u64, String>,
    /// Digest and size by inode, of what could be read wholly.
    contents: BTreeMap<u64, (String, u64)>,
    /// Whether all of it could be read.
    is_whole: bool,
}

impl Tree {
    /// `None` if it cannot be opened.
    fn of(image: &Path) -> Option<Self> {
        let output = uext4(&["manifest", text(image)]);
        let lines: Vec<Value> = String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .filter(|line: &Value| line.get("path").is_some())
            .collect();
        let number = |line: &Value| line["ino"].as_u64();
        let path = |line: &Value| line["path"].as_str().map(str::to_owned);
        let inodes = lines
            .iter()
            .filter_map(|line| Some((path(line)?, number(line)?)));
        let inodes: BTreeMap<String, u64> = inodes.collect();
        let mut tree = Self {
            is_whole: output.status.success(),
            ..Self::default()
        };
        for line in &lines {
            let (Some(path), Some(ino)) = (path(line), number(line)) else {
                tree.is_whole = false;
                continue;
            };
            if line.get("error").is_some() {
                tree.is_whole = false;
                continue;
            }
            let (parent, name) = path.rsplit_once('/').unwrap_or((".", &path));
            if let Some(&parent) = inodes.get(parent)
                && path != "."
            {
                tree.names.insert((parent, name.to_owned(), ino));
            }
            let fields = ["mode", "uid", "gid", "mtime_ns", "atime_ns", "xattrs"];
            let fields = fields.map(|field| line[field].to_string());
            tree.attributes.insert(ino, fields.join(" "));
            if let Some(digest) = line["sha256"].as_str() {
                let size = line["size"].as_u64().unwrap_or(0);
                tree.contents.insert(ino, (digest.to_owned(), size));
            }
        }
        (!lines.is_empty()).then_some(tree)
    }

    fn inodes(&self) -> BTreeSet<u64> {
        self.names.iter().map(|(_, _, ino)| *ino).collect()
    }
}

/// What the plan for an image says, and the image repaired.
fn planned(image: &Path, fixed: &Path) -> Option<Value> {
    let plan = uext4(&["repair", "--plan", "--json", text(image)]);
    let head = String::from_utf8_lossy(&plan.stdout);
    let head: Value = serde_json::from_str(head.lines().next()?).unwrap();
    if head["consistent"] != true {
        return None;
    }
    fs::copy(image, fixed).unwrap();
    let (code, printed) = ended(&["repair", "-y", "--accept-loss", text(fixed)]);
    // Without room for a log it is refused.
    (code <= Some(1)).then(|| head["lost"].clone()).or_else(|| {
        assert!(printed.contains("--undo"), "{printed}");
        None
    })
}

/// What is not true of what the plan says.
fn untrue(said: &Value, before: &Tree, after: &Tree) -> Vec<String> {
    let count = |what: &str| said[what].as_u64().unwrap();
    let names: Vec<_> = before.names.difference(&after.names).collect();
    let (old, new) = (before.inodes(), after.inodes());
    let files = old.difference(&new).count() as u64;
    let differs = |(ino, was): &(&u64, &(String, u64))| after.contents.get(ino) != Some(*was);
    // A root that is no directory is read as a file, and has no name as one.
    let is_file = |&(&ino, was): &(&u64, &(String, u64))| ino != 2 && was.1 > 0;
    let mut changed = before.contents.iter().filter(differs).filter(is_file);
    let bytes = changed.next().map(|(ino, _)| ino);
    let is_other =
        |(ino, was): &(&u64, &String)| after.attributes.get(ino).is_some_and(|is| is != *was);
    let attributes = before.attributes.iter().find(is_other).map(|(ino, _)| ino);
    let mut wrong = Vec::new();
    let mut complain = |is_wrong: bool, what: String| {
        if is_wrong {
            wrong.push(what);
        }
    };
    let lost = names.len() as u64;
    complain(lost > count("names"), format!("names are lost: {names:?}"));
    complain(files > count("files"), format!("{files} files are lost"));
    complain(
        bytes.is_some() && count("bytes") == 0,
        format!("bytes of inode {bytes:?}"),
    );
    complain(
        attributes.is_some() && count("attributes") == 0,
        format!("attributes of inode {attributes:?}"),
    );
    // What the engine does not read may be lost without its seeing it.
    if before.is_whole {
        complain(
            lost < count("names"),
            format!("{lost} names are lost: {names:?}"),
        );
        complain(files < count("files"), format!("{files} files are lost"));
        complain(
            bytes.is_none() && count("bytes") > 0,
            "no byte is lost".to_owned(),
        );
    }
    wrong
}

#[test]
fn a_plan_says_what_the_repair_takes_out_of_the_tree() {
    if !has_tool("e2fsck") {
        return;
    }
    let scratch = scratch();
    let (image, fixed) = (scratch.path().join("image"), scratch.path().join("fixed"));
    let only = std::env::var("UEXT4_KIND").unwrap_or_default();
    let (mut failures, mut judged) = (Vec::new(), 0);
    for (number, kind) in kinds().filter(|kind| kind.name.contains(&only)).enumerate() {
        // Of a quick run each 29th kind. What waits to be deleted has no name that counts.
        let is_meant = is_long() || !only.is_empty() || number % 29 == 0;
        if !is_meant || kind.name.contains("orphan") {
            continue;
        }
        for at in 0..images::ALL.len() {
            let at = (at + number) % images::ALL.len();
            let Some(damaged) = kind.apply(&images::sample(at).survey, Sums::Right, 3) else {
                continue;
            };
            fs::write(&image, &damaged.bytes).unwrap();
            let before = Tree::of(&image);
            let (Some(before), Some(said)) = (before, planned(&image, &fixed)) else {
                continue;
            };
            let wrong = untrue(&said, &before, &Tree::of(&fixed).unwrap());
            judged += 1;
            let name = images::ALL[at].name;
            let lines = wrong.into_iter();
            failures.extend(lines.map(|what| format!("{} on {name}: {what}; {said}", kind.name)));
            break;
        }
    }
    assert!(failures.is_empty(), "of {judged}: {}", failures.join("\n"));
    assert!(judged > 0);
}

/// An ext2 of which the second inode table is noise, and the descriptors do not say where it was.
fn without_a_table(image: &Path) {
    let tree = image.with_extension("tree");
    fs::create_dir(&tree).unwrap();
    for name in 0..300 {
        fs::write(tree.join(format!("file {name}")), vec![7; 100]).unwrap();
    }
    let options = ["-t", "ext2", "-b", "1024", "-g", "2048", "-N", "512"];
    mke2fs(image, &[&options[..], &["-d", text(&tree)]].concat(), 8);
    let mut bytes = fs::read(image).unwrap();
    // The descriptors are in block 2, the places of the second group's in bytes 32 to 44.
    let place = 2048 + 32 + 8;
    let table = u32::from_le_bytes(bytes[place..place + 4].try_into().unwrap()) as usize;
    bytes[table * 1024..][..32 * 1024].fill(0xD7);
    bytes[place..place + 4].fill(0);
    for group in [1, 3] {
        let backup = (1 + group * 2048) * 1024;
        bytes[backup..backup + 2048].fill(0);
    }
    fs::write(image, bytes).unwrap();
}

#[test]
fn a_table_with_files_is_emptied_only_for_those_who_accept_the_loss() {
    if !has_tool("mke2fs") {
        return;
    }
    let scratch = scratch();
    let image = scratch.path().join("image");
    without_a_table(&image);
    let before = fs::read(&image).unwrap();
    let (code, shown) = ended(&["repair", "--plan", text(&image)]);
    assert_eq!(code, Some(4), "{shown}");
    assert!(
        shown.contains("128 files with structures made anew"),
        "{shown}"
    );
    for refused in [
        &["repair", "-y"][..],
        &["repair", "-y", "--accept-loss=127"],
        &["fsck", "-fy"],
        &["fsck", "-fp"],
        &["repair", "-p"],
    ] {
        let (code, printed) = ended(&[refused, &[text(&image)]].concat());
        assert_eq!(code, Some(4), "{refused:?}: {printed}");
        assert!(fs::read(&image).unwrap() == before, "{refused:?}");
        if refused.iter().any(|word| word.ends_with('y')) {
            assert!(printed.contains("128 files would be lost"), "{printed}");
        }
    }
    let (code, printed) = ended(&["fsck", "-fy", "--accept-loss=128", text(&image)]);
    assert_eq!(code, Some(1), "{printed}");
    assert_clean(&image);
    fs::write(&image, before).unwrap();
    let (code, printed) = ended(&["repair", "-y", "--accept-loss", text(&image)]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(
        printed.ends_with("; the file system is clean\n"),
        "{printed}"
    );
    assert_clean(&image);
}

/// One group with 200 files, of which the descriptor is noise, and so many blocks of its table are.
fn without_a_descriptor(image: &Path, blocks: usize) {
    let tree = image.with_extension("tree");
    fs::create_dir_all(&tree).unwrap();
    for name in 0..200 {
        fs::write(tree.join(format!("file {name}")), [7; 100]).unwrap();
    }
    let options = ["-t", "ext4", "-b", "4096", "-d", text(&tree)];
    mke2fs(image, &options, 64);
    let mut bytes = fs::read(image).unwrap();
    let table = u32::from_le_bytes(bytes[4096 + 8..][..4].try_into().unwrap()) as usize;
    bytes[4096..][..64].fill(0xA5);
    bytes[table * 4096..][..blocks * 4096].fill(0x5A);
    fs::write(image, bytes).unwrap();
}

#[test]
fn a_table_is_found_by_what_is_left_of_it_or_given_up_by_request() {
    if !has_tool("mke2fs") {
        return;
    }
    let scratch = scratch();
    let image = scratch.path().join("image");
    without_a_descriptor(&image, 1);
    let (code, printed) = ended(&["repair", "-y", text(&image)]);
    assert_eq!(code, Some(1), "{printed}");
    assert_clean(&image);
    // The first block had the root, and five of the files.
    let (_, listed) = ended(&["ls", "-i", text(&image), "/lost+found"]);
    assert_eq!(listed.lines().count(), 195, "{listed}");

    without_a_descriptor(&image, 40);
    let before = fs::read(&image).unwrap();
    let (code, printed) = ended(&["repair", "-y", text(&image)]);
    assert_eq!(code, Some(4), "{printed}");
    assert!(
        printed.contains("would be lost with structures"),
        "{printed}"
    );
    assert!(fs::read(&image).unwrap() == before);
}
