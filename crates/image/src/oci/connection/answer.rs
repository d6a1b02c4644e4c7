//! Answers of a registry: documents within a limit, and what statuses mean.

use std::io::Read;

use serde::Deserialize;
use ureq::Body;
use ureq::http::header::{HeaderMap, RETRY_AFTER};
use ureq::http::{Response, StatusCode, Uri};

use super::super::digest::Digest;
use super::super::error::{Fault, Part};
use super::{address, text_of};

/// Most bytes of an error that are read.
const ERROR_MAX: u64 = 64 << 10;
/// Most characters of the registry's own words that an error shows.
const WORDS_MAX: usize = 200;

/// The digest that the registry says that a document has.
pub(super) fn digest(response: &Response<Body>) -> Result<Option<Digest>, Fault> {
    let Some(value) = response.headers().get("docker-content-digest") else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(value.as_bytes());
    Ok(Some(text.parse()?))
}

/// The body of an answer, which is at most `limit` bytes.
///
/// # Errors
/// [`Fault::TooLarge`], [`Fault::Registry`].
pub(super) fn read(response: Response<Body>, part: &Part, limit: u64) -> Result<Vec<u8>, Fault> {
    let body = response.into_body();
    let too_large = |size| {
        let part = part.clone();
        Fault::TooLarge { part, size, limit }
    };
    if let Some(size) = body.content_length()
        && size > limit
    {
        return Err(too_large(size));
    }
    let mut bytes = Vec::new();
    let read = body.into_reader().take(limit + 1).read_to_end(&mut bytes);
    read.map_err(|error| Fault::Registry {
        why: format!(
            "{part}: the answer ends after {} bytes ({}); try again",
            bytes.len(),
            text_of(&error)
        ),
    })?;
    match bytes.len() as u64 {
        size if size > limit => Err(too_large(size)),
        _ => Ok(bytes),
    }
}

/// The error of an answer that is not 200.
pub(super) fn refused(address: &str, response: Response<Body>) -> Fault {
    let uri = address.parse::<Uri>();
    let address = uri.map_or_else(|_| address.to_owned(), |uri| address::shown(&uri));
    let status = response.status();
    let advice = advice(status, response.headers());
    let why = match words(response) {
        Some(words) => format!("{words}; {advice}"),
        None => advice,
    };
    Fault::Status {
        address,
        status: status.as_u16(),
        why,
    }
}

/// What to do.
fn advice(status: StatusCode, headers: &HeaderMap) -> String {
    let advice = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            "log in first (docker login), with the password in the file: those that a credential \
             helper has are not read"
        }
        StatusCode::NOT_FOUND => "the registry has no such image or blob: check name and tag",
        StatusCode::TOO_MANY_REQUESTS => {
            let after = headers
                .get(RETRY_AFTER)
                .and_then(|after| after.to_str().ok());
            return match after.and_then(|after| after.parse::<u64>().ok()) {
                Some(seconds) => format!("too many requests: try again after {seconds} s"),
                None => "too many requests: try again later, or log in".to_owned(),
            };
        }
        status if status.is_server_error() => "the registry fails: try again later",
        _ => "the registry gives no image: check its address",
    };
    advice.to_owned()
}

#[derive(Deserialize)]
struct Errors {
    errors: Vec<Words>,
}

#[derive(Deserialize)]
struct Words {
    code: Option<String>,
    message: Option<String>,
}

/// The registry's own words for the first error, on one line.
fn words(response: Response<Body>) -> Option<String> {
    let mut bytes = Vec::new();
    let mut body = response.into_body().into_reader().take(ERROR_MAX);
    // Of a longer or broken answer nothing can be said.
    body.read_to_end(&mut bytes).ok()?;
    let Errors { errors } = serde_json::from_slice(&bytes).ok()?;
    let Words { code, message } = errors.into_iter().next()?;
    let words = message.filter(|message| !message.is_empty()).or(code)?;
    let words = words.chars().take(WORDS_MAX);
    Some(words.flat_map(char::escape_debug).collect())
}
