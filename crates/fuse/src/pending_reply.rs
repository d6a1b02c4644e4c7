//! Answers: where they go, who may give them later, and how long they took.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use crate::errno::{Errno, Result};
use crate::latency::Latencies;

/// Where answers go.
pub trait Channel: Send + Sync + std::fmt::Debug {
    /// Answers the request of this number. A caller that asked may be gone: then nothing happens.
    fn send(&self, unique: u64, answer: Result<&[u8]>);
    /// Has the kernel write what it holds of a node's contents, and forget its pages, before this
    /// returns. By no thread that serves requests: others serve what the kernel writes meanwhile.
    fn write_back(&self, id: u64);
    /// Has the kernel forget the attributes of a node, which it does before this returns. Only
    /// for a caller that is asked to do something with the node just now: so it is in use, and
    /// the kernel waits for nothing.
    fn forget_attributes(&self, id: u64);
    /// Whether the thread that reads requests may wait for the disk now, as others read meanwhile.
    /// Who got the permission gives it back by [`Channel::has_waited`].
    fn may_wait(&self) -> bool {
        false
    }
    /// The end of what [`Channel::may_wait`] permitted.
    fn has_waited(&self) {}
}

/// The permission to wait, of this thread.
#[derive(Debug)]
pub(crate) struct Waiting<'a>(&'a dyn Channel);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.has_waited();
    }
}

/// The caller: may be answered later, and reported something before.
#[derive(Debug)]
pub struct RequestContext<'a> {
    channel: &'a Arc<dyn Channel>,
    unique: u64,
    /// Where the duration of the request is recorded; `None`: the channel records it.
    timing: Option<(&'a Arc<Latencies>, Arrival)>,
    has_pending: Cell<bool>,
}

impl<'a> RequestContext<'a> {
    /// Of a request of a channel.
    pub(crate) fn new(
        channel: &'a Arc<dyn Channel>,
        unique: u64,
        timing: Option<(&'a Arc<Latencies>, Arrival)>,
    ) -> Self {
        Self {
            channel,
            unique,
            timing,
            has_pending: Cell::new(false),
        }
    }

    /// The right to answer later.
    pub fn pending_reply(&self) -> PendingReply {
        self.has_pending.set(true);
        let pending_reply = PendingReply::new(self.channel, self.unique);
        match self.timing {
            Some((latencies, arrival)) => pending_reply.timed(latencies, arrival),
            None => pending_reply,
        }
    }

    /// Whether a thread answers later.
    pub(crate) fn has_pending(&self) -> bool {
        self.has_pending.get()
    }

    /// Where the answer goes.
    pub fn channel(&self) -> &'a Arc<dyn Channel> {
        self.channel
    }

    /// The permission to wait for the disk, where there is one.
    pub(crate) fn waiting(&self) -> Option<Waiting<'a>> {
        let channel = &**self.channel;
        channel.may_wait().then(|| Waiting(channel))
    }
}

/// The right, and the duty, to answer a request later.
#[derive(Debug)]
pub struct PendingReply {
    channel: Arc<dyn Channel>,
    unique: u64,
    answered: bool,
    timer: Option<Timer>,
}

/// What kind of request came, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Its opcode.
    pub(crate) opcode: u32,
    /// When it came.
    pub(crate) began: Instant,
}

/// When a request came, and where it is counted how long it took.
#[derive(Debug)]
struct Timer {
    latencies: Arc<Latencies>,
    arrival: Arrival,
}

impl PendingReply {
    /// For a request of a channel.
    pub fn new(channel: &Arc<dyn Channel>, unique: u64) -> Self {
        Self {
            channel: Arc::clone(channel),
            unique,
            answered: false,
            timer: None,
        }
    }

    /// The same, which reports how long the request took.
    pub(crate) fn timed(mut self, latencies: &Arc<Latencies>, arrival: Arrival) -> Self {
        self.timer = Some(Timer {
            latencies: Arc::clone(latencies),
            arrival,
        });
        self
    }

    /// Which request.
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// Where the answer goes.
    pub fn channel(&self) -> &Arc<dyn Channel> {
        &self.channel
    }

    /// Answers it.
    pub fn answer(mut self, answer: Result<&[u8]>) {
        self.give(answer);
    }

    fn give(&mut self, answer: Result<&[u8]>) {
        self.answered = true;
        if let Some(timer) = &self.timer {
            let answer = answer.map(|_| ());
            let Arrival { opcode, began } = timer.arrival;
            timer.latencies.record(opcode, began, &answer);
        }
        self.channel.send(self.unique, answer);
    }
}

impl Drop for PendingReply {
    /// What was to be done ended in a panic: no thread is to wait for ever.
    fn drop(&mut self) {
        if !self.answered {
            self.give(Err(Errno::EIO));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Client;

    #[test]
    fn a_lost_pending_reply_is_an_error_and_no_hang() {
        let client = Client::new();
        drop(PendingReply::new(&client.channel(), 42));
        assert_eq!(client.answer_to(42), Err(Errno::EIO));
    }
}
