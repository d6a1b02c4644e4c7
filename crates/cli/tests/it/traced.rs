//! `--trace`: the events that are asked for, and no others.

use std::fs;

use crate::changing::image;
use crate::host::{text, uext4};

#[test]
fn events_that_are_asked_for_are_printed() {
    let Some((scratch, image)) = image(&["-t", "ext4"], 16) else {
        return;
    };
    let source = scratch.path().join("source");
    fs::write(&source, vec![1; 1 << 20]).unwrap();
    let events = |wanted: &[&str], path: &str| {
        let words = [&["put", text(&image), text(&source), path], wanted].concat();
        let output = uext4(&words);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let lines = events(&["--trace", "ext4_allocate_blocks,writeback"], "/a");
    assert!(lines.contains(" ext4_allocate_blocks: dev="), "{lines}");
    assert!(lines.contains(" writeback_start: bdi="), "{lines}");
    let is_wanted = |name: &str| name == "ext4_allocate_blocks:" || !name.starts_with("ext4_");
    let mut names = lines.lines().filter_map(|line| line.split(' ').nth(1));
    assert!(names.all(is_wanted), "{lines}");
    let lines = events(&["--trace=ext4_es_insert_extent"], "/b");
    assert!(
        lines.contains(" ext4_es_insert_extent: lblk=0 len="),
        "{lines}"
    );
    assert!(!lines.contains("ext4_es_lookup"), "{lines}");
    assert_eq!(events(&[], "/c"), "");
    let refused = uext4(&["mount", "--trace", "ext4", text(&image), "/nowhere"]);
    assert_eq!(refused.status.code(), Some(1));
}
