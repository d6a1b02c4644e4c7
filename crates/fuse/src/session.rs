//! A mount's life: INIT, then several threads that read requests, until it is unmounted.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use crate::life::Life;
use crate::serve::Serve;
use crate::server::Server;
use crate::transport::dev::{Device, EventLoop};

/// Fewest threads that read requests: while one waits for the image, others go on.
const THREADS_MIN: usize = 4;
/// Most threads that read requests.
const THREADS_MAX: usize = 64;

/// A mounted file system being served.
#[derive(Debug)]
pub struct Session<S = Server> {
    server: Arc<S>,
    life: Arc<Life>,
}

/// Ends a session from elsewhere.
#[derive(Clone, Debug)]
pub struct Ender(Arc<Life>);

impl Ender {
    /// What is under way is served to its end, what comes after is refused: [`Session::wait`] goes on.
    pub fn end(&self) {
        self.0.end();
    }
}

/// Threads that are right for this machine.
pub fn threads() -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    cores.clamp(THREADS_MIN, THREADS_MAX)
}

impl<S: Serve> Session<S> {
    /// Answers INIT, and starts `threads` threads: what the mount shows can be used from now on.
    ///
    /// # Errors
    /// Those of reading the device, of starting threads; `ConnectionAborted` if it was unmounted before
    /// INIT, or its version is not spoken.
    pub fn begin(server: Arc<S>, fd: OwnedFd, threads: usize) -> io::Result<Self> {
        let device = Arc::new(Device::new(fd));
        let life = Arc::new(Life::default());
        let mut first = EventLoop::new(&server, &device, life.join());
        while server.dialect().is_none() {
            if !first.turn()? {
                let what = "unmounted before it began";
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, what));
            }
        }
        let mut next = Some(first);
        for number in 0..threads.clamp(1, THREADS_MAX) {
            let again = || EventLoop::new(&server, &device, life.join());
            let mut turns = next.take().unwrap_or_else(again);
            let named = thread::Builder::new().name(format!("uext4-fuse-{number}"));
            // What keeps one from reading keeps all: they end, and the session with them.
            let thread = named.spawn(move || while turns.turn().unwrap_or(false) {});
            match thread {
                // Fewer are enough.
                Err(_) if number > 0 => break,
                thread => drop(thread?),
            }
        }
        Ok(Self { server, life })
    }

    /// What ends it from elsewhere.
    pub fn ender(&self) -> Ender {
        Ender(Arc::clone(&self.life))
    }

    /// Waits until it is unmounted or ended; then all that was written is made durable, and the file system
    /// closed.
    ///
    /// # Errors
    /// Those of the engine, as of the last of all that could be told.
    pub fn wait(self) -> uext4::Result<()> {
        self.life.wait();
        self.server.finish()
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use zerocopy::IntoBytes;

    use super::*;
    use crate::abi::{InHeader, InitIn, opcode};
    use crate::testing::{Client, e2fsck};

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    }

    fn greeting() -> Vec<u8> {
        let it = InitIn {
            major: 7,
            minor: 45,
            ..InitIn::default()
        };
        let header = InHeader {
            len: 104,
            opcode: opcode::INIT,
            ..InHeader::default()
        };
        [header.as_bytes(), it.as_bytes()].concat()
    }

    #[test]
    fn from_init_to_the_end() {
        let client = Client::without_init();
        let (kernel, ours) = pair();
        rustix::io::write(&kernel, &greeting()).unwrap();
        let session = Session::begin(Arc::clone(&client.server), ours, threads()).unwrap();
        assert!(client.server.dialect().is_some());
        drop(kernel);
        session.wait().unwrap();
        e2fsck(&client.device);
    }

    #[test]
    fn ended_while_it_is_mounted() {
        let client = Client::without_init();
        let (kernel, ours) = pair();
        rustix::io::write(&kernel, &greeting()).unwrap();
        let session = Session::begin(Arc::clone(&client.server), ours, 2).unwrap();
        let ender = session.ender();
        thread::spawn(move || ender.end());
        session.wait().unwrap();
        e2fsck(&client.device);
        drop(kernel);
    }

    #[test]
    fn unmounted_before_it_began() {
        let client = Client::without_init();
        let (kernel, ours) = pair();
        drop(kernel);
        let error = Session::begin(client.server, ours, 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    }
}
