//! All threads together, with a pair of sockets in place of the kernel.

use std::cell::RefCell;
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use zerocopy::{FromBytes, IntoBytes};

use super::outbox::Reply;
use super::*;
use crate::abi::{InHeader, InitIn, OutHeader, opcode};
use crate::inflight::InflightTracker;
use crate::testing::Client;
use crate::transport::dev::{EventLoop, Role};

/// The end of the kernel, and what was answered.
struct Kernel(OwnedFd, RefCell<HashSet<u64>>);

impl Kernel {
    fn ask(&self, code: u32, unique: u64, pid: u32, body: &[u8]) {
        let header = InHeader {
            len: (size_of::<InHeader>() + body.len()) as u32,
            opcode: code,
            unique,
            nodeid: 1,
            pid,
            ..InHeader::default()
        };
        let bytes = [header.as_bytes(), body].concat();
        rustix::io::write(&self.0, &bytes).unwrap();
    }

    /// The number of the next request that is answered; a minute is too long. What the guard
    /// writes once more, the kernel refuses.
    fn answered(&self) -> u64 {
        loop {
            let unique = self.reply();
            if self.1.borrow_mut().insert(unique) {
                return unique;
            }
        }
    }

    fn reply(&self) -> u64 {
        let minute = Timespec {
            tv_sec: 60,
            tv_nsec: 0,
        };
        let mut waited = [PollFd::new(&self.0, PollFlags::IN)];
        assert_eq!(poll(&mut waited, Some(&minute)), Ok(1), "no answer");
        let mut buf = vec![0; 4096];
        let len = rustix::io::read(&self.0, &mut buf).unwrap();
        let (header, _) = OutHeader::read_from_prefix(&buf[..len]).unwrap();
        assert_eq!((header.len as usize, header.error), (len, 0));
        header.unique
    }

    fn asks(&self, unique: u64, pid: u32) {
        self.ask(opcode::GETATTR, unique, pid, &[0; 16]);
        assert_eq!(self.answered(), unique);
    }
}

/// The file system of a client, served by a leader and a follower.
struct Served {
    kernel: Kernel,
    near: Arc<Near>,
    _client: Client,
}

fn pair() -> (Kernel, Arc<Device>) {
    let flags = SocketFlags::CLOEXEC;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let kernel = Kernel(pair.0, RefCell::default());
    (kernel, Arc::new(Device::new(pair.1)))
}

/// `None`, and said so, where there is one CPU.
fn served() -> Option<Served> {
    let (kernel, device) = pair();
    let Some(near) = Near::start(&device) else {
        eprintln!("skipped: one processor, or no class SCHED_IDLE");
        return None;
    };
    let client = Client::without_init();
    let inflight = Arc::new(InflightTracker::default());
    let roles = [
        Role::Leader(Leader::new(Arc::clone(&near))),
        Role::Follower(Arc::clone(&near)),
    ];
    for role in roles {
        let mut turns = EventLoop::new(&client.server, &device, inflight.join()).with(role);
        thread::spawn(move || while turns.turn().unwrap_or(false) {});
    }
    let init = InitIn {
        major: 7,
        minor: 40,
        ..InitIn::default()
    };
    kernel.ask(opcode::INIT, 2, 0, init.as_bytes());
    assert_eq!(kernel.answered(), 2);
    Some(Served {
        kernel,
        near,
        _client: client,
    })
}

fn own_id() -> u32 {
    gettid().as_raw_nonzero().get().unsigned_abs()
}

impl Served {
    /// Requests of this thread until the leader serves it alone.
    fn enter(&self, unique: &mut u64) {
        let end = Instant::now() + Duration::from_secs(60);
        let before = self.near.counts().entered;
        while self.near.counts().entered == before {
            assert!(Instant::now() < end, "never taken for a single stream");
            *unique += 2;
            self.kernel.asks(*unique, own_id());
        }
    }
}

#[test]
fn all_requests_of_one_stream_and_of_two_are_answered() {
    let Some(served) = served() else { return };
    let mut unique = 2;
    served.enter(&mut unique);
    // Requests that no caller waits for come between.
    for _ in 0..500 {
        served.kernel.ask(opcode::GETATTR, unique + 1, 0, &[0; 16]);
        unique += 2;
        served
            .kernel
            .ask(opcode::GETATTR, unique, own_id(), &[0; 16]);
        let both = [served.kernel.answered(), served.kernel.answered()];
        assert!(both.contains(&unique) && both.contains(&(unique - 1)));
    }
    // Two that wait at the same time: all are answered, whether that goes on or not.
    for _ in 0..500 {
        let both = [unique + 2, unique + 4];
        unique += 4;
        served
            .kernel
            .ask(opcode::GETATTR, both[0], own_id(), &[0; 16]);
        served.kernel.ask(opcode::GETATTR, both[1], 1, &[0; 16]);
        let mut answered = [served.kernel.answered(), served.kernel.answered()];
        answered.sort_unstable();
        assert_eq!(answered, both);
    }
    // And again.
    served.enter(&mut unique);
    served.kernel.asks(unique + 2, own_id());
}

#[test]
fn a_thread_that_the_system_does_not_show_is_served_all_the_same() {
    let Some(served) = served() else { return };
    for unique in (4..4000).step_by(2) {
        served.kernel.asks(unique, u32::MAX);
    }
    assert_eq!(served.near.counts().entered, 0);
}

#[test]
fn the_guard_writes_what_the_answerer_does_not() {
    let (kernel, device) = pair();
    let near = Arc::new(Near::new(&device, CpuSet::new()));
    // No answerer: one that never gets the processor.
    let watched = Arc::clone(&near);
    let guard = thread::spawn(move || guard::run(&watched));
    let header = OutHeader {
        len: size_of::<OutHeader>() as u32,
        error: 0,
        unique: 8,
    };
    near.is_on.store(true, SeqCst);
    assert!(near.outbox.put(reply(header)));
    guard.thread().unpark();
    assert_eq!(kernel.answered(), 8);
    while near.counts().left[Reason::Waiting as usize] == 0 {
        thread::yield_now();
    }
    assert!(!near.is_on.load(SeqCst));
    near.is_over.store(true, SeqCst);
    guard.thread().unpark();
    guard.join().unwrap();
}

fn reply(header: OutHeader) -> Arc<Reply> {
    let mut reply = Reply::default();
    reply.set(header.as_bytes(), header.unique, 7);
    Arc::new(reply)
}

#[test]
fn the_outbox_is_full_at_last_and_loses_nothing() {
    let (kernel, device) = pair();
    let near = Near::new(&device, CpuSet::new());
    let mut unique = 0;
    loop {
        unique += 2;
        let header = OutHeader {
            len: size_of::<OutHeader>() as u32,
            error: 0,
            unique,
        };
        if !near.outbox.put(reply(header)) {
            break;
        }
    }
    assert!(near.outbox.has(|reply| reply.number == 2));
    near.finish();
    for number in (2..unique).step_by(2) {
        assert_eq!(kernel.answered(), number);
    }
    // There is room again.
    assert_eq!(near.outbox.numbers(), [0; outbox::PLACES]);
}

#[test]
fn a_reply_that_a_thread_keeps_is_written_by_the_guard() {
    let (kernel, device) = pair();
    let near = Near::new(&device, CpuSet::new());
    let header = OutHeader {
        len: size_of::<OutHeader>() as u32,
        error: 0,
        unique: 6,
    };
    assert!(near.outbox.put(reply(header)));
    // The thread that writes it is kept from going on once it has taken it.
    near.outbox.write(&near.device, || {
        assert!(near.outbox.write_late(6, &near.device));
        assert_eq!(kernel.answered(), 6);
    });
    // By now that thread has found that it was taken.
    assert!(near.outbox.has(Reply::is_taken));
    near.outbox.write_all(&near.device);
    assert_eq!(kernel.reply(), 6);
}
