//! One queue of a ring: its commands, and the memory they name. The only `unsafe` of this crate.
//!
//! An entry is either ours or the kernel's. Offered ([`Commands::register`],
//! [`Commands::commit`]), the kernel may write to it at any time until its completion is seen
//! ([`Commands::next`]); while that is so, no thread here gets at its memory, and the memory is
//! never freed: entries that the kernel still has when a queue is dropped are leaked.
//!
//! Entries can be added at any time ([`Commands::grow`]); none is ever taken away. Of each queue,
//! [`Sizes::resident`] entries may hold more than a page of memory: the payloads of the others go
//! back to the system when their content is no longer needed.
//!
//! A ring takes these commands and the wait for a wake-up, and nothing else.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::register::Restriction;
use io_uring::squeue::Entry128;
use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode};
use zerocopy::IntoBytes;

use crate::abi::{
    FUSE_IO_URING_CMD_COMMIT_AND_FETCH, FUSE_IO_URING_CMD_REGISTER, UringCmdReq, UringReqHeader,
};
use crate::transport::dev::Device;
use crate::transport::uring::Sizes;

/// The number of the completion that says that a thread woke us.
const WOKEN: u64 = u64::MAX;
/// The number of the completion of what was to be refused.
const REFUSED: u64 = u64::MAX - 1;
/// Where a submission says how many parts its memory has: `len` of `struct io_uring_sqe`.
const PARTS_AT: usize = 24;
/// `POLLIN`.
const READABLE: u32 = 1;
/// Memory begins at a page, so that each page that is copied is one of ours.
const PAGE: usize = 4096;

/// One request at a time.
#[derive(Debug)]
struct Entry {
    header: Box<UringReqHeader>,
    /// Not touched, it takes no memory.
    payload: Vec<u8>,
    start: usize,
    /// Address and length of both, as the kernel reads them once.
    parts: Box<[usize; 4]>,
    is_ours: bool,
    /// More than one page of the payload may be in memory.
    is_resident: bool,
}

/// Memory of zero bytes that takes no pages until they are touched; `None` where there is none.
fn zeroed(len: usize) -> Option<Vec<u8>> {
    let layout = Layout::array::<u8>(len).ok().filter(|_| len > 0)?;
    // SAFETY: the layout has a size.
    let start = unsafe { alloc_zeroed(layout) };
    // SAFETY: what the global allocator gave for `len` bytes, all of which are initialized.
    (!start.is_null()).then(|| unsafe { Vec::from_raw_parts(start, len, len) })
}

impl Entry {
    /// Fails with `OutOfMemory`.
    fn new(len: usize) -> io::Result<Self> {
        let mut header = Box::<UringReqHeader>::default();
        let mut payload = zeroed(len + PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let start = payload.as_ptr().align_offset(PAGE).min(PAGE);
        let parts = [
            (&raw mut *header).expose_provenance(),
            size_of::<UringReqHeader>(),
            payload.as_mut_ptr().expose_provenance() + start,
            len,
        ];
        Ok(Self {
            header,
            payload,
            start,
            parts: Box::new(parts),
            is_ours: true,
            is_resident: false,
        })
    }

    /// Gives all whole pages of the payload but the first back to the system, which read as zeroes
    /// then. Where the system's pages are larger than ours, it does nothing.
    fn shrink(&mut self) {
        self.is_resident = false;
        let end = self.start + self.parts[3] / PAGE * PAGE;
        let rest = self.payload.get_mut(self.start + PAGE..end);
        let Some(rest) = rest.filter(|_| rustix::param::page_size() == PAGE) else {
            return;
        };
        // SAFETY: whole pages, so the system rounds nothing up, of memory that is borrowed
        // exclusively and holds plain bytes, which read as zeroes afterwards.
        unsafe { libc::madvise(rest.as_mut_ptr().cast(), rest.len(), libc::MADV_DONTNEED) };
    }
}

/// What came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The entry of this number has a request.
    Request(usize),
    /// An entry will have none any more; the error's number.
    Lost(i32),
    /// A thread woke us.
    Woken,
}

/// A queue's ring.
pub struct Commands {
    // Dropped before what it names.
    ring: IoUring<Entry128, cqueue::Entry>,
    entries: Vec<Entry>,
    device: Arc<Device>,
    wake: Arc<OwnedFd>,
    queue: u16,
    offered: usize,
    /// Bytes of a payload.
    len: usize,
    /// Entries that may hold more than a page, and how many of them do.
    resident_max: usize,
    resident: usize,
    /// Commands for which the ring had no slot.
    backlog: VecDeque<Entry128>,
}

impl std::fmt::Debug for Commands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Commands")
            .field("queue", &self.queue)
            .field("offered", &self.offered)
            .finish_non_exhaustive()
    }
}

impl Commands {
    /// The ring of a queue of these sizes; what can be read from `wake` ends a wait.
    ///
    /// # Errors
    /// Those of setting up a ring: it is not allowed, or there is too little memory.
    pub fn new(
        device: &Arc<Device>,
        wake: &Arc<OwnedFd>,
        queue: u16,
        sizes: &Sizes,
    ) -> io::Result<Self> {
        let (depth, len) = (sizes.depth, sizes.io_max as usize);
        // Each of the first entries has one command at most, and there are two more.
        let slots = (depth + 2).next_power_of_two();
        let mut builder = IoUring::<Entry128, cqueue::Entry>::builder();
        let builder = builder.dontfork().setup_r_disabled();
        let ring = builder.build(slots as u32)?;
        // Nothing else can be asked of it, also by a caller that has got into this process and
        // whose system calls are bounded: a ring would be a way around that.
        let mut allowed =
            [opcode::UringCmd80::CODE, opcode::PollAdd::CODE].map(Restriction::sqe_op);
        let submitter = ring.submitter();
        submitter.register_restrictions(&mut allowed)?;
        submitter.register_enable_rings()?;
        Ok(Self {
            ring,
            entries: (0..depth)
                .map(|_| Entry::new(len))
                .collect::<io::Result<_>>()?,
            device: Arc::clone(device),
            wake: Arc::clone(wake),
            queue,
            offered: 0,
            len,
            resident_max: sizes.resident,
            resident: 0,
            backlog: VecDeque::new(),
        })
    }

    /// Whose CPU's it is.
    pub fn queue(&self) -> u16 {
        self.queue
    }

    /// Entries.
    pub fn depth(&self) -> usize {
        self.entries.len()
    }

    /// Entries that the kernel has.
    pub fn offered(&self) -> usize {
        self.offered
    }

    /// Offers all entries, from the thread that will wait for requests. Those that the kernel
    /// does not take are lost at once.
    ///
    /// # Errors
    /// Those of the ring.
    pub fn register(&mut self) -> io::Result<()> {
        self.listen();
        for index in 0..self.entries.len() {
            self.offer(index, FUSE_IO_URING_CMD_REGISTER, 0);
        }
        self.submit()
    }

    /// Adds an entry and offers it to the kernel with the next [`Commands::submit`].
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn grow(&mut self) -> io::Result<()> {
        self.entries.push(Entry::new(self.len)?);
        self.offer(self.entries.len() - 1, FUSE_IO_URING_CMD_REGISTER, 0);
        Ok(())
    }

    /// The request of an entry is answered later, and nothing of its payload is needed until then.
    pub fn idle(&mut self, index: usize) {
        if self.resident > self.resident_max
            && let Some(entry) = self.entries.get_mut(index)
            && entry.is_ours
            && entry.is_resident
        {
            entry.shrink();
            self.resident -= 1;
        }
    }

    /// Counts an entry whose payload has so many bytes in use.
    fn uses(&mut self, index: usize, len: usize) {
        let entry = &mut self.entries[index];
        if len > PAGE && !entry.is_resident {
            entry.is_resident = true;
            self.resident += 1;
        }
    }

    /// Offers what the kernel does not take: it goes on without rings.
    pub fn refuse(&mut self) {
        let carried = UringCmdReq {
            // No machine has as many.
            qid: u16::MAX,
            ..UringCmdReq::default()
        };
        self.command(0, REFUSED, FUSE_IO_URING_CMD_REGISTER, carried);
        _ = self.submit();
    }

    /// The memory of an entry that is ours.
    pub fn entry(&mut self, index: usize) -> Option<(&mut UringReqHeader, &mut [u8])> {
        let entry = self.entries.get_mut(index)?;
        if !entry.is_ours {
            return None;
        }
        let end = entry.start + entry.parts[3];
        Some((&mut entry.header, &mut entry.payload[entry.start..end]))
    }

    /// Gives the kernel an entry with the reply that is in it, with the next [`Commands::submit`].
    pub fn commit(&mut self, index: usize) {
        if let Some(entry) = self.entries.get(index)
            && entry.is_ours
        {
            let reported = entry.header.ring_ent_in_out;
            let (id, len) = (reported.commit_id, reported.payload_sz as usize);
            match len > PAGE {
                true => self.uses(index, len),
                false => self.idle(index),
            }
            self.offer(index, FUSE_IO_URING_CMD_COMMIT_AND_FETCH, id);
        }
    }

    /// Wants to be reported when it is woken; once.
    pub fn listen(&mut self) {
        let poll = opcode::PollAdd::new(Fd(self.wake.as_raw_fd()), READABLE).build();
        self.push(Entry128::from(poll.user_data(WOKEN)));
    }

    /// Hands over what was committed.
    ///
    /// # Errors
    /// Those of the ring.
    pub fn submit(&mut self) -> io::Result<()> {
        self.submit_for(0)
    }

    /// Hands over what was committed, and waits for something to come.
    ///
    /// # Errors
    /// Those of the ring.
    pub fn submit_and_wait(&mut self) -> io::Result<()> {
        self.submit_for(1)
    }

    /// Hands over what was committed, and waits for so many completions.
    fn submit_for(&mut self, wanted: usize) -> io::Result<()> {
        while !self.backlog.is_empty() {
            self.enter(0)?;
            let before = self.backlog.len();
            while let Some(command) = self.backlog.pop_front() {
                if !self.slot(&command) {
                    self.backlog.push_front(command);
                    break;
                }
            }
            if self.backlog.len() == before {
                // Completions are to be seen first.
                return Ok(());
            }
        }
        self.enter(wanted)
    }

    fn enter(&self, wanted: usize) -> io::Result<()> {
        match self.ring.submit_and_wait(wanted) {
            Ok(_) => Ok(()),
            // A signal, or completions that are to be taken first.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The next of what came, and whether there is more.
    pub fn next(&mut self) -> Option<(Event, bool)> {
        let (reported, has_more) = {
            let mut queue = self.ring.completion();
            (queue.next()?, !queue.is_empty())
        };
        let event = match (reported.user_data(), reported.result()) {
            (WOKEN | REFUSED, _) => Event::Woken,
            (index, result) => {
                let index = index as usize;
                let entry = self.entries.get_mut(index)?;
                entry.is_ours = true;
                let carried = entry.header.ring_ent_in_out.payload_sz as usize;
                self.offered -= 1;
                match result {
                    0.. => {
                        self.uses(index, carried);
                        Event::Request(index)
                    }
                    error => Event::Lost(-error),
                }
            }
        };
        Some((event, has_more))
    }

    fn offer(&mut self, index: usize, what: u32, commit_id: u64) {
        self.entries[index].is_ours = false;
        self.offered += 1;
        let carried = UringCmdReq {
            commit_id,
            qid: self.queue,
            ..UringCmdReq::default()
        };
        self.command(index, index as u64, what, carried);
    }

    /// A command about an entry, whose completion has a number.
    fn command(&mut self, index: usize, number: u64, what: u32, carried: UringCmdReq) {
        let mut bytes = [0; 80];
        bytes[..size_of::<UringCmdReq>()].copy_from_slice(carried.as_bytes());
        let parts = &raw const *self.entries[index].parts;
        let fd = Fd(self.device.as_fd().as_raw_fd());
        let command = opcode::UringCmd80::new(fd, what)
            .cmd(bytes)
            .addr(Some(parts.expose_provenance() as u64));
        let mut command = command.build().user_data(number);
        const { assert!(size_of::<Entry128>() == 128 && align_of::<Entry128>() >= 4) };
        // SAFETY: a number of 32 bits in the 128 bytes of a submission as the kernel reads it,
        // aligned; the crate has no way to say how many parts there are.
        unsafe {
            (&raw mut command)
                .cast::<u8>()
                .add(PARTS_AT)
                .cast::<u32>()
                .write(2);
        }
        self.push(command);
    }

    /// Puts a command behind those that wait for a slot, or into one.
    fn push(&mut self, command: Entry128) {
        if !self.backlog.is_empty() || !self.slot(&command) {
            self.backlog.push_back(command);
        }
    }

    /// Puts a command into a slot of the ring; false if all are taken until the next call of the
    /// kernel.
    fn slot(&mut self, command: &Entry128) -> bool {
        // SAFETY: what a command names are parts, header and payload of an entry, which is the
        // kernel's until its completion is seen, and not freed before; a poll names no memory.
        // Both descriptors are open as long as the ring.
        unsafe { self.ring.submission().push(command).is_ok() }
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        let entries = std::mem::take(&mut self.entries).into_iter();
        // The kernel may still write there.
        entries
            .filter(|entry| !entry.is_ours)
            .for_each(std::mem::forget);
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    /// On a file, which takes no commands; `None` where there is no io_uring.
    fn commands() -> Option<(Commands, Arc<OwnedFd>)> {
        let file = tempfile::tempfile().unwrap();
        let device = Arc::new(Device::new(file.into()));
        let wake = Arc::new(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        let sizes = Sizes {
            queues: 1,
            depth: 2,
            resident: 1,
            io_max: 10_000,
        };
        let made = Commands::new(&device, &wake, 0, &sizes).ok();
        if made.is_none() {
            println!("skipped: needs io_uring");
        }
        Some((made?, wake))
    }

    #[test]
    fn what_was_offered_cannot_be_reached_until_its_completion_is_seen() {
        let Some((mut commands, wake)) = commands() else {
            return;
        };
        let (_, payload) = commands.entry(1).unwrap();
        assert_eq!(payload.len(), 10_000);
        assert_eq!(payload.as_ptr().align_offset(PAGE), 0);
        payload.fill(7);
        assert!(commands.entry(2).is_none());
        commands.register().unwrap();
        for index in 0..2 {
            assert!(commands.entry(index).is_none());
            // It cannot be offered twice.
            commands.commit(index);
            assert!(matches!(commands.next(), Some((Event::Lost(_), _))));
            assert!(commands.entry(index).is_some());
            assert_eq!(commands.offered(), 1 - index);
        }
        assert!(commands.next().is_none());
        rustix::io::write(&wake, 1u64.as_bytes()).unwrap();
        commands.submit_and_wait().unwrap();
        assert_eq!(commands.next(), Some((Event::Woken, false)));
        commands.refuse();
        assert_eq!(commands.next(), Some((Event::Woken, false)));
        // Dropped while the kernel has it.
        commands.commit(0);
    }

    #[test]
    fn nothing_else_can_be_asked_of_a_ring() {
        let Some((mut commands, _)) = commands() else {
            return;
        };
        commands.push(Entry128::from(opcode::Nop::new().build()));
        commands.submit_and_wait().unwrap();
        let reported = commands.ring.completion().next().unwrap();
        assert_eq!(reported.result(), -rustix::io::Errno::ACCESS.raw_os_error());
    }

    #[test]
    fn entries_are_added_beyond_the_slots_and_hold_no_more_memory_than_they_may() {
        let Some((mut commands, _)) = commands() else {
            return;
        };
        commands.register().unwrap();
        while commands.offered() > 0 {
            assert!(matches!(commands.next(), Some((Event::Lost(_), _))));
        }
        // More than the ring has slots, before any is handed over.
        for _ in 0..100 {
            commands.grow().unwrap();
        }
        let mut lost = 0;
        while commands.offered() > 0 {
            commands.submit().unwrap();
            while let Some((event, _)) = commands.next() {
                lost += usize::from(matches!(event, Event::Lost(_)));
            }
        }
        assert_eq!((lost, commands.depth()), (100, 102));
        for index in 0..100 {
            commands.entry(index).unwrap().1.fill(7);
            commands.uses(index, 10_000);
            commands.idle(index);
            assert_eq!(commands.resident, 1);
        }
        // What was given back reads as zeroes, but for the last bytes, which are no whole page.
        let (_, payload) = commands.entry(99).unwrap();
        let is_shrunk = rustix::param::page_size() == PAGE;
        assert_eq!((payload[0], payload[2 * PAGE]), (7, 7));
        assert_eq!(payload[PAGE] == 0, is_shrunk);
        assert_eq!(commands.entry(0).unwrap().1[PAGE], 7);
    }
}
