//! Platforms of images: operating system, architecture and its variant, in the words of Go.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A platform that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("platform {text:?}: give OS/ARCHITECTURE or OS/ARCHITECTURE/VARIANT, as linux/arm64")]
pub struct PlatformError {
    /// The platform as given.
    pub text: String,
}

/// The platform that an image is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Platform {
    /// The operating system, as `GOOS` has it: "linux".
    pub os: String,
    /// The architecture, as `GOARCH` has it: "amd64", "arm64", …
    pub architecture: String,
    /// The variant of the architecture: "v7", "v8", …
    pub variant: Option<String>,
}

impl Platform {
    /// A platform; other usual names of architectures become those of Go.
    pub fn new(os: &str, architecture: &str, variant: Option<&str>) -> Self {
        let (architecture, implied) = match architecture {
            "x86_64" | "x86-64" => ("amd64", None),
            "aarch64" => ("arm64", None),
            "armhf" => ("arm", Some("v7")),
            "armel" => ("arm", Some("v6")),
            "i386" | "i686" | "x86" => ("386", None),
            "powerpc64le" => ("ppc64le", None),
            "loongarch64" => ("loong64", None),
            other => (other, None),
        };
        let variant = variant.filter(|v| !v.is_empty()).or(implied);
        Self {
            os: os.to_owned(),
            architecture: architecture.to_owned(),
            variant: variant.map(str::to_owned),
        }
    }

    /// Linux on the architecture that this program was built for.
    pub fn host() -> Self {
        let architecture = match std::env::consts::ARCH {
            "powerpc64" if cfg!(target_endian = "little") => "powerpc64le",
            other => other,
        };
        Self::new("linux", architecture, None)
    }

    /// The generation of the architecture as a number; `None` for a variant that has none.
    fn generation(&self) -> Option<u32> {
        let usual = match self.architecture.as_str() {
            "arm" => 7,
            "arm64" => 8,
            "amd64" => 1,
            _ => 0,
        };
        match &self.variant {
            None => Some(usual),
            Some(variant) => variant.strip_prefix('v').unwrap_or(variant).parse().ok(),
        }
    }

    /// How well an image for `self` serves a machine that is `wanted`: higher is better, `None` is
    /// not at all. A newer generation runs what was made for an older one, not the reverse.
    pub(super) fn rank_for(&self, wanted: &Platform) -> Option<u32> {
        if self.os != wanted.os || self.architecture != wanted.architecture {
            return None;
        }
        match (self.generation(), wanted.generation()) {
            (Some(has), Some(runs)) => (has <= runs).then_some(has),
            _ => (self.variant == wanted.variant).then_some(0),
        }
    }

    /// True for what builders store next to images to describe them: not an image.
    pub(super) fn is_unknown(&self) -> bool {
        self.os == "unknown" && self.architecture == "unknown"
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(f, "/{variant}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Platform {
    type Err = PlatformError;

    /// # Errors
    /// [`PlatformError`] unless there are two or three words with `/` between them.
    fn from_str(text: &str) -> Result<Self, PlatformError> {
        let words: Vec<&str> = text.split('/').collect();
        let fine = |word: &&str| {
            let accepted = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            !word.is_empty() && word.chars().all(accepted)
        };
        match words[..] {
            [os, architecture] if words.iter().all(fine) => Ok(Self::new(os, architecture, None)),
            [os, architecture, variant] if words.iter().all(fine) => {
                Ok(Self::new(os, architecture, Some(variant)))
            }
            _ => Err(PlatformError {
                text: text.to_owned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform(text: &str) -> Platform {
        text.parse().unwrap()
    }

    #[test]
    fn platforms_are_read_and_other_names_of_architectures_known() {
        for (text, shown) in [
            ("linux/amd64", "linux/amd64"),
            ("linux/x86_64", "linux/amd64"),
            ("linux/aarch64", "linux/arm64"),
            ("linux/armhf", "linux/arm/v7"),
            ("windows/amd64/v2", "windows/amd64/v2"),
        ] {
            assert_eq!(platform(text).to_string(), shown);
        }
        for text in [
            "",
            "linux",
            "linux/",
            "/amd64",
            "a/b/c/d",
            "linux/a b",
            "linux//v7",
        ] {
            assert!(text.parse::<Platform>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_newer_machine_runs_what_is_made_for_an_older_one() {
        let rank = |image: &str, wanted: &str| platform(image).rank_for(&platform(wanted));
        assert!(rank("linux/arm64", "linux/arm64/v8").is_some());
        assert!(rank("linux/arm64/v8", "linux/arm64").is_some());
        assert!(rank("linux/arm/v6", "linux/arm/v7") < rank("linux/arm/v7", "linux/arm/v7"));
        assert!(rank("linux/arm/v6", "linux/arm").is_some());
        assert_eq!(rank("linux/arm/v7", "linux/arm/v6"), None);
        assert_eq!(rank("linux/amd64/v3", "linux/amd64"), None);
        assert!(rank("linux/amd64/v2", "linux/amd64/v3").is_some());
        assert_eq!(rank("linux/arm", "linux/arm64"), None);
        assert_eq!(rank("windows/amd64", "linux/amd64"), None);
        assert!(rank("linux/mips/soft", "linux/mips/soft").is_some());
        assert_eq!(rank("linux/mips/soft", "linux/mips/hard"), None);
    }
}
