//! Frames of any bytes, to the server of a small image: used by the test of operations and by the
//! fuzzer. What they are answered with does not matter; that the server goes on does.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use uext4::tuning::Background;
use uext4::{Ino, OpenOptions, Volume};
use uext4_blockdev::{BlockDevice, SystemClock};
use uext4_remote::changes::Observer;
use uext4_remote::frame;
use uext4_remote::gate::Gate;
use uext4_remote::grower::Grower;
use uext4_remote::idle::Idle;
use uext4_remote::refusal::{Cause, Refusal};
use uext4_remote::rights::Rights;
use uext4_remote::server::Server;
use uext4_remote::wire::{Grown, Growth};

#[path = "../../../mkfs/tests/exercise/image.rs"]
mod image;

/// Hears nothing.
struct Deaf;

impl Observer for Deaf {
    fn name(&self, _: Ino, _: &[u8]) {}

    fn inode(&self, _: Ino) {}

    fn many(&self) {}
}

/// Says that the file system has so many blocks; has no room for more.
struct Claims;

impl Grower for Claims {
    fn grow(&self, fs: &Volume, growth: Growth) -> Result<Grown, Refusal> {
        let block_size = fs.geometry().block_size.bytes();
        let (before, after) = match growth {
            Growth::To(bytes) => (1024, bytes / u64::from(block_size)),
            Growth::Device => (1024, 1024),
            Growth::By(bytes) => {
                return Err(Refusal {
                    cause: Cause::DeviceTooSmall,
                    message: format!("{bytes} bytes more are needed"),
                });
            }
        };
        Ok(Grown {
            before,
            after,
            block_size,
        })
    }
}

/// The server of a file system of 4 MiB, and the image.
pub fn server() -> (Server, Arc<dyn BlockDevice>) {
    let mut options = OpenOptions::default();
    options.memory_max = 1 << 20;
    options.pages_max = 1 << 20;
    options.background = Background::None;
    let device = image::image();
    let fs = Volume::open(Arc::clone(&device), Arc::new(SystemClock), &options).unwrap();
    let server = Server {
        fs,
        observer: Arc::new(Deaf),
        gate: Arc::new(Gate::default()),
        is_synchronous: false,
        sets_xattrs: true,
        disk: None,
        grower: Some(Arc::new(Claims)),
        rights: Rights::All,
        idle: Idle::default(),
    };
    (server, device)
}

/// Sends each of these as a frame, until one is no sequence of requests, and closes the file
/// system; returns the image.
pub fn exercise<'a>(frames: impl IntoIterator<Item = &'a [u8]>) -> Arc<dyn BlockDevice> {
    let (server, device) = server();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let serving = server.clone();
    let serving = thread::spawn(move || serving.serve(&theirs));
    let contents = tempfile::tempfile().unwrap();
    contents.set_len(100_000).unwrap();
    for bytes in frames {
        let sent = frame::send(&ours, bytes, &[contents.as_fd()]);
        if sent.is_err() || !matches!(frame::receive(&ours, Vec::new()), Ok(Some(_))) {
            break;
        }
    }
    drop(ours);
    // It may say that something was no request.
    _ = serving.join().unwrap();
    server.gate.close();
    server.fs.close().unwrap();
    device
}
