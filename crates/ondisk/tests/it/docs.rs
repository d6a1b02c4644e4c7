//! The documentation of the features is generated from their table.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use uext4_ondisk::features::{FEATURES, Feature, FeatureBit, Support};

const HEAD: &str = "\
# Features

What this implementation does with each feature of the format. Generated from the table in
`crates/ondisk/src/features.rs`; a test fails when this page is stale, and
`UPDATE_DOCS=1 cargo test -p uext4-ondisk` rewrites it.

- **read**: an image that has the feature can be listed, read and exported.
- **write**: such an image can be created and filled.
- **check**: `uext4 check` knows the structures that the feature brings.

`refused` means: the image is refused, with the feature's name. What is not checked is left alone. A
feature that is not listed here refuses reading if it is of the word incompat, and writing if it is
of the word ro_compat.

| feature | word | read | write | check | note |
|---|---|---|---|---|---|
";

fn row(feature: &Feature) -> String {
    let (word, bits) = match feature.bit {
        FeatureBit::Compat(b) => ("compat", b.bits()),
        FeatureBit::Incompat(b) => ("incompat", b.bits()),
        FeatureBit::RoCompat(b) => ("ro_compat", b.bits()),
    };
    let support = |support, otherwise| match support {
        Support::Yes => "yes",
        Support::Refused => otherwise,
    };
    format!(
        "| {} | {word} {bits:#x} | {} | {} | {} | {} |",
        feature.name,
        support(feature.read, "refused"),
        support(feature.write, "refused"),
        support(feature.check, "no"),
        feature.note
    )
}

#[test]
fn features_page_is_current() {
    let mut page = HEAD.to_owned();
    for feature in FEATURES {
        writeln!(page, "{}", row(feature)).unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/features.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == page,
        "docs/features.md is stale: run `UPDATE_DOCS=1 cargo test -p uext4-ondisk`"
    );
}
