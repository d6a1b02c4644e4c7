//! Images pulled from a registry that the test starts, at a loopback address.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use uext4_image::oci::{Login, RegistryOptions};
use uext4_testkit::has_tool;

use super::*;
use crate::fixture::run;

mod answers;
mod server;
mod tokens;

/// The user "user" with the password "secret".
const HTPASSWD: &str = "user:$2b$04$3KFQVr7JgYqCJg0acwNRZeoP6EYqzlizqYk5aDHAXdCcBn/fiaz1C\n";

/// A running registry, which ends with the test.
struct Registry {
    dir: TempDir,
    address: String,
    process: Child,
}

impl Registry {
    /// `None` if the tools are missing.
    fn start(auth: &str) -> Option<Self> {
        if !has_tool("docker-registry") || !has_tool("skopeo") {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().display();
        fs::write(dir.path().join("htpasswd"), HTPASSWD).unwrap();
        // A port that is free now: another process may take it before the registry does.
        for _ in 0..5 {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap().to_string();
            drop(listener);
            let config = format!(
                "version: 0.1\nlog: {{level: error}}\n\
                 storage: {{filesystem: {{rootdirectory: {root}/data}}}}\n\
                 http: {{addr: \"{address}\", secret: test}}\n{}",
                auth.replace("ROOT", &root.to_string())
            );
            fs::write(dir.path().join("config.yml"), config).unwrap();
            let mut process = Command::new("docker-registry")
                .arg("serve")
                .arg(dir.path().join("config.yml"))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            for _ in 0..500 {
                if process.try_wait().unwrap().is_some() {
                    break;
                }
                if TcpStream::connect(&address).is_ok() {
                    return Some(Self {
                        dir,
                        address,
                        process,
                    });
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            _ = process.kill();
            _ = process.wait();
        }
        panic!("docker-registry does not start");
    }

    /// Copies images of a layout into the registry.
    fn push(&self, layout: &Layout, name: &str, arguments: &[&str]) {
        layout.write(&self.dir.path().join("layout"));
        let target = format!("docker://{}/{name}", self.address);
        let command = [
            "skopeo",
            "--insecure-policy",
            "copy",
            "--preserve-digests",
            "--dest-tls-verify=false",
        ];
        run(
            self.dir.path(),
            &[&command, arguments, &["oci:layout", &target]].concat(),
        );
    }

    fn reference(&self, name: &str) -> String {
        format!("docker://{}/{name}", self.address)
    }

    /// The file that a blob is stored in.
    fn blob(&self, digest: &Digest) -> PathBuf {
        let hex = digest.hex();
        let blobs = self.dir.path().join("data/docker/registry/v2/blobs/sha256");
        blobs.join(&hex[..2]).join(hex).join("data")
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

fn open_with(reference: &str, registry: RegistryOptions) -> Result<ContainerImage, Error> {
    let reference = Reference::parse(OsStr::new(reference))?;
    let options = OpenOptions {
        registry,
        ..OpenOptions::default()
    };
    ContainerImage::open(&reference.unwrap(), &options)
}

/// A layer of some megabytes, of which a reader takes many pieces.
fn large() -> Vec<u8> {
    let contents: Vec<u8> = (0..5_000_000_u32).map(|i| (i ^ (i >> 7)) as u8).collect();
    Tar::default().file("large", &contents).finish()
}

#[test]
fn an_image_of_a_registry_has_the_layers_that_were_pushed() {
    let Some(registry) = Registry::start("") else {
        return;
    };
    let tars = [large(), layer("two")];
    let layers = [
        (Pack::Plain, tars[0].clone()),
        (Pack::Gzip, tars[1].clone()),
    ];
    let mut layout = Layout::default();
    let image = layout.image("linux/amd64", &layers);
    layout.list(image.clone());
    registry.push(&layout, "team/app:1", &[]);
    let pulled = open(&registry.reference("team/app:1")).unwrap();
    assert_layers(&pulled, &tars);
    assert_eq!(pulled.manifest_digest, Some(digest_of(&image)));
    assert_eq!(pulled.platform.to_string(), "linux/amd64");
    let by_digest = registry.reference(&format!("team/app@{}", digest_of(&image)));
    assert_layers(&open(&by_digest).unwrap(), &tars);
    // Two readers at once, and one that ends early.
    let mut readers = [0, 0].map(|_| pulled.layers[0].open().unwrap());
    let mut early = [0; 100];
    pulled.layers[0]
        .open()
        .unwrap()
        .read_exact(&mut early)
        .unwrap();
    let mut read = [Vec::new(), Vec::new()];
    for _ in 0..tars[0].len().div_ceil(1000) {
        for (reader, read) in readers.iter_mut().zip(&mut read) {
            reader.take(1000).read_to_end(read).unwrap();
        }
    }
    assert!(read.iter().all(|read| *read == tars[0]));
    assert_eq!(early[..], tars[0][..100]);
}

#[test]
fn the_platform_chooses_an_image_of_a_registry() {
    let Some(registry) = Registry::start("") else {
        return;
    };
    let mut layout = Layout::default();
    let platforms = ["linux/arm64/v8", "linux/s390x"];
    let images = platforms.map(|platform| {
        let image = layout.image(platform, &[(Pack::Gzip, layer(platform))]);
        for_platform(image, platform)
    });
    let index = layout.index(&images);
    layout.list(index);
    registry.push(&layout, "multi", &["--all"]);
    for platform in platforms {
        let image = open_for(&registry.reference("multi"), platform).unwrap();
        assert_layers(&image, &[layer(platform)]);
    }
    let error = open_for(&registry.reference("multi"), "linux/riscv64").unwrap_err();
    let Fault::NoPlatform { available, .. } = error.fault else {
        panic!("{error}");
    };
    assert_eq!(available, platforms);
}

#[test]
fn what_a_registry_has_not_or_has_changed_is_an_error() {
    let Some(registry) = Registry::start("") else {
        return;
    };
    let mut layout = Layout::default();
    let image = layout.image("linux/amd64", &[(Pack::Plain, large())]);
    layout.list(image.clone());
    registry.push(&layout, "app:1", &[]);
    for name in ["app:2", "none:1"] {
        let error = open(&registry.reference(name)).unwrap_err();
        assert!(
            matches!(error.fault, Fault::Status { status: 404, .. }),
            "{error}"
        );
    }
    let pulled = open(&registry.reference("app:1")).unwrap();
    let blob = registry.blob(&Digest::sha256_of(&large()));
    let mut bytes = large();
    bytes[1_000_000] ^= 1;
    fs::write(&blob, &bytes).unwrap();
    let error = read(&pulled.layers[0])
        .unwrap_err()
        .downcast::<Error>()
        .unwrap();
    assert!(matches!(error.fault, Fault::Mismatch { .. }), "{error}");
    bytes.truncate(2_000_000);
    fs::write(&blob, &bytes).unwrap();
    let error = read(&pulled.layers[0]).unwrap_err();
    assert!(
        error.to_string().contains("layer 1: 2000000 bytes where"),
        "{error}"
    );
    fs::remove_file(&blob).unwrap();
    let error = pulled.layers[0].open().unwrap_err();
    assert!(
        matches!(error.fault, Fault::Status { status: 404, .. }),
        "{error}"
    );
    let manifest = registry.blob(&digest_of(&image));
    let mut bytes = fs::read(&manifest).unwrap();
    bytes.push(b' ');
    fs::write(&manifest, bytes).unwrap();
    let by_digest = registry.reference(&format!("app@{}", digest_of(&image)));
    open(&by_digest).unwrap_err();
}

#[test]
fn a_registry_that_wants_a_user_gets_one() {
    let auth = "auth: {htpasswd: {realm: test, path: ROOT/htpasswd}}\n";
    let Some(registry) = Registry::start(auth) else {
        return;
    };
    let layout = Layout::of(&[layer("private")]);
    registry.push(&layout, "private:1", &["--dest-creds=user:secret"]);
    let name = registry.reference("private:1");
    let error = open(&name).unwrap_err().to_string();
    assert!(
        error.contains("status 401") && error.contains("log in first (docker login)"),
        "{error}"
    );
    let reference = Reference::parse(OsStr::new(&name)).unwrap().unwrap();
    let config = registry.dir.path().join("config.json");
    let auths = json!({"auths": {&registry.address: {"auth": "dXNlcjpzZWNyZXQ="}}});
    fs::write(&config, auths.to_string()).unwrap();
    let login = Login::from_docker_config(&config, &reference).unwrap();
    assert_eq!(login.as_ref().unwrap().user, "user");
    let open_as = |login| {
        let options = RegistryOptions {
            login,
            ..RegistryOptions::default()
        };
        open_with(&name, options)
    };
    assert_layers(&open_as(login).unwrap(), &[layer("private")]);
    let options = RegistryOptions {
        docker_config: Some(config),
        ..RegistryOptions::default()
    };
    let image = open_with(&name, options).unwrap();
    assert_layers(&image, &[layer("private")]);
    let (user, password) = ("user".to_owned(), "wrong".to_owned());
    let error = open_as(Some(Login { user, password })).unwrap_err();
    assert!(error.to_string().contains("log in first"), "{error}");
}

#[test]
fn a_registry_that_is_not_there_is_an_error_with_its_cause() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = open(&format!("docker://{address}/app:1"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("refused"), "{error}");
    let error = open("docker://UPPER/!").unwrap_err();
    assert!(matches!(error.fault, Fault::Reference { .. }), "{error}");
}

#[cfg(not(feature = "registry"))]
#[test]
fn a_program_without_tls_asks_no_other_machine() {
    let error = open("docker://registry.example/app:1").unwrap_err();
    assert!(error.to_string().contains("without TLS"), "{error}");
}
