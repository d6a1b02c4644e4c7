//! One queue of a ring: its commands, and the memory they name. The only `unsafe` of this crate.
//!
//! An entry is either ours or the kernel's. Offered ([`Commands::register`], [`Commands::commit`]), the
//! kernel may write to it at any time until its completion is seen ([`Commands::next`]); while that is
//! so, nobody here gets at its memory, and the memory is never freed: entries that the kernel still has
//! when a queue is dropped are leaked.
//!
//! A ring takes these commands and the wait for a wake-up, and nothing else.

#![allow(unsafe_code)]

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

/// The number of the completion that says that somebody woke us.
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
}

impl Entry {
    fn new(len: usize) -> Self {
        let mut header = Box::<UringReqHeader>::default();
        let mut payload = vec![0; len + PAGE];
        let start = payload.as_ptr().align_offset(PAGE).min(PAGE);
        let parts = [
            (&raw mut *header).expose_provenance(),
            size_of::<UringReqHeader>(),
            payload.as_mut_ptr().expose_provenance() + start,
            len,
        ];
        Self {
            header,
            payload,
            start,
            parts: Box::new(parts),
            is_ours: true,
        }
    }
}

/// What came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The entry of this number has a request.
    Request(usize),
    /// An entry will have none any more; the error's number.
    Lost(i32),
    /// Somebody woke us.
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
    /// The ring of a queue with `depth` entries for `len` bytes each; what can be read from `wake` ends
    /// a wait.
    ///
    /// # Errors
    /// Those of setting up a ring: it is not allowed, or there is too little memory.
    pub fn new(
        device: &Arc<Device>,
        wake: &Arc<OwnedFd>,
        queue: u16,
        (depth, len): (usize, usize),
    ) -> io::Result<Self> {
        // Each entry has one command at most, and there are two more.
        let slots = (depth + 2).next_power_of_two();
        let mut builder = IoUring::<Entry128, cqueue::Entry>::builder();
        let builder = builder.dontfork().setup_r_disabled();
        let ring = builder.build(slots as u32)?;
        // Nothing else can be asked of it, also by who has got into this process and whose system calls
        // are bounded: a ring would be a way around that.
        let mut allowed =
            [opcode::UringCmd80::CODE, opcode::PollAdd::CODE].map(Restriction::sqe_op);
        let submitter = ring.submitter();
        submitter.register_restrictions(&mut allowed)?;
        submitter.register_enable_rings()?;
        Ok(Self {
            ring,
            entries: (0..depth).map(|_| Entry::new(len)).collect(),
            device: Arc::clone(device),
            wake: Arc::clone(wake),
            queue,
            offered: 0,
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

    /// Offers all entries, from the thread that will wait for requests. Those that the kernel does not
    /// take are lost at once.
    ///
    /// # Errors
    /// Those of the ring.
    pub fn register(&mut self) -> io::Result<()> {
        self.listen();
        for index in 0..self.entries.len() {
            self.offer(index, FUSE_IO_URING_CMD_REGISTER, 0);
        }
        self.submit(false)
    }

    /// Offers what the kernel does not take: it goes on without rings.
    pub fn refuse(&mut self) {
        let carried = UringCmdReq {
            // No machine has as many.
            qid: u16::MAX,
            ..UringCmdReq::default()
        };
        self.command((0, REFUSED), FUSE_IO_URING_CMD_REGISTER, carried);
        _ = self.submit(false);
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
            let id = entry.header.ring_ent_in_out.commit_id;
            self.offer(index, FUSE_IO_URING_CMD_COMMIT_AND_FETCH, id);
        }
    }

    /// Wants to be told when it is woken; once.
    pub fn listen(&mut self) {
        let poll = opcode::PollAdd::new(Fd(self.wake.as_raw_fd()), READABLE).build();
        self.push(Entry128::from(poll.user_data(WOKEN)));
    }

    /// Hands over what was committed, and waits for something to come if `waits`.
    ///
    /// # Errors
    /// Those of the ring.
    pub fn submit(&mut self, waits: bool) -> io::Result<()> {
        match self.ring.submit_and_wait(usize::from(waits)) {
            Ok(_) => Ok(()),
            // A signal, or completions that are to be taken first.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The next of what came, and whether there is more.
    pub fn next(&mut self) -> Option<(Event, bool)> {
        let (told, has_more) = {
            let mut queue = self.ring.completion();
            (queue.next()?, !queue.is_empty())
        };
        let event = match (told.user_data(), told.result()) {
            (WOKEN | REFUSED, _) => Event::Woken,
            (index, result) => {
                let index = index as usize;
                let entry = self.entries.get_mut(index)?;
                entry.is_ours = true;
                self.offered -= 1;
                match result {
                    0.. => Event::Request(index),
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
        self.command((index, index as u64), what, carried);
    }

    /// A command about an entry, whose completion has a number.
    fn command(&mut self, (index, number): (usize, u64), what: u32, carried: UringCmdReq) {
        let mut bytes = [0; 80];
        bytes[..size_of::<UringCmdReq>()].copy_from_slice(carried.as_bytes());
        let parts = &raw const *self.entries[index].parts;
        let fd = Fd(self.device.as_fd().as_raw_fd());
        let command = opcode::UringCmd80::new(fd, what)
            .cmd(bytes)
            .addr(Some(parts.expose_provenance() as u64));
        let mut command = command.build().user_data(number);
        const { assert!(size_of::<Entry128>() == 128 && align_of::<Entry128>() >= 4) };
        // SAFETY: a number of 32 bits in the 128 bytes of a submission as the kernel reads it, aligned;
        // the crate has no way to say how many parts there are.
        unsafe {
            (&raw mut command)
                .cast::<u8>()
                .add(PARTS_AT)
                .cast::<u32>()
                .write(2);
        }
        self.push(command);
    }

    fn push(&mut self, command: Entry128) {
        // SAFETY: what a command names are parts, header and payload of an entry, which is the kernel's
        // until its completion is seen, and not freed before; a poll names no memory. Both descriptors
        // are open as long as the ring.
        let pushed = unsafe { self.ring.submission().push(&command) };
        // OK to unwrap: there is a slot for each entry and two more, and no entry has two commands.
        pushed.unwrap();
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
        let made = Commands::new(&device, &wake, 0, (2, 10_000)).ok();
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
        commands.submit(true).unwrap();
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
        commands.submit(true).unwrap();
        let told = commands.ring.completion().next().unwrap();
        assert_eq!(told.result(), -rustix::io::Errno::ACCESS.raw_os_error());
    }
}
