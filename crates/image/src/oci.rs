//! Container images: which layers they have, and where the bytes of those are.
//!
//! ```text
//! reference ──► index ──► manifest ──► layers      bottom first, each a tar archive
//!    (1)         (2)        │  (3)       (4)
//!                           └──► configuration     digests of the decompressed layers
//! ```
//! 1. A [`Reference`] names an image of an OCI image layout, of an archive of `docker save`, of a
//!    directory of skopeo, or of a registry.
//! 2. Its name or digest and the [`Platform`] choose one manifest of an index.
//! 3. Manifest and configuration say which layers there are. Every document is read within limits
//!    and compared with the size and digest that name it.
//! 4. A [`Layer`] is opened to read its bytes as they are stored. The caller compares them, and
//!    what they decompress to, with [`Layer::blob_verifier`] and [`Layer::tar_verifier`].
//!
//! The sources are the OCI image specification 1.1, the image manifest specification of Docker
//! (version 2, schema 2), and archives that Docker, Podman and skopeo write.
//!
//! Left out: merging layers into one tree of files, and everything that is for running containers.
//! A path of a blob is made of a digest that was checked, so that no image names files outside.

mod archive;
mod blob;
#[cfg(feature = "registry-http")]
mod connection;
mod digest;
mod dir;
mod error;
mod index;
mod layout;
#[cfg(feature = "registry-http")]
mod login;
mod manifest;
mod members;
mod platform;
mod reference;
#[cfg(feature = "registry-http")]
mod registry;
mod store;
mod verify;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

pub use digest::{Algorithm, Digest, DigestError, Hasher};
pub use error::{Error, Fault, Part};
pub use platform::{Platform, PlatformError};
pub use reference::{Reference, Select};
pub use verify::{Verified, Verifier};

use blob::{BlobReader, Place};

/// Annotation of a layer that is an eStargz archive: the digest of its table of contents.
pub const ESTARGZ_TOC_DIGEST: &str = "containerd.io/snapshot/stargz/toc.digest";
/// Annotation of a layer that is in the format zstd:chunked: the checksum of its manifest.
pub const ZSTD_CHUNKED_CHECKSUM: &str = "io.github.containers.zstd-chunked.manifest-checksum";

/// An image whose documents were read and found sound.
#[derive(Clone, Debug)]
pub struct ContainerImage {
    /// The name of the image where it is stored, as "alpine:3.20" or a tag alone, if it has one.
    pub name: Option<String>,
    /// The digest of its manifest; an archive of `docker save` has none.
    pub manifest_digest: Option<Digest>,
    /// The digest of its configuration, which Docker calls the identifier of the image.
    pub config_digest: Digest,
    /// The platform that it is for, by its configuration.
    pub platform: Platform,
    /// The layers, the lowest first; at most 4,096.
    pub layers: Vec<Layer>,
}

/// How to open an image.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// The platform that the image must be for. Without one, a single image is taken whatever it
    /// is for, and of several the one for Linux on this machine's architecture.
    pub platform: Option<Platform>,
    /// For images of registries.
    pub registry: RegistryOptions,
}

/// How to ask a registry.
#[derive(Clone, Debug, Default)]
pub struct RegistryOptions {
    /// HTTP in place of HTTPS. A registry at `localhost` or a loopback address is always asked so.
    pub plain_http: bool,
    /// The user; without one, images that everybody may pull.
    pub login: Option<Login>,
    /// A file like `~/.docker/config.json`, where the user is looked up if `login` has none. It
    /// need not exist; users whose passwords a credential helper stores are not found.
    pub docker_config: Option<PathBuf>,
}

/// A user of a registry.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The name.
    pub user: String,
    /// The password, or a token that serves as one.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl ContainerImage {
    /// Opens the image that a reference names.
    ///
    /// Reads index, manifest and configuration, and looks whether every layer is there and has
    /// the right size. Takes memory for those documents, at most 4 MiB each and 64 MiB in all, and
    /// for the list of the members of an archive.
    ///
    /// # Errors
    /// See [`Fault`].
    pub fn open(reference: &Reference, options: &OpenOptions) -> Result<Self, Error> {
        let image: Arc<str> = reference.to_string().into();
        let platform = options.platform.as_ref();
        let result = match reference {
            Reference::Oci { path, select } => layout::open(path, select, platform, &image),
            Reference::Dir { path } => dir::open(path, platform, &image),
            Reference::DockerArchive { path, select } => {
                archive::open(path, select, platform, &image)
            }
            #[cfg(feature = "registry-http")]
            Reference::Registry { name } => registry::open(name, options, &image),
            #[cfg(not(feature = "registry-http"))]
            Reference::Registry { .. } => Err(Fault::Registry {
                why: "this program was built without support for registries; copy the image \
                      first: skopeo copy docker://NAME oci:DIRECTORY"
                    .to_owned(),
            }),
        };
        result.map_err(|fault| fault.of(&image))
    }
}

/// The compression that the description of a layer declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// A plain tar archive.
    None,
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
}

/// A layer of an image.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Its number; the lowest is 1.
    pub number: usize,
    /// The digest of its bytes as stored; the older archives of `docker save` have none.
    pub digest: Option<Digest>,
    /// The digest of the tar archive that it is when decompressed.
    pub diff_id: Digest,
    /// The number of its bytes as stored.
    pub size: u64,
    /// The media type of its descriptor, if it has one.
    pub media_type: Option<String>,
    /// The compression that the media type declares. Tools get it wrong: the first bytes decide.
    pub compression: Option<Compression>,
    /// The annotations of its descriptor.
    pub annotations: BTreeMap<String, String>,
    image: Arc<str>,
    place: Place,
}

impl Layer {
    /// True if its annotations say that it is an eStargz archive, which has members of its own
    /// that are no part of the image.
    pub fn is_estargz(&self) -> bool {
        self.annotations.contains_key(ESTARGZ_TOC_DIGEST)
    }

    /// Opens its bytes as stored, from the beginning. May be called by several threads, and
    /// again.
    ///
    /// # Errors
    /// [`Fault::Io`]; [`Fault::Size`] if the size is no longer that of [`Layer::size`];
    /// [`Fault::Registry`] and [`Fault::Status`].
    pub fn open(&self) -> Result<LayerReader, Error> {
        let part = Part::Layer(self.number);
        let reader = BlobReader::open(&self.place, &part, self.size);
        let reader = reader.map_err(|fault| fault.of(&self.image))?;
        let image = Arc::clone(&self.image);
        Ok(LayerReader { image, reader })
    }

    /// Compares what [`Layer::open`] reads with size and digest; `None` if no digest is known, and
    /// only the one of the decompressed archive can be compared.
    pub fn blob_verifier(&self) -> Option<Verifier> {
        let part = Part::Layer(self.number);
        let digest = self.digest.as_ref()?;
        Some(Verifier::new(&self.image, part, digest, Some(self.size)))
    }

    /// Compares the decompressed tar archive with its digest.
    pub fn tar_verifier(&self) -> Verifier {
        let part = Part::LayerTar(self.number);
        Verifier::new(&self.image, part, &self.diff_id, None)
    }
}

/// The bytes of a layer as they are stored, exactly [`Layer::size`] of them. A read that finds
/// fewer fails with the [`Error`] inside an [`io::Error`]: `error.downcast::<Error>()` has it.
#[derive(Debug)]
pub struct LayerReader {
    image: Arc<str>,
    reader: BlobReader,
}

impl Read for LayerReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buf).map_err(|error| {
            let kind = error.kind();
            match error.downcast::<Fault>() {
                Ok(fault) => io::Error::new(kind, fault.of(&self.image)),
                Err(error) => error,
            }
        })
    }
}
