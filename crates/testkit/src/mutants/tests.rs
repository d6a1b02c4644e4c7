//! The mutants themselves: that they are many, and that a seed says all of them.

use std::collections::BTreeSet;

use super::{Mutant, bases};
use crate::tools::has_tool;

#[test]
fn the_same_seed_makes_the_same_bytes() {
    if !has_tool("mke2fs") {
        return;
    }
    for seed in 0..51 {
        let (Some(once), Some(again)) = (Mutant::new(seed), Mutant::new(seed)) else {
            continue;
        };
        assert_eq!(once.changes, again.changes, "{once}");
        assert!(once.bytes == again.bytes, "{once}");
    }
}

#[test]
fn mutants_reach_every_kind_of_structure() {
    if !has_tool("mke2fs") {
        return;
    }
    let mut places = BTreeSet::new();
    for seed in 0..1700 {
        let Some(mutant) = Mutant::new(seed) else {
            continue;
        };
        let kinds = mutant.changes.iter().map(|change| {
            let words = change.place.split([' ', ',']);
            words
                .take(2)
                .filter(|word| word.parse::<u64>().is_err())
                .collect::<Vec<_>>()
                .join(" ")
        });
        places.extend(kinds);
    }
    println!("{places:?}");
    for place in [
        "superblock",
        "descriptor of",
        "block bitmap",
        "inode bitmap",
        "inode",
        "extent root",
        "node of",
        "directory",
        "index of",
        "attribute block",
        "journal superblock",
        "quota file",
    ] {
        assert!(places.contains(place), "{place}");
    }
    if bases::ALL
        .iter()
        .all(|kind| bases::named(kind.name).is_some())
    {
        for place in [
            "journal block",
            "journal data",
            "fast commit",
            "orphan file",
            "MMP block",
        ] {
            assert!(places.contains(place), "{place}");
        }
    }
}
