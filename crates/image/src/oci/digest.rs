//! Digests of blobs: `sha256:` or `sha512:` and the lower-case hexadecimal digits of the hash.
//!
//! The syntax is checked by `oci-spec`. This type also fixes the algorithm, so that every digest
//! can be computed, and its digits are a file name without `/` or `.`.

use std::fmt;
use std::str::FromStr;

use oci_spec::image::DigestAlgorithm;
use sha2::Digest as _;
use thiserror::Error;

/// A digest that is not one, or uses an unsupported hash.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("digest {text:?}: {why}")]
pub struct DigestError {
    /// The digest as given.
    pub text: String,
    /// What is wrong with it.
    pub why: String,
}

/// A hash function that a digest may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Algorithm {
    /// As digests and the directories of an image layout spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }
}

/// The digest of a blob.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest {
    algorithm: Algorithm,
    hex: Box<str>,
}

impl Digest {
    /// The hash function.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The hash in lower-case hexadecimal digits: 64 for SHA-256, 128 for SHA-512.
    pub fn hex(&self) -> &str {
        &self.hex
    }

    /// The SHA-256 of some bytes.
    pub fn sha256_of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::new(Algorithm::Sha256);
        hasher.update(bytes);
        hasher.finish()
    }

    /// The SHA-256 digest with these hexadecimal digits, if they are 64 in lower case.
    pub(super) fn from_sha256_hex(hex: &str) -> Option<Self> {
        format!("sha256:{hex}").parse().ok()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm.name(), self.hex)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    /// # Errors
    /// [`DigestError`] unless it is `sha256:` and 64, or `sha512:` and 128, lower-case
    /// hexadecimal digits.
    fn from_str(text: &str) -> Result<Self, DigestError> {
        match oci_spec::image::Digest::from_str(text) {
            Ok(digest) => Self::try_from(&digest),
            Err(why) => Err(DigestError {
                text: text.to_owned(),
                why: why.to_string(),
            }),
        }
    }
}

impl TryFrom<&oci_spec::image::Digest> for Digest {
    type Error = DigestError;

    fn try_from(digest: &oci_spec::image::Digest) -> Result<Self, DigestError> {
        let algorithm = match digest.algorithm() {
            DigestAlgorithm::Sha256 => Algorithm::Sha256,
            DigestAlgorithm::Sha512 => Algorithm::Sha512,
            other => {
                let why = format!("{other} is not supported, only sha256 and sha512 are");
                let text = digest.to_string();
                return Err(DigestError { text, why });
            }
        };
        let hex = digest.digest().into();
        Ok(Self { algorithm, hex })
    }
}

/// Computes a digest of bytes as they come.
#[derive(Clone, Debug)]
pub struct Hasher(State);

#[derive(Clone, Debug)]
enum State {
    Sha256(sha2::Sha256),
    Sha512(sha2::Sha512),
}

impl Hasher {
    /// Begins; no bytes have been seen.
    pub fn new(algorithm: Algorithm) -> Self {
        Self(match algorithm {
            Algorithm::Sha256 => State::Sha256(sha2::Sha256::new()),
            Algorithm::Sha512 => State::Sha512(sha2::Sha512::new()),
        })
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Sha256(hash) => hash.update(bytes),
            State::Sha512(hash) => hash.update(bytes),
        }
    }

    /// The digest of all bytes so far.
    pub fn finish(self) -> Digest {
        let (algorithm, hex) = match self.0 {
            State::Sha256(hash) => (Algorithm::Sha256, hex::encode(hash.finalize())),
            State::Sha512(hash) => (Algorithm::Sha512, hex::encode(hash.finalize())),
        };
        let hex = hex.into();
        Digest { algorithm, hex }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_digests_of_known_algorithms_are_accepted() {
        let hex = "ab".repeat(32);
        let good = [format!("sha256:{hex}"), format!("sha512:{hex}{hex}")];
        for text in &good {
            assert_eq!(text.parse::<Digest>().unwrap().to_string(), *text);
        }
        for text in [
            String::new(),
            hex.clone(),
            format!("sha256:{}", &hex[1..]),
            format!("sha256:{}", hex.to_uppercase()),
            format!("sha256:{hex}00"),
            format!("sha512:{hex}"),
            format!("sha384:{}", "a".repeat(96)),
            format!("sha256:../../{}", &hex[6..]),
            format!("sha256+b64:{hex}"),
            "sha256:".to_owned(),
            "blake3:abc".to_owned(),
        ] {
            let error = text.parse::<Digest>().unwrap_err();
            assert_eq!(error.text, text);
        }
    }

    #[test]
    fn hashes_are_those_of_the_standard() {
        let mut hasher = Hasher::new(Algorithm::Sha512);
        hasher.update(b"a");
        hasher.update(b"bc");
        let digest = hasher.finish().to_string();
        assert!(digest.starts_with("sha512:ddaf35a193617abacc417349ae204131"));
        let digest = Digest::sha256_of(b"abc").to_string();
        assert!(digest.starts_with("sha256:ba7816bf8f01cfea414140de5dae2223"));
    }
}
