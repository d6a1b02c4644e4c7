//! Images of registries, by the protocol of the OCI distribution specification.
//!
//! ```text
//! caller's thread      thread "registry": one runtime, all requests
//!   manifests   ─────► request ──► answer ─────► bytes
//!   read()      ◄───── bounded channel ◄──────── body of a blob, one task for each
//! ```
//! The protocol, with its tokens and redirections, is `oci-client`'s. Here documents are read with
//! the same limits and digests as those of a layout, and layers become readers.
//!
//! Limit: `oci-client` reads the body of a manifest or an error whole before its size is known
//! here; a timeout is what bounds it.

mod login;

use std::io::Read;
use std::sync::Arc;

use oci_spec::image::{Descriptor, ImageIndex};

use super::blob::Place;
use super::connection::{Connection, unusable};
use super::digest::Digest;
use super::error::{Fault, Part};
use super::index::choose;
use super::manifest::{self, DocumentKind};
use super::reference::Select;
use super::store::{DOCUMENT_MAX, Documents, Store};
use super::{ContainerImage, OpenOptions};

/// Media types of documents that are accepted.
const ACCEPTED: &[&str] = &[
    manifest::IMAGE_INDEX,
    manifest::IMAGE_MANIFEST,
    manifest::DOCKER_LIST,
    manifest::DOCKER_MANIFEST,
];

/// Opens an image of a registry.
///
/// # Errors
/// [`Fault::Reference`], [`Fault::Registry`], and those of a layout.
pub(super) fn open(
    name: &str,
    options: &OpenOptions,
    image: &Arc<str>,
) -> Result<ContainerImage, Fault> {
    let connection = Arc::new(Connection::open(name, &options.registry)?);
    let part = Part::Remote(name.to_owned());
    let bytes = connection.manifest(connection.image.clone(), ACCEPTED)?;
    let size = bytes.len() as u64;
    if size > DOCUMENT_MAX {
        let limit = DOCUMENT_MAX;
        return Err(Fault::TooLarge { part, size, limit });
    }
    let digest = match connection.image.digest() {
        Some(digest) => digest.parse()?,
        None => Digest::sha256_of(&bytes),
    };
    // The same choice as in a layout with this document in its index.
    let media_type = DocumentKind::media_type_of(&part, &bytes)?;
    let remote = Remote {
        connection,
        first: (digest.clone(), bytes),
    };
    let mut index = ImageIndex::default();
    let listed = digest.to_string().parse::<oci_spec::image::Digest>();
    let listed = listed.map_err(|error| unusable(&error))?;
    index.set_manifests(vec![Descriptor::new(
        media_type.as_str().into(),
        size,
        listed,
    )]);
    let documents = Documents::of(&remote);
    let platform = options.platform.as_ref();
    let chosen = choose(&documents, &part, &index, &Select::Only, platform)?;
    let mut image = manifest::load(&documents, chosen, image)?;
    image.name = Some(name.to_owned());
    Ok(image)
}

/// The documents and blobs of one repository.
struct Remote {
    connection: Arc<Connection>,
    /// The document that the reference names, which has been read already.
    first: (Digest, Vec<u8>),
}

impl Store for Remote {
    fn document(&self, part: &Part, digest: &Digest) -> Result<Vec<u8>, Fault> {
        if self.first.0 == *digest {
            return Ok(self.first.1.clone());
        }
        let Part::Config(_) = part else {
            let image = self.connection.image.clone_with_digest(digest.to_string());
            return self.connection.manifest(image, ACCEPTED);
        };
        let mut bytes = Vec::new();
        let download = self.connection.download(digest)?;
        let read = download.take(DOCUMENT_MAX + 1).read_to_end(&mut bytes);
        read.map_err(|error| unusable(&error))?;
        Ok(bytes)
    }

    fn blob(&self, _part: &Part, digest: &Digest, _size: u64) -> Result<Place, Fault> {
        Ok(Place::Remote {
            connection: Arc::clone(&self.connection),
            digest: digest.clone(),
        })
    }
}
