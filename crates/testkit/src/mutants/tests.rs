//! The mutants themselves: that they are many, and that a seed says all of them.

use std::collections::BTreeSet;

use super::Mutant;

#[test]
fn the_same_seed_makes_the_same_bytes() {
    for seed in 0..51 {
        let (once, again) = (Mutant::new(seed), Mutant::new(seed));
        assert_eq!(once.changes, again.changes, "{once}");
        assert!(once.bytes == again.bytes, "{once}");
    }
}

#[test]
fn mutants_reach_every_kind_of_structure() {
    let mut places = BTreeSet::new();
    for seed in 0..1700 {
        let mutant = Mutant::new(seed);
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
        "journal block",
        "journal data",
        "fast commit",
        "orphan file",
        "MMP block",
    ] {
        assert!(places.contains(place), "{place}");
    }
}
