//! FUSE over io_uring: a queue for each CPU, whose thread serves on the CPU that asks.
//!
//! ```text
//! caller ─▶ kernel ─▶ entry of this CPU's queue ─▶ thread: decode, serve, reply ─▶ kernel
//!                                                       │ later                     ▲
//!                                                       └─▶ another thread ─▶ Mailbox (eventfd)
//! ```
//! One call gives the kernel a reply and waits for the next request. What a request carries is read
//! where the kernel put it, and what is read goes straight to where the kernel takes it.
//!
//! INIT, FORGET, INTERRUPT and what is reported to the kernel stay on `/dev/fuse`, with one
//! thread. The kernel uses the queues once every possible CPU's has an entry; it holds all
//! requests back until then, or until one is refused: then it goes on over `/dev/fuse`. So all
//! that may fail on our side, memory, rings and threads, is there before INIT is answered
//! ([`Rings::prepare`]).
//!
//! An entry is its request until that is answered, so a late answer holds one: that of a
//! throttled writer for its whole pause. For each entry that waits so the queue gets another one,
//! and all other requests have as many entries as there were at the beginning ([`Sizes`]),
//! however many writers wait. Their data are copied before ([`crate::write_buffers`]), and an
//! entry that waits needs no memory. Nothing that answers late waits for another request (but
//! what finds no space, for a tenth of a second): fsync and the like have threads of their own
//! ([`crate::executor`]), the pause of a writer ends by itself, and INTERRUPT comes by
//! `/dev/fuse`. The kernel takes the entry that was given back last, so that those that are not
//! needed are never touched, and take no memory. Requests that come while the kernel has no entry
//! at all wait there until any entry is given back: adding one does not serve them.
//!
//! Lock: one a [`Mailbox`], a leaf.

mod commands;
mod low;
mod sizes;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustc_hash::FxHashMap;
use rustix::event::EventfdFlags;
use rustix::io::Errno as Host;
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{InHeader, UringEntInOut};
use crate::answer::Answer;
use crate::cpus;
use crate::errno::{Errno, Result};
use crate::inflight::{InflightTracker, Part};
use crate::pending_reply::Channel;
use crate::reply::Out;
use crate::request::Body;
use crate::serve::Serve;
use crate::transport::Placement;
use crate::transport::dev::{Device, header};
use commands::{Commands, Event};
pub use low::Seats;
pub use sizes::Sizes;

/// Where an administrator allows rings.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
/// Bytes of a reply to a request that carries a name or data, which stand where the reply goes: the
/// largest is an extended attribute's value.
const REPLY_MAX: usize = 128 << 10;

/// Most entries of a queue, with those that were added. Each added one takes a page or two.
const DEPTH_MAX: usize = 8192;

/// How long to wait before a ring that failed is tried again.
const AGAIN: Duration = Duration::from_millis(1);

/// Whether mounts from now on may use rings.
pub fn is_allowed() -> bool {
    std::fs::read(PARAMETER).is_ok_and(|reported| reported.starts_with(b"Y"))
}

/// Answers that come from other threads.
#[derive(Debug)]
struct Mailbox {
    answers: Mutex<Vec<(u64, Result<Vec<u8>>)>>,
    /// The connection is over.
    is_over: AtomicBool,
    wake: Arc<OwnedFd>,
    /// What the kernel is notified goes there.
    device: Arc<Device>,
}

impl Mailbox {
    fn new(device: &Arc<Device>) -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self {
            answers: Mutex::default(),
            is_over: AtomicBool::new(false),
            wake: Arc::new(rustix::event::eventfd(0, flags)?),
            device: Arc::clone(device),
        })
    }

    fn ring(&self) {
        // Full, it can be read already.
        _ = rustix::io::write(&self.wake, 1u64.as_bytes());
    }

    fn take(&self) -> Vec<(u64, Result<Vec<u8>>)> {
        _ = rustix::io::read(&self.wake, &mut [0; 8]);
        std::mem::take(&mut *self.answers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Channel for Mailbox {
    fn send(&self, unique: u64, answer: Result<&[u8]>) {
        let answer = answer.map(<[u8]>::to_vec);
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.push((unique, answer));
        drop(answers);
        self.ring();
    }

    fn write_back(&self, id: u64) {
        self.device.write_back(id);
    }

    fn forget_attributes(&self, id: u64) {
        self.device.forget_attributes(id);
    }
}

/// One CPU's queue, and its thread's memory.
#[derive(Debug)]
struct Queue<S> {
    server: Arc<S>,
    commands: Commands,
    mailbox: Arc<Mailbox>,
    channel: Arc<dyn Channel>,
    part: Part,
    /// The entries of requests that are answered later, by the requests' numbers.
    executor: FxHashMap<u64, usize>,
    /// Entries that are to be free of such requests.
    spare: usize,
    /// Entries that are lost.
    lost: usize,
    /// The kernel has refused an entry that was added.
    is_full: bool,
    reply: Vec<u8>,
    low: low::Server,
}

impl<S: Serve> Queue<S> {
    /// Offers the entries, and serves until there will be no more requests. `report` is reported
    /// whether the kernel took any.
    fn run(&mut self, report: &Sender<bool>) {
        let registered = self.commands.register();
        self.look();
        let is_taken = registered.is_ok() && self.lost < self.commands.depth();
        if !is_taken {
            self.commands.refuse();
        }
        _ = report.send(is_taken);
        while !self.is_over() {
            if self.commands.submit_and_wait().is_err() {
                if self.mailbox.is_over.load(Relaxed) {
                    break;
                }
                // Too little memory for now. No other thread serves this CPU.
                thread::sleep(AGAIN);
            }
            self.look();
        }
    }

    /// The kernel has no entry, and will have none.
    fn is_over(&self) -> bool {
        let is_over = self.mailbox.is_over.load(Relaxed) || self.lost == self.commands.depth();
        is_over && self.commands.offered() == 0
    }

    /// Does what has come.
    fn look(&mut self) {
        while let Some((event, has_more)) = self.commands.next() {
            match event {
                Event::Request(index) => self.serve(index),
                Event::Lost(error) => self.lose(error),
                Event::Woken => {
                    self.answer_late();
                    self.commands.listen();
                }
            }
            // A caller that was answered need not wait until the next one is.
            if has_more {
                _ = self.commands.submit();
            }
        }
    }

    fn lose(&mut self, error: i32) {
        self.lost += 1;
        self.is_full = true;
        let error = Host::from_raw_os_error(error);
        if matches!(error, Host::NOTCONN | Host::CONNABORTED) {
            self.mailbox.is_over.store(true, Relaxed);
        }
    }

    fn serve(&mut self, index: usize) {
        let Some((head, payload)) = self.commands.entry(index) else {
            return;
        };
        // OK to unwrap: there are more bytes than a header has.
        let asked = InHeader::read_from_prefix(head.in_out.as_bytes())
            .unwrap()
            .0;
        let carried = payload.len().min(head.ring_ent_in_out.payload_sz as usize);
        let (carried, mut out) = match carried {
            0 => (&[][..], Out::new(&mut *payload)),
            len => (&payload[..len], Out::new(&mut self.reply)),
        };
        self.low.begin(asked.pid, carried.len());
        let body = Body::Split(head.op_in.as_bytes(), carried);
        let answer = match self.server.protocol().decode(asked, body) {
            Ok(request) => self
                .part
                .serve(|| self.server.handle(&request, &mut out, &self.channel)),
            Err(error) => Some(Answer::Now(Err(error))),
        };
        let is_in_place = carried.is_empty();
        let len = out.len();
        self.low.end(len);
        let done = match answer {
            Some(Answer::Now(done)) => done.map(|()| len),
            Some(Answer::Later) => {
                self.executor.insert(asked.unique, index);
                self.commands.idle(index);
                self.replace_late();
                return;
            }
            Some(Answer::Never) => Ok(0),
            // The mount is as good as gone.
            None => Err(Errno::EIO),
        };
        if !is_in_place && let Ok(len) = done {
            payload[..len].copy_from_slice(&self.reply[..len]);
        }
        self.reply_to(index, asked.unique, done);
    }

    /// Adds entries for those whose requests are answered later, so that such requests, however
    /// many they are, leave others as many entries as there were at the beginning.
    fn replace_late(&mut self) {
        let (depth, busy) = (self.commands.depth(), self.lost + self.executor.len());
        let is_short = depth - busy < self.spare;
        if is_short && !self.is_full && depth < DEPTH_MAX {
            // Too little memory now: those that wait are answered all the same.
            _ = self.commands.grow();
        }
    }

    /// Says of what length the reply is that is in an entry, and gives the entry back.
    fn reply_to(&mut self, index: usize, unique: u64, done: Result<usize>) {
        if let Some((head, _)) = self.commands.entry(index) {
            let reported = header(unique, done);
            head.in_out.as_mut_bytes()[..size_of_val(&reported)]
                .copy_from_slice(reported.as_bytes());
            head.ring_ent_in_out = UringEntInOut {
                flags: 0,
                // OK to truncate: no longer than an entry.
                payload_sz: done.unwrap_or(0) as u32,
                ..head.ring_ent_in_out
            };
            self.commands.commit(index);
        }
    }

    fn answer_late(&mut self) {
        for (unique, answer) in self.mailbox.take() {
            let Some(index) = self.executor.remove(&unique) else {
                continue;
            };
            let Some((_, payload)) = self.commands.entry(index) else {
                continue;
            };
            let done = answer.map(|bytes| {
                let len = bytes.len().min(payload.len());
                payload[..len].copy_from_slice(&bytes[..len]);
                len
            });
            self.reply_to(index, unique, done);
        }
    }
}

/// The queues of all CPUs, ready to be offered to the kernel.
#[derive(Debug)]
pub struct Rings {
    go: Vec<Sender<Sender<bool>>>,
    mailboxes: Vec<Arc<Mailbox>>,
    seats: Option<low::Ender>,
}

/// Ends queues when the connection is over, also those of which the kernel has nothing to report.
#[derive(Debug)]
pub struct Closer {
    mailboxes: Vec<Arc<Mailbox>>,
    seats: Option<low::Ender>,
}

impl Closer {
    /// What serves single streams near their callers; `None` where nothing does.
    pub fn seats(&self) -> Option<Arc<Seats>> {
        self.seats.as_ref().map(|ender| Arc::clone(&ender.0))
    }
}

impl Drop for Closer {
    fn drop(&mut self) {
        for mailbox in &self.mailboxes {
            mailbox.is_over.store(true, Relaxed);
            mailbox.ring();
        }
    }
}

impl Rings {
    /// Makes rings, memory and threads for all CPUs there may be. The threads wait; dropped, they
    /// end.
    ///
    /// # Errors
    /// Those of setting up rings, of starting threads.
    pub fn prepare<S: Serve>(
        server: &Arc<S>,
        device: &Arc<Device>,
        inflight: &Arc<InflightTracker>,
        sizes: Sizes,
        placement: Placement,
    ) -> io::Result<Self> {
        let seats = match placement {
            Placement::Auto => Seats::new(sizes.queues.into()),
            Placement::Spread => None,
        };
        let mut rings = Self {
            go: Vec::new(),
            mailboxes: Vec::new(),
            seats: seats.clone().map(low::Ender),
        };
        let mut threads = Vec::new();
        for queue in 0..sizes.queues {
            let mailbox = Arc::new(Mailbox::new(device)?);
            let commands = Commands::new(device, &mailbox.wake, queue, &sizes)?;
            let mut queue = Queue {
                server: Arc::clone(server),
                executor: FxHashMap::default(),
                spare: commands.depth(),
                commands,
                channel: Arc::<Mailbox>::clone(&mailbox),
                mailbox: Arc::clone(&mailbox),
                part: inflight.join(),
                lost: 0,
                is_full: false,
                reply: vec![0; REPLY_MAX],
                low: low::Server::new(seats.clone(), queue.into()),
            };
            let (go, reported) = mpsc::channel();
            let number = queue.commands.queue();
            let named = thread::Builder::new().name(format!("uext4-ring-{number}"));
            threads.push(named.spawn(move || wait_and_run(&mut queue, &reported))?);
            rings.go.push(go);
            rings.mailboxes.push(mailbox);
        }
        if let Some(seats) = seats {
            seats.guard(threads);
        }
        Ok(rings)
    }

    /// Offers the queues to the kernel, after INIT was answered. `None`: it did not take them,
    /// and goes on over `/dev/fuse`.
    pub fn offer(self) -> Option<Closer> {
        let (report, reported) = mpsc::channel();
        for go in &self.go {
            _ = go.send(report.clone());
        }
        drop(report);
        let queues = self.mailboxes.len();
        let taken = reported
            .iter()
            .take(queues)
            .filter(|is_taken| *is_taken)
            .count();
        let Self {
            mailboxes, seats, ..
        } = self;
        (taken == queues).then_some(Closer { mailboxes, seats })
    }
}

fn wait_and_run<S: Serve>(queue: &mut Queue<S>, go: &Receiver<Sender<bool>>) {
    if let Ok(report) = go.recv() {
        cpus::pin(queue.commands.queue().into());
        queue.run(&report);
    }
}
