//! Registries inside the test, which answer as the test says.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use super::*;

/// A request as it has come.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// What follows the host of its address.
    pub path: String,
    /// The value of its header "authorization".
    pub authorization: Option<String>,
}

/// A server at a loopback address.
pub struct Server {
    /// Host and port.
    pub address: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Answers one request after the other; `host` is an address of this machine.
    pub fn at(host: &str, answer: impl Fn(&str, &Request) -> Vec<u8> + Send + 'static) -> Self {
        let listener = TcpListener::bind((host, 0)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests = Arc::<Mutex<Vec<Request>>>::default();
        let (own, log) = (address.clone(), Arc::clone(&requests));
        std::thread::spawn(move || {
            for stream in listener.incoming().take(200).flatten() {
                let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
                let first = lines.next().unwrap_or_default();
                let headers = lines.take_while(|line| !line.is_empty());
                let headers = headers.filter_map(|line| {
                    let (name, value) = line.split_once(": ")?;
                    Some((name.to_ascii_lowercase(), value.to_owned()))
                });
                let mut headers: BTreeMap<_, _> = headers.collect();
                let request = Request {
                    path: first.split(' ').nth(1).unwrap_or_default().to_owned(),
                    authorization: headers.remove("authorization"),
                };
                let answer = answer(&own, &request);
                log.lock().unwrap().push(request);
                // A client that has read enough does not take the rest.
                _ = (&stream).write_all(&answer);
            }
        });
        Self { address, requests }
    }

    pub fn new(answer: impl Fn(&str, &Request) -> Vec<u8> + Send + 'static) -> Self {
        Self::at("127.0.0.1", answer)
    }

    /// The reference of the image that [`Served`] has.
    pub fn reference(&self) -> String {
        format!("docker://{}/app:1", self.address)
    }

    /// What it was asked so far.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

pub fn response(status: &str, header: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let len = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\n{header}\r\nconnection: close\r\ncontent-length: {len}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

pub fn ok(body: impl AsRef<[u8]>) -> Vec<u8> {
    response("200 OK", "x: y", body)
}

/// An answer whose length is not said before.
pub fn chunked(body: &[u8]) -> Vec<u8> {
    let mut answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for chunk in body.chunks(60_000) {
        answer.extend(format!("{:x}\r\n", chunk.len()).bytes());
        answer.extend(chunk);
        answer.extend(b"\r\n");
    }
    answer.extend(b"0\r\n\r\n");
    answer
}

pub fn unauthorized(challenge: &str) -> Vec<u8> {
    let header = format!("www-authenticate: {challenge}");
    response("401 Unauthorized", &header, "")
}

/// An image of one layer, as a registry has it.
#[derive(Clone)]
pub struct Served {
    files: BTreeMap<String, Vec<u8>>,
    pub manifest: Digest,
    pub layer: Digest,
    /// The layer, not compressed.
    pub tar: Vec<u8>,
}

impl Served {
    pub fn new() -> Self {
        let tar = layer("served");
        let mut layout = Layout::default();
        let image = layout.image("linux/amd64", &[(Pack::Plain, tar.clone())]);
        Self {
            files: layout.files(),
            manifest: digest_of(&image),
            layer: Digest::sha256_of(&tar),
            tar,
        }
    }

    /// The document or blob that an address names, if it is of this image.
    pub fn get(&self, path: &str) -> Option<&[u8]> {
        let digest = match path.strip_prefix("/v2/app/")? {
            "manifests/1" => self.manifest.hex(),
            path => path.rsplit_once("/sha256:")?.1,
        };
        let blob = self.files.get(&format!("blobs/sha256/{digest}"));
        blob.map(Vec::as_slice)
    }

    pub fn answer(&self, path: &str) -> Vec<u8> {
        match self.get(path) {
            Some(bytes) => ok(bytes),
            None => response("404 Not Found", "x: y", ""),
        }
    }

    /// The path of its layer.
    pub fn layer_path(&self) -> String {
        format!("/v2/app/blobs/{}", self.layer)
    }
}
