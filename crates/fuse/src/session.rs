//! The session of a mount: INIT, then several threads that read requests, until it is unmounted.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use uext4_remote::idle::Idle;
use uext4_remote::rights::Rights;
use uext4_remote::server::Server as Operations;

use crate::abi::flags::init as has;
use crate::inflight::InflightTracker;
use crate::init::Terms;
use crate::kernel_cache::KernelCache;
use crate::mountinfo::Number;
use crate::serve::Serve;
use crate::server::Server;
use crate::transport::dev::{Counts, Device, EventLoop, Leader, Near, Role};
use crate::transport::uring::{Closer, Rings, Seats, Sizes};
use crate::transport::{NO_RINGS, Placement, Transport};

/// Fewest threads that read requests: while one waits for the image, others go on.
const THREADS_MIN: usize = 4;
/// Most threads that read requests.
const THREADS_MAX: usize = 64;

/// Most bytes of what requests carry: they take memory only once all were needed at the same time.
pub const PAYLOADS_MAX: usize = 512 << 20;

/// A mounted file system being served.
#[derive(Debug)]
pub struct Session<S = Server> {
    server: Arc<S>,
    device: Arc<Device>,
    inflight: Arc<InflightTracker>,
    transport: Transport,
    near: Option<Arc<Near>>,
    seats: Option<Arc<Seats>>,
}

/// What serves single streams near their callers.
#[derive(Clone, Debug)]
pub enum Placed {
    /// Over `/dev/fuse`.
    Near(Arc<Near>),
    /// Over io_uring.
    Low(Arc<Seats>),
}

impl Placed {
    /// What has happened so far.
    pub fn counts(&self) -> Counts {
        match self {
            Self::Near(near) => near.counts(),
            Self::Low(seats) => seats.counts(),
        }
    }
}

/// How requests are read.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Threads that read `/dev/fuse`.
    pub threads: usize,
    /// Which way is gone.
    pub transport: Transport,
    /// Where they are served.
    pub placement: Placement,
    /// Most bytes of what requests carry.
    pub payloads: usize,
}

impl Default for How {
    /// As is right for this machine.
    fn default() -> Self {
        Self {
            threads: threads(),
            transport: Transport::Auto,
            placement: Placement::Auto,
            payloads: PAYLOADS_MAX,
        }
    }
}

/// Ends a session from elsewhere.
#[derive(Clone, Debug)]
pub struct Ender(Arc<InflightTracker>);

impl Ender {
    /// What is under way is served to its end, what comes after is refused: [`Session::wait`]
    /// goes on.
    pub fn end(&self) {
        self.0.end();
    }

    /// Whether it is over: what is mounted where it was is another thread's.
    pub fn has_ended(&self) -> bool {
        self.0.is_over()
    }
}

/// Threads that are right for this machine.
pub fn threads() -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    cores.clamp(THREADS_MIN, THREADS_MAX)
}

/// Rings where they are wanted and can be had, and what INIT is answered with.
fn prepared<S: Serve>(
    server: &Arc<S>,
    device: &Arc<Device>,
    inflight: &Arc<InflightTracker>,
    how: How,
    sizes: Option<Sizes>,
) -> io::Result<(Option<Rings>, Terms)> {
    let is_must = how.transport == Transport::Uring;
    let over_device = Terms::of_device(how.threads.clamp(1, THREADS_MAX), how.payloads);
    let Some(sizes) = sizes else {
        return match is_must {
            true => Err(no_rings()),
            false => Ok((None, over_device)),
        };
    };
    match Rings::prepare(server, device, inflight, sizes, how.placement) {
        Err(error) if is_must => Err(error),
        Err(_) => Ok((None, over_device)),
        Ok(rings) => {
            let terms = Terms {
                without: 0,
                io_max: sizes.io_max,
            };
            Ok((Some(rings), terms))
        }
    }
}

fn no_rings() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, NO_RINGS)
}

impl<S: Serve> Session<S> {
    /// Answers INIT, and starts the threads: what the mount shows can be used from now on.
    ///
    /// # Errors
    /// Those of reading the device, of starting threads; `ConnectionAborted` if it was unmounted
    /// before INIT, or its version is not spoken; `Unsupported` where io_uring must be and is not
    /// there.
    pub fn begin(server: Arc<S>, fd: OwnedFd, how: How) -> io::Result<Self> {
        let is_wanted = how.transport.may_use_rings();
        let sizes = is_wanted.then(|| Sizes::of_machine(how.payloads)).flatten();
        // Where the least that a ring needs is too much, only who wants nothing else gets it.
        let sizes = sizes.filter(|(_, fits)| *fits || how.transport == Transport::Uring);
        let sizes = sizes.map(|(sizes, _)| sizes);
        Self::begin_with(server, fd, how, sizes)
    }

    /// The same with rings of these sizes, if any.
    fn begin_with(server: Arc<S>, fd: OwnedFd, how: How, sizes: Option<Sizes>) -> io::Result<Self> {
        let device = Arc::new(Device::new(fd));
        let inflight = Arc::new(InflightTracker::default());
        let (rings, terms) = prepared(&server, &device, &inflight, how, sizes)?;
        let mut first = EventLoop::new(&server, &device, inflight.join()).on(terms);
        while server.negotiated().is_none() {
            if !first.turn()? {
                let what = "unmounted before it began";
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, what));
            }
        }
        let is_agreed = server
            .negotiated()
            .is_some_and(|it| it.has(has::OVER_IO_URING));
        let mut closer = rings.filter(|_| is_agreed).and_then(Rings::offer);
        let (threads, transport) = match (&closer, how.transport) {
            (Some(_), _) => (1, Transport::Uring),
            (None, Transport::Uring) => return Err(no_rings()),
            (None, _) => (how.threads.clamp(1, THREADS_MAX), Transport::Dev),
        };
        let near = match (transport, how.placement) {
            (Transport::Dev, Placement::Auto) => Near::start(&device),
            _ => None,
        };
        let seats = closer.as_ref().and_then(Closer::seats);
        let role = |number| match &near {
            Some(near) if number == 0 => Role::Leader(Leader::new(Arc::clone(near))),
            Some(near) => Role::Follower(Arc::clone(near)),
            None => Role::None,
        };
        let (mut next, mut started) = (Some(first), 0);
        for number in 0..threads {
            let again = || EventLoop::new(&server, &device, inflight.join());
            let mut turns = next.take().unwrap_or_else(again).with(role(number));
            let closer = closer.take();
            let named = thread::Builder::new().name(format!("uext4-fuse-{number}"));
            // What keeps one from reading keeps all: they end, and the session with them.
            let thread = named.spawn(move || {
                while turns.turn().unwrap_or(false) {}
                drop(closer);
            });
            match thread {
                // Fewer are enough.
                Err(_) if number > 0 => break,
                thread => drop(thread?),
            }
            started += 1;
        }
        if transport == Transport::Dev && started > 1 {
            device.allow_waiting();
        }
        Ok(Self {
            server,
            device,
            inflight,
            transport,
            near,
            seats,
        })
    }

    /// What serves single streams near their callers; `None` where nothing does.
    pub fn placed(&self) -> Option<Placed> {
        let near = self
            .near
            .as_ref()
            .map(|near| Placed::Near(Arc::clone(near)));
        near.or_else(|| {
            self.seats
                .as_ref()
                .map(|seats| Placed::Low(Arc::clone(seats)))
        })
    }

    /// Which way is gone.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// What ends it from elsewhere.
    pub fn ender(&self) -> Ender {
        Ender(Arc::clone(&self.inflight))
    }

    /// Waits until it is unmounted or ended; then all that was written is made durable, and the
    /// file system closed.
    ///
    /// # Errors
    /// Those of the engine, as of the last of all that could be notified.
    pub fn wait(self) -> uext4::Result<()> {
        self.inflight.wait();
        if let Some(near) = &self.near {
            near.finish();
        }
        self.server.finish()
    }
}

impl Session {
    /// What serves commands of other processes on the same file system; `None` where it was opened
    /// for reading. `number` is the mount's, if that is known.
    pub fn operations(&self, number: Option<Number>) -> Option<Operations> {
        let fs = self.server.file_system().volume()?.clone();
        Some(Operations {
            fs,
            observer: Arc::new(KernelCache::new(&self.server, &self.device, number)),
            gate: Arc::clone(self.server.gate()),
            is_synchronous: self.server.is_synchronous(),
            sets_xattrs: !self.server.omitted.xattrs,
            disk: None,
            grower: None,
            rights: Rights::All,
            idle: Idle::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use rustix::mount::MountFlags;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use zerocopy::IntoBytes;

    use std::path::Path;
    use std::sync::Mutex;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::abi::{InHeader, InitIn, WriteOut, opcode};
    use crate::answer::Answer;
    use crate::init::Negotiated;
    use crate::mount;
    use crate::pending_reply::{Channel, PendingReply};
    use crate::reply::Out;
    use crate::request::{Operation, Request};
    use crate::testing::{Client, RingsAllowed, e2fsck};

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    }

    fn over_dev(threads: usize) -> How {
        How {
            threads,
            transport: Transport::Dev,
            ..How::default()
        }
    }

    fn greeting() -> Vec<u8> {
        greeting_of(45)
    }

    fn greeting_of(minor: u32) -> Vec<u8> {
        let it = InitIn {
            major: 7,
            minor,
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
        let session = Session::begin(Arc::clone(&client.server), ours, How::default()).unwrap();
        assert!(client.server.negotiated().is_some());
        drop(kernel);
        session.wait().unwrap();
        e2fsck(&client.device);
    }

    fn options() -> mount::Options {
        mount::Options {
            source: "session".into(),
            flags: MountFlags::NODEV,
            allow_other: false,
            kernel_decides: true,
            nonempty: false,
        }
    }

    /// Serves a real mount on rings of these sizes; a file that was written through it is the same.
    fn serves_a_mount(transport: Transport, sizes: Option<Sizes>) -> io::Result<Transport> {
        let client = Client::without_init();
        let dir = tempfile::tempdir().unwrap();
        let (fd, mounted) = mount::mount(dir.path(), &options()).unwrap();
        let how = How {
            threads: 2,
            transport,
            ..How::default()
        };
        let session = Session::begin_with(Arc::clone(&client.server), fd, how, sizes);
        let session = session.inspect_err(|_| mounted.end().unwrap())?;
        let file = dir.path().join("file");
        let data: Vec<u8> = (0..3_000_000u32).map(|at| (at / 7) as u8).collect();
        std::fs::write(&file, &data).unwrap();
        std::fs::File::open(&file).unwrap().sync_all().unwrap();
        let again = std::fs::File::open(&file).unwrap();
        rustix::fs::fadvise(&again, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        assert!(std::fs::read(&file).unwrap() == data);
        drop(again);
        mounted.end().unwrap();
        let transport = session.transport();
        session.wait().unwrap();
        e2fsck(&client.device);
        Ok(transport)
    }

    #[test]
    fn rings_where_the_kernel_takes_them_and_the_device_where_it_does_not() {
        let Some(_allowed) = RingsAllowed::new() else {
            return;
        };
        let good = Sizes::of_machine(PAYLOADS_MAX).unwrap().0;
        let shallow = Sizes { depth: 1, ..good };
        let narrow = Sizes {
            io_max: 128 << 10,
            ..good
        };
        for sizes in [good, shallow, narrow] {
            let used = serves_a_mount(Transport::Auto, Some(sizes)).unwrap();
            assert_eq!(used, Transport::Uring, "{sizes:?}");
        }
        // Refused after it was agreed on: less than the kernel wants of a payload.
        let small = Sizes {
            io_max: 4096,
            ..good
        };
        let used = serves_a_mount(Transport::Auto, Some(small)).unwrap();
        assert_eq!(used, Transport::Dev);
        let refused = serves_a_mount(Transport::Uring, Some(small)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
        assert_eq!(
            serves_a_mount(Transport::Dev, None).unwrap(),
            Transport::Dev
        );
    }

    #[test]
    fn requests_are_answered_while_all_processors_are_busy() {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            println!("skipped: needs root and /dev/fuse");
            return;
        }
        let client = Client::without_init();
        let dir = tempfile::tempdir().unwrap();
        let (fd, mounted) = mount::mount(dir.path(), &options()).unwrap();
        let session = Session::begin(Arc::clone(&client.server), fd, over_dev(4)).unwrap();
        let make = |from: u32, to: u32| {
            (from..to).for_each(|number| {
                std::fs::write(dir.path().join(number.to_string()), "some").unwrap();
            });
        };
        // A single stream on an idle machine, at the most.
        make(0, 100);
        // Two for each processor.
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let end = Instant::now() + Duration::from_secs(60);
        thread::scope(|scope| {
            for _ in 0..2 * cpus {
                scope.spawn(|| {
                    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            make(100, 200);
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert!(Instant::now() < end, "starved");
        mounted.end().unwrap();
        session.wait().unwrap();
        e2fsck(&client.device);
    }

    /// A server that answers WRITE only when the test says so.
    #[derive(Debug)]
    struct Withholding {
        server: Arc<Server>,
        writes: Mutex<Vec<(PendingReply, u32)>>,
    }

    impl Withholding {
        fn answer_all(&self) {
            let writes = std::mem::take(&mut *self.writes.lock().unwrap());
            for (pending_reply, size) in writes {
                pending_reply.answer(Ok(WriteOut { size, padding: 0 }.as_bytes()));
            }
        }
    }

    impl Serve for Withholding {
        fn handle(
            self: &Arc<Self>,
            request: &Request<'_>,
            out: &mut Out<'_>,
            channel: &Arc<dyn Channel>,
        ) -> Answer {
            let Operation::Write(it, _) = request.operation else {
                return self.server.handle(request, out, channel);
            };
            let pending_reply = PendingReply::new(channel, request.header.unique);
            self.writes.lock().unwrap().push((pending_reply, it.size));
            Answer::Later
        }

        fn negotiated(&self) -> Option<&Negotiated> {
            self.server.negotiated()
        }

        fn finish(&self) -> uext4::Result<()> {
            self.server.finish()
        }
    }

    #[test]
    fn writers_that_wait_leave_entries_for_all_other_requests() {
        // More than a queue begins with, wherever they run.
        const WRITERS: usize = 200;
        let Some(allowed) = RingsAllowed::new() else {
            return;
        };
        let client = Client::without_init();
        let server = Arc::new(Withholding {
            server: Arc::clone(&client.server),
            writes: Mutex::default(),
        });
        let dir = tempfile::tempdir().unwrap();
        let (fd, mounted) = mount::mount(dir.path(), &options()).unwrap();
        let how = How {
            threads: 1,
            transport: Transport::Uring,
            ..How::default()
        };
        let sizes = Sizes {
            depth: 64,
            resident: 64,
            ..Sizes::of_machine(PAYLOADS_MAX).unwrap().0
        };
        let session = Session::begin_with(Arc::clone(&server), fd, how, Some(sizes)).unwrap();
        drop(allowed);
        let waiting = || server.writes.lock().unwrap().len();
        let most = thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|number| {
                    let path = dir.path().join(format!("file-{number}"));
                    scope.spawn(move || std::fs::write(path, vec![7; 20_000]).unwrap())
                })
                .collect();
            // A lookup that finds an entry gives it back, and so fetches what waits in the
            // kernel.
            let (end, mut asked) = (Instant::now() + Duration::from_secs(30), Vec::new());
            let is_open = |asked: &[thread::ScopedJoinHandle<'_, ()>]| {
                waiting() < WRITERS || !asked.iter().all(thread::ScopedJoinHandle::is_finished)
            };
            while is_open(&asked) && asked.len() < 2000 && Instant::now() < end {
                let missing = dir.path().join(format!("missing-{}", asked.len()));
                asked.push(scope.spawn(move || assert!(std::fs::metadata(missing).is_err())));
                thread::sleep(Duration::from_millis(5));
            }
            // All still wait, and every lookup was answered next to them.
            let most = match is_open(&asked) {
                true => 0,
                false => waiting(),
            };
            while !writers.iter().all(thread::ScopedJoinHandle::is_finished) {
                server.answer_all();
                thread::sleep(Duration::from_millis(1));
            }
            most
        });
        assert_eq!(most, WRITERS);
        mounted.end().unwrap();
        session.wait().unwrap();
        e2fsck(&client.device);
    }

    #[test]
    fn ended_while_it_is_mounted() {
        let client = Client::without_init();
        let (kernel, ours) = pair();
        rustix::io::write(&kernel, &greeting()).unwrap();
        let session = Session::begin(Arc::clone(&client.server), ours, over_dev(2)).unwrap();
        let ender = session.ender();
        thread::spawn(move || ender.end());
        session.wait().unwrap();
        e2fsck(&client.device);
        drop(kernel);
    }

    #[test]
    fn a_version_that_is_not_spoken_is_an_end_before_it_began() {
        let client = Client::without_init();
        let (kernel, ours) = pair();
        rustix::io::write(&kernel, &greeting_of(30)).unwrap();
        let error = Session::begin(client.server, ours, over_dev(1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        assert_eq!(error.to_string(), "INIT was refused");
        // The kernel was notified.
        let mut answer = [0; 64];
        assert_eq!(rustix::io::read(&kernel, &mut answer).unwrap(), 16);
        drop(kernel);
    }

    #[test]
    fn unmounted_before_it_began() {
        let client = Client::without_init();
        let (kernel, ours) = pair();
        drop(kernel);
        let error = Session::begin(client.server, ours, over_dev(1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    }
}
