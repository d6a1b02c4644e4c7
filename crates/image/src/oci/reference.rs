//! References to images, as on a command line.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::digest::Digest;
use super::error::{Error, Fault};

/// Which image, of those that are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Select {
    /// The only one, or the one for the platform.
    Only,
    /// The one of this name: a tag, or a repository and a tag.
    Tag(String),
    /// The one whose manifest or index has this digest (of a docker-archive: configuration).
    Digest(Digest),
}

/// What a reference names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// `oci:PATH[:TAG|@DIGEST]`, or with the prefix `oci-archive:`: an OCI image layout, a
    /// directory or a tar archive of one, which may come from standard input (`-`).
    Oci {
        /// The directory or archive.
        path: PathBuf,
        /// Which image of it.
        select: Select,
    },
    /// `dir:DIRECTORY`: what skopeo writes under that name.
    Dir {
        /// The directory.
        path: PathBuf,
    },
    /// `docker-archive:FILE[:REPOSITORY[:TAG]]`: what `docker save` writes.
    DockerArchive {
        /// The archive.
        path: PathBuf,
        /// Which image of it.
        select: Select,
    },
    /// `docker://HOST[:PORT]/NAME[:TAG|@DIGEST]`: an image of a registry.
    Registry {
        /// What follows the `//`.
        name: String,
    },
}

impl Reference {
    /// Reads a reference; `None` for a text that does not begin with `oci:`, `oci-archive:`,
    /// `dir:`, `docker-archive:` or `docker://`, which is an ordinary path.
    ///
    /// A path may hold colons: the longest part before a colon that is a path of this machine is
    /// the path, else all before the first colon. A file that is called `dir:…` or `oci-archive:…`
    /// is that file.
    ///
    /// # Errors
    /// [`Fault::Reference`] or [`Fault::Digest`].
    pub fn parse(text: &OsStr) -> Result<Option<Self>, Error> {
        let bytes = text.as_bytes();
        let is_recent = bytes.starts_with(b"dir:") || bytes.starts_with(b"oci-archive:");
        if is_recent && Path::new(text).exists() {
            return Ok(None);
        }
        let result = if let Some(rest) = bytes.strip_prefix(b"oci:") {
            parts(rest).map(|(path, select)| Self::Oci { path, select })
        } else if let Some(rest) = bytes.strip_prefix(b"oci-archive:") {
            parts(rest).map(|(path, select)| Self::Oci { path, select })
        } else if let Some(rest) = bytes.strip_prefix(b"dir:") {
            let path = PathBuf::from(OsStr::from_bytes(rest));
            match rest.is_empty() {
                true => Err(refused("the path is missing, as in dir:DIRECTORY")),
                false => Ok(Self::Dir { path }),
            }
        } else if let Some(rest) = bytes.strip_prefix(b"docker-archive:") {
            parts(rest).map(|(path, select)| Self::DockerArchive { path, select })
        } else if let Some(rest) = bytes.strip_prefix(b"docker://") {
            utf8(rest).map(|name| Self::Registry { name })
        } else {
            return Ok(None);
        };
        let reference = result.map_err(|fault| fault.of(&text.to_string_lossy()))?;
        Ok(Some(reference))
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (transport, path, select) = match self {
            Self::Oci { path, select } => ("oci", path, select),
            Self::DockerArchive { path, select } => ("docker-archive", path, select),
            Self::Dir { path } => return write!(f, "dir:{}", path.display()),
            Self::Registry { name } => return write!(f, "docker://{name}"),
        };
        write!(f, "{transport}:{}", path.display())?;
        match select {
            Select::Only => Ok(()),
            Select::Tag(tag) => write!(f, ":{tag}"),
            Select::Digest(digest) => write!(f, "@{digest}"),
        }
    }
}

fn parts(text: &[u8]) -> Result<(PathBuf, Select), Fault> {
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let is_there = |bytes: &[u8]| !bytes.is_empty() && Path::new(OsStr::from_bytes(bytes)).exists();
    let (rest, digest) = split_digest(text)?;
    if is_there(text) {
        return Ok((path(text), Select::Only));
    }
    let colons = rest.iter().enumerate().filter(|(_, byte)| **byte == b':');
    let mut colons = colons.map(|(at, _)| at);
    let whole = digest.is_some() && is_there(rest);
    let split = match whole {
        true => None,
        false => colons
            .clone()
            .rfind(|&at| is_there(&rest[..at]))
            .or_else(|| colons.next()),
    };
    let (file, tag) = match split {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    if file.is_empty() {
        return Err(refused("the path is missing, as in oci:DIRECTORY:TAG"));
    }
    let select = match (tag, digest) {
        (None, None) => Select::Only,
        (None, Some(digest)) => Select::Digest(digest),
        (Some(b""), None) => return Err(refused("the tag after the colon is missing")),
        (Some(tag), None) => Select::Tag(utf8(tag)?),
        (Some(_), Some(_)) => return Err(refused("give either a tag or a digest, not both")),
    };
    Ok((path(file), select))
}

fn refused(why: &str) -> Fault {
    Fault::Reference { why: why.into() }
}

/// Takes `@sha256:…` or `@sha512:…` off the end.
fn split_digest(text: &[u8]) -> Result<(&[u8], Option<Digest>), Fault> {
    let Some(at) = text.iter().rposition(|&byte| byte == b'@') else {
        return Ok((text, None));
    };
    let rest = &text[at + 1..];
    match rest.starts_with(b"sha256:") || rest.starts_with(b"sha512:") {
        true => Ok((&text[..at], Some(utf8(rest)?.parse()?))),
        false => Ok((text, None)),
    }
}

fn utf8(bytes: &[u8]) -> Result<String, Fault> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(Fault::Reference {
            why: "names of images are UTF-8".into(),
        }),
    }
}

/// Reads what follows `docker://`.
#[cfg(feature = "registry-http")]
pub(super) fn of_registry(name: &str) -> Result<oci_spec::distribution::Reference, Fault> {
    name.parse().map_err(|error| Fault::Reference {
        why: format!("{error}; give docker://HOST/NAME:TAG"),
    })
}

/// A name as Docker shows it: without its own registry, and with the tag that is meant if none is
/// given.
pub(super) fn familiar(name: &str) -> String {
    let name = name.strip_prefix("index.").unwrap_or(name);
    let name = match name.strip_prefix("docker.io/") {
        Some(rest) => rest.strip_prefix("library/").unwrap_or(rest),
        None => name,
    };
    let last = name.rsplit('/').next().unwrap_or(name);
    match last.contains(':') || last.contains('@') {
        true => name.to_owned(),
        false => format!("{name}:latest"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<Reference>, Error> {
        Reference::parse(OsStr::new(text))
    }

    fn oci(path: &str, select: Select) -> Option<Reference> {
        let path = PathBuf::from(path);
        Some(Reference::Oci { path, select })
    }

    #[test]
    fn references_are_split_into_path_and_name() {
        let tag = |tag: &str| Select::Tag(tag.to_owned());
        let digest = Digest::sha256_of(b"x");
        assert_eq!(parse("oci:no/such").unwrap(), oci("no/such", Select::Only));
        assert_eq!(
            parse("oci:no/such:1.0").unwrap(),
            oci("no/such", tag("1.0"))
        );
        assert_eq!(
            parse("oci:no/such:a/b:1").unwrap(),
            oci("no/such", tag("a/b:1"))
        );
        assert_eq!(parse("oci:a@b:1").unwrap(), oci("a@b", tag("1")));
        let with_digest = parse(&format!("oci:no/such@{digest}")).unwrap();
        assert_eq!(with_digest, oci("no/such", Select::Digest(digest.clone())));
        let shown = format!("oci:no/such@{digest}");
        assert_eq!(with_digest.unwrap().to_string(), shown);
        assert_eq!(parse("oci-archive:-:1").unwrap(), oci("-", tag("1")));
        let archive = parse("docker-archive:x.tar:alpine:3").unwrap().unwrap();
        assert_eq!(archive.to_string(), "docker-archive:x.tar:alpine:3");
        let registry = parse("docker://localhost:5000/a:1").unwrap().unwrap();
        let name = "localhost:5000/a:1".to_owned();
        assert_eq!(registry, Reference::Registry { name });
        assert_eq!(parse("directory").unwrap(), None);
        assert_eq!(parse("./oci:directory").unwrap(), None);
    }

    #[test]
    fn colons_of_paths_that_are_there_belong_to_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let layout = dir.path().join("a:b").join("c@d:e");
        std::fs::create_dir_all(&layout).unwrap();
        let layout = layout.to_str().unwrap();
        let plain = parse(&format!("oci:{layout}")).unwrap();
        assert_eq!(plain, oci(layout, Select::Only));
        let tagged = parse(&format!("oci:{layout}:x:y")).unwrap();
        assert_eq!(tagged, oci(layout, Select::Tag("x:y".into())));
        let digest = Digest::sha256_of(b"x");
        let with_digest = parse(&format!("oci:{layout}@{digest}")).unwrap();
        assert_eq!(with_digest, oci(layout, Select::Digest(digest)));
    }

    #[test]
    fn what_is_no_reference_is_refused_with_a_reason() {
        let digest = Digest::sha256_of(b"x");
        for (text, why) in [
            ("oci:".to_owned(), "path is missing"),
            ("oci::tag".to_owned(), "path is missing"),
            ("oci:no/such:".to_owned(), "tag after the colon"),
            ("dir:".to_owned(), "path is missing"),
            ("oci:no/such@sha256:12".to_owned(), "Invalid digest length"),
            (
                format!("oci:no/such:tag@{digest}"),
                "either a tag or a digest",
            ),
        ] {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn names_are_compared_as_docker_shows_them() {
        for (name, shown) in [
            ("alpine", "alpine:latest"),
            ("docker.io/library/alpine:3.20", "alpine:3.20"),
            ("index.docker.io/grafana/grafana", "grafana/grafana:latest"),
            (
                "localhost:5000/library/a",
                "localhost:5000/library/a:latest",
            ),
        ] {
            assert_eq!(familiar(name), shown);
        }
    }
}
