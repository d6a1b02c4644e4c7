//! A connection to a registry: documents whole, blobs as readers.
//!
//! ```text
//! request ──► redirections ──► answer ──► 200: body     bounded in length and time
//!    ▲         (address)         │
//!    └── authorization ◄─────────┴──────► 401: token, once
//! ```
//! Every request may be redirected; the authorization goes to the registry's own host alone. A
//! registry that answers 401 says how to get a token: it is asked for once, used for all that
//! follows, and renewed when the registry no longer accepts it.

mod address;
mod answer;
#[cfg(feature = "registry")]
mod tls;
mod token;

use std::fmt;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use oci_spec::distribution::Reference;
use ureq::config::ConfigBuilder;
use ureq::http::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue};
use ureq::http::{Response, StatusCode, Uri};
use ureq::typestate::AgentScope;
use ureq::{Agent, Body, BodyReader};

use super::Login;
use super::digest::Digest;
use super::error::{Fault, Part};
use super::verify::Verifier;

use address::Http;

/// Time for a connection to be made, with its TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Time without a byte after which a registry is given up.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for a whole document.
const DOCUMENT_TIMEOUT: Duration = Duration::from_secs(120);
/// Bytes that a blob must bring for each second that its reader waits, after [`READ_TIMEOUT`].
const RATE_MIN: u64 = 1024;
/// Most redirections of one request.
const REDIRECTS_MAX: usize = 8;

/// A client of one repository of a registry. Used by several threads at once.
pub(super) struct Connection {
    /// The image that was asked for.
    pub image: Reference,
    agent: Agent,
    http: Http,
    /// The address of the repository, without a slash at its end.
    repository: String,
    login: Option<Login>,
    /// What the registry has accepted last.
    authorization: Mutex<Option<HeaderValue>>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let image = self.image.to_string();
        f.debug_tuple("Connection").field(&image).finish()
    }
}

/// What a request is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// A document or a token, which is read at once.
    Document,
    /// A blob, which its reader takes as slowly as it wants.
    Blob,
}

impl Connection {
    /// Makes a client for the repository of an image; nothing is asked yet. The certificates that
    /// it trusts are the system's.
    ///
    /// # Errors
    /// [`Fault::Registry`] if this program has no TLS and the registry is not asked without.
    pub fn open(image: Reference, login: Option<Login>, plain_http: bool) -> Result<Self, Fault> {
        let http = Http::of(image.resolve_registry(), plain_http);
        let config = Agent::config_builder();
        #[cfg(feature = "registry")]
        let config = tls::trust(config, ureq::tls::RootCerts::PlatformVerifier);
        match cfg!(feature = "registry") || http != Http::No {
            true => Ok(Self::with(config, http, image, login)),
            false => Err(Fault::Registry {
                why: "this program was built without TLS (https); copy the image first: skopeo \
                      copy docker://NAME oci:DIRECTORY"
                    .to_owned(),
            }),
        }
    }

    fn with(
        config: ConfigBuilder<AgentScope>,
        http: Http,
        image: Reference,
        login: Option<Login>,
    ) -> Self {
        let host = image.resolve_registry();
        let mut config = config
            .user_agent(concat!("uext4/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_resolve(Some(CONNECT_TIMEOUT))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_send_request(Some(READ_TIMEOUT))
            .timeout_recv_response(Some(READ_TIMEOUT))
            .timeout_per_read(Some(READ_TIMEOUT));
        if http == Http::Loopback {
            config = config.proxy(None);
        }
        let scheme = match http {
            Http::No => "https",
            Http::Loopback | Http::Everywhere => "http",
        };
        Self {
            agent: Agent::new_with_config(config.build()),
            http,
            repository: format!("{scheme}://{host}/v2/{}", image.repository()),
            login,
            authorization: Mutex::default(),
            image,
        }
    }

    /// A manifest or an index by a tag or a digest, of one of these media types, at most `limit`
    /// bytes. Compared with the digest that the registry says it has; the caller compares it with
    /// the one that it has asked for.
    ///
    /// # Errors
    /// [`Fault::TooLarge`], [`Fault::Mismatch`], [`Fault::Digest`], and those of all requests.
    pub fn manifest(
        &self,
        part: &Part,
        name: &str,
        accepted: &[&str],
        limit: u64,
    ) -> Result<Vec<u8>, Fault> {
        let address = format!("{}/manifests/{name}", self.repository);
        let response = self.get(&address, &accepted.join(", "), Purpose::Document)?;
        let digest = answer::digest(&response)?;
        let bytes = answer::read(response, part, limit)?;
        if let Some(digest) = digest {
            let mut verifier = Verifier::new(&Arc::from(""), part.clone(), &digest, None);
            verifier.update(&bytes);
            verifier.compare()?;
        }
        Ok(bytes)
    }

    /// A document that is stored as a blob, at most `limit` bytes; the caller compares its digest.
    ///
    /// # Errors
    /// [`Fault::TooLarge`], and those of all requests.
    pub fn document(&self, part: &Part, digest: &Digest, limit: u64) -> Result<Vec<u8>, Fault> {
        let address = format!("{}/blobs/{digest}", self.repository);
        let response = self.get(&address, "*/*", Purpose::Document)?;
        answer::read(response, part, limit)
    }

    /// Begins to read a blob; the caller compares its digest.
    ///
    /// # Errors
    /// [`Fault::Size`] if the registry says that it has another size, and those of all requests.
    pub fn download(&self, part: &Part, digest: &Digest, size: u64) -> Result<Download, Fault> {
        let address = format!("{}/blobs/{digest}", self.repository);
        let response = self.get(&address, "*/*", Purpose::Blob)?;
        let body = response.into_body();
        match body.content_length() {
            Some(actual) if actual != size => Err(Fault::Size {
                part: part.clone(),
                expected: size,
                actual,
            }),
            _ => Ok(Download {
                body: body.into_with_config().limit(u64::MAX).reader(),
                done: 0,
                waited: Duration::ZERO,
            }),
        }
    }

    /// The answer 200 to a request; a token is got for it where the registry wants one.
    ///
    /// # Errors
    /// [`Fault::Status`] for another answer, [`Fault::Registry`].
    fn get(&self, address: &str, accept: &str, purpose: Purpose) -> Result<Response<Body>, Fault> {
        let accept = HeaderValue::from_str(accept).map_err(|error| unusable(&error))?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept);
        let known = self.authorization().clone();
        headers.extend(known.map(|known| (AUTHORIZATION, known)));
        let Answer { from, response } = self.follow(address, &[], headers.clone(), purpose)?;
        // Only the registry itself may ask for its user: another host would say where to send the
        // password.
        let is_registry = address::is_same_origin(&from, &address::parse(address)?);
        let response = match response.status() {
            StatusCode::UNAUTHORIZED if is_registry => {
                let Some(fresh) = self.authorize(response.headers())? else {
                    return Err(answer::refused(address, response));
                };
                headers.insert(AUTHORIZATION, fresh);
                self.follow(address, &[], headers, purpose)?.response
            }
            _ => response,
        };
        match response.status() {
            StatusCode::OK => Ok(response),
            _ => Err(answer::refused(address, response)),
        }
    }

    /// What the challenge of an answer 401 asks for; `None` if that is a user, and there is none.
    fn authorize(&self, headers: &HeaderMap) -> Result<Option<HeaderValue>, Fault> {
        let Some(challenge) = token::Challenge::of(headers)? else {
            return Ok(None);
        };
        let basic = match &self.login {
            Some(login) => Some(token::basic(login)?),
            None => None,
        };
        let fresh = match challenge {
            token::Challenge::Basic => basic,
            token::Challenge::Bearer(bearer) => {
                let mut headers = HeaderMap::new();
                headers.extend(basic.map(|basic| (AUTHORIZATION, basic)));
                let query = bearer.query(self.image.repository());
                let answer = self.follow(&bearer.realm, &query, headers, Purpose::Document)?;
                let response = answer.response;
                if response.status() != StatusCode::OK {
                    return Err(answer::refused(&bearer.realm, response));
                }
                Some(token::read(response, &bearer.realm)?)
            }
        };
        *self.authorization() = fresh.clone();
        Ok(fresh)
    }

    fn authorization(&self) -> MutexGuard<'_, Option<HeaderValue>> {
        let authorization = self.authorization.lock();
        authorization.unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to a request, or to the one that it is redirected to in the end.
    fn follow(
        &self,
        address: &str,
        query: &[(&str, String)],
        mut headers: HeaderMap,
        purpose: Purpose,
    ) -> Result<Answer, Fault> {
        let mut uri = address::parse(address)?;
        let mut query = query;
        for _ in 0..=REDIRECTS_MAX {
            self.http.check(&uri)?;
            let response = self.ask(&uri, query, &headers, purpose)?;
            let Some(next) = address::redirection(&uri, &response)? else {
                return Ok(Answer {
                    from: uri,
                    response,
                });
            };
            if !address::is_same_origin(&uri, &next) {
                headers.remove(AUTHORIZATION);
            }
            (uri, query) = (next, &[]);
        }
        let why = format!("{address} is redirected more than {REDIRECTS_MAX} times");
        Err(Fault::Registry { why })
    }

    fn ask(
        &self,
        uri: &Uri,
        query: &[(&str, String)],
        headers: &HeaderMap,
        purpose: Purpose,
    ) -> Result<Response<Body>, Fault> {
        let mut request = self.agent.get(uri);
        for (name, value) in query {
            request = request.query(name, value);
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if purpose == Purpose::Document {
            let timeout = Some(DOCUMENT_TIMEOUT);
            request = request.config().timeout_global(timeout).build();
        }
        request.call().map_err(|error| failed(uri, error))
    }
}

/// What a host answers in the end.
struct Answer {
    /// The address that was asked last.
    from: Uri,
    response: Response<Body>,
}

/// The body of a blob.
pub(super) struct Download {
    body: BodyReader<'static>,
    /// Bytes read.
    done: u64,
    /// How long the reader has waited for them.
    waited: Duration,
}

impl fmt::Debug for Download {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Download").finish_non_exhaustive()
    }
}

impl Read for Download {
    /// # Errors
    /// [`Fault::Registry`] inside the [`io::Error`].
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let begun = Instant::now();
        let read = self.body.read(buf);
        self.waited += begun.elapsed();
        let why = match read {
            Ok(len) => {
                self.done += len as u64;
                if self.waited <= READ_TIMEOUT + Duration::from_secs(self.done / RATE_MIN) {
                    return Ok(len);
                }
                "the registry sends too slowly".to_owned()
            }
            Err(error) => text_of(&error),
        };
        let done = self.done;
        let why = format!("the blob ends after {done} bytes ({why}); try again");
        Err(io::Error::other(Fault::Registry { why }))
    }
}

/// A request without an answer.
fn failed(uri: &Uri, error: ureq::Error) -> Fault {
    let why = match error {
        ureq::Error::HostNotFound => "there is no such host".to_owned(),
        ureq::Error::Timeout(_) => format!("no answer in time ({error}); try again"),
        error => text_of(&error),
    };
    let why = format!("{}: {why}", address::shown(uri));
    Fault::Registry { why }
}

fn unusable(error: &(dyn std::error::Error + 'static)) -> Fault {
    let why = text_of(error);
    Fault::Registry { why }
}

/// An error with all that it was caused by.
fn text_of(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        next = error.source();
    }
    text
}
