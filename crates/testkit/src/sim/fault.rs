//! Errors that a simulated device gives on purpose.

use std::io;
use std::ops::Range;

use rustix::io::Errno;

/// What is asked of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A flush; its range is empty and at 0.
    Flush,
    /// A discard.
    Discard,
}

impl Op {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
        }
    }
}

/// One request as the device saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// What was asked.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// Which error a faulty request gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// EIO. Of a write, some sectors reach the device all the same; what was written before a
    /// flush that fails so is never made durable unless it is written again.
    Io,
    /// ENOSPC, as thin volumes give it. Nothing is done.
    NoSpace,
}

impl FaultKind {
    pub(super) fn error(self) -> io::Error {
        match self {
            Self::Io => Errno::IO.into(),
            Self::NoSpace => Errno::NOSPC.into(),
        }
    }
}

/// A rule that makes requests fail.
///
/// ```
/// use uext4_testkit::{Fault, FaultKind, Op};
///
/// // The third write that touches the first block, and all after it.
/// let fault = Fault::new(Op::Write).within(0..4096).after(2).times(u64::MAX);
/// assert_eq!(fault.kind, FaultKind::Io);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Requests of this kind match,
    pub op: Op,
    /// if they touch a byte of this range (flushes always do).
    pub range: Range<u64>,
    /// So many matching requests still succeed,
    pub skip: u64,
    /// then so many fail,
    pub count: u64,
    /// with this error.
    pub kind: FaultKind,
}

impl Fault {
    /// The next `op` fails with EIO, wherever it is, and later ones do not.
    #[must_use]
    pub fn new(op: Op) -> Self {
        Self {
            op,
            range: 0..u64::MAX,
            skip: 0,
            count: 1,
            kind: FaultKind::Io,
        }
    }

    /// Only requests that touch `range`.
    #[must_use]
    pub fn within(self, range: Range<u64>) -> Self {
        Self { range, ..self }
    }

    /// Only after `skip` matching requests have succeeded.
    #[must_use]
    pub fn after(self, skip: u64) -> Self {
        Self { skip, ..self }
    }

    /// `count` requests fail; `u64::MAX` for all.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self { count, ..self }
    }

    /// With another error.
    #[must_use]
    pub fn with(self, kind: FaultKind) -> Self {
        Self { kind, ..self }
    }

    /// Whether `request` is to fail; counts it if it matches.
    pub(super) fn strikes(&mut self, request: &Request) -> bool {
        let end = request.offset.saturating_add(request.len);
        let touches = request.offset < self.range.end && end > self.range.start;
        if self.op != request.op || !(touches || request.op == Op::Flush) {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        let strikes = self.count > 0;
        if self.count != u64::MAX {
            self.count = self.count.saturating_sub(1);
        }
        strikes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_count_what_matches() {
        let mut fault = Fault::new(Op::Write).within(100..200).after(1).times(2);
        let mut strikes = |op, offset, len| fault.strikes(&Request { op, offset, len });
        assert!(!strikes(Op::Read, 150, 1));
        assert!(!strikes(Op::Write, 0, 100));
        assert!(!strikes(Op::Write, 200, 100));
        assert!(!strikes(Op::Write, 199, 1), "skipped");
        assert!(strikes(Op::Write, 0, 101));
        assert!(strikes(Op::Write, 100, 1));
        assert!(!strikes(Op::Write, 100, 1), "used up");
        let mut flushes = Fault::new(Op::Flush).within(5..6).times(u64::MAX);
        let flush = Request {
            op: Op::Flush,
            offset: 0,
            len: 0,
        };
        assert!((0..10).all(|_| flushes.strikes(&flush)));
    }
}
