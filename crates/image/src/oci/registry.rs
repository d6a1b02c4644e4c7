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

use std::fmt;
use std::future::Future;
use std::io::{self, Read};
use std::net::IpAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_util::StreamExt;
use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::errors::OciDistributionError;
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference};
use oci_spec::image::{Descriptor, ImageIndex};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot};

use super::blob::Place;
use super::digest::Digest;
use super::error::{Fault, Part};
use super::index::choose;
use super::manifest::{self, DocumentKind};
use super::reference::Select;
use super::store::{DOCUMENT_MAX, Documents, Store};
use super::{ContainerImage, OpenOptions, RegistryOptions};

/// Time for a connection to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Time without a byte after which a registry is given up.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for a whole document.
const DOCUMENT_TIMEOUT: Duration = Duration::from_secs(120);
/// Pieces of a blob, of some 16 KiB, that are read ahead.
const PIECES_AHEAD: usize = 16;
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
    let reference = parse(name)?;
    let connection = Arc::new(Connection::open(reference, &options.registry)?);
    let part = Part::Remote(name.to_owned());
    let bytes = connection.manifest(connection.image.clone())?;
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

fn parse(name: &str) -> Result<Reference, Fault> {
    name.parse::<Reference>().map_err(|error| Fault::Reference {
        why: format!("{error}; give docker://HOST/NAME:TAG"),
    })
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
            let image = &self.connection.image;
            return self
                .connection
                .manifest(image.clone_with_digest(digest.to_string()));
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

/// A client of a registry, with a thread that makes its requests and ends when it is dropped.
pub(super) struct Connection {
    image: Reference,
    auth: RegistryAuth,
    client: Client,
    runtime: Handle,
    /// Dropped, it ends the thread.
    _stop: oneshot::Sender<()>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let image = self.image.to_string();
        f.debug_tuple("Connection").field(&image).finish()
    }
}

impl Connection {
    fn open(image: Reference, options: &RegistryOptions) -> Result<Self, Fault> {
        // A provider that the program has chosen before stays.
        _ = rustls::crypto::ring::default_provider().install_default();
        let auth = match &options.login {
            Some(login) => RegistryAuth::Basic(login.user.clone(), login.password.clone()),
            None => RegistryAuth::Anonymous,
        };
        let protocol = match options.plain_http || is_loopback(image.resolve_registry()) {
            true => ClientProtocol::Http,
            false => ClientProtocol::Https,
        };
        let config = ClientConfig {
            protocol,
            platform_resolver: None,
            read_timeout: Some(READ_TIMEOUT),
            connect_timeout: Some(CONNECT_TIMEOUT),
            user_agent: concat!("uext4/", env!("CARGO_PKG_VERSION")),
            ..ClientConfig::default()
        };
        let client = Client::try_from(config).map_err(|error| failed(&error))?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| unusable(&error))?;
        let handle = runtime.handle().clone();
        let (_stop, stopped) = oneshot::channel::<()>();
        let run = move || _ = runtime.block_on(stopped);
        let thread = thread::Builder::new().name("registry".into());
        thread.spawn(run).map_err(|error| unusable(&error))?;
        Ok(Self {
            image,
            auth,
            client,
            runtime: handle,
            _stop,
        })
    }

    /// A manifest or an index, whole.
    fn manifest(&self, image: Reference) -> Result<Vec<u8>, Fault> {
        let (client, auth) = (self.client.clone(), self.auth.clone());
        self.wait(async move {
            let (bytes, _) = client.pull_manifest_raw(&image, &auth, ACCEPTED).await?;
            Ok(bytes.to_vec())
        })
    }

    /// Waits for a request.
    fn wait<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, OciDistributionError>> + Send + 'static,
    ) -> Result<T, Fault> {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        self.runtime.spawn(async move {
            _ = sender.send(tokio::time::timeout(DOCUMENT_TIMEOUT, request).await);
        });
        match receiver.recv() {
            Ok(Ok(result)) => result.map_err(|error| failed(&error)),
            Ok(Err(_)) => Err(Fault::Registry {
                why: format!("no answer within {} s", DOCUMENT_TIMEOUT.as_secs()),
            }),
            Err(error) => Err(unusable(&error)),
        }
    }

    /// Begins to read a blob.
    pub fn download(self: &Arc<Self>, digest: &Digest) -> Result<Download, Fault> {
        let (client, image) = (self.client.clone(), self.image.clone());
        let (auth, digest) = (self.auth.clone(), digest.to_string());
        let mut stream = self.wait(async move {
            client
                .store_auth_if_needed(image.resolve_registry(), &auth)
                .await;
            client.pull_blob_stream(&image, digest.as_str()).await
        })?;
        let (sender, pieces) = mpsc::channel(PIECES_AHEAD);
        self.runtime.spawn(async move {
            while let Some(piece) = stream.next().await {
                let failed = piece.is_err();
                // The reader is gone, or will be after an error.
                if sender.send(piece.map(Vec::from)).await.is_err() || failed {
                    return;
                }
            }
        });
        Ok(Download {
            pieces,
            piece: Vec::new(),
            at: 0,
            _connection: Arc::clone(self),
        })
    }
}

/// The body of a blob.
pub(super) struct Download {
    pieces: mpsc::Receiver<io::Result<Vec<u8>>>,
    /// The piece that is being read, and how much of it has been.
    piece: Vec<u8>,
    at: usize,
    _connection: Arc<Connection>,
}

impl fmt::Debug for Download {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Download").finish_non_exhaustive()
    }
}

impl Read for Download {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() {
            match self.pieces.blocking_recv() {
                Some(piece) => self.piece = piece?,
                None => return Ok(0),
            }
            self.at = 0;
        }
        let len = buf.len().min(self.piece.len() - self.at);
        buf[..len].copy_from_slice(&self.piece[self.at..][..len]);
        self.at += len;
        Ok(len)
    }
}

/// True for a registry on this machine, with or without a port.
fn is_loopback(registry: &str) -> bool {
    let host = match registry.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => registry,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

fn failed(error: &OciDistributionError) -> Fault {
    let hint = match error {
        OciDistributionError::AuthenticationFailure(_)
        | OciDistributionError::UnauthorizedError { .. } => "; log in first (docker login)",
        _ => "",
    };
    let Fault::Registry { why } = unusable(error) else {
        return unusable(error);
    };
    let why = why + hint;
    Fault::Registry { why }
}

/// An error with all that it was caused by.
fn unusable(error: &(dyn std::error::Error + 'static)) -> Fault {
    let mut why = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let text = error.to_string();
        if !why.contains(&text) {
            why = format!("{why}: {text}");
        }
        next = error.source();
    }
    Fault::Registry { why }
}
