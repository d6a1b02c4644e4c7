//! `mount --help-options`, and the document that is made from it.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::host::{uext4, uext4_ok};

const HEAD: &str = "\
# Options and tuning

All options of `uext4 mount -o`, as `uext4 mount --help-options` prints them (`--json`: as JSON).
Generated from the tables of the crates; a test fails when this page is stale, and
`UPDATE_DOCS=1 cargo test -p uext4-cli --test it tuning` rewrites it.

- The changing commands take the options from \"Commits, damage and limits\" on with `--options`, and
  the library with `OpenOptions::option`.
- A switch `[no]name` is also set by `name=1` and `name=0`.
- Names, units and defaults are those of the kernel where it has them: `vm.*` and
  `/sys/class/bdi/*/` of writeback, `/sys/fs/ext4/*/mb_*` of the allocator. \"The memory for data\" is
  the memory of the mount (`memory=`), not the machine's.
- The defaults are right unless a measurement says otherwise.

";

#[test]
fn the_page_of_options_is_current() {
    let help = String::from_utf8(uext4_ok(&["mount", "--help-options"])).unwrap();
    assert!(help.lines().all(|line| line.len() <= 100), "{help}");
    let page = format!("{HEAD}```text\n{help}```\n");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tuning.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == page,
        "docs/tuning.md is stale: run `UPDATE_DOCS=1 cargo test -p uext4-cli --test it tuning`"
    );
}

#[test]
fn every_default_is_a_value_that_the_option_takes() {
    let json = uext4_ok(&["mount", "--help-options", "--json"]);
    let json: Value = serde_json::from_slice(&json).unwrap();
    let mut options = 0;
    for subject in json["subjects"].as_array().unwrap() {
        for option in subject["options"].as_array().unwrap() {
            let name = option["name"].as_str().unwrap();
            let usage = option["usage"].as_str().unwrap();
            options += 1;
            let Some(default) = option["default"].as_str() else {
                continue;
            };
            let set = match default {
                _ if !usage.starts_with("[no]") => format!("{name}={default}"),
                "on" => name.to_owned(),
                _ => format!("no{name}"),
            };
            let output = uext4(&["mount", "--fake", "-o", &set, "image", "dir"]);
            assert!(output.status.success(), "{set}: {output:?}");
        }
    }
    assert!(options > 50, "{options}");
    assert!(json["without_effect"].as_array().unwrap().len() > 40);
    let refused = json["refused"].as_array().unwrap();
    assert!(refused.iter().all(|option| option["why"].is_string()));
}

#[test]
fn an_image_is_needed_unless_help_is_asked_for() {
    assert_eq!(uext4(&["mount"]).status.code(), Some(1));
    assert_eq!(uext4(&["mount", "image"]).status.code(), Some(1));
}
