//! Images that other tools write, and what they say of ours.

use uext4_image::{BuildOptions, Builder};
use uext4_testkit::{has_tool, run_text};

use super::*;
use crate::fixture::run;

/// The digests of the layers that skopeo finds in an image.
fn skopeo_layers(reference: &str) -> Vec<String> {
    let text = run_text("skopeo", ["inspect", "--override-arch=amd64", reference]);
    let image: Value = serde_json::from_str(&text).unwrap();
    let layers = image["Layers"].as_array().unwrap().iter();
    layers
        .map(|layer| layer.as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn skopeo_copies_in_every_format_and_the_layers_stay_the_same() {
    if !has_tool("skopeo") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().display();
    let tars = [layer("one"), layer("two"), layer("two"), layer("three")];
    let mut layout = Layout::of(&tars);
    let one = layout.image("linux/amd64", &[(Pack::Plain, layer("alone"))]);
    layout.list(named(one, "alone"));
    let image = layout.image("linux/amd64", &tars.clone().map(|tar| (Pack::Gzip, tar)));
    layout.list(named(image, "all"));
    layout.write(&dir.path().join("ours"));
    let ours = open(&format!("oci:{root}/ours:all")).unwrap();
    let shown = skopeo_layers(&format!("oci:{root}/ours:all"));
    let digests: Vec<_> = ours
        .layers
        .iter()
        .map(|l| l.digest.clone().unwrap().to_string())
        .collect();
    assert_eq!(shown, digests);
    for target in [
        "docker-archive:saved.tar:app:1".to_owned(),
        "oci-archive:layout.tar:v1".to_owned(),
        "oci:layout:v1".to_owned(),
        "dir:plain".to_owned(),
    ] {
        let source = format!("oci:{root}/ours:all");
        let insecure = ["skopeo", "--insecure-policy", "copy", &source, &target];
        run(dir.path(), &insecure);
    }
    for reference in [
        format!("docker-archive:{root}/saved.tar"),
        format!("docker-archive:{root}/saved.tar:app:1"),
        format!("oci:{root}/layout.tar:v1"),
        format!("oci-archive:{root}/layout.tar:v1"),
        format!("oci:{root}/layout"),
        format!("dir:{root}/plain"),
    ] {
        let image = open(&reference).unwrap();
        assert_layers(&image, &tars);
        if reference.starts_with("oci:") {
            let shown = skopeo_layers(&reference.replace("layout.tar", "layout"));
            let digests = image
                .layers
                .iter()
                .map(|l| l.digest.clone().unwrap().to_string());
            assert!(digests.eq(shown));
        }
    }
    let zstd = [
        "skopeo",
        "--insecure-policy",
        "copy",
        "--dest-compress-format=zstd",
    ];
    let names = [
        format!("docker-archive:{root}/saved.tar"),
        "oci:zstd:z".to_owned(),
    ];
    run(dir.path(), &[&zstd[..], &[&names[0], &names[1]]].concat());
    let image = open(&format!("oci:{root}/zstd:z")).unwrap();
    assert_layers(&image, &tars);
}

#[test]
fn layouts_in_archives_of_tar_are_read_unless_a_layer_is_sparse() {
    let dir = tempfile::tempdir().unwrap();
    let tars = [Tar::default().file("zeroes", &[0; 1 << 20]).finish()];
    let mut layout = Layout::default();
    let image = layout.image("linux/amd64", &[(Pack::Plain, tars[0].clone())]);
    layout.list(image);
    layout.write(&dir.path().join("layout"));
    run(
        dir.path(),
        &["tar", "-C", "layout", "-cf", "plain.tar", "."],
    );
    let root = dir.path().display();
    assert_layers(&open(&format!("oci:{root}/plain.tar")).unwrap(), &tars);
    let layer = format!("layout/blobs/sha256/{}", Digest::sha256_of(&tars[0]).hex());
    run(dir.path(), &["fallocate", "--dig-holes", &layer]);
    run(
        dir.path(),
        &["tar", "-C", "layout", "-Scf", "sparse.tar", "."],
    );
    let error = open(&format!("oci:{root}/sparse.tar")).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("pack the archive without --sparse"),
        "{error}"
    );
}

#[test]
fn layouts_of_umoci_are_read() {
    if !has_tool("umoci") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("hello"), "hello").unwrap();
    for command in [
        &["umoci", "init", "--layout", "layout"][..],
        &["umoci", "new", "--image", "layout:v1"],
        &["umoci", "insert", "--image", "layout:v1", "hello", "/hello"],
        &["umoci", "insert", "--image", "layout:v1", "hello", "/again"],
        &["umoci", "tag", "--image", "layout:v1", "v2"],
        &["umoci", "insert", "--image", "layout:v2", "hello", "/more"],
    ] {
        run(dir.path(), command);
    }
    let root = dir.path().display();
    for (tag, count) in [("v1", 2), ("v2", 3)] {
        let image = open(&format!("oci:{root}/layout:{tag}")).unwrap();
        assert_eq!(image.layers.len(), count);
        for layer in &image.layers {
            let tar = read(layer).unwrap();
            assert!(tar.windows(5).any(|window| window == b"hello"));
        }
        // `umoci insert` writes no end of an archive.
        let reference = Reference::parse(format!("oci:{root}/layout:{tag}").as_ref()).unwrap();
        let mut builder = Builder::new(BuildOptions::default());
        let options = OpenOptions::default();
        builder.container(&reference.unwrap(), &options).unwrap();
        builder.build(&dir.path().join(tag), &()).unwrap();
    }
    let error = open(&format!("oci:{root}/layout")).unwrap_err();
    assert!(matches!(error.fault, Fault::Ambiguous { .. }), "{error}");
}
