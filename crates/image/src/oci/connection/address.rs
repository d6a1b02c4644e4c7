//! Addresses: which may be asked, and what a redirection leads to.

use std::net::IpAddr;

use ureq::Body;
use ureq::http::header::LOCATION;
use ureq::http::uri::{Authority, PathAndQuery, Scheme};
use ureq::http::{Response, StatusCode, Uri};

use super::super::error::Fault;

/// Which hosts may be asked without TLS. A registry that is asked with it cannot lead to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Http {
    No,
    /// This machine: the registry is there.
    Loopback,
    /// All, as the caller wants.
    Everywhere,
}

impl Http {
    /// For a registry, with or without a port.
    pub fn of(registry: &str, plain_http: bool) -> Self {
        let host = registry.parse::<Authority>();
        match host.is_ok_and(|host| is_loopback(host.host())) {
            true => Self::Loopback,
            false if plain_http => Self::Everywhere,
            false => Self::No,
        }
    }

    /// Refuses an address that may not be asked.
    pub fn check(self, uri: &Uri) -> Result<(), Fault> {
        let is_allowed = match self {
            _ if uri.scheme() == Some(&Scheme::HTTPS) => true,
            _ if uri.scheme() != Some(&Scheme::HTTP) => false,
            Self::No => false,
            Self::Loopback => uri.host().is_some_and(is_loopback),
            Self::Everywhere => true,
        };
        match is_allowed {
            true => Ok(()),
            false => Err(Fault::Registry {
                why: format!(
                    "it leads to {}, which is not asked: the address has no TLS (https)",
                    shown(uri)
                ),
            }),
        }
    }
}

/// True for a host that is this machine.
fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// Reads an address with scheme and host.
pub(super) fn parse(text: &str) -> Result<Uri, Fault> {
    match text.parse::<Uri>() {
        Ok(uri) if uri.scheme().is_some() && uri.host().is_some() => Ok(uri),
        _ => Err(Fault::Registry {
            why: format!("{text:?} is no address of a host"),
        }),
    }
}

/// An address as errors show it: without its query, which may be a key to what is there.
pub(super) fn shown(uri: &Uri) -> String {
    let scheme = uri.scheme_str().unwrap_or_default();
    let host = uri.host().unwrap_or_default();
    let port = uri.port().map(|port| format!(":{port}"));
    format!(
        "{scheme}://{host}{}{}",
        port.unwrap_or_default(),
        uri.path()
    )
}

/// Where an answer leads; `None` if it is no redirection.
pub(super) fn redirection(from: &Uri, response: &Response<Body>) -> Result<Option<Uri>, Fault> {
    match response.status() {
        StatusCode::MOVED_PERMANENTLY
        | StatusCode::FOUND
        | StatusCode::SEE_OTHER
        | StatusCode::TEMPORARY_REDIRECT
        | StatusCode::PERMANENT_REDIRECT => {}
        _ => return Ok(None),
    }
    let location = response.headers().get(LOCATION);
    let text = location.and_then(|location| location.to_str().ok());
    let text = text.ok_or_else(|| Fault::Registry {
        why: format!("{} is redirected to no address", shown(from)),
    })?;
    // Of relative addresses, those that registries use.
    if !text.starts_with('/') || text.starts_with("//") {
        return parse(text).map(Some);
    }
    let mut parts = from.clone().into_parts();
    let path = text.split('#').next().unwrap_or_default();
    let path: Result<PathAndQuery, _> = path.parse();
    parts.path_and_query = Some(path.map_err(|error| super::unusable(&error))?);
    let uri = Uri::from_parts(parts).map_err(|error| super::unusable(&error))?;
    Ok(Some(uri))
}

/// True if two addresses are of the same host, port and scheme.
pub(super) fn is_same_origin(one: &Uri, other: &Uri) -> bool {
    let origin = |uri: &Uri| {
        let port = match uri.scheme() == Some(&Scheme::HTTPS) {
            true => 443,
            false => 80,
        };
        let host = uri.host().map(str::to_ascii_lowercase);
        (uri.scheme().cloned(), host, uri.port_u16().unwrap_or(port))
    };
    origin(one) == origin(other)
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
            assert_eq!(Http::of(name, false), Http::Loopback, "{name}");
        }
        for name in [
            "localhost.example:5000",
            "10.0.0.1:5000",
            "index.docker.io",
            "[::2]",
        ] {
            assert_eq!(Http::of(name, false), Http::No, "{name}");
            assert_eq!(Http::of(name, true), Http::Everywhere, "{name}");
        }
    }

    #[test]
    fn no_registry_leads_to_an_address_with_less_protection() {
        let (local, remote) = ("http://127.0.0.1:80/x?y", "http://other.example/x?y");
        for (http, address, is_allowed) in [
            (Http::No, local, false),
            (Http::No, remote, false),
            (Http::No, "https://other.example/", true),
            (Http::Loopback, local, true),
            (Http::Loopback, remote, false),
            (Http::Everywhere, remote, true),
            (Http::Everywhere, "ftp://other.example/", false),
        ] {
            let checked = http.check(&parse(address).unwrap());
            assert_eq!(checked.is_ok(), is_allowed, "{http:?} {address}");
            let text = checked.err().map(|fault| fault.to_string());
            assert!(!text.unwrap_or_default().contains("?y"));
        }
        for text in ["/path", "host", "//host/path", "http:", ""] {
            parse(text).unwrap_err();
        }
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let uri = |text| parse(text).unwrap();
        let registry = uri("https://Registry.example/v2/");
        for same in [
            "https://registry.example:443/",
            "https://registry.example/x",
        ] {
            assert!(is_same_origin(&registry, &uri(same)), "{same}");
        }
        for other in [
            "http://registry.example/",
            "https://registry.example:444/",
            "https://registry.example.org/",
        ] {
            assert!(!is_same_origin(&registry, &uri(other)), "{other}");
        }
    }
}
