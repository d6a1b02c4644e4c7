//! Manifests and configurations: which layers an image has.

use std::collections::BTreeMap;
use std::sync::Arc;

use oci_spec::image::{Descriptor, ImageManifest};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::digest::Digest;
use super::error::{Fault, Part};
use super::platform::Platform;
use super::store::{Documents, parse};
use super::{Compression, ContainerImage, Layer};

/// Most layers of an image.
pub(super) const LAYERS_MAX: usize = 4096;
/// `schemaVersion` of all documents that are read.
const SCHEMA_VERSION: u32 = 2;

pub(super) const IMAGE_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(super) const IMAGE_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const IMAGE_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(super) const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
pub(super) const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";

/// The manifest of the image that was chosen.
pub(super) struct Chosen {
    pub digest: Digest,
    pub size: u64,
    pub media_type: String,
    /// The name of the image, if it has one.
    pub name: Option<String>,
}

/// What an index lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DocumentKind {
    Index,
    Manifest,
}

/// The fields in which indexes and manifests differ.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shape {
    schema_version: u32,
    media_type: Option<String>,
    manifests: Option<IgnoredAny>,
    config: Option<IgnoredAny>,
    layers: Option<IgnoredAny>,
    fs_layers: Option<IgnoredAny>,
}

impl DocumentKind {
    /// By media type, OCI's or Docker's; `None` for all else.
    pub fn of(media_type: &str) -> Option<Self> {
        match media_type {
            IMAGE_INDEX | DOCKER_LIST => Some(Self::Index),
            IMAGE_MANIFEST | DOCKER_MANIFEST => Some(Self::Manifest),
            _ => None,
        }
    }

    /// The media type of a document that has no descriptor: its own, or by its fields.
    pub fn media_type_of(part: &Part, bytes: &[u8]) -> Result<String, Fault> {
        let shape: Shape = parse(part, bytes)?;
        let by_fields = match shape.manifests {
            Some(_) => IMAGE_INDEX,
            None => IMAGE_MANIFEST,
        };
        Ok(shape.media_type.unwrap_or_else(|| by_fields.to_owned()))
    }

    /// Refuses a document that readers could take for different things: one that has the fields of
    /// the other kind, or another media type than its descriptor.
    pub fn check(self, part: &Part, described_as: &str, bytes: &[u8]) -> Result<(), Fault> {
        let shape: Shape = parse(part, bytes)?;
        let document = |why: String| Fault::Document {
            part: part.clone(),
            why,
        };
        if shape.schema_version != SCHEMA_VERSION {
            let why = format!(
                "schemaVersion {}, only 2 is supported",
                shape.schema_version
            );
            return Err(document(why));
        }
        if let Some(own) = &shape.media_type
            && own != described_as
        {
            let why = format!("says that it is {own:?}, its descriptor says {described_as:?}");
            return Err(document(why));
        }
        let fields = [
            ("manifests", shape.manifests.is_some(), Self::Index),
            ("config", shape.config.is_some(), Self::Manifest),
            ("layers", shape.layers.is_some(), Self::Manifest),
        ];
        let wrong = fields
            .iter()
            .find(|(_, is_there, kind)| *is_there && *kind != self);
        match wrong
            .map(|(name, ..)| name)
            .or(shape.fs_layers.map(|_| &"fsLayers"))
        {
            Some(name) => {
                let why = format!("has the field {name:?}, which {described_as:?} has not");
                Err(document(why))
            }
            None => Ok(()),
        }
    }
}

/// What is read of a configuration. All else is for running containers, and cannot make a build
/// fail.
#[derive(Deserialize)]
pub(super) struct Config {
    os: String,
    architecture: String,
    variant: Option<String>,
    rootfs: RootFs,
}

#[derive(Deserialize)]
struct RootFs {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    diff_ids: Option<Vec<String>>,
}

impl Config {
    /// The platform that the image is for.
    pub fn platform(&self) -> Platform {
        Platform::new(&self.os, &self.architecture, self.variant.as_deref())
    }

    /// The digests of the decompressed layers, the lowest first.
    pub fn diff_ids(&self, part: &Part) -> Result<Vec<Digest>, Fault> {
        if self.rootfs.kind != "layers" {
            let why = format!("rootfs.type is {:?}, must be \"layers\"", self.rootfs.kind);
            let part = part.clone();
            return Err(Fault::Document { part, why });
        }
        let texts = self.rootfs.diff_ids.iter().flatten();
        texts.map(|text| Ok(text.parse()?)).collect()
    }
}

/// Reads the manifest chosen and its configuration.
///
/// # Errors
/// Those of the documents; [`Fault::MediaType`], [`Fault::LayerCount`], [`Fault::TooMany`]; a layer
/// that is missing or has another size.
pub(super) fn load(
    documents: &Documents<'_>,
    chosen: Chosen,
    image: &Arc<str>,
) -> Result<ContainerImage, Fault> {
    let part = Part::Manifest(chosen.digest.clone());
    let manifest = read(
        documents,
        &part,
        &chosen.digest,
        chosen.size,
        &chosen.media_type,
    )?;
    let config = manifest.config();
    let config_type = config.media_type().as_ref();
    if ![IMAGE_CONFIG, DOCKER_CONFIG].contains(&config_type) {
        return Err(Fault::MediaType {
            part,
            media_type: config_type.to_owned(),
            why: "is no configuration of a container image: this is another artifact",
        });
    }
    let config_digest = Digest::try_from(config.digest())?;
    let config_part = Part::Config(config_digest.to_string());
    let bytes = documents.read(&config_part, &config_digest, config.size())?;
    let config: Config = parse(&config_part, &bytes)?;
    let diff_ids = config.diff_ids(&config_part)?;
    let layers = manifest.layers();
    check_count(&part, layers.len(), diff_ids.len())?;
    let numbered = layers.iter().zip(diff_ids).zip(1..);
    let layers = numbered.map(|((descriptor, diff_id), number)| {
        layer(documents, image, number, descriptor, diff_id)
    });
    Ok(ContainerImage {
        name: chosen.name,
        manifest_digest: Some(chosen.digest),
        config_digest,
        platform: config.platform(),
        layers: layers.collect::<Result<_, _>>()?,
    })
}

/// The platform of an image whose descriptor does not have it; `None` if it is no image.
pub(super) fn platform(
    documents: &Documents<'_>,
    digest: &Digest,
    size: u64,
) -> Result<Option<Platform>, Fault> {
    let part = Part::Manifest(digest.clone());
    let bytes = documents.read(&part, digest, size)?;
    let manifest: ImageManifest = parse(&part, &bytes)?;
    let config = manifest.config();
    if ![IMAGE_CONFIG, DOCKER_CONFIG].contains(&config.media_type().as_ref()) {
        return Ok(None);
    }
    let digest = Digest::try_from(config.digest())?;
    let part = Part::Config(digest.to_string());
    let bytes = documents.read(&part, &digest, config.size())?;
    let config: Config = parse(&part, &bytes)?;
    Ok(Some(config.platform()))
}

fn read(
    documents: &Documents<'_>,
    part: &Part,
    digest: &Digest,
    size: u64,
    media_type: &str,
) -> Result<ImageManifest, Fault> {
    let bytes = documents.read(part, digest, size)?;
    DocumentKind::Manifest.check(part, media_type, &bytes)?;
    parse(part, &bytes)
}

/// Compares the number of layers with that of their digests.
pub(super) fn check_count(part: &Part, layers: usize, diff_ids: usize) -> Result<(), Fault> {
    let part = part.clone();
    if layers > LAYERS_MAX {
        let (what, limit) = ("layers", LAYERS_MAX as u64);
        return Err(Fault::TooMany { part, what, limit });
    }
    match layers == diff_ids {
        true => Ok(()),
        false => Err(Fault::LayerCount {
            part,
            layers,
            diff_ids,
        }),
    }
}

fn layer(
    documents: &Documents<'_>,
    image: &Arc<str>,
    number: usize,
    descriptor: &Descriptor,
    diff_id: Digest,
) -> Result<Layer, Fault> {
    let part = Part::Layer(number);
    let media_type = descriptor.media_type().as_ref();
    let compression = compression(media_type).map_err(|why| Fault::MediaType {
        part: part.clone(),
        media_type: media_type.to_owned(),
        why,
    })?;
    let digest = Digest::try_from(descriptor.digest())?;
    let size = descriptor.size();
    let place = documents.store().blob(&part, &digest, size)?;
    let annotations = descriptor.annotations().iter().flatten();
    let annotations: BTreeMap<_, _> = annotations
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    Ok(Layer {
        number,
        digest: Some(digest),
        diff_id,
        size,
        media_type: Some(media_type.to_owned()),
        compression: Some(compression),
        annotations,
        image: Arc::clone(image),
        place,
    })
}

/// The compression that a media type of a layer declares, or why it is not supported.
fn compression(media_type: &str) -> Result<Compression, &'static str> {
    match media_type {
        "application/vnd.oci.image.layer.v1.tar"
        | "application/vnd.docker.image.rootfs.diff.tar" => Ok(Compression::None),
        "application/vnd.oci.image.layer.v1.tar+gzip"
        | "application/vnd.docker.image.rootfs.diff.tar.gzip" => Ok(Compression::Gzip),
        "application/vnd.oci.image.layer.v1.tar+zstd"
        | "application/vnd.docker.image.rootfs.diff.tar.zstd" => Ok(Compression::Zstd),
        other if other.contains(".nondistributable.") || other.contains(".foreign.") => {
            Err("a layer that may not be distributed is not part of the image: it cannot be built")
        }
        other if other.ends_with("+encrypted") => Err("decrypt the image first (skopeo copy)"),
        _ => Err("is no layer of files that can be read: tar, plain or with gzip or zstd"),
    }
}
