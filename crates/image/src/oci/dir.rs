//! Directories of skopeo's transport `dir:`.
//!
//! ```text
//! version              Directory Transport Version: 1.1
//! manifest.json        the manifest, or an index
//! <hex>.manifest.json  the manifests that an index lists
//! <hex>                configurations, layers
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ContainerImage;
use super::blob::{Place, Stored};
use super::digest::Digest;
use super::error::{Fault, Part};
use super::index::choose_of_document;
use super::manifest;
use super::platform::Platform;
use super::store::{DOCUMENT_MAX, Documents, Store, blob_of_size};

const MANIFEST: &str = "manifest.json";

/// Opens the image of a directory.
///
/// # Errors
/// See [`Fault`].
pub(super) fn open(
    path: &Path,
    platform: Option<&Platform>,
    image: &Arc<str>,
) -> Result<ContainerImage, Fault> {
    let part = Part::ArchiveManifest;
    let Some(first) = Stored::in_directory(&part, path.join(MANIFEST), MANIFEST)? else {
        let what = match path.join("oci-layout").exists() {
            true => "not a directory of skopeo's dir: but an OCI image layout: name it oci:",
            false => "not a directory of skopeo's dir: there is no file manifest.json",
        };
        let what = what.to_owned();
        return Err(Fault::Format { what });
    };
    let bytes = first.read_all(&part, DOCUMENT_MAX)?;
    let digest = Digest::sha256_of(&bytes);
    let store = Directory {
        path: path.to_path_buf(),
        first: (digest.clone(), bytes.clone()),
    };
    let documents = Documents::of(&store);
    let chosen = choose_of_document(&documents, &part, &digest, &bytes, platform)?;
    manifest::load(&documents, chosen, image)
}

struct Directory {
    path: PathBuf,
    /// The document `manifest.json`, and its digest.
    first: (Digest, Vec<u8>),
}

impl Directory {
    fn find(&self, part: &Part, digest: &Digest) -> Result<Stored, Fault> {
        let hex = digest.hex().to_string();
        for name in [format!("{hex}.{MANIFEST}"), hex.clone()] {
            if let Some(stored) = Stored::in_directory(part, self.path.join(&name), &name)? {
                return Ok(stored);
            }
        }
        Err(Fault::Missing {
            part: part.clone(),
            name: hex,
        })
    }
}

impl Store for Directory {
    fn document(&self, part: &Part, digest: &Digest) -> Result<Vec<u8>, Fault> {
        match self.first.0 == *digest {
            true => Ok(self.first.1.clone()),
            false => self.find(part, digest)?.read_all(part, DOCUMENT_MAX),
        }
    }

    fn blob(&self, part: &Part, digest: &Digest, size: u64) -> Result<Place, Fault> {
        blob_of_size(self.find(part, digest)?, part, size)
    }
}
