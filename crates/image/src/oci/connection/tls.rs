//! Which certificates a registry may have, and what checks them.

use std::sync::Arc;

use ureq::config::ConfigBuilder;
use ureq::tls::{RootCerts, TlsConfig};
use ureq::typestate::AgentScope;

/// Makes a client trust the certificates that these roots have signed, and no others.
pub(super) fn trust(
    config: ConfigBuilder<AgentScope>,
    roots: RootCerts,
) -> ConfigBuilder<AgentScope> {
    let provider = rustls::crypto::ring::default_provider();
    let tls = TlsConfig::builder()
        .root_certs(roots)
        .unversioned_rustls_crypto_provider(Arc::new(provider));
    config.tls_config(tls.build())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::process::Command;
    use std::thread;

    use oci_spec::distribution::Reference;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ServerConfig, ServerConnection, StreamOwned};
    use ureq::Agent;
    use ureq::tls::Certificate;

    use super::super::super::error::Part;
    use super::super::Connection;
    use super::super::address::Http;
    use super::*;

    /// A key and the certificate of `localhost` that it has signed itself; `None` without openssl.
    fn certificate() -> Option<(PrivateKeyDer<'static>, CertificateDer<'static>)> {
        if !uext4_testkit::has_tool("openssl") {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
            .args(["ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
            .args([
                "-subj",
                "/CN=localhost",
                "-keyout",
                "key",
                "-out",
                "certificate",
            ])
            .args(["-addext", "subjectAltName=DNS:localhost"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .current_dir(dir.path())
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let key = PrivateKeyDer::from_pem_file(dir.path().join("key")).unwrap();
        let certificate = CertificateDer::from_pem_file(dir.path().join("certificate")).unwrap();
        Some((key, certificate))
    }

    /// Answers every connection with `{}`, or with nothing if the client does not trust it.
    fn serve(config: ServerConfig) -> Reference {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = Arc::new(config);
        thread::spawn(move || {
            for stream in listener.incoming().take(10).flatten() {
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                let mut stream = StreamOwned::new(connection, stream);
                if stream.read(&mut [0; 4096]).is_ok() {
                    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
                    _ = stream.write_all(answer.as_bytes());
                }
            }
        });
        format!("localhost:{port}/app:1").parse().unwrap()
    }

    #[test]
    fn a_registry_is_trusted_by_its_certificate_alone() {
        let Some((key, certificate)) = certificate() else {
            return;
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .unwrap();
        let image = serve(config);
        let own = Certificate::from_der(&certificate).to_owned();
        let trusted = trust(Agent::config_builder(), RootCerts::new_with_certs(&[own]));
        let part = Part::Remote("app:1".to_owned());
        let connection = Connection::with(trusted, Http::No, image.clone(), None);
        let bytes = connection.manifest(&part, "1", &["*/*"], 100).unwrap();
        assert_eq!(bytes, b"{}");
        let system = trust(Agent::config_builder(), RootCerts::PlatformVerifier);
        let connection = Connection::with(system, Http::No, image, None);
        let error = connection.manifest(&part, "1", &["*/*"], 100).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("certificate"), "{text}");
    }
}
