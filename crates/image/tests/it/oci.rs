//! Container images opened: which one is chosen, and which layers it has.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::Path;

use serde_json::{Value, json};
use uext4_image::oci::{
    Compression, ContainerImage, Digest, Error, Fault, Layer, OpenOptions, Part, Platform,
    Reference, Verified,
};

use crate::container::{
    self, Layout, MANIFEST, Pack, Saved, Tar, digest_of, docker_archive, for_platform, named,
};

mod damage;
mod mutations;
#[cfg(feature = "registry-http")]
mod registry;
mod tools;

/// A layer of one file, with this text.
fn layer(text: &str) -> Vec<u8> {
    Tar::default().file("file", text.as_bytes()).finish()
}

fn open(reference: &str) -> Result<ContainerImage, Error> {
    let reference = Reference::parse(OsStr::new(reference))?;
    ContainerImage::open(&reference.unwrap(), &OpenOptions::default())
}

fn open_for(reference: &str, platform: &str) -> Result<ContainerImage, Error> {
    let reference = Reference::parse(OsStr::new(reference))?;
    let options = OpenOptions {
        platform: Some(platform.parse().unwrap()),
        ..OpenOptions::default()
    };
    ContainerImage::open(&reference.unwrap(), &options)
}

/// The fault of a layout in a directory.
fn fault_of(layout: &Layout) -> Fault {
    let dir = tempfile::tempdir().unwrap();
    layout.write(dir.path());
    open(&format!("oci:{}", dir.path().display()))
        .unwrap_err()
        .fault
}

/// The tar archive of a layer; both digests are compared.
fn read(layer: &Layer) -> Result<Vec<u8>, std::io::Error> {
    let mut stored = Vec::new();
    let reader = layer.open().map_err(std::io::Error::other)?;
    match layer.blob_verifier() {
        Some(verifier) => Verified::new(reader, verifier).read_to_end(&mut stored)?,
        None => { reader }.read_to_end(&mut stored)?,
    };
    let tar: Box<dyn Read> = match layer.compression {
        Some(Compression::Gzip) => Box::new(flate2::read::GzDecoder::new(&stored[..])),
        Some(Compression::Zstd) => Box::new(zstd::Decoder::new(&stored[..])?),
        _ => Box::new(&stored[..]),
    };
    let mut bytes = Vec::new();
    Verified::new(tar, layer.tar_verifier()).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[track_caller]
fn assert_layers(image: &ContainerImage, expected: &[Vec<u8>]) {
    let tars: Vec<_> = image
        .layers
        .iter()
        .map(|layer| read(layer).unwrap())
        .collect();
    assert!(tars == expected, "other layers");
    let numbers: Vec<_> = image.layers.iter().map(|layer| layer.number).collect();
    assert_eq!(numbers, (1..=expected.len()).collect::<Vec<_>>());
    for (layer, tar) in image.layers.iter().zip(expected) {
        assert_eq!(layer.diff_id, Digest::sha256_of(tar));
    }
}

#[test]
fn layers_of_a_layout_come_in_order_from_a_directory_and_from_a_tar() {
    let dir = tempfile::tempdir().unwrap();
    let tars = [layer("one"), layer("two"), layer("three")];
    let packs = [Pack::Plain, Pack::Gzip, Pack::Zstd];
    let layers: Vec<_> = packs.into_iter().zip(tars.clone()).collect();
    let mut layout = Layout::default();
    let image = layout.image("linux/riscv64", &layers);
    layout.list(named(image.clone(), "v1"));
    layout.write(&dir.path().join("layout"));
    fs::write(dir.path().join("layout.tar"), layout.tar()).unwrap();
    for name in ["layout", "layout.tar"] {
        let opened = open(&format!("oci:{}/{name}", dir.path().display())).unwrap();
        assert_layers(&opened, &tars);
        assert_eq!(opened.name.as_deref(), Some("v1"));
        assert_eq!(opened.manifest_digest, Some(digest_of(&image)));
        assert_eq!(opened.platform.to_string(), "linux/riscv64");
        let declared = opened.layers.iter().map(|layer| layer.compression.unwrap());
        let expected = [Compression::None, Compression::Gzip, Compression::Zstd];
        assert!(declared.eq(expected));
        assert!(
            opened
                .layers
                .iter()
                .all(|layer| layer.size > 0 && !layer.is_estargz())
        );
    }
}

#[test]
fn an_image_is_chosen_by_tag_or_digest_and_else_the_names_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().display();
    let mut layout = Layout::default();
    let one = layout.image("linux/amd64", &[(Pack::Gzip, layer("one"))]);
    let two = layout.image("linux/amd64", &[(Pack::Gzip, layer("two"))]);
    layout.list(named(one.clone(), "v1"));
    let mut docker = named(two.clone(), "v2");
    docker["annotations"]["io.containerd.image.name"] = json!("docker.io/library/two:v2");
    layout.list(docker);
    layout.write(dir.path());
    let names = |fault: Fault| match fault {
        Fault::Ambiguous { available, .. } | Fault::NotFound { available, .. } => available,
        other => panic!("{other}"),
    };
    assert_eq!(
        names(open(&format!("oci:{path}")).unwrap_err().fault),
        ["two:v2", "v1"]
    );
    let error = open(&format!("oci:{path}:v3")).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("no image has the name \"v3\"; there is two:v2, v1")
    );
    assert_eq!(names(error.fault), ["two:v2", "v1"]);
    for (reference, text) in [
        (format!("oci:{path}:v1"), "one"),
        (format!("oci:{path}:v2"), "two"),
        (format!("oci:{path}:two:v2"), "two"),
        (format!("oci:{path}@{}", digest_of(&one)), "one"),
        (format!("oci:{path}@{}", digest_of(&two)), "two"),
    ] {
        assert_layers(&open(&reference).unwrap(), &[layer(text)]);
    }
    let other = Digest::sha256_of(b"other");
    assert_eq!(
        names(open(&format!("oci:{path}@{other}")).unwrap_err().fault).len(),
        2
    );
}

#[test]
fn several_names_of_the_same_image_are_not_ambiguous() {
    let dir = tempfile::tempdir().unwrap();
    let mut layout = Layout::default();
    let image = layout.image("linux/amd64", &[(Pack::Gzip, layer("one"))]);
    layout.list(named(image.clone(), "latest"));
    layout.list(named(image.clone(), "1.0"));
    layout.list(image);
    layout.write(dir.path());
    assert_layers(
        &open(&format!("oci:{}", dir.path().display())).unwrap(),
        &[layer("one")],
    );
}

/// An index in an index, for two platforms, with what BuildKit adds.
fn multi_platform() -> (Layout, [Value; 2]) {
    let mut layout = Layout::default();
    let arm = layout.image("linux/arm64/v8", &[(Pack::Gzip, layer("arm64"))]);
    let amd = layout.image("linux/amd64", &[(Pack::Gzip, layer("amd64"))]);
    let mut attestation = layout.image("unknown/unknown", &[]);
    attestation = for_platform(attestation, "unknown/unknown");
    attestation["annotations"] = json!({"vnd.docker.reference.type": "attestation-manifest"});
    let listed = [
        attestation,
        for_platform(arm.clone(), "linux/arm64/v8"),
        for_platform(amd.clone(), "linux/amd64"),
        // Only the platform that was pulled is there.
        for_platform(
            json!({
                "mediaType": MANIFEST,
                "digest": Digest::sha256_of(b"absent").to_string(),
                "size": 1,
            }),
            "linux/s390x",
        ),
    ];
    let index = layout.index(&listed);
    let index = layout.index(&[index]);
    layout.list(named(index, "multi"));
    (layout, [arm, amd])
}

#[test]
fn the_platform_chooses_inside_nested_indexes() {
    let dir = tempfile::tempdir().unwrap();
    let (layout, [arm, _]) = multi_platform();
    layout.write(dir.path());
    let reference = format!("oci:{}", dir.path().display());
    for platform in ["linux/arm64", "linux/aarch64", "linux/arm64/v8"] {
        let image = open_for(&reference, platform).unwrap();
        assert_layers(&image, &[layer("arm64")]);
        assert_eq!(image.name.as_deref(), Some("multi"));
    }
    let tagged = open_for(&format!("{reference}:multi"), "linux/amd64").unwrap();
    assert_layers(&tagged, &[layer("amd64")]);
    let by_digest = open(&format!("{reference}@{}", digest_of(&arm))).unwrap();
    assert_layers(&by_digest, &[layer("arm64")]);
    if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        assert_eq!(open(&reference).unwrap().platform, {
            let mut host = Platform::host();
            host.variant = (host.architecture == "arm64").then(|| "v8".to_owned());
            host
        });
    }
    let error = open_for(&reference, "linux/riscv64").unwrap_err();
    let Fault::NoPlatform { available, .. } = error.fault else {
        panic!("{error}");
    };
    assert_eq!(available, ["linux/amd64", "linux/arm64/v8", "linux/s390x"]);
    let absent = open_for(&reference, "linux/s390x").unwrap_err();
    assert!(matches!(absent.fault, Fault::Missing { .. }), "{absent}");
}

#[test]
fn the_platform_of_a_manifest_that_the_index_does_not_have_is_read_from_its_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let mut layout = Layout::default();
    for platform in ["linux/arm/v6", "linux/arm/v7", "linux/amd64"] {
        let image = layout.image(platform, &[(Pack::Gzip, layer(platform))]);
        layout.list(named(image, "same"));
    }
    layout.write(dir.path());
    let reference = format!("oci:{}:same", dir.path().display());
    for (platform, expected) in [
        ("linux/arm", "linux/arm/v7"),
        ("linux/arm/v6", "linux/arm/v6"),
        ("linux/amd64/v3", "linux/amd64"),
    ] {
        let image = open_for(&reference, platform).unwrap();
        assert_layers(&image, &[layer(expected)]);
    }
}

#[test]
fn a_single_image_is_taken_whatever_it_is_for_unless_a_platform_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let mut layout = Layout::default();
    let image = layout.image("plan9/mips", &[(Pack::Gzip, layer("one"))]);
    layout.list(image);
    layout.write(dir.path());
    let reference = format!("oci:{}", dir.path().display());
    assert_eq!(open(&reference).unwrap().platform.to_string(), "plan9/mips");
    let error = open_for(&reference, "linux/amd64").unwrap_err();
    assert!(matches!(error.fault, Fault::NoPlatform { .. }), "{error}");
}

#[test]
fn two_images_for_one_platform_are_ambiguous_in_the_top_index_alone() {
    let mut layout = Layout::default();
    let one = layout.image("linux/amd64", &[(Pack::Gzip, layer("one"))]);
    let two = layout.image("linux/amd64", &[(Pack::Gzip, layer("two"))]);
    let index = layout.index(&[
        for_platform(one.clone(), "linux/amd64"),
        for_platform(two.clone(), "linux/amd64"),
    ]);
    let dir = tempfile::tempdir().unwrap();
    let mut nested = layout.clone();
    nested.list(index);
    nested.write(dir.path());
    let reference = format!("oci:{}", dir.path().display());
    assert_layers(
        &open_for(&reference, "linux/amd64").unwrap(),
        &[layer("one")],
    );
    layout.list(one);
    layout.list(two);
    layout.write(dir.path());
    let error = open_for(&reference, "linux/amd64").unwrap_err();
    assert!(matches!(error.fault, Fault::Ambiguous { .. }), "{error}");
}

#[test]
fn media_types_of_docker_are_read_like_those_of_oci() {
    let mut layout = Layout::default();
    let tar = layer("docker");
    let config = container::config("linux/amd64", [tar.as_slice()].into_iter());
    let config = layout.document("application/vnd.docker.container.image.v1+json", &config);
    let gzip = "application/vnd.docker.image.rootfs.diff.tar.gzip";
    let blob = layout.blob(gzip, &Pack::Gzip.pack(&tar));
    let manifest_type = "application/vnd.docker.distribution.manifest.v2+json";
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": manifest_type,
        "config": config,
        "layers": [blob],
    });
    let manifest = layout.document(manifest_type, &manifest);
    let list_type = "application/vnd.docker.distribution.manifest.list.v2+json";
    let manifests = [for_platform(manifest, "linux/amd64")];
    let list = json!({"schemaVersion": 2, "mediaType": list_type, "manifests": manifests});
    let list = layout.document(list_type, &list);
    layout.list(list);
    let dir = tempfile::tempdir().unwrap();
    layout.write(dir.path());
    let image = open(&format!("oci:{}", dir.path().display())).unwrap();
    assert_layers(&image, &[tar]);
    assert_eq!(image.layers[0].media_type.as_deref(), Some(gzip));
}

fn saved() -> [Saved; 2] {
    [
        Saved {
            tags: vec!["base:1", "base:latest"],
            layers: vec![layer("base")],
        },
        Saved {
            tags: vec!["localhost/app:2"],
            layers: vec![layer("base"), layer("app")],
        },
    ]
}

#[test]
fn images_of_a_docker_archive_are_chosen_by_tag_through_linked_layers() {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("saved.tar");
    fs::write(&archive, docker_archive(&saved())).unwrap();
    let reference = format!("docker-archive:{}", archive.display());
    let error = open(&reference).unwrap_err();
    let Fault::Ambiguous { available, .. } = error.fault else {
        panic!("{error}");
    };
    assert_eq!(available, ["base:1", "base:latest", "localhost/app:2"]);
    let app = open(&format!("{reference}:localhost/app:2")).unwrap();
    assert_layers(&app, &[layer("base"), layer("app")]);
    assert!(app.layers.iter().all(|layer| layer.digest.is_none()));
    for tag in ["base", "base:1", "docker.io/library/base:latest"] {
        let base = open(&format!("{reference}:{tag}")).unwrap();
        assert_layers(&base, &[layer("base")]);
    }
    let by_id = open(&format!("{reference}@{}", app.config_digest)).unwrap();
    assert_eq!(by_id.name.as_deref(), Some("localhost/app:2"));
    let error = open(&format!("{reference}:none")).unwrap_err();
    assert!(matches!(error.fault, Fault::NotFound { .. }), "{error}");
    assert!(matches!(
        open_for(&format!("{reference}:base"), "linux/s390x")
            .unwrap_err()
            .fault,
        Fault::NoPlatform { .. }
    ));
}

#[test]
fn a_docker_archive_that_is_a_layout_too_is_read_both_ways() {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("saved.tar");
    let mut layout = Layout::default();
    let tar = layer("new");
    let image = layout.image("linux/amd64", &[(Pack::Plain, tar.clone())]);
    layout.list(named(image, "latest"));
    let mut files = layout.files();
    let config = container::config("linux/amd64", [tar.as_slice()].into_iter()).to_string();
    let blob = |bytes: &[u8]| format!("blobs/sha256/{}", Digest::sha256_of(bytes).hex());
    let manifest = json!([{
        "Config": blob(config.as_bytes()),
        "RepoTags": ["new:latest"],
        "Layers": [blob(&tar)],
    }]);
    files.insert("manifest.json".into(), manifest.to_string().into_bytes());
    fs::write(&archive, container::tar_of(&files)).unwrap();
    let archive = archive.display();
    let as_archive = open(&format!("docker-archive:{archive}:new")).unwrap();
    let as_layout = open(&format!("oci:{archive}:latest")).unwrap();
    assert_layers(&as_archive, std::slice::from_ref(&tar));
    assert_layers(&as_layout, std::slice::from_ref(&tar));
    assert_eq!(as_archive.layers[0].digest, as_layout.layers[0].digest);
    assert_eq!(as_archive.config_digest, as_layout.config_digest);
}

#[test]
fn another_format_than_the_reference_says_is_refused_with_the_right_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let archive = docker_archive(&saved());
    fs::write(path("saved.tar"), &archive).unwrap();
    fs::write(path("saved.tar.gz"), Pack::Gzip.pack(&archive)).unwrap();
    fs::write(path("saved.tar.zst"), Pack::Zstd.pack(&archive)).unwrap();
    fs::write(path("layout.tar"), Layout::of(&[layer("one")]).tar()).unwrap();
    fs::write(path("files.tar"), layer("one")).unwrap();
    fs::write(path("text"), "no archive").unwrap();
    fs::create_dir(path("plain")).unwrap();
    fs::write(path("plain/manifest.json"), "{}").unwrap();
    Layout::of(&[layer("one")]).write(&path("layout"));
    let root = dir.path().display();
    for (reference, hint) in [
        (format!("oci:{root}/saved.tar"), "name it docker-archive:"),
        (format!("docker-archive:{root}/layout.tar"), "name it oci:"),
        (format!("docker-archive:{root}/saved.tar.gz"), "(gunzip)"),
        (format!("oci:{root}/saved.tar.zst"), "(unzstd)"),
        (format!("docker-archive:{root}"), "is a file"),
        (
            format!("docker-archive:{root}/files.tar"),
            "no file manifest.json",
        ),
        (format!("oci:{root}/files.tar"), "no file oci-layout"),
        (format!("oci:{root}"), "no file oci-layout"),
        (format!("oci:{root}/plain"), "name it dir:"),
        (format!("docker-archive:{root}/plain"), "is named dir:"),
        (format!("dir:{root}"), "no file manifest.json"),
        (format!("dir:{root}/layout"), "name it oci:"),
        (format!("oci:{root}/text"), "not a tar archive"),
        (format!("oci:{root}/none"), "No such file"),
    ] {
        let text = open(&reference).unwrap_err().to_string();
        assert!(
            text.starts_with(&reference) && text.contains(hint),
            "{text}"
        );
    }
}

/// The part that a fault names.
fn part_of(fault: &Fault) -> Option<&Part> {
    match fault {
        Fault::Missing { part, .. }
        | Fault::Stored { part, .. }
        | Fault::TooLarge { part, .. }
        | Fault::TooMany { part, .. }
        | Fault::Json { part, .. }
        | Fault::Document { part, .. }
        | Fault::Size { part, .. }
        | Fault::Mismatch { part, .. }
        | Fault::MediaType { part, .. }
        | Fault::LayerCount { part, .. } => Some(part),
        _ => None,
    }
}

/// Changes one file of a layout in a directory.
fn change(dir: &Path, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let path = dir.join(name);
    let mut bytes = fs::read(&path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}
