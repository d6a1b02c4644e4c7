//! Container images on disk, made of the tar archives of their layers.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use flate2::write::GzEncoder;
use serde_json::{Value, json};
use uext4_image::oci::Digest;
use uext4_image::ustar;

pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// A tar archive under construction: headers of POSIX, owner 0, time 0.
#[derive(Default)]
pub struct Tar(Vec<u8>);

impl Tar {
    /// Adds a regular file of mode 0644.
    pub fn file(self, name: &str, contents: &[u8]) -> Self {
        self.member(b'0', name, "", contents)
    }

    /// Adds a directory of mode 0755.
    pub fn directory(self, name: &str) -> Self {
        self.member(b'5', name, "", b"")
    }

    /// Adds a symbolic link.
    pub fn symlink(self, name: &str, target: &str) -> Self {
        self.member(b'2', name, target, b"")
    }

    /// Adds a member of any type; `link` is the target of a link. Names have at most 100 bytes.
    pub fn member(mut self, kind: u8, name: &str, link: &str, contents: &[u8]) -> Self {
        let mut header = [0; ustar::BLOCK];
        let mut set = |field: std::ops::Range<usize>, text: &str| {
            header[field][..text.len()].copy_from_slice(text.as_bytes());
        };
        let mode = if kind == b'5' { "0000755" } else { "0000644" };
        set(ustar::NAME, name);
        set(ustar::MODE, mode);
        set(ustar::UID, "0000000");
        set(ustar::GID, "0000000");
        set(ustar::SIZE, &format!("{:011o}", contents.len()));
        set(ustar::MTIME, "00000000000");
        set(ustar::CHKSUM, "        ");
        set(ustar::LINKNAME, link);
        set(ustar::MAGIC, "ustar\x0000");
        header[ustar::TYPEFLAG] = kind;
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[ustar::CHKSUM][..7].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        self.0.extend(header);
        self.0.extend(contents);
        self.0
            .resize(self.0.len().next_multiple_of(ustar::BLOCK), 0);
        self
    }

    /// The archive with its end.
    pub fn finish(mut self) -> Vec<u8> {
        self.0.extend([0; 2 * ustar::BLOCK]);
        self.0
    }
}

/// How a layer is stored.
#[derive(Clone, Copy, Debug)]
pub enum Pack {
    Plain,
    Gzip,
    Zstd,
}

impl Pack {
    pub fn pack(self, tar: &[u8]) -> Vec<u8> {
        match self {
            Self::Plain => tar.to_vec(),
            Self::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(tar).unwrap();
                encoder.finish().unwrap()
            }
            Self::Zstd => zstd::encode_all(tar, 1).unwrap(),
        }
    }

    pub fn media_type(self) -> String {
        match self {
            Self::Plain => LAYER.to_owned(),
            Self::Gzip => format!("{LAYER}+gzip"),
            Self::Zstd => format!("{LAYER}+zstd"),
        }
    }
}

/// An OCI image layout in memory: its files, and the descriptors of `index.json`.
#[derive(Clone, Default)]
pub struct Layout {
    files: BTreeMap<String, Vec<u8>>,
    descriptors: Vec<Value>,
}

impl Layout {
    /// A layout of one image for Linux on amd64 with these layers, packed with gzip.
    pub fn of(tars: &[Vec<u8>]) -> Self {
        let mut layout = Self::default();
        let layers: Vec<_> = tars.iter().map(|tar| (Pack::Gzip, tar.clone())).collect();
        let image = layout.image("linux/amd64", &layers);
        layout.descriptors.push(image);
        layout
    }

    /// Stores a blob and returns its descriptor.
    pub fn blob(&mut self, media_type: &str, bytes: &[u8]) -> Value {
        let digest = Digest::sha256_of(bytes);
        let name = format!("blobs/sha256/{}", digest.hex());
        self.files.insert(name, bytes.to_vec());
        json!({
            "mediaType": media_type,
            "digest": digest.to_string(),
            "size": bytes.len(),
        })
    }

    /// Stores a JSON document and returns its descriptor.
    pub fn document(&mut self, media_type: &str, value: &Value) -> Value {
        self.blob(media_type, value.to_string().as_bytes())
    }

    /// Stores an image and returns the descriptor of its manifest.
    pub fn image(&mut self, platform: &str, layers: &[(Pack, Vec<u8>)]) -> Value {
        let config = config(platform, layers.iter().map(|(_, tar)| tar.as_slice()));
        let config = self.document(CONFIG, &config);
        let layers = layers.iter();
        let layers = layers.map(|(pack, tar)| self.blob(&pack.media_type(), &pack.pack(tar)));
        let layers: Vec<Value> = layers.collect();
        self.manifest(config, layers)
    }

    /// Stores a manifest and returns its descriptor.
    pub fn manifest(&mut self, config: Value, layers: Vec<Value>) -> Value {
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config,
            "layers": layers,
        });
        self.document(MANIFEST, &manifest)
    }

    /// Stores an index and returns its descriptor.
    pub fn index(&mut self, descriptors: &[Value]) -> Value {
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": descriptors});
        self.document(INDEX, &index)
    }

    /// Lists a descriptor in `index.json`.
    pub fn list(&mut self, descriptor: Value) {
        self.descriptors.push(descriptor);
    }

    /// All files of the layout by their names.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = self.files.clone();
        let index = json!({"schemaVersion": 2, "manifests": self.descriptors});
        files.insert("index.json".into(), index.to_string().into_bytes());
        let marker = json!({"imageLayoutVersion": "1.0.0"});
        files.insert("oci-layout".into(), marker.to_string().into_bytes());
        files
    }

    /// Writes the layout into a directory.
    pub fn write(&self, dir: &Path) {
        write_files(&self.files(), dir);
    }

    /// The layout as a tar archive.
    pub fn tar(&self) -> Vec<u8> {
        tar_of(&self.files())
    }
}

/// Writes files below a directory.
pub fn write_files(files: &BTreeMap<String, Vec<u8>>, dir: &Path) {
    for (name, bytes) in files {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// A tar archive of files.
pub fn tar_of(files: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    let add = |tar: Tar, (name, bytes): (&String, &Vec<u8>)| tar.file(name, bytes);
    files.iter().fold(Tar::default(), add).finish()
}

/// A configuration for a platform, with the digests of these layers.
pub fn config<'a>(platform: &str, tars: impl Iterator<Item = &'a [u8]>) -> Value {
    let words: Vec<&str> = platform.split('/').collect();
    let diff_ids: Vec<_> = tars.map(|tar| Digest::sha256_of(tar).to_string()).collect();
    let mut config = json!({
        "os": words[0],
        "architecture": words[1],
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
        "history": [{"created_by": "nothing", "empty_layer": true}],
    });
    if let Some(variant) = words.get(2) {
        config["variant"] = json!(variant);
    }
    config
}

/// A descriptor with a name for `index.json`.
pub fn named(mut descriptor: Value, name: &str) -> Value {
    descriptor["annotations"] = json!({"org.opencontainers.image.ref.name": name});
    descriptor
}

/// A descriptor with a platform.
pub fn for_platform(mut descriptor: Value, platform: &str) -> Value {
    let words: Vec<&str> = platform.split('/').collect();
    descriptor["platform"] = json!({"os": words[0], "architecture": words[1]});
    if let Some(variant) = words.get(2) {
        descriptor["platform"]["variant"] = json!(variant);
    }
    descriptor
}

/// The digest that a descriptor has.
pub fn digest_of(descriptor: &Value) -> Digest {
    descriptor["digest"].as_str().unwrap().parse().unwrap()
}

/// An image of a docker-archive.
pub struct Saved {
    pub tags: Vec<&'static str>,
    pub layers: Vec<Vec<u8>>,
}

/// A docker-archive as Docker wrote it before version 25: a layer that an earlier image has is a
/// symbolic link.
pub fn docker_archive(images: &[Saved]) -> Vec<u8> {
    let mut tar = Tar::default();
    let mut manifest = Vec::new();
    let mut first_of: BTreeMap<Digest, String> = BTreeMap::new();
    for (number, image) in images.iter().enumerate() {
        let mut names = Vec::new();
        for (index, layer) in image.layers.iter().enumerate() {
            let name = format!("{number}-{index}/layer.tar");
            tar = tar.directory(&format!("{number}-{index}"));
            let digest = Digest::sha256_of(layer);
            tar = match first_of.get(&digest) {
                Some(first) => tar.symlink(&name, &format!("../{first}")),
                None => tar.file(&name, layer),
            };
            first_of.entry(digest).or_insert_with(|| name.clone());
            names.push(name);
        }
        let config = config("linux/amd64", image.layers.iter().map(Vec::as_slice)).to_string();
        let id = format!("{}.json", Digest::sha256_of(config.as_bytes()).hex());
        tar = tar.file(&id, config.as_bytes());
        manifest.push(json!({"Config": id, "RepoTags": image.tags, "Layers": names}));
    }
    let manifest = Value::from(manifest).to_string();
    tar.file("manifest.json", manifest.as_bytes()).finish()
}
