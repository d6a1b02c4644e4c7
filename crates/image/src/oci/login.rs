//! Users of registries, as `docker login` and `podman login` store them.

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::Login;
use super::blob::Stored;
use super::error::{Error, Fault, Part};
use super::reference::{self, Reference};
use super::store::{DOCUMENT_MAX, parse};

/// The part of the file that is read. Users whose passwords a helper program stores have entries
/// without `auth`.
#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
struct Entry {
    auth: Option<String>,
}

impl Login {
    /// The user that a file like `~/.docker/config.json` has for the registry of a reference;
    /// `None` if there is no such file, the reference is of no registry, or the file has no
    /// password for it. Passwords that helper programs store are not asked for.
    ///
    /// # Errors
    /// [`Fault::Io`], [`Fault::Json`], [`Fault::TooLarge`], or [`Fault::Document`] for an entry
    /// that is not the base64 of user, colon and password.
    pub fn from_docker_config(path: &Path, reference: &Reference) -> Result<Option<Self>, Error> {
        let Reference::Registry { name } = reference else {
            return Ok(None);
        };
        let login = reference::of_registry(name).and_then(|name| read(path, &name));
        login.map_err(|fault| fault.of(&path.display().to_string()))
    }
}

/// The user that a file has for the registry of a name, as [`Login::from_docker_config`].
pub(super) fn read(
    path: &Path,
    name: &oci_spec::distribution::Reference,
) -> Result<Option<Login>, Fault> {
    let part = Part::Config("of users".to_owned());
    let Some(stored) = Stored::in_directory(&part, path.to_path_buf(), "the file")? else {
        return Ok(None);
    };
    let config: DockerConfig = parse(&part, &stored.read_all(&part, DOCUMENT_MAX)?)?;
    let named = config.auths.iter();
    let mut named = named.filter(|(key, _)| is_for(key, name.registry()));
    let Some(auth) = named.find_map(|(_, entry)| entry.auth.as_deref()) else {
        return Ok(None);
    };
    let decoded = STANDARD.decode(auth).ok();
    let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    let login = decoded.as_deref().and_then(|text| text.split_once(':'));
    match login {
        Some((user, password)) => Ok(Some(Login {
            user: user.to_owned(),
            password: password.to_owned(),
        })),
        None => {
            let registry = name.registry();
            let why = format!("auth of {registry} is not the base64 of USER:PASSWORD");
            Err(Fault::Document { part, why })
        }
    }
}

/// True if the key of an entry names the registry. Keys of some age are addresses.
fn is_for(key: &str, registry: &str) -> bool {
    let key = key.strip_prefix("https://").unwrap_or(key);
    let key = key.strip_prefix("http://").unwrap_or(key);
    let key = key.strip_suffix('/').unwrap_or(key);
    let versions = ["/v1", "/v2"];
    let key = versions
        .iter()
        .find_map(|version| key.strip_suffix(version))
        .unwrap_or(key);
    let names = [key, registry].map(|name| match name {
        "index.docker.io" => "docker.io",
        name => name,
    });
    names[0] == names[1]
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn login(config: &str, reference: &str) -> Result<Option<Login>, Error> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.json");
        std::fs::write(&path, config).unwrap();
        let reference = Reference::parse(OsStr::new(reference)).unwrap().unwrap();
        Login::from_docker_config(&path, &reference)
    }

    #[test]
    fn the_user_of_a_registry_is_read_from_the_file_of_docker() {
        let config = r#"{"auths": {
            "https://index.docker.io/v1/": {"auth": "dXNlcjpwYXNzOndvcmQ="},
            "localhost:5000": {"auth": "YTpi"},
            "quay.io/private": {"auth": "YTpi"},
            "ghcr.io": {}
        }, "credsStore": "desktop"}"#;
        let user = login(config, "docker://alpine").unwrap().unwrap();
        assert_eq!(
            (user.user.as_str(), user.password.as_str()),
            ("user", "pass:word")
        );
        assert!(!format!("{user:?}").contains("word"));
        let local = login(config, "docker://localhost:5000/a:1")
            .unwrap()
            .unwrap();
        assert_eq!(local.user, "a");
        for other in ["docker://quay.io/a", "docker://ghcr.io/a", "oci:directory"] {
            assert_eq!(login(config, other).unwrap(), None);
        }
        let both = r#"{"auths": {
            "docker.io": {},
            "https://index.docker.io/v1/": {"auth": "dXNlcjpwYXNzOndvcmQ="}
        }}"#;
        let user = login(both, "docker://alpine").unwrap().unwrap();
        assert_eq!(user.user, "user");
        assert_eq!(login("{}", "docker://alpine").unwrap(), None);
        let none = Reference::parse(OsStr::new("docker://alpine"))
            .unwrap()
            .unwrap();
        assert_eq!(
            Login::from_docker_config(Path::new("/none"), &none).unwrap(),
            None
        );
    }

    #[test]
    fn an_entry_that_is_no_user_is_refused() {
        for auth in ["???", "dXNlcg==", "/w=="] {
            let config = format!(r#"{{"auths": {{"docker.io": {{"auth": "{auth}"}}}}}}"#);
            let error = login(&config, "docker://alpine").unwrap_err();
            assert!(matches!(error.fault, Fault::Document { .. }), "{error}");
        }
    }
}
