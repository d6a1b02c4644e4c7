//! Requests that no kernel would send, in any order, to a server of a small image: used by the
//! test of requests and by the fuzzer. What a request is answered with does not matter, that it
//! is does.

use std::sync::Arc;

use uext4::tuning::Background;
use uext4::{OpenOptions, Volume};
use uext4_blockdev::SystemClock;
use uext4_fuse::abi::{InHeader, InitIn, opcode};
use uext4_fuse::errno::Result;
use uext4_fuse::protocol;
use uext4_fuse::request::Request;
use uext4_fuse::{Channel, Out, Server, Validity};
use zerocopy::IntoBytes;

#[path = "../../../mkfs/tests/exercise/image.rs"]
mod image;

/// Requests of a run, at most, and bytes for a reply.
const REQUESTS_MAX: usize = 64;
const REPLY_MAX: usize = 64 << 10;

/// Late answers, which are dropped.
#[derive(Debug)]
struct Unheard;

impl Channel for Unheard {
    fn send(&self, _: u64, _: Result<&[u8]>) {}

    fn write_back(&self, _: u64) {}

    fn forget_attributes(&self, _: u64) {}
}

/// Asks one request.
fn ask(server: &Arc<Server>, header: InHeader, body: &[u8], reply: &mut [u8]) {
    let header = InHeader {
        len: (size_of::<InHeader>() + body.len()) as u32,
        ..header
    };
    let bytes = [header.as_bytes(), body].concat();
    let Ok((header, body)) = Request::header(&bytes) else {
        return;
    };
    let protocol = match header.uid & 1 {
        0 => &protocol::BEFORE_SETXATTR_EXT,
        _ => &protocol::CURRENT,
    };
    let Ok(request) = protocol.decode(header, body) else {
        return;
    };
    let channel: Arc<dyn Channel> = Arc::new(Unheard);
    _ = server.handle(&request, &mut Out::new(reply), &channel);
}

/// Each request is its kind, a node, the length of its body, and the body. What is left at the
/// end is ignored.
pub fn exercise(mut bytes: &[u8]) {
    let mut options = OpenOptions::default();
    options.memory_max = 1 << 20;
    options.pages_max = 1 << 20;
    options.background = Background::None;
    let fs = Volume::open(image::image(), Arc::new(SystemClock), &options).unwrap();
    let server = Arc::new(Server::new(fs, Validity::default()).unwrap());
    let mut reply = vec![0; REPLY_MAX];
    let init = InitIn {
        major: 7,
        minor: 40,
        flags: u32::MAX,
        flags2: u32::MAX,
        ..InitIn::default()
    };
    let first = InHeader {
        opcode: opcode::INIT,
        unique: 2,
        ..InHeader::default()
    };
    ask(&server, first, init.as_bytes(), &mut reply);
    for unique in 2..REQUESTS_MAX as u64 {
        let [kind, node, len, rest @ ..] = bytes else {
            break;
        };
        let (body, after) = rest.split_at(rest.len().min((*len).into()));
        bytes = after;
        let header = InHeader {
            opcode: u32::from(*kind) % 56,
            unique: 2 * unique,
            nodeid: u64::from(*node) % 24,
            uid: u32::from(*node) >> 6,
            ..InHeader::default()
        };
        ask(&server, header, body, &mut reply);
    }
    _ = server.finish();
}
