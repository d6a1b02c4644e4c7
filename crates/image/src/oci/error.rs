//! Everything that can be wrong with a container image, with the part of it that is wrong.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::digest::{Digest, DigestError};
use super::platform::Platform;

/// Why a container image cannot be used.
#[derive(Debug, Error)]
#[error("{image}: {fault}")]
pub struct Error {
    /// The reference of the image, as on the command line.
    pub image: String,
    /// What is wrong with it.
    #[source]
    pub fault: Fault,
}

/// A part of a container image, as errors call it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The file `oci-layout` of an image layout.
    LayoutMarker,
    /// The file `index.json` of an image layout.
    Index,
    /// An index that another one names.
    NestedIndex(Digest),
    /// The manifest of an image.
    Manifest(Digest),
    /// A manifest or an index of a registry, by the tag or digest that it was asked for.
    Remote(String),
    /// The answer with a token of a registry, by the address that was asked.
    Token(String),
    /// The configuration of an image.
    Config(String),
    /// The file `manifest.json` of a docker-archive.
    ArchiveManifest,
    /// A layer as it is stored, by its number from 1, the lowest.
    Layer(usize),
    /// The tar archive that a layer is when decompressed, by the layer's number from 1.
    LayerTar(usize),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LayoutMarker => f.write_str("oci-layout"),
            Self::Index => f.write_str("index.json"),
            Self::NestedIndex(digest) => write!(f, "index {digest}"),
            Self::Manifest(digest) => write!(f, "manifest {digest}"),
            Self::Remote(name) => write!(f, "manifest {name}"),
            Self::Token(address) => write!(f, "token of {address}"),
            Self::Config(name) => write!(f, "configuration {name}"),
            Self::ArchiveManifest => f.write_str("manifest.json"),
            Self::Layer(number) => write!(f, "layer {number}"),
            Self::LayerTar(number) => write!(f, "layer {number}, decompressed"),
        }
    }
}

/// What is wrong with a container image.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Fault {
    /// The text does not name an image.
    #[error("not a reference to an image: {why}")]
    Reference {
        /// What is wrong with it, and what it should look like.
        why: String,
    },
    /// A digest that is not one, or uses an unsupported hash.
    #[error(transparent)]
    Digest(#[from] DigestError),
    /// Something cannot be opened or read.
    #[error("{}: cannot {op}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried: "open", "read", …
        op: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The file or directory is not of the format that the reference says.
    #[error("{what}")]
    Format {
        /// What it is instead, and what to do.
        what: String,
    },
    /// The tar archive around the image is damaged.
    #[error("{0}")]
    Archive(Box<crate::Error>),
    /// A part is not there.
    #[error("{part}: {name} is missing: the image is incomplete, copy it again")]
    Missing {
        /// The part.
        part: Part,
        /// The name of the file or blob.
        name: String,
    },
    /// A part is stored in a way that cannot be read.
    #[error("{part}: {name} is {why}")]
    Stored {
        /// The part.
        part: Part,
        /// The name of the file or blob.
        name: String,
        /// What it is, and what it should be.
        why: &'static str,
    },
    /// A part is larger than any sensible one.
    #[error("{part}: {size} bytes, at most {limit} are read")]
    TooLarge {
        /// The part.
        part: Part,
        /// Its size in bytes.
        size: u64,
        /// The most there may be, in bytes.
        limit: u64,
    },
    /// There is more of something than is accepted.
    #[error("{part}: more than {limit} {what}")]
    TooMany {
        /// Where.
        part: Part,
        /// What there is too much of.
        what: &'static str,
        /// The most there may be.
        limit: u64,
    },
    /// A JSON document that cannot be read.
    #[error("{part}: {source}")]
    Json {
        /// The document.
        part: Part,
        /// What is wrong, and in which line and column.
        source: serde_json::Error,
    },
    /// A JSON document that contradicts itself or what names it.
    #[error("{part}: {why}")]
    Document {
        /// The document.
        part: Part,
        /// What is wrong.
        why: String,
    },
    /// A part is longer or shorter than its description says.
    #[error("{part}: {actual} bytes where {expected} are expected: it is cut short or changed")]
    Size {
        /// The part.
        part: Part,
        /// The size that its description has, in bytes.
        expected: u64,
        /// The size found, in bytes; of what was read, if it is longer than expected.
        actual: u64,
    },
    /// The bytes of a part are not those that its description names.
    #[error(
        "{part}: its digest is {computed}, but {expected} is expected ({len} bytes read): it is \
         damaged or was replaced"
    )]
    Mismatch {
        /// The part.
        part: Part,
        /// The digest that its description has.
        expected: Digest,
        /// The digest of the bytes read.
        computed: Digest,
        /// How many bytes were read.
        len: u64,
    },
    /// A part has a type that is not supported.
    #[error("{part}: media type {media_type:?}: {why}")]
    MediaType {
        /// The part.
        part: Part,
        /// Its media type.
        media_type: String,
        /// Why it is not supported, and what to do.
        why: &'static str,
    },
    /// The manifest and the configuration have different numbers of layers.
    #[error("{part}: {layers} layers, but the configuration has {diff_ids} diff_ids")]
    LayerCount {
        /// The manifest.
        part: Part,
        /// Layers of the manifest.
        layers: usize,
        /// Entries of `rootfs.diff_ids` of the configuration.
        diff_ids: usize,
    },
    /// No image has the name or digest asked for.
    #[error("no image {wanted}; there is {}", List(available))]
    NotFound {
        /// What was asked for.
        wanted: String,
        /// The names and digests there are.
        available: Vec<String>,
    },
    /// There are several images, and the reference does not say which one.
    #[error("holds several images, choose one with {how}: {}", List(available))]
    Ambiguous {
        /// The form of a reference that chooses one.
        how: &'static str,
        /// The names or digests there are.
        available: Vec<String>,
    },
    /// No image is for the platform asked for.
    #[error(
        "no image for {wanted}, choose one with --platform: {}",
        List(available)
    )]
    NoPlatform {
        /// The platform.
        wanted: Platform,
        /// The platforms there are.
        available: Vec<String>,
    },
    /// The registry cannot be asked, or its answer is of no use.
    #[error("registry: {why}")]
    Registry {
        /// What went wrong, and what to do.
        why: String,
    },
    /// A registry has answered, but not with what it was asked for.
    #[error("registry: {address}: status {status}: {why}")]
    Status {
        /// The address that was asked, without its query.
        address: String,
        /// The status of HTTP, as 404.
        status: u16,
        /// The registry's own words, if it has sent any, and what to do.
        why: String,
    },
}

impl Fault {
    /// The error of an image with this fault.
    pub(super) fn of(self, image: &str) -> Error {
        let image = image.to_owned();
        Error { image, fault: self }
    }
}

/// Names in an error, not more than are useful to read.
struct List<'a>(&'a [String]);

/// Most names that an error shows.
const LIST_MAX: usize = 20;

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(LIST_MAX)];
        match shown {
            [] => return f.write_str("none"),
            names => f.write_str(&names.join(", "))?,
        }
        match self.0.len() - shown.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
