//! The kinds themselves: their names, and that each of them finds its place.

use std::collections::HashSet;

use super::{Contents, Sums, Survey, images, kinds};
use crate::e2fsprogs::{debugfs_write, mke2fs};
use crate::tools::{has_tool, scratch};

#[test]
fn every_kind_has_its_own_name_in_kebab_case() {
    let mut names = HashSet::new();
    for kind in kinds() {
        let kebab = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        assert!(kind.name.bytes().all(kebab), "{}", kind.name);
        assert!(names.insert(kind.name), "{} twice", kind.name);
    }
    assert!(names.len() >= 150, "{}", names.len());
}

#[test]
fn every_kind_damages_one_of_the_images() {
    if !has_tool("mke2fs") {
        return;
    }
    let lost: Vec<_> = kinds()
        .filter(|kind| {
            let applies = |sample: &images::Sample| {
                (0..8).any(|seed| kind.apply(&sample.survey, Sums::Right, seed).is_some())
            };
            !images::all().any(applies)
        })
        .map(|kind| kind.name)
        .collect();
    assert!(lost.is_empty(), "{lost:?} have no place in any image");
}

#[test]
fn the_same_seed_makes_the_same_damage() {
    if !has_tool("mke2fs") {
        return;
    }
    let image = &images::named("ext4").survey;
    for kind in kinds() {
        let twice = [(); 2].map(|()| kind.apply(image, Sums::Right, 5).map(|d| (d.bytes, d.hurt)));
        assert!(twice[0] == twice[1], "{}", kind.name);
    }
    let changes = [7, 7, 8].map(|seed| super::random::changes(image, seed));
    assert!(changes[0] == changes[1] && changes[0] != changes[2]);
}

#[test]
fn a_file_in_the_place_of_lost_found_counts_and_the_directory_does_not() {
    if !has_tool("mke2fs") {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("image");
    let contents = || Contents::new(&Survey::new(std::fs::read(&image).unwrap()));
    mke2fs(&image, ["-t", "ext2", "-b", "1024"], "1M");
    let with_directory = contents();
    debugfs_write(&image, ["rmdir lost+found"]);
    let without = contents();
    assert_eq!(without.loses(&with_directory, &with_directory), [""; 0]);
    debugfs_write(&image, ["symlink lost+found target"]);
    let with_link = contents();
    assert_eq!(without.loses(&with_link, &with_link).len(), 1);
    assert_eq!(with_link.loses(&with_link, &with_link), [""; 0]);
}
