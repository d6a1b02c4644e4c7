//! A connection to a registry: requests of documents, and bodies of blobs as readers.

use std::fmt;
use std::future::Future;
use std::io::{self, Read};
use std::net::IpAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_util::StreamExt;
use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::errors::{DigestError, OciDistributionError};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot};

use super::RegistryOptions;
use super::digest::Digest;
use super::error::Fault;

/// Time for a connection to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Time without a byte after which a registry is given up.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for a whole document.
const DOCUMENT_TIMEOUT: Duration = Duration::from_secs(120);
/// Pieces of a blob, of some 16 KiB, that are read ahead.
const PIECES_AHEAD: usize = 16;

/// Reads what follows `docker://`.
pub(super) fn parse(name: &str) -> Result<Reference, Fault> {
    name.parse::<Reference>().map_err(|error| Fault::Reference {
        why: format!("{error}; give docker://HOST/NAME:TAG"),
    })
}

/// A client of a registry, with a thread that makes its requests and ends when it is dropped.
pub(super) struct Connection {
    /// The image that was asked for.
    pub image: Reference,
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
    /// Makes a client for the image `name`; nothing is asked yet.
    pub fn open(name: &str, options: &RegistryOptions) -> Result<Self, Fault> {
        let image = parse(name)?;
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

    /// A manifest or an index of one of these media types, whole.
    pub fn manifest(
        &self,
        image: Reference,
        accepted: &'static [&'static str],
    ) -> Result<Vec<u8>, Fault> {
        let (client, auth) = (self.client.clone(), self.auth.clone());
        self.wait(async move {
            let (bytes, _) = client.pull_manifest_raw(&image, &auth, accepted).await?;
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
            // The task has panicked, as `oci-client` does for a token that no header can hold.
            Err(_) => Err(Fault::Registry {
                why: "the answer cannot be used, the request was given up".to_owned(),
            }),
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
                let ended = piece.is_err();
                // Bytes of another digest end here. The reader compares them too, and its error
                // says what they belong to.
                let other_digest = piece.as_ref().is_err_and(is_digest_error);
                // A failed send: the reader is gone.
                if other_digest || sender.send(piece.map(Vec::from)).await.is_err() || ended {
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

fn is_digest_error(error: &io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(|error| error.is::<DigestError>())
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
pub(super) fn unusable(error: &(dyn std::error::Error + 'static)) -> Fault {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_loopback_addresses() {
        for name in [
            "localhost",
            "localhost:5000",
            "127.0.0.1:5000",
            "127.1.2.3",
            "[::1]:5000",
        ] {
            assert!(is_loopback(name), "{name}");
        }
        for name in [
            "localhost.example:5000",
            "10.0.0.1:5000",
            "index.docker.io",
            "[::2]",
        ] {
            assert!(!is_loopback(name), "{name}");
        }
    }
}
