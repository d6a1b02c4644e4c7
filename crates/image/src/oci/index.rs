//! Indexes: lists of manifests and of further indexes, out of which one image is chosen.
//!
//! ```text
//! index.json ──► manifest                     ref.name: which names it has
//!            ──► index ──► manifest           platform: one for each
//!                      ──► manifest
//! ```
//! First the name decides, in `index.json` alone, or the digest, in any index. Then the platform
//! decides, unless there is only one image. What builders store to describe images (attestations,
//! signatures) is no image.

use std::collections::BTreeSet;

use oci_spec::image::{Descriptor, ImageIndex};

use super::digest::Digest;
use super::error::{Fault, Part};
use super::manifest::{self, Chosen, DocumentKind};
use super::platform::Platform;
use super::reference::{Select, familiar};
use super::store::{Documents, parse};

/// Deepest index in an index.
const DEPTH_MAX: usize = 8;
/// Most indexes that are read for one image.
const INDEXES_MAX: u64 = 256;
/// Most descriptors of manifests and indexes that are looked at for one image.
const DESCRIPTORS_MAX: u64 = 65_536;

const REF_NAME: &str = "org.opencontainers.image.ref.name";
const CONTAINERD_NAME: &str = "io.containerd.image.name";
const DOCKER_REFERENCE_TYPE: &str = "vnd.docker.reference.type";

/// A manifest that may be of the image wanted.
struct Candidate {
    digest: Digest,
    size: u64,
    media_type: String,
    platform: Option<Platform>,
    name: Option<String>,
    /// Number of the index it is in; `index.json` is 0.
    index: u64,
}

/// A walk over all indexes, and what it has found so far.
struct Walk<'a, 'b> {
    documents: &'a Documents<'b>,
    select: &'a Select,
    candidates: Vec<Candidate>,
    /// Names and digests of `index.json`, for errors.
    available: BTreeSet<String>,
    /// Media types of what is no image.
    others: BTreeSet<String>,
    indexes: u64,
    descriptors: u64,
}

/// What a descriptor gets from the indexes above it.
#[derive(Clone)]
struct Inherited {
    name: Option<String>,
    /// The name or the digest has been found.
    selected: bool,
    platform: Option<Platform>,
    depth: usize,
    index: u64,
}

/// Chooses the image of a document that no index names, a manifest or an index: as in a layout with
/// this document in its index. The digest is compared when the document is read by it.
///
/// # Errors
/// As [`choose`].
pub(super) fn choose_of_document(
    documents: &Documents<'_>,
    part: &Part,
    digest: &Digest,
    bytes: &[u8],
    platform: Option<&Platform>,
) -> Result<Chosen, Fault> {
    let media_type = DocumentKind::media_type_of(part, bytes)?;
    let listed = digest.to_string().parse::<oci_spec::image::Digest>();
    let listed = listed.map_err(|error| Fault::Document {
        part: part.clone(),
        why: error.to_string(),
    })?;
    let size = bytes.len() as u64;
    let mut index = ImageIndex::default();
    index.set_manifests(vec![Descriptor::new(
        media_type.as_str().into(),
        size,
        listed,
    )]);
    choose(documents, part, &index, &Select::Only, platform)
}

/// Chooses the image of `index`, which errors call `part`. Without a `platform`, a single image is
/// taken whatever it is for, and of several the one for this machine.
///
/// # Errors
/// [`Fault::NotFound`], [`Fault::Ambiguous`], [`Fault::NoPlatform`], with what there is;
/// those of reading further indexes.
pub(super) fn choose(
    documents: &Documents<'_>,
    part: &Part,
    index: &ImageIndex,
    select: &Select,
    platform: Option<&Platform>,
) -> Result<Chosen, Fault> {
    let mut walk = Walk {
        documents,
        select,
        candidates: Vec::new(),
        available: BTreeSet::new(),
        others: BTreeSet::new(),
        indexes: 0,
        descriptors: 0,
    };
    let top = Inherited {
        name: None,
        selected: *select == Select::Only,
        platform: None,
        depth: 0,
        index: 0,
    };
    walk.index(part, index, &top)?;
    let candidates = std::mem::take(&mut walk.candidates);
    if candidates.is_empty() {
        return Err(walk.nothing_found(part));
    }
    refuse_other_names(&candidates)?;
    let chosen = for_platform(documents, candidates, platform)?;
    Ok(Chosen {
        digest: chosen.digest,
        size: chosen.size,
        media_type: chosen.media_type,
        name: chosen.name,
    })
}

impl Walk<'_, '_> {
    fn index(&mut self, part: &Part, index: &ImageIndex, above: &Inherited) -> Result<(), Fault> {
        if above.depth > DEPTH_MAX {
            return Err(too_many(
                part,
                "indexes inside one another",
                DEPTH_MAX as u64,
            ));
        }
        for descriptor in index.manifests() {
            self.descriptors += 1;
            if self.descriptors > DESCRIPTORS_MAX {
                return Err(too_many(part, "descriptors", DESCRIPTORS_MAX));
            }
            self.descriptor(part, descriptor, above)?;
        }
        Ok(())
    }

    fn descriptor(
        &mut self,
        part: &Part,
        descriptor: &Descriptor,
        above: &Inherited,
    ) -> Result<(), Fault> {
        let media_type = descriptor.media_type().as_ref();
        let Some(kind) = DocumentKind::of(media_type).filter(|_| is_image(descriptor)) else {
            self.others.insert(media_type.to_owned());
            return Ok(());
        };
        // An image whose digest cannot be verified is one only if it is asked for.
        let digest = match Digest::try_from(descriptor.digest()) {
            Ok(digest) => digest,
            Err(error) if above.selected => return Err(error.into()),
            Err(_) => return Ok(()),
        };
        let mut here = above.clone();
        if above.depth == 0 {
            here.name = name_of(descriptor);
            let shown = here.name.clone().unwrap_or_else(|| format!("@{digest}"));
            self.available.insert(shown);
        }
        here.selected |= match self.select {
            Select::Only => true,
            Select::Tag(tag) => above.depth == 0 && has_name(descriptor, tag),
            Select::Digest(wanted) => *wanted == digest,
        };
        here.platform = platform_of(descriptor).or(here.platform);
        match kind {
            DocumentKind::Manifest if here.selected => self.candidates.push(Candidate {
                digest,
                size: descriptor.size(),
                media_type: media_type.to_owned(),
                platform: here.platform,
                name: here.name,
                index: here.index,
            }),
            DocumentKind::Manifest => {}
            // A name is looked for in index.json alone.
            DocumentKind::Index if !here.selected && matches!(self.select, Select::Tag(_)) => {}
            DocumentKind::Index => {
                self.indexes += 1;
                if self.indexes > INDEXES_MAX {
                    return Err(too_many(part, "indexes", INDEXES_MAX));
                }
                let nested = Part::NestedIndex(digest.clone());
                let bytes = self.documents.read(&nested, &digest, descriptor.size())?;
                kind.check(&nested, media_type, &bytes)?;
                here.depth += 1;
                here.index = self.indexes;
                let index: ImageIndex = parse(&nested, &bytes)?;
                self.index(&nested, &index, &here)?;
            }
        }
        Ok(())
    }

    fn nothing_found(self, part: &Part) -> Fault {
        let available = self.available.into_iter().collect();
        match self.select {
            Select::Tag(tag) => Fault::NotFound {
                wanted: format!("has the name {tag:?}"),
                available,
            },
            Select::Digest(digest) => Fault::NotFound {
                wanted: format!("has the digest {digest}"),
                available,
            },
            Select::Only => {
                let others: Vec<_> = self.others.into_iter().collect();
                let why = match others[..] {
                    [] => "lists no image".to_owned(),
                    _ => format!("lists no image, only {}", others.join(", ")),
                };
                let part = part.clone();
                Fault::Document { part, why }
            }
        }
    }
}

fn too_many(part: &Part, what: &'static str, limit: u64) -> Fault {
    let part = part.clone();
    Fault::TooMany { part, what, limit }
}

/// False for what describes an image: attestations of BuildKit and other artifacts.
fn is_image(descriptor: &Descriptor) -> bool {
    let annotations = descriptor.annotations().as_ref();
    let is_attestation = annotations.is_some_and(|a| a.contains_key(DOCKER_REFERENCE_TYPE));
    let is_unknown = platform_of(descriptor).is_some_and(|p| p.is_unknown());
    !is_attestation && !is_unknown && descriptor.artifact_type().is_none()
}

fn platform_of(descriptor: &Descriptor) -> Option<Platform> {
    let platform = descriptor.platform().as_ref()?;
    let os = platform.os().to_string();
    let architecture = platform.architecture().to_string();
    let variant = platform.variant().as_deref();
    Some(Platform::new(&os, &architecture, variant))
}

fn annotation<'a>(descriptor: &'a Descriptor, key: &str) -> Option<&'a str> {
    Some(descriptor.annotations().as_ref()?.get(key)?.as_str())
}

/// The fuller one of the names of an image: with its repository, if the annotations have that.
fn name_of(descriptor: &Descriptor) -> Option<String> {
    let full = annotation(descriptor, CONTAINERD_NAME).map(familiar);
    full.or_else(|| annotation(descriptor, REF_NAME).map(str::to_owned))
}

fn has_name(descriptor: &Descriptor, tag: &str) -> bool {
    let full = annotation(descriptor, CONTAINERD_NAME);
    annotation(descriptor, REF_NAME) == Some(tag)
        || full.is_some_and(|name| familiar(name) == familiar(tag))
}

/// Images of different names are different images, unless they consist of the same manifests.
fn refuse_other_names(candidates: &[Candidate]) -> Result<(), Fault> {
    let names: BTreeSet<_> = candidates.iter().map(|c| &c.name).collect();
    let digests_of = |name: &Option<String>| -> BTreeSet<&Digest> {
        let same = candidates.iter().filter(|c| c.name == *name);
        same.map(|c| &c.digest).collect()
    };
    let mut sets = names.iter().map(|name| digests_of(name));
    let first = sets.next();
    if sets.all(|set| Some(set) == first) {
        return Ok(());
    }
    let shown = candidates.iter().map(|c| match &c.name {
        Some(name) => name.clone(),
        None => format!("@{}", c.digest),
    });
    let available: BTreeSet<String> = shown.collect();
    Err(Fault::Ambiguous {
        how: ":TAG or @DIGEST",
        available: available.into_iter().collect(),
    })
}

fn for_platform(
    documents: &Documents<'_>,
    mut candidates: Vec<Candidate>,
    platform: Option<&Platform>,
) -> Result<Candidate, Fault> {
    let first = candidates[0].digest.clone();
    let is_single = candidates.iter().all(|c| c.digest == first);
    if is_single && platform.is_none() {
        return Ok(candidates.swap_remove(0));
    }
    let wanted = platform.cloned().unwrap_or_else(Platform::host);
    let (mut best, mut best_rank) = (Vec::new(), None);
    let mut available = BTreeSet::new();
    for mut candidate in candidates {
        let has = match candidate.platform.take() {
            Some(platform) => platform,
            None => match manifest::platform(documents, &candidate.digest, candidate.size)? {
                Some(platform) => platform,
                None => continue,
            },
        };
        available.insert(has.to_string());
        let rank = has.rank_for(&wanted);
        if rank.is_none() || rank < best_rank {
            continue;
        }
        if rank > best_rank {
            best.clear();
            best_rank = rank;
        }
        best.push(candidate);
    }
    let Some(first) = best.first() else {
        let available = available.into_iter().collect();
        return Err(Fault::NoPlatform { wanted, available });
    };
    // Within an index for several platforms the first one counts; in index.json they are images
    // that have nothing to do with one another.
    let same = |c: &Candidate| c.digest == first.digest || c.index == first.index && c.index != 0;
    if !best.iter().all(same) {
        return Err(Fault::Ambiguous {
            how: "@DIGEST",
            available: best.iter().map(|c| format!("@{}", c.digest)).collect(),
        });
    }
    Ok(best.swap_remove(0))
}
