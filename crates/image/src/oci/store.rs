//! Where the documents and blobs of images come from, and how much of the documents is read.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::blob::{Place, Stored};
use super::digest::Digest;
use super::error::{Fault, Part};
use super::members::Members;
use super::verify::Verifier;

/// Largest JSON document that is read, in bytes: what registries accept.
pub(super) const DOCUMENT_MAX: u64 = 4 << 20;
/// Most bytes of JSON documents that are read for one image.
const DOCUMENTS_MAX: u64 = 64 << 20;

/// Where images come from.
pub(super) trait Store {
    /// The bytes of a JSON document that a descriptor names; at most [`DOCUMENT_MAX`].
    fn document(&self, part: &Part, digest: &Digest) -> Result<Vec<u8>, Fault>;

    /// Where the bytes of a blob are; a length that is known already is compared with `size`.
    fn blob(&self, part: &Part, digest: &Digest, size: u64) -> Result<Place, Fault>;
}

/// Reads the documents of one image, verified, within limits.
pub(super) struct Documents<'a> {
    store: &'a dyn Store,
    left: Cell<u64>,
}

impl<'a> Documents<'a> {
    pub fn of(store: &'a dyn Store) -> Self {
        let left = Cell::new(DOCUMENTS_MAX);
        Self { store, left }
    }

    /// Where blobs are.
    pub fn store(&self) -> &dyn Store {
        self.store
    }

    /// The document that a descriptor of this digest and size names.
    ///
    /// # Errors
    /// [`Fault::TooLarge`], [`Fault::Missing`], [`Fault::Size`], [`Fault::Mismatch`].
    pub fn read(&self, part: &Part, digest: &Digest, size: u64) -> Result<Vec<u8>, Fault> {
        let limit = DOCUMENT_MAX.min(self.left.get());
        if size > limit {
            let part = part.clone();
            return Err(Fault::TooLarge { part, size, limit });
        }
        self.left.set(self.left.get() - size);
        let bytes = self.store.document(part, digest)?;
        let mut verifier = Verifier::new(&Arc::from(""), part.clone(), digest, Some(size));
        verifier.update(&bytes);
        verifier.compare()?;
        Ok(bytes)
    }
}

/// Reads a JSON document.
pub(super) fn parse<T: DeserializeOwned>(part: &Part, bytes: &[u8]) -> Result<T, Fault> {
    serde_json::from_slice(bytes).map_err(|source| Fault::Json {
        part: part.clone(),
        source,
    })
}

/// The files of an image layout: a directory, or a tar archive of one.
#[derive(Debug)]
pub(super) enum Files {
    Directory(PathBuf),
    Tar(Box<Members>),
}

impl Files {
    /// # Errors
    /// [`Fault::Io`]; those of [`Members::list`].
    pub fn open(path: &Path) -> Result<Self, Fault> {
        match path.is_dir() {
            true => Ok(Self::Directory(path.to_path_buf())),
            false => Ok(Self::Tar(Box::new(Members::list(path)?))),
        }
    }

    /// A file by its path, which the caller has made out of constants and digests.
    pub fn find(&self, part: &Part, name: &str) -> Result<Option<Stored>, Fault> {
        match self {
            Self::Directory(path) => Stored::in_directory(part, path.join(name), name),
            Self::Tar(members) => members.find(part, name),
        }
    }

    fn find_blob(&self, part: &Part, digest: &Digest) -> Result<Stored, Fault> {
        let name = format!("blobs/{}/{}", digest.algorithm().name(), digest.hex());
        let found = self.find(part, &name)?;
        found.ok_or_else(|| Fault::Missing {
            part: part.clone(),
            name,
        })
    }
}

impl Store for Files {
    fn document(&self, part: &Part, digest: &Digest) -> Result<Vec<u8>, Fault> {
        self.find_blob(part, digest)?.read_all(part, DOCUMENT_MAX)
    }

    fn blob(&self, part: &Part, digest: &Digest, size: u64) -> Result<Place, Fault> {
        blob_of_size(self.find_blob(part, digest)?, part, size)
    }
}

/// Where a blob is that must have this size.
pub(super) fn blob_of_size(stored: Stored, part: &Part, size: u64) -> Result<Place, Fault> {
    let (expected, actual) = (size, stored.len);
    match expected == actual {
        true => Ok(stored.place),
        false => Err(Fault::Size {
            part: part.clone(),
            expected,
            actual,
        }),
    }
}
