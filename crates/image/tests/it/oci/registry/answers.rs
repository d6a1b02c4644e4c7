//! What a registry may answer, and what a reader makes of it.

use super::server::{Served, Server, chunked, ok, response};
use super::*;

#[track_caller]
fn refused(answer: Vec<u8>) -> Error {
    let server = Server::new(move |_, _| answer.clone());
    let error = open(&server.reference()).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with(&server.reference()), "{text}");
    error
}

/// The error of a layer whose blob is answered so.
#[track_caller]
fn layer_refused(answer: impl Fn(&Served) -> Vec<u8> + Send + 'static) -> Error {
    let served = Served::new();
    let server = Server::new(
        move |_, request| match request.path == served.layer_path() {
            true => answer(&served),
            false => served.answer(&request.path),
        },
    );
    let image = open(&server.reference()).unwrap();
    let mut bytes = Vec::new();
    let read = image.layers[0].open().and_then(|mut layer| {
        let read = layer.read_to_end(&mut bytes);
        read.map_err(|error| error.downcast::<Error>().unwrap())
    });
    read.unwrap_err()
}

#[test]
fn answers_of_a_hostile_registry_are_errors() {
    for answer in [
        b"no http".to_vec(),
        ok("[]"),
        ok(r#"{"schemaVersion": 2}"#),
        response("200 OK", "docker-content-digest: sha256:00", "{}"),
        response("204 No Content", "x: y", ""),
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{}".to_vec(),
        b"HTTP/1.1 200 OK\r\n".to_vec(),
        format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(200_000)).into_bytes(),
    ] {
        refused(answer);
    }
}

#[test]
fn a_manifest_above_the_limit_is_not_read() {
    let large = " ".repeat(5 << 20);
    let endless = b"HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551615\r\n\r\n{}".to_vec();
    for answer in [ok(&large), chunked(large.as_bytes()), endless] {
        let error = refused(answer);
        assert!(
            matches!(error.fault, Fault::TooLarge { limit, .. } if limit == 4 << 20),
            "{error}"
        );
    }
}

#[test]
fn a_manifest_of_another_digest_is_refused() {
    let served = Served::new();
    let manifest = served.answer("/v2/app/manifests/1");
    let body = served.get("/v2/app/manifests/1").unwrap().to_vec();
    let other = format!("docker-content-digest: {}", Digest::sha256_of(b"other"));
    let error = refused(response("200 OK", &other, &body));
    assert!(matches!(error.fault, Fault::Mismatch { .. }), "{error}");
    let right = format!("docker-content-digest: {}", served.manifest);
    let server = Server::new({
        let served = served.clone();
        move |_, request| match request.path.contains("manifests") {
            true => response("200 OK", &right, &body),
            false => served.answer(&request.path),
        }
    });
    assert_layers(&open(&server.reference()).unwrap(), &[served.tar]);
    let server = Server::new(move |_, _| manifest.clone());
    let asked = Digest::sha256_of(b"asked");
    let error = open(&format!("docker://{}/app@{asked}", server.address)).unwrap_err();
    assert!(
        matches!(&error.fault, Fault::Mismatch { expected, .. } if *expected == asked),
        "{error}"
    );
}

#[test]
fn every_status_is_an_error_that_says_what_to_do() {
    for (status, header, advice) in [
        ("401 Unauthorized", "x: y", "log in first"),
        ("403 Forbidden", "x: y", "log in first"),
        ("404 Not Found", "x: y", "check name and tag"),
        (
            "429 Too Many Requests",
            "retry-after: 7",
            "try again after 7 s",
        ),
        (
            "429 Too Many Requests",
            "retry-after: soon",
            "try again later, or log in",
        ),
        ("500 Internal Server Error", "x: y", "try again later"),
        ("503 Service Unavailable", "x: y", "try again later"),
        ("418 I'm a teapot", "x: y", "check its address"),
        ("304 Not Modified", "x: y", "check its address"),
    ] {
        let body = r#"{"errors": [{"code": "CODE", "message": "own\u001b[31m\nwords"}]}"#;
        let body = match status.starts_with("304") {
            true => "",
            false => body,
        };
        let answer = response(status, header, body);
        let layer_answer = answer.clone();
        for error in [
            refused(answer),
            layer_refused(move |_| layer_answer.clone()),
        ] {
            let text = error.to_string();
            assert!(text.contains(advice), "{text}");
            assert!(
                body.is_empty() || text.contains("own\\u{1b}[31m\\nwords"),
                "{text}"
            );
            let Fault::Status { status: number, .. } = error.fault else {
                panic!("{text}");
            };
            assert_eq!(number.to_string(), status[..3]);
        }
    }
}

#[test]
fn a_blob_of_another_length_is_an_error() {
    let size_of = |error: Error| match error.fault {
        Fault::Size {
            expected, actual, ..
        } => (expected, actual),
        fault => panic!("{fault}"),
    };
    let tar = Served::new().tar;
    let size = tar.len() as u64;
    let short = layer_refused(|served| ok(&served.tar[..1000]));
    assert_eq!(size_of(short), (size, 1000));
    let long = layer_refused(|served| ok([&served.tar[..], b"more"].concat()));
    assert_eq!(size_of(long), (size, size + 4));
    let short = layer_refused(|served| chunked(&served.tar[..1000]));
    assert_eq!(size_of(short), (size, 1000));
    let error = layer_refused(|served| {
        let mut answer = ok(&served.tar);
        answer.truncate(answer.len() - 100);
        answer
    });
    let text = error.to_string();
    assert!(matches!(error.fault, Fault::Registry { .. }), "{text}");
    assert!(
        text.contains(&format!("ends after {} bytes", size - 100)) && text.contains("try again"),
        "{text}"
    );
}

#[test]
fn redirections_end_and_stay_with_protected_addresses() {
    let redirect = |to: &str| response("302 Found", &format!("location: {to}"), "");
    for (to, why) in [
        ("/v2/", "redirected more than 8 times"),
        ("http://192.0.2.1/blob?key=secret", "no TLS"),
        ("ftp://127.0.0.1/blob?key=secret", "no TLS"),
        ("//127.0.0.1/blob", "no address"),
        ("blob", "no address"),
        ("", "no address"),
    ] {
        let text = refused(redirect(to)).to_string();
        assert!(text.contains(why) && !text.contains("secret"), "{text}");
    }
    let text = refused(response("307 Temporary Redirect", "x: y", "")).to_string();
    assert!(text.contains("redirected to no address"), "{text}");
    // Within the registry.
    let served = Served::new();
    let tar = served.tar.clone();
    let server = Server::new(
        move |_, request| match request.path.strip_prefix("/moved") {
            Some(path) => served.answer(path),
            None => redirect(&format!("/moved{}", request.path)),
        },
    );
    assert_layers(&open(&server.reference()).unwrap(), &[tar]);
}
