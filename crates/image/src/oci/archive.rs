//! Archives of `docker save`: a tar archive with a file `manifest.json`.
//!
//! ```text
//! manifest.json   [{"Config": …, "RepoTags": […], "Layers": […]}]
//! <id>.json       configuration       or, since Docker 25:   blobs/sha256/<hex>
//! <id>/layer.tar  layer, may be a symbolic link              blobs/sha256/<hex>
//! ```
//! The names in `manifest.json` are looked up inside the archive alone.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use super::blob::Stored;
use super::digest::Digest;
use super::error::{Fault, Part};
use super::manifest::{Config, check_count};
use super::members::Members;
use super::platform::Platform;
use super::reference::{Select, familiar};
use super::store::{DOCUMENT_MAX, parse};
use super::verify::Verifier;
use super::{ContainerImage, Layer};

/// Most images of an archive.
const IMAGES_MAX: usize = 4096;

/// An image of `manifest.json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Option<Vec<String>>,
}

impl Saved {
    fn tags(&self) -> &[String] {
        self.repo_tags.as_deref().unwrap_or_default()
    }

    /// The digest that the name of the configuration has, which is the identifier of the image.
    fn id(&self) -> Option<Digest> {
        let name = self.config.strip_suffix(".json").unwrap_or(&self.config);
        Digest::from_sha256_hex(name).or_else(|| blob_digest(&self.config))
    }

    fn shown(&self) -> Vec<String> {
        match (self.tags(), self.id()) {
            ([], Some(id)) => vec![format!("@{id}")],
            ([], None) => vec![self.config.clone()],
            (tags, _) => tags.to_vec(),
        }
    }
}

/// Opens an image of an archive.
///
/// # Errors
/// See [`Fault`].
pub(super) fn open(
    path: &Path,
    select: &Select,
    platform: Option<&Platform>,
    image: &Arc<str>,
) -> Result<ContainerImage, Fault> {
    if path.is_dir() {
        let what = match path.join("oci-layout").exists() {
            true => "a directory: a docker-archive is a file, an image layout is named oci:",
            false => "a directory: a docker-archive is a file, what skopeo writes is named dir:",
        };
        let what = what.to_owned();
        return Err(Fault::Format { what });
    }
    let members = Members::list(path)?;
    let saved = choose(read_manifest(&members)?, select)?;
    let (config_digest, config) = read_config(&members, &saved)?;
    let has = config.platform();
    if let Some(wanted) = platform
        && has.rank_for(wanted).is_none()
    {
        let (wanted, available) = (wanted.clone(), vec![has.to_string()]);
        return Err(Fault::NoPlatform { wanted, available });
    }
    let diff_ids = config.diff_ids(&Part::Config(saved.config.clone()))?;
    let names = saved.layers.as_deref().unwrap_or_default();
    check_count(&Part::ArchiveManifest, names.len(), diff_ids.len())?;
    let numbered = names.iter().zip(diff_ids).zip(1..);
    let layers =
        numbered.map(|((name, diff_id), number)| layer(&members, image, number, name, diff_id));
    Ok(ContainerImage {
        name: saved.tags().first().cloned(),
        manifest_digest: None,
        config_digest,
        platform: has,
        layers: layers.collect::<Result<_, _>>()?,
    })
}

fn read_manifest(members: &Members) -> Result<Vec<Saved>, Fault> {
    let part = Part::ArchiveManifest;
    let Some(manifest) = members.find(&part, "manifest.json")? else {
        let is_there = |name| matches!(members.find(&part, name), Ok(Some(_)));
        let what = if is_there("oci-layout") {
            "not a docker-archive but an OCI image layout: name it oci:"
        } else if is_there("repositories") {
            "written by a Docker older than 1.10, without manifest.json: save it anew"
        } else {
            "not a docker-archive: there is no file manifest.json"
        };
        let what = what.to_owned();
        return Err(Fault::Format { what });
    };
    let images: Vec<Saved> = parse(&part, &manifest.read_all(&part, DOCUMENT_MAX)?)?;
    if images.len() > IMAGES_MAX {
        let (what, limit) = ("images", IMAGES_MAX as u64);
        return Err(Fault::TooMany { part, what, limit });
    }
    Ok(images)
}

fn choose(images: Vec<Saved>, select: &Select) -> Result<Saved, Fault> {
    let shown = |images: &[Saved]| images.iter().flat_map(Saved::shown).collect();
    let available = shown(&images);
    let mut matching: Vec<Saved> = match select {
        Select::Only => images,
        Select::Tag(tag) => {
            let has = |image: &Saved| image.tags().iter().any(|t| familiar(t) == familiar(tag));
            images.into_iter().filter(has).collect()
        }
        Select::Digest(digest) => {
            let has = |image: &Saved| image.id().as_ref() == Some(digest);
            images.into_iter().filter(has).collect()
        }
    };
    if matching.len() > 1
        && matching
            .iter()
            .any(|image| image.config != matching[0].config)
    {
        let available = shown(&matching);
        let how = ":REPOSITORY:TAG or @DIGEST";
        return Err(Fault::Ambiguous { how, available });
    }
    match (matching.is_empty(), select) {
        (false, _) => Ok(matching.swap_remove(0)),
        (true, Select::Only) => Err(Fault::Document {
            part: Part::ArchiveManifest,
            why: "lists no image".to_owned(),
        }),
        (true, Select::Tag(tag)) => Err(Fault::NotFound {
            wanted: format!("has the name {:?}", familiar(tag)),
            available,
        }),
        (true, Select::Digest(digest)) => Err(Fault::NotFound {
            wanted: format!("has the digest {digest}"),
            available,
        }),
    }
}

fn read_config(members: &Members, saved: &Saved) -> Result<(Digest, Config), Fault> {
    let part = Part::Config(saved.config.clone());
    let bytes = find(members, &part, &saved.config)?.read_all(&part, DOCUMENT_MAX)?;
    if let Some(digest) = saved.id() {
        let mut verifier = Verifier::new(&Arc::from(""), part.clone(), &digest, None);
        verifier.update(&bytes);
        verifier.compare()?;
    }
    Ok((Digest::sha256_of(&bytes), parse(&part, &bytes)?))
}

fn layer(
    members: &Members,
    image: &Arc<str>,
    number: usize,
    name: &str,
    diff_id: Digest,
) -> Result<Layer, Fault> {
    let stored = find(members, &Part::Layer(number), name)?;
    Ok(Layer {
        number,
        digest: blob_digest(name),
        diff_id,
        size: stored.len,
        media_type: None,
        compression: None,
        annotations: BTreeMap::new(),
        image: Arc::clone(image),
        place: stored.place,
    })
}

fn find(members: &Members, part: &Part, name: &str) -> Result<Stored, Fault> {
    members.find(part, name)?.ok_or_else(|| Fault::Missing {
        part: part.clone(),
        name: name.to_owned(),
    })
}

/// The digest that the path of a blob is made of.
fn blob_digest(path: &str) -> Option<Digest> {
    let path = path.strip_prefix("./").unwrap_or(path);
    let (algorithm, hex) = path.strip_prefix("blobs/")?.split_once('/')?;
    format!("{algorithm}:{hex}").parse().ok()
}
