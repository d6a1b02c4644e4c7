//! Images of registries, by the protocol of the OCI distribution specification.
//!
//! A [`Connection`] makes the requests. Here documents are read with the same limits and digests
//! as those of a layout, and layers become readers that ask for their blob when they are opened.

use std::sync::Arc;

use super::blob::Place;
use super::connection::Connection;
use super::digest::Digest;
use super::error::{Fault, Part};
use super::index::choose_of_document;
use super::manifest;
use super::reference;
use super::store::{DOCUMENT_MAX, Documents, Store};
use super::{ContainerImage, OpenOptions, login};

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
/// [`Fault::Reference`], [`Fault::Registry`], [`Fault::Status`], and those of a layout.
pub(super) fn open(
    name: &str,
    options: &OpenOptions,
    image: &Arc<str>,
) -> Result<ContainerImage, Fault> {
    let reference = reference::of_registry(name)?;
    let asked = match reference.digest() {
        Some(digest) => Some(digest.parse::<Digest>()?),
        None => None,
    };
    let registry = &options.registry;
    let login = match (&registry.login, &registry.docker_config) {
        (None, Some(path)) => login::read(path, &reference)?,
        (login, _) => login.clone(),
    };
    let connection = Connection::open(reference, login, registry.plain_http)?;
    let part = Part::Remote(name.to_owned());
    let bytes = match (&asked, connection.image.tag()) {
        (Some(digest), _) => manifest_of(&connection, &part, &digest.to_string())?,
        (None, tag) => manifest_of(&connection, &part, tag.unwrap_or("latest"))?,
    };
    let digest = asked.unwrap_or_else(|| Digest::sha256_of(&bytes));
    let remote = Remote {
        connection: Arc::new(connection),
        first: (digest.clone(), bytes.clone()),
    };
    let documents = Documents::of(&remote);
    let platform = options.platform.as_ref();
    let chosen = choose_of_document(&documents, &part, &digest, &bytes, platform)?;
    let mut image = manifest::load(&documents, chosen, image)?;
    image.name = Some(name.to_owned());
    Ok(image)
}

fn manifest_of(connection: &Connection, part: &Part, name: &str) -> Result<Vec<u8>, Fault> {
    connection.manifest(part, name, ACCEPTED, DOCUMENT_MAX)
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
        match part {
            Part::Config(_) => self.connection.document(part, digest, DOCUMENT_MAX),
            _ => manifest_of(&self.connection, part, &digest.to_string()),
        }
    }

    fn blob(&self, _part: &Part, digest: &Digest, _size: u64) -> Result<Place, Fault> {
        Ok(Place::Remote {
            connection: Arc::clone(&self.connection),
            digest: digest.clone(),
        })
    }
}
