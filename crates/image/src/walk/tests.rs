//! Limits change the cost of a walk, never what it shows.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use uext4::{FollowLast, OpenOptions};
use uext4_blockdev::{Access, FileDevice};

use super::*;

/// A file system with directories of some hundred names; `None` without mke2fs.
fn file_system() -> Option<Image> {
    if !uext4_testkit::has_tool("mke2fs") {
        return None;
    }
    let scratch = tempfile::tempdir().unwrap();
    let source = scratch.path().join("source");
    for dir in ["", "a", "a!", "a.b", "a/x", "b/c/d/e/f", "z"] {
        fs::create_dir_all(source.join(dir)).unwrap();
        for index in 0..300 {
            fs::write(source.join(dir).join(format!("{index}-name")), "").unwrap();
        }
    }
    let image = scratch.path().join("image");
    let options = ["-t", "ext4", "-N", "4000", "-d", source.to_str().unwrap()];
    uext4_testkit::mke2fs(&image, options, "16M");
    let device = FileDevice::open(&image, Access::ReadOnly).unwrap();
    Some(Image::open(Arc::new(device), &OpenOptions::default()).unwrap())
}

fn paths(fs: &Image, order: Order, limits: Limits) -> Vec<String> {
    let top = fs.resolve(b"/", FollowLast::Yes).unwrap();
    let mut walk = Walk::new(fs, top, order);
    walk.limits = limits;
    let (mut paths, mut depth) = (Vec::new(), 0);
    while let Some(step) = walk.step() {
        match step {
            Step::Entry(entry) => {
                assert!(entry.problem.is_none(), "{:?}", entry.problem);
                assert!(walk.pending_bytes <= limits.all.max(limits.one) + limits.one);
                paths.push(walk.text_path().to_owned());
            }
            Step::Enter(_) => depth += 1,
            Step::Leave => depth -= 1,
        }
    }
    assert_eq!((depth, walk.pending_bytes), (0, 0));
    paths
}

#[test]
fn tight_limits_show_the_same() {
    let Some(fs) = file_system() else {
        return;
    };
    for order in [Order::Sorted, Order::Nested, Order::Listing] {
        let all = paths(&fs, order, LIMITS);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        assert_eq!(all.len(), 7 * 300 + 10 + 2);
        let tight = Limits {
            all: 4_000,
            one: 2_000,
        };
        assert_eq!(paths(&fs, order, tight), all, "{order:?}");
    }
}

#[test]
fn sorted_is_sorted_by_path() {
    let Some(fs) = file_system() else {
        return;
    };
    let shown = paths(&fs, Order::Sorted, LIMITS);
    let mut sorted = shown.clone();
    sorted.sort();
    assert_eq!(shown, sorted);
}
