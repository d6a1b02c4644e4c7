//! Authorization: challenges of a registry, and the tokens that answer them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use ureq::Body;
use ureq::http::Response;
use ureq::http::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};

use super::super::Login;
use super::super::error::{Fault, Part};
use super::{answer, unusable};

/// Largest answer with a token, in bytes.
const ANSWER_MAX: u64 = 64 << 10;
/// Longest challenge that is read, in bytes.
const CHALLENGE_MAX: usize = 8 << 10;

/// What a registry wants.
pub(super) enum Challenge {
    /// User and password.
    Basic,
    /// A token.
    Bearer(Bearer),
}

/// Where a token is got.
#[derive(Default)]
pub(super) struct Bearer {
    /// The address.
    pub realm: String,
    service: Option<String>,
    scope: Option<String>,
}

impl Challenge {
    /// The challenge of an answer 401 that can be answered, tokens first.
    pub fn of(headers: &HeaderMap) -> Result<Option<Self>, Fault> {
        let mut found = None;
        for value in headers.get_all(WWW_AUTHENTICATE) {
            let text = value
                .to_str()
                .ok()
                .filter(|text| text.len() <= CHALLENGE_MAX);
            let text = text.ok_or_else(|| refused("cannot be read"))?;
            let challenges = http_auth::parse_challenges(text);
            for challenge in challenges.map_err(|_| refused("cannot be read"))? {
                if challenge.scheme.eq_ignore_ascii_case("basic") {
                    found = found.or(Some(Self::Basic));
                }
                if !challenge.scheme.eq_ignore_ascii_case("bearer") {
                    continue;
                }
                let mut bearer = Bearer::default();
                for (name, value) in challenge.params {
                    let value = value.to_unescaped();
                    match name.to_ascii_lowercase().as_str() {
                        "realm" => bearer.realm = value,
                        "service" => bearer.service = Some(value),
                        "scope" => bearer.scope = Some(value),
                        _ => {}
                    }
                }
                return Ok(Some(Self::Bearer(bearer)));
            }
        }
        Ok(found)
    }
}

impl Bearer {
    /// What the address is asked.
    pub fn query(&self, repository: &str) -> Vec<(&'static str, String)> {
        let scope = self.scope.clone();
        let scope = scope.unwrap_or_else(|| format!("repository:{repository}:pull"));
        let service = self.service.clone().map(|service| ("service", service));
        service.into_iter().chain([("scope", scope)]).collect()
    }
}

/// The header of a user.
pub(super) fn basic(login: &Login) -> Result<HeaderValue, Fault> {
    let text = STANDARD.encode(format!("{}:{}", login.user, login.password));
    header(format!("Basic {text}"))
}

#[derive(Deserialize)]
struct Answer {
    token: Option<String>,
    access_token: Option<String>,
}

/// The header of the token that an answer has.
pub(super) fn read(response: Response<Body>, realm: &str) -> Result<HeaderValue, Fault> {
    let part = Part::Token(realm.to_owned());
    let bytes = answer::read(response, &part, ANSWER_MAX)?;
    let answer: Answer = serde_json::from_slice(&bytes).map_err(|source| Fault::Json {
        part: part.clone(),
        source,
    })?;
    let token = answer.token.or(answer.access_token).unwrap_or_default();
    match token.is_empty() {
        true => Err(Fault::Document {
            part,
            why: "the answer has no token".to_owned(),
        }),
        false => header(format!("Bearer {token}")),
    }
}

fn header(text: String) -> Result<HeaderValue, Fault> {
    let mut value = HeaderValue::from_str(&text).map_err(|error| unusable(&error))?;
    value.set_sensitive(true);
    Ok(value)
}

fn refused(why: &str) -> Fault {
    let why = format!("its answer 401 says in a way that {why} how to log in");
    Fault::Registry { why }
}
