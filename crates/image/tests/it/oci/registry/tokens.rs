//! How a registry is given tokens and users, and that no other host is.

use super::server::{Request, Served, Server, chunked, ok, response, unauthorized};
use super::*;

/// What `user` and `secret` are in a header.
const BASIC: &str = "Basic dXNlcjpzZWNyZXQ=";

fn open_as_user(reference: &str) -> Result<ContainerImage, Error> {
    let login = Login {
        user: "user".to_owned(),
        password: "secret".to_owned(),
    };
    let options = RegistryOptions {
        login: Some(login),
        ..RegistryOptions::default()
    };
    open_with(reference, options)
}

/// A registry that sends clients for a token to `realm`, and for its layers to `storage`.
fn registry(
    served: &Served,
    realm: String,
    storage: String,
    accepts: impl Fn(&str) -> bool + Send + 'static,
) -> Server {
    let served = served.clone();
    Server::new(move |_, request| {
        let authorization = request.authorization.as_deref().unwrap_or_default();
        if !accepts(authorization) {
            let challenge = format!(r#"Bearer realm="{realm}",service="a b",error="\"x\"""#);
            return unauthorized(&challenge);
        }
        match request.path == served.layer_path() {
            true => {
                let header = format!("location: http://{storage}/stored");
                response("307 Temporary Redirect", &header, "")
            }
            false => served.answer(&request.path),
        }
    })
}

#[test]
fn a_token_is_got_once_and_other_hosts_do_not_receive_it() {
    let served = Served::new();
    let tar = served.tar.clone();
    let storage = Server::at("127.0.0.2", move |_, _| ok(&tar));
    let tokens = Server::at("127.0.0.3", |_, _| ok(r#"{"token": "abc.def", "x": 1}"#));
    let realm = format!("http://{}/token?account=1", tokens.address);
    let accepts = |authorization: &str| authorization == "Bearer abc.def";
    let registry = registry(&served, realm, storage.address.clone(), accepts);
    for as_user in [false, true] {
        let image = match as_user {
            true => open_as_user(&registry.reference()),
            false => open(&registry.reference()),
        };
        assert_layers(&image.unwrap(), std::slice::from_ref(&served.tar));
    }
    let asked = tokens.requests();
    assert_eq!(asked.len(), 2, "{asked:?}");
    for (request, authorization) in asked.iter().zip([None, Some(BASIC)]) {
        let query = "/token?account=1&service=a%20b&scope=repository%3Aapp%3Apull";
        assert_eq!(request.path, query);
        assert_eq!(request.authorization.as_deref(), authorization);
    }
    let stored = storage.requests();
    assert_eq!(stored.len(), 2);
    let received: Vec<_> = stored
        .iter()
        .filter_map(|r| r.authorization.as_ref())
        .collect();
    assert!(received.is_empty(), "{received:?}");
    // The password itself is for the server of tokens alone.
    let asked = registry.requests();
    let has_password = |r: &Request| r.authorization.as_deref() == Some(BASIC);
    assert!(!asked.iter().any(has_password), "{asked:?}");
}

#[test]
fn the_host_of_a_redirection_cannot_ask_for_the_user() {
    let served = Served::new();
    let thief = Server::at("127.0.0.3", |_, _| ok(r#"{"token": "abc.def"}"#));
    let realm = format!("http://{}/token", thief.address);
    let storage = Server::at("127.0.0.2", move |_, _| {
        unauthorized(&format!(r#"Bearer realm="{realm}""#))
    });
    let tokens = "http://127.0.0.1:1/token".to_owned();
    let registry = registry(&served, tokens, storage.address.clone(), |_| true);
    let image = open_as_user(&registry.reference()).unwrap();
    let error = read(&image.layers[0]).unwrap_err().to_string();
    assert!(error.contains("401"), "{error}");
    assert_eq!(storage.requests().len(), 1);
    assert!(thief.requests().is_empty());
    let is_asked_as_user = |r: &Request| r.authorization.is_some();
    assert!(!registry.requests().iter().any(is_asked_as_user));
}

#[test]
fn a_user_is_not_given_to_the_host_of_a_redirection() {
    let served = Served::new();
    let answers = served.clone();
    let other = Server::at("127.0.0.2", move |_, request| answers.answer(&request.path));
    let to = other.address.clone();
    let server = Server::new(move |_, request| match request.authorization.as_deref() {
        Some(BASIC) => {
            let header = format!("location: http://{to}{}", request.path);
            response("301 Moved Permanently", &header, "")
        }
        _ => unauthorized("Basic realm=\"r\""),
    });
    let image = open_as_user(&server.reference()).unwrap();
    assert_layers(&image, &[served.tar]);
    assert!(!other.requests().is_empty());
    assert!(
        other
            .requests()
            .iter()
            .all(|request| request.authorization.is_none())
    );
    let error = open(&server.reference()).unwrap_err();
    assert!(
        matches!(error.fault, Fault::Status { status: 401, .. }),
        "{error}"
    );
}

#[test]
fn a_token_that_has_expired_is_renewed() {
    let served = Served::new();
    let tar = served.tar.clone();
    let storage = Server::new(move |_, _| ok(&tar));
    let given = std::sync::atomic::AtomicUsize::new(0);
    let tokens = Server::new(move |_, _| {
        let number = given.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        ok(format!(r#"{{"access_token": "t{number}"}}"#))
    });
    let realm = format!("http://{}/token", tokens.address);
    // The manifest and its configuration use up the first.
    let accepted = std::sync::atomic::AtomicUsize::new(0);
    let accepts = move |authorization: &str| {
        let number = accepted.load(std::sync::atomic::Ordering::Relaxed);
        let is_right = authorization == format!("Bearer t{}", number / 2);
        accepted.fetch_add(is_right.into(), std::sync::atomic::Ordering::Relaxed);
        is_right
    };
    let registry = registry(&served, realm, storage.address.clone(), accepts);
    let image = open(&registry.reference()).unwrap();
    assert_layers(&image, &[served.tar]);
    assert_eq!(tokens.requests().len(), 2);
}

#[test]
fn tokens_of_a_hostile_registry_are_errors() {
    let token = |text: &str| ok(format!(r#"{{"token": "{text}"}}"#));
    let large = token(&"x".repeat(100 << 10));
    for (answer, why) in [
        (token("a\\nb"), "header value"),
        (token("\\u0000"), "header value"),
        (token(""), "no token"),
        (ok("{}"), "no token"),
        (ok("token"), "token of"),
        (large.clone(), "at most 65536 are read"),
        (chunked(&large[100..]), "at most 65536 are read"),
        (response("403 Forbidden", "x: y", ""), "status 403"),
        (
            response("302 Found", "location: http://192.0.2.1/", ""),
            "no TLS",
        ),
    ] {
        let server =
            Server::new(
                move |address, request| match request.path.starts_with("/token") {
                    true => answer.clone(),
                    false => unauthorized(&format!("Bearer realm=\"http://{address}/token\"")),
                },
            );
        let text = open(&server.reference()).unwrap_err().to_string();
        assert!(text.starts_with(&server.reference()), "{text}");
        assert!(text.contains(why), "{text}");
    }
}

#[test]
fn challenges_that_cannot_be_answered_are_errors() {
    let long = format!("Bearer realm=\"{}\"", "x".repeat(10_000));
    for (challenge, why) in [
        ("Negotiate", "log in first"),
        ("Bearer realm=\"", "cannot be read"),
        ("Bearer", "no address"),
        ("Bearer service=\"x\"", "no address"),
        ("Bearer realm=\"token\"", "no address"),
        ("Bearer realm=\"http://192.0.2.1/token\"", "no TLS"),
        (long.as_str(), "cannot be read"),
    ] {
        let answer = unauthorized(challenge);
        let server = Server::new(move |_, _| answer.clone());
        let text = open_as_user(&server.reference()).unwrap_err().to_string();
        assert!(text.contains(why), "{challenge}: {text}");
    }
}
