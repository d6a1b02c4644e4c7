//! What comes again, what is missing, what leads through links, and what is refused.

use super::*;
use crate::error::Error;
use uext4_ondisk::inode::{DeviceNumber, FileType};

fn mode(mode: u16) -> Attributes {
    Attributes {
        mode,
        ..Attributes::default()
    }
}

fn file(size: u64) -> NewNode<'static> {
    let data = FileData::Whole { at: 0 };
    NewNode::File { size, data }
}

fn paths(tree: &Tree) -> Vec<String> {
    tree.entries()
        .map(|e| String::from_utf8(tree.path(e)).unwrap())
        .collect()
}

fn refused(result: Result<EntryId, Error>, part: &str) {
    let text = result.unwrap_err().to_string();
    assert!(text.contains(part), "{text:?} does not say {part:?}");
}

#[test]
fn missing_directories_appear_before_their_entries() {
    let mut tree = Tree::new();
    tree.insert(b"/a/b/c", file(1), mode(0o600)).unwrap();
    assert_eq!(paths(&tree), [".", "a", "a/b", "a/b/c"]);
    let dir = tree.child(EntryId::ROOT, b"a").unwrap();
    assert_eq!(tree.node_of(dir).mode(), 0o755);
    assert!(tree.entries().skip(1).all(|e| tree.parent(e) < e));
}

#[test]
fn implied_directories_get_their_times_later_and_real_ones_keep_theirs() {
    let time = |sec| Timestamp { sec, nsec: 7 };
    let mut tree = Tree::new();
    tree.insert(b"a/b", file(1), mode(0)).unwrap();
    let real = Attributes {
        mtime: time(50),
        ..mode(0o700)
    };
    tree.insert(b"./", NewNode::Directory, real).unwrap();
    assert_eq!(tree.newest_mtime(), Some(time(50)));
    tree.set_implied_times(time(99));
    let a = tree.child(EntryId::ROOT, b"a").unwrap();
    assert_eq!(tree.node_of(a).times(), [time(99); 3]);
    assert_eq!(tree.node_of(EntryId::ROOT).times()[1], time(50));
    assert_eq!(tree.node_of(EntryId::ROOT).mode(), 0o700);
}

#[test]
fn what_comes_again_replaces() {
    let mut tree = Tree::new();
    tree.insert(b"x", file(1), mode(0o600)).unwrap();
    let x = tree
        .insert(b"x", NewNode::Symlink(b"y"), mode(0o777))
        .unwrap();
    assert_eq!(tree.target(tree.node_of(x)), b"y");
    tree.insert(b"x", NewNode::Directory, mode(0o700)).unwrap();
    tree.insert(b"x/in", file(5), mode(0o600)).unwrap();
    tree.insert(b"x", NewNode::Directory, mode(0o711)).unwrap();
    assert_eq!(tree.node_of(x).mode(), 0o711);
    assert_eq!(paths(&tree), [".", "x", "x/in"]);
    refused(tree.insert(b"x", file(1), mode(0)), "replace a directory");
    assert_eq!(tree.nodes_len(), 3);
}

#[test]
fn an_empty_directory_may_be_replaced() {
    let mut tree = Tree::new();
    tree.insert(b"x", NewNode::Directory, mode(0)).unwrap();
    let x = tree.insert(b"x", NewNode::Fifo, mode(0o600)).unwrap();
    assert_eq!(tree.node_of(x).file_type(), FileType::Fifo);
    assert_eq!(tree.node_of(x).links(), 1);
}

#[test]
fn hard_links_share_a_node_and_survive_replacement() {
    let mut tree = Tree::new();
    let a = tree.insert(b"a", file(1), mode(0o600)).unwrap();
    let b = tree.link(b"d/b", b"./a").unwrap();
    assert_eq!(tree.node_id(a), tree.node_id(b));
    assert_eq!(tree.node_of(a).links(), 2);
    tree.link(b"a", b"d/b").unwrap();
    assert_eq!(tree.node_of(a).links(), 2);
    tree.insert(b"a", file(9), mode(0o600)).unwrap();
    assert_eq!(tree.node_of(a).size(), 9);
    assert_eq!((tree.node_of(b).size(), tree.node_of(b).links()), (1, 1));
    tree.link(b"a", b"d/b").unwrap();
    assert_eq!(tree.node_of(b).links(), 2);
    refused(tree.link(b"z", b"missing"), "no such entry");
    refused(tree.link(b"z", b"d"), "directory");
    refused(tree.link(b"d", b"a"), "replace a directory");
}

#[test]
fn symbolic_links_are_followed_inside_the_tree_only() {
    let mut tree = Tree::new();
    let link = |tree: &mut Tree, path: &[u8], target: &[u8]| {
        tree.insert(path, NewNode::Symlink(target), mode(0o777))
            .unwrap();
    };
    link(&mut tree, b"bin", b"usr/bin");
    link(&mut tree, b"up/out", b"../../../../etc");
    link(&mut tree, b"loop", b"loop");
    tree.insert(b"bin/sh", file(1), mode(0o755)).unwrap();
    tree.insert(b"up/out/passwd", file(1), mode(0o644)).unwrap();
    let all = paths(&tree);
    assert!(all.contains(&"usr/bin/sh".into()) && all.contains(&"etc/passwd".into()));
    refused(
        tree.insert(b"loop/x", file(1), mode(0)),
        "too many symbolic",
    );
    tree.insert(b"file", file(1), mode(0)).unwrap();
    refused(
        tree.insert(b"file/x", file(1), mode(0)),
        "file is not a directory",
    );
    // The link itself is what a hard link names.
    let other = tree.link(b"other", b"bin").unwrap();
    assert_eq!(tree.node_of(other).file_type(), FileType::Symlink);
}

#[test]
fn impossible_things_are_refused() {
    let mut tree = Tree::new();
    refused(tree.insert(b"/", file(1), mode(0)), "root");
    refused(tree.insert(b"a/../b", file(1), mode(0)), "..");
    let long = [b'l'; 4096];
    refused(
        tree.insert(b"l", NewNode::Symlink(&long), mode(0)),
        "l: the link",
    );
    refused(
        tree.insert(b"l", NewNode::Symlink(b""), mode(0)),
        "l: the link",
    );
    let range = |offset, len| DataRange { offset, len, at: 0 };
    for bad in [
        &[range(0, 11)][..],
        &[range(0, 4), range(3, 2)],
        &[range(u64::MAX, 2)],
        &[range(4, 0)],
    ] {
        let data = FileData::Sparse(bad);
        let result = tree.insert(b"s", NewNode::File { size: 10, data }, mode(0));
        refused(result, "s: pieces");
    }
    assert!(tree.is_empty());
}

#[test]
fn children_come_in_order_of_insertion() {
    let mut tree = Tree::new();
    for name in ["d/z", "d/a", "e", "d/m"] {
        tree.insert(name.as_bytes(), file(0), mode(0)).unwrap();
    }
    let d = tree.child(EntryId::ROOT, b"d").unwrap();
    let names: Vec<_> = tree.children(d).map(|e| tree.name(e)).collect();
    assert_eq!(names, [b"z", b"a", b"m"]);
    let e = tree.child(EntryId::ROOT, b"e").unwrap();
    assert_eq!(tree.children(e).count(), 0);
}

#[test]
fn times_are_clamped_to_the_range_of_an_inode() {
    for (sec, nsec, want) in [
        (0, 0, 0),
        (-315_619_200, 999_999_999, -315_619_200),
        (Timestamp::MAX_SEC, 1, Timestamp::MAX_SEC),
        (i64::MAX, 1, Timestamp::MAX_SEC),
        (i64::MIN, 1, Timestamp::MIN_SEC),
    ] {
        let packed = PackedTime::new(Timestamp { sec, nsec });
        assert_eq!(packed.get(), Timestamp { sec: want, nsec });
    }
    let mut tree = Tree::new();
    let at = |sec| Timestamp { sec, nsec: 0 };
    let attributes = Attributes {
        atime: at(5),
        mtime: at(-5),
        ctime: at(500),
        ..mode(0)
    };
    let x = tree.insert(b"x", file(0), attributes).unwrap();
    tree.clamp_times(at(100));
    assert_eq!(tree.node_of(x).times(), [at(5), at(-5), at(100)]);
}

#[test]
fn devices_keep_their_numbers() {
    let mut tree = Tree::new();
    let number = DeviceNumber {
        major: 4095,
        minor: 0xF_FFFF,
    };
    let dev = tree
        .insert(b"dev", NewNode::CharDevice(number), mode(0o20))
        .unwrap();
    assert_eq!(tree.node_of(dev).device(), Some(number));
    assert_eq!(tree.node_of(EntryId::ROOT).device(), None);
}

#[test]
fn a_big_tree_is_small() {
    let mut tree = Tree::new();
    for i in 0..50_000 {
        let path = format!("dir{:03}/file-number-{i:06}", i % 500);
        tree.insert(path.as_bytes(), file(i), mode(0o644)).unwrap();
    }
    let bytes = tree.entries.allocated()
        + tree.nodes.allocated()
        + tree.names.capacity()
        + tree.index.capacity() * 5;
    assert!(
        bytes / tree.len() < 200,
        "{} bytes an entry",
        bytes / tree.len()
    );
}

#[test]
fn names_past_the_limit_are_those_of_files_like_the_first() {
    let mut tree = Tree::new();
    tree.insert(b"a0", file(7), mode(0o640)).unwrap();
    tree.insert(b"other", file(1), mode(0o600)).unwrap();
    for n in 1..8 {
        tree.link(format!("a{n}").as_bytes(), b"a0").unwrap();
    }
    tree.link(b"other2", b"other").unwrap();
    let firsts = tree.split_links(3);
    let paths: Vec<_> = firsts.iter().map(|&first| tree.path(first)).collect();
    assert_eq!(paths, [b"a3".to_vec(), b"a6".to_vec()]);
    let node = |name: &str| {
        let entry = tree.child(EntryId::ROOT, name.as_bytes()).unwrap();
        (tree.node_id(entry), tree.node_of(entry))
    };
    for (of, names, links) in [(0, 0..3, 3), (3, 3..6, 3), (6, 6..8, 2)] {
        for name in names {
            let (id, found) = node(&format!("a{name}"));
            assert_eq!(id, node(&format!("a{of}")).0);
            assert_eq!((found.size(), found.mode()), (7, 0o640));
            assert_eq!(found.links(), links);
        }
    }
    assert_eq!(node("other").1.links(), 2);
    assert!(tree.split_links(3).is_empty());
}
