//! Documents with random changes: they are refused or accepted, and nothing panics or hangs.

use uext4_testkit::SplitMix64;

use super::*;

/// Words that documents are made of, in wrong places.
const WORDS: &[&str] = &[
    "null",
    "-1",
    "1e999",
    "18446744073709551616",
    "[]",
    "{}",
    "\"\"",
    "\"sha256:\"",
    "[[[[",
    "\"\\ud800\"",
    "true",
    "0.5",
    "\"application/vnd.oci.image.index.v1+json\"",
    ",",
    ":",
];

fn mutate(random: &mut SplitMix64, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.next_u64() % 4 {
        let at = random.next_u64() as usize % bytes.len();
        match random.next_u64() % 4 {
            0 => bytes[at] = random.next_u64() as u8,
            1 => _ = bytes.remove(at),
            2 => {
                let end = (at + random.next_u64() as usize % 40).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => {
                let word = WORDS[random.next_u64() as usize % WORDS.len()];
                let end = (at + random.next_u64() as usize % 20).min(bytes.len());
                bytes.splice(at..end, word.bytes());
            }
        }
        if bytes.is_empty() {
            bytes.push(b'{');
        }
    }
}

fn rounds() -> u32 {
    match std::env::var_os("UEXT4_LONG") {
        Some(_) => 50_000,
        None => 600,
    }
}

/// Opens what may be wrong; the error must name the reference.
fn exercise(reference: &str) -> bool {
    match open(reference) {
        Ok(image) => {
            image.layers.iter().for_each(|layer| _ = read(layer));
            true
        }
        Err(error) => {
            assert!(error.to_string().starts_with(reference));
            false
        }
    }
}

#[test]
fn layouts_with_random_changes_are_refused_or_read() {
    let dir = tempfile::tempdir().unwrap();
    let (mut random, mut opened) = (SplitMix64::new(17), 0);
    let reference = format!("oci:{}", dir.path().display());
    let tar = layer("one");
    for _ in 0..rounds() {
        // Documents are changed before their digests are computed, so that they are read.
        let which = random.next_u64() % 4;
        let mut changed = |wanted: u64, value: Value| {
            let mut bytes = value.to_string().into_bytes();
            if which == wanted {
                mutate(&mut random, &mut bytes);
            }
            bytes
        };
        let mut layout = Layout::default();
        let config = container::config("linux/amd64", [tar.as_slice()].into_iter());
        let config = layout.blob(container::CONFIG, &changed(0, config));
        let blob = layout.blob(container::LAYER, &tar);
        let manifest = json!({"schemaVersion": 2, "config": config, "layers": [blob]});
        let manifest = layout.blob(MANIFEST, &changed(1, manifest));
        let index = json!({"schemaVersion": 2, "manifests": [manifest]});
        let index = layout.blob(container::INDEX, &changed(2, index));
        layout.list(named(index, "one"));
        let mut files = layout.files();
        let top = serde_json::from_slice(&files["index.json"]).unwrap();
        files.insert("index.json".into(), changed(3, top));
        container::write_files(&files, dir.path());
        opened += u32::from(exercise(&reference));
    }
    // Most changes are found, some are where nothing is read.
    assert!(opened > 0 && opened < rounds() / 2, "{opened} opened");
}

#[test]
fn docker_archives_with_random_changes_are_refused_or_read() {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("saved.tar");
    let mut random = SplitMix64::new(18);
    let reference = format!("docker-archive:{}", archive.display());
    let tar = layer("one");
    let config = container::config("linux/amd64", [tar.as_slice()].into_iter());
    let manifest = json!([{"Config": "c.json", "RepoTags": ["a:b"], "Layers": ["l/layer.tar"]}]);
    for round in 0..rounds() {
        let [mut config, mut manifest] =
            [&config, &manifest].map(|value| value.to_string().into_bytes());
        match round % 2 {
            0 => mutate(&mut random, &mut config),
            _ => mutate(&mut random, &mut manifest),
        }
        let mut bytes = Tar::default()
            .file("c.json", &config)
            .symlink("l", "m")
            .file("m/layer.tar", &tar)
            .file("manifest.json", &manifest)
            .finish();
        if round % 5 == 0 {
            mutate(&mut random, &mut bytes);
        }
        fs::write(&archive, bytes).unwrap();
        exercise(&reference);
    }
}
