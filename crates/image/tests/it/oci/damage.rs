//! Images that are damaged, hostile or beyond the limits.

use std::os::unix::fs::symlink;

use super::*;
use crate::container::{CONFIG, INDEX, LAYER};

/// The name of the blob of a descriptor.
fn blob_name(descriptor: &Value) -> String {
    format!("blobs/sha256/{}", digest_of(descriptor).hex())
}

/// A layout of one image with one plain layer: the descriptors of its manifest and its layer.
fn simple() -> (Layout, Value, Value) {
    let mut layout = Layout::default();
    let image = layout.image("linux/amd64", &[(Pack::Plain, layer("one"))]);
    layout.list(image.clone());
    let blob = layout.clone().blob(LAYER, &layer("one"));
    (layout, image, blob)
}

#[test]
fn every_changed_or_missing_blob_is_found_and_named() {
    let (layout, image, blob) = simple();
    let config = container::config("linux/amd64", [layer("one").as_slice()].into_iter());
    let config = layout.clone().document(CONFIG, &config);
    let manifest = Part::Manifest(digest_of(&image));
    let config_part = Part::Config(digest_of(&config).to_string());
    for (descriptor, part) in [(&image, manifest), (&config, config_part)] {
        let opened = |damage: &dyn Fn(&Path)| {
            let dir = tempfile::tempdir().unwrap();
            layout.write(dir.path());
            damage(&dir.path().join(blob_name(descriptor)));
            open(&format!("oci:{}", dir.path().display()))
                .unwrap_err()
                .fault
        };
        let flipped = opened(&|path| {
            let mut bytes = fs::read(path).unwrap();
            bytes[20] ^= 1;
            fs::write(path, bytes).unwrap();
        });
        assert!(matches!(flipped, Fault::Mismatch { .. }), "{flipped}");
        let longer = opened(&|path| {
            let bytes = [fs::read(path).unwrap(), b" ".to_vec()].concat();
            fs::write(path, bytes).unwrap();
        });
        assert!(matches!(longer, Fault::Size { .. }), "{longer}");
        let missing = opened(&|path| fs::remove_file(path).unwrap());
        assert!(matches!(missing, Fault::Missing { .. }), "{missing}");
        for fault in [flipped, longer, missing] {
            assert_eq!(part_of(&fault), Some(&part));
        }
    }
    let dir = tempfile::tempdir().unwrap();
    layout.write(dir.path());
    change(dir.path(), &blob_name(&blob), |bytes| bytes.truncate(1000));
    let error = open(&format!("oci:{}", dir.path().display())).unwrap_err();
    let Fault::Size {
        part,
        expected,
        actual,
    } = error.fault
    else {
        panic!("{error}");
    };
    assert_eq!((part, expected, actual), (Part::Layer(1), 2048, 1000));
    fs::remove_file(dir.path().join(blob_name(&blob))).unwrap();
    let error = open(&format!("oci:{}", dir.path().display())).unwrap_err();
    assert!(
        error.to_string().contains("layer 1: blobs/sha256/"),
        "{error}"
    );
}

#[test]
fn a_layer_that_changes_after_it_was_opened_is_found_when_read() {
    for name in ["directory", "archive"] {
        let dir = tempfile::tempdir().unwrap();
        let (layout, _, blob) = simple();
        let path = dir.path().join(name);
        let is_directory = name == "directory";
        match is_directory {
            true => layout.write(&path),
            false => fs::write(&path, layout.tar()).unwrap(),
        }
        let file = match is_directory {
            true => path.join(blob_name(&blob)),
            false => path.clone(),
        };
        let image = open(&format!("oci:{}", path.display())).unwrap();
        let bytes = fs::read(&file).unwrap();
        let at = bytes
            .windows(3)
            .position(|window| window == b"one")
            .unwrap();
        let mut other = bytes.clone();
        other[at] = b'O';
        fs::write(&file, other).unwrap();
        let error = read(&image.layers[0])
            .unwrap_err()
            .downcast::<Error>()
            .unwrap();
        assert!(matches!(error.fault, Fault::Mismatch { .. }), "{error}");
        assert_eq!(part_of(&error.fault), Some(&Part::Layer(1)));
        fs::OpenOptions::new()
            .write(true)
            .open(&file)
            .unwrap()
            .set_len(100)
            .unwrap();
        let error = read(&image.layers[0]).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("layer 1:") && text.contains("2048 are expected"),
            "{text}"
        );
    }
}

#[test]
fn a_layer_whose_tar_is_another_one_is_found_by_its_diff_id() {
    let mut layout = Layout::default();
    let config = container::config("linux/amd64", [layer("one").as_slice()].into_iter());
    let config = layout.document(CONFIG, &config);
    let blob = layout.blob(&format!("{LAYER}+gzip"), &Pack::Gzip.pack(&layer("two")));
    let image = layout.manifest(config, vec![blob]);
    layout.list(image);
    let dir = tempfile::tempdir().unwrap();
    layout.write(dir.path());
    let image = open(&format!("oci:{}", dir.path().display())).unwrap();
    let error = read(&image.layers[0])
        .unwrap_err()
        .downcast::<Error>()
        .unwrap();
    let Fault::Mismatch {
        part,
        expected,
        computed,
        ..
    } = error.fault
    else {
        panic!("{error}");
    };
    assert_eq!(part, Part::LayerTar(1));
    assert_eq!(expected, Digest::sha256_of(&layer("one")));
    assert_eq!(computed, Digest::sha256_of(&layer("two")));
}

#[test]
fn the_number_of_diff_ids_must_be_that_of_the_layers() {
    let mut layout = Layout::default();
    let tar = layer("one");
    let config = container::config("linux/amd64", [&tar[..], &tar[..]].into_iter());
    let config = layout.document(CONFIG, &config);
    let blob = layout.blob(LAYER, &tar);
    let image = layout.manifest(config, vec![blob; 3]);
    layout.list(image);
    let fault = fault_of(&layout);
    let Fault::LayerCount {
        layers, diff_ids, ..
    } = fault
    else {
        panic!("{fault}");
    };
    assert_eq!((layers, diff_ids), (3, 2));
}

#[test]
fn layers_and_documents_of_other_types_are_refused_by_name() {
    for (media_type, why) in [
        (
            "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
            "not be distributed",
        ),
        (
            "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd",
            "not be distributed",
        ),
        (
            "application/vnd.oci.image.layer.v1.tar+gzip+encrypted",
            "decrypt",
        ),
        (
            "application/vnd.wasm.content.layer.v1+wasm",
            "no layer of files",
        ),
    ] {
        let mut layout = Layout::default();
        let config = container::config("linux/amd64", [layer("one").as_slice()].into_iter());
        let config = layout.document(CONFIG, &config);
        let blob = layout.blob(media_type, &layer("one"));
        let image = layout.manifest(config, vec![blob]);
        layout.list(image);
        let text = fault_of(&layout).to_string();
        let begins = text.starts_with(&format!("layer 1: media type {media_type:?}: "));
        assert!(begins && text.contains(why), "{text}");
    }
    let mut layout = Layout::default();
    let config = layout.document("application/vnd.oci.empty.v1+json", &json!({}));
    let image = layout.manifest(config, vec![]);
    layout.list(image);
    assert!(
        fault_of(&layout)
            .to_string()
            .contains("this is another artifact")
    );
    let mut layout = Layout::default();
    let old = "application/vnd.docker.distribution.manifest.v1+prettyjws";
    let blob = layout.blob(old, b"{}");
    layout.list(blob);
    assert!(fault_of(&layout).to_string().contains(old));
}

#[test]
fn documents_that_can_be_taken_for_two_things_are_refused() {
    let (layout, image, _) = simple();
    let bytes = &layout.files()[&blob_name(&image)];
    let sound: Value = serde_json::from_slice(bytes).unwrap();
    type Change = fn(&mut Value);
    let changes: [(Change, &str); 5] = [
        (|m| m["manifests"] = json!([]), "\"manifests\""),
        (|m| m["fsLayers"] = json!([]), "\"fsLayers\""),
        (|m| m["mediaType"] = json!(INDEX), "says that it is"),
        (|m| m["schemaVersion"] = json!(1), "schemaVersion 1"),
        (|m| m["config"] = json!(1), "expected struct Descriptor"),
    ];
    for (change, why) in changes {
        let mut manifest = sound.clone();
        change(&mut manifest);
        let mut changed = Layout::default();
        let image = changed.document(MANIFEST, &manifest);
        changed.list(image);
        let text = fault_of(&changed).to_string();
        assert!(text.contains(why), "{text}");
    }
}

#[test]
fn sizes_and_numbers_have_limits() {
    let dir = tempfile::tempdir().unwrap();
    let (layout, _, _) = simple();
    layout.write(dir.path());
    let reference = format!("oci:{}", dir.path().display());
    let spaces = " ".repeat(4 << 20);
    change(dir.path(), "index.json", |bytes| {
        bytes.extend(spaces.as_bytes())
    });
    let error = open(&reference).unwrap_err();
    assert!(
        matches!(
            error.fault,
            Fault::TooLarge {
                limit: 0x40_0000,
                ..
            }
        ),
        "{error}"
    );

    let mut large = Layout::default();
    let image = large.blob(MANIFEST, spaces.as_bytes());
    let mut listed = image.clone();
    listed["size"] = json!(u64::MAX);
    large.list(listed);
    assert!(matches!(
        fault_of(&large),
        Fault::TooLarge { size: u64::MAX, .. }
    ));

    let mut deep = Layout::default();
    let mut image = deep.image("linux/amd64", &[]);
    for _ in 0..9 {
        image = deep.index(&[image]);
    }
    deep.list(image);
    assert!(matches!(fault_of(&deep), Fault::TooMany { limit: 8, .. }));

    let mut many = Layout::default();
    let tar = layer("one");
    let config = container::config("linux/amd64", std::iter::repeat_n(&tar[..], 4097));
    let config = many.document(CONFIG, &config);
    let blob = many.blob(LAYER, &tar);
    let image = many.manifest(config, vec![blob; 4097]);
    many.list(image);
    assert!(matches!(
        fault_of(&many),
        Fault::TooMany { limit: 4096, .. }
    ));

    let nested = "[".repeat(100_000);
    change(dir.path(), "index.json", |bytes| {
        *bytes = nested.into_bytes()
    });
    assert!(matches!(
        open(&reference).unwrap_err().fault,
        Fault::Json { .. }
    ));
}

#[test]
fn indexes_that_list_one_another_many_times_end() {
    let mut layout = Layout::default();
    let mut image = layout.image("linux/amd64", &[]);
    for _ in 0..6 {
        image = layout.index(&vec![image; 100]);
    }
    layout.list(image);
    let fault = fault_of(&layout);
    assert!(matches!(fault, Fault::TooMany { .. }), "{fault}");
}

#[test]
fn blobs_that_are_no_files_are_refused() {
    let (layout, _, blob) = simple();
    let dir = tempfile::tempdir().unwrap();
    layout.write(dir.path());
    let path = dir.path().join(blob_name(&blob));
    fs::remove_file(&path).unwrap();
    crate::fixture::run(dir.path(), &["mkfifo", path.to_str().unwrap()]);
    let error = open(&format!("oci:{}", dir.path().display())).unwrap_err();
    assert!(matches!(error.fault, Fault::Stored { .. }), "{error}");
    fs::remove_file(&path).unwrap();
    symlink("/dev/zero", &path).unwrap();
    let error = open(&format!("oci:{}", dir.path().display())).unwrap_err();
    assert!(matches!(error.fault, Fault::Stored { .. }), "{error}");
}

#[test]
fn names_in_a_docker_archive_do_not_leave_it() {
    let dir = tempfile::tempdir().unwrap();
    let secret = layer("secret");
    fs::write(dir.path().join("secret.tar"), &secret).unwrap();
    let config = container::config("linux/amd64", [secret.as_slice()].into_iter()).to_string();
    let absolute = dir.path().join("secret.tar").display().to_string();
    for (name, link) in [
        (absolute.as_str(), None),
        ("../secret.tar", None),
        ("link", Some("../secret.tar")),
        ("link", Some(absolute.as_str())),
        ("link", Some("link")),
        ("link", Some("link/link")),
    ] {
        let manifest = json!([{"Config": "c.json", "Layers": [name]}]).to_string();
        let mut tar = Tar::default()
            .file("manifest.json", manifest.as_bytes())
            .file("c.json", config.as_bytes());
        if let Some(target) = link {
            tar = tar.symlink("link", target);
        }
        let archive = dir.path().join("saved.tar");
        fs::write(&archive, tar.finish()).unwrap();
        let error = open(&format!("docker-archive:{}", archive.display())).unwrap_err();
        let refused = matches!(error.fault, Fault::Missing { .. } | Fault::Stored { .. });
        assert!(refused, "{name}: {error}");
    }
}

#[test]
fn a_configuration_that_is_not_the_one_of_its_name_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("saved.tar");
    let config = container::config("linux/amd64", std::iter::empty()).to_string();
    let id = format!("{}.json", Digest::sha256_of(b"another").hex());
    let manifest = json!([{"Config": id, "RepoTags": null, "Layers": null}]).to_string();
    let tar = Tar::default()
        .file(&id, config.as_bytes())
        .file("manifest.json", manifest.as_bytes());
    fs::write(&archive, tar.finish()).unwrap();
    let error = open(&format!("docker-archive:{}", archive.display())).unwrap_err();
    assert!(matches!(error.fault, Fault::Mismatch { .. }), "{error}");
}
