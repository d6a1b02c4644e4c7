//! A device that is simulated: it takes time on a clock, fails on request, and loses power.
//!
//! Contents are two sparse images in memory (see `volatile`). A write is in a volatile cache until
//! a flush; at a power cut any subset of what was written since survives, torn between sectors of
//! [`SimOptions::sector_size`] bytes and in any order, as a seed decides. With the same seeds and
//! the same requests in the same order, everything is the same again, bytes and times.
//!
//! A test of crash safety counts the writes of a run, then cuts after each:
//!
//! ```
//! use uext4_blockdev::{BlockDevice, MemoryDevice};
//! use uext4_testkit::{SimDevice, SimOptions};
//!
//! # fn main() -> Result<(), uext4_blockdev::Error> {
//! let work = |device: &SimDevice| {
//!     device.write_at(4096, b"new")?;
//!     device.flush()?;
//!     device.write_at(0, b"new is there")?;
//!     device.flush()
//! };
//! let empty = MemoryDevice::new(8192);
//! let whole = SimDevice::new(&empty, SimOptions::default());
//! work(&whole)?;
//! for cut in 0..=whole.stats().changes() {
//!     let device = SimDevice::new(&empty, SimOptions::default());
//!     device.cut_at_write(cut);
//!     let _ = work(&device);
//!     for seed in 0..20 {
//!         let image = device.power_cut(seed).to_bytes();
//!         assert!(!image.starts_with(b"new is there") || image[4096..].starts_with(b"new"));
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! One mutex guards all state; it is not held while time passes, nor is anything called under it
//! but the hook. Left out: silent corruption, and writes that land in the wrong place.

mod fault;
mod survival;
mod timing;
mod volatile;

pub use fault::{Fault, FaultKind, Op, Request};
pub use timing::Timing;

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use survival::Survival;
use timing::Cost;
use uext4_blockdev::{
    BlockDevice, Clock, Error, MemoryDevice, ReadRequest, VirtualClock, WriteRequest,
};
use volatile::Volatile;

/// How a simulated device behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimOptions {
    /// How long requests take. Default: no time.
    pub timing: Timing,
    /// Whether writes wait for a flush. Without, each is durable when it returns, but for the
    /// one after which the power goes. Default: yes.
    pub volatile_cache: bool,
    /// Bytes written whole or not at all, at least 1. Default: 512.
    pub sector_size: u32,
    /// Decides which sectors of a failed write are written all the same. Default: 0.
    pub seed: u64,
    /// Whether requests are reserved for [`SimDevice::take_record`]. Default: no.
    pub record: bool,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            timing: Timing::default(),
            volatile_cache: true,
            sector_size: 512,
            seed: 0,
            record: false,
        }
    }
}

/// What a device was asked so far. Each request of a batch counts, failed ones too; those refused
/// for their range or for want of power do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Discards.
    pub discards: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes of all reads.
    pub bytes_read: u64,
    /// Bytes of all writes.
    pub bytes_written: u64,
    /// Bytes of all discards.
    pub bytes_discarded: u64,
}

impl Stats {
    /// Writes and discards: what [`SimDevice::cut_at_write`] counts.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.writes + self.discards
    }

    fn count(&mut self, request: &Request) {
        let (requests, bytes) = match request.op {
            Op::Read => (&mut self.reads, &mut self.bytes_read),
            Op::Write => (&mut self.writes, &mut self.bytes_written),
            Op::Discard => (&mut self.discards, &mut self.bytes_discarded),
            Op::Flush => {
                self.flushes += 1;
                return;
            }
        };
        *requests += 1;
        *bytes = bytes.saturating_add(request.len);
    }
}

type Hook = Box<dyn FnMut(&Request) -> Option<FaultKind> + Send>;

struct State {
    contents: Volatile,
    stats: Stats,
    record: Vec<Request>,
    faults: Vec<Fault>,
    hook: Option<Hook>,
    /// Changes ever made; the number of the last one.
    changes: u64,
    /// The power goes when there were so many changes.
    cut: Option<u64>,
    is_off: bool,
    /// Byte after the last one transferred, where the arm of the disk is.
    head: u64,
    /// Moment on the clock until which earlier requests keep the device busy.
    busy_until: Duration,
}

/// A simulated device.
pub struct SimDevice {
    len: u64,
    options: SimOptions,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

impl fmt::Debug for SimDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("SimDevice");
        debug
            .field("len", &self.len)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl SimDevice {
    /// A device that holds a copy of `image`, on a virtual clock of its own.
    #[must_use]
    pub fn new(image: &MemoryDevice, options: SimOptions) -> Self {
        Self::with_clock(image, options, Arc::new(VirtualClock::default()))
    }

    /// A device that shares a clock, virtual or real, with others.
    #[must_use]
    pub fn with_clock(image: &MemoryDevice, options: SimOptions, clock: Arc<dyn Clock>) -> Self {
        let state = State {
            contents: Volatile::new(image, u64::from(options.sector_size.max(1))),
            stats: Stats::default(),
            record: Vec::new(),
            faults: Vec::new(),
            hook: None,
            changes: 0,
            cut: None,
            is_off: false,
            head: 0,
            busy_until: Duration::ZERO,
        };
        Self {
            len: image.len(),
            options,
            clock,
            state: Mutex::new(state),
        }
    }

    /// The clock on which its requests take time.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// What it was asked since it was made, or since [`SimDevice::reset_stats`].
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.state.lock().stats
    }

    /// Counts from zero again.
    pub fn reset_stats(&self) {
        self.state.lock().stats = Stats::default();
    }

    /// The requests since the last call, if [`SimOptions::record`] is set.
    #[must_use]
    pub fn take_record(&self) -> Vec<Request> {
        std::mem::take(&mut self.state.lock().record)
    }

    /// Adds a rule. A request fails with the error of the first rule that strikes.
    pub fn inject(&self, fault: Fault) {
        self.state.lock().faults.push(fault);
    }

    /// Asks `hook` before each request whether it is to fail. It must not use the device.
    pub fn set_hook(&self, hook: impl FnMut(&Request) -> Option<FaultKind> + Send + 'static) {
        self.state.lock().hook = Some(Box::new(hook));
    }

    /// Takes all rules and the hook away.
    pub fn clear_faults(&self) {
        let mut state = self.state.lock();
        state.faults.clear();
        state.hook = None;
    }

    /// Lets the power go after `count` more changes (see [`Stats::changes`]); at once if that is
    /// 0. Every request from then on fails.
    pub fn cut_at_write(&self, count: u64) {
        let mut state = self.state.lock();
        state.cut = Some(state.changes.saturating_add(count));
        state.is_off |= count == 0;
    }

    /// Whether the power has gone.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.state.lock().is_off
    }

    /// The image as it would be found had the power gone now. The device itself goes on, so
    /// several seeds may be tried on one state. Some seeds keep everything, some nothing.
    #[must_use]
    pub fn power_cut(&self, seed: u64) -> MemoryDevice {
        let image = self.state.lock().contents.after_power_cut(seed);
        // OK to unwrap: memory fails only outside its length, and all sectors lie within.
        image.unwrap()
    }

    /// A copy of what reads see, whether it is durable or not.
    #[must_use]
    pub fn contents(&self) -> MemoryDevice {
        self.state.lock().contents.current().snapshot()
    }

    /// A copy of what no power cut takes away.
    #[must_use]
    pub fn durable(&self) -> MemoryDevice {
        self.state.lock().contents.durable().snapshot()
    }

    /// Does a batch under the lock, then lets its time pass.
    fn perform(
        &self,
        op: Op,
        batch: impl FnOnce(&mut Batch<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut state = self.state.lock();
        let mut cost = Cost::new(op);
        let done = batch(&mut Batch {
            device: self,
            state: &mut state,
            cost: &mut cost,
        });
        let start = state.busy_until.max(self.clock.monotonic());
        let end = start.saturating_add(cost.duration(&self.options.timing));
        state.busy_until = end;
        drop(state);
        if end > start {
            self.clock.sleep_until(end);
        }
        done
    }
}

/// A batch of requests of one kind while it is served.
struct Batch<'a> {
    device: &'a SimDevice,
    state: &'a mut State,
    cost: &'a mut Cost,
}

impl Batch<'_> {
    /// Power, counts, time and faults of a request: what strikes it, if anything does.
    fn begin(&mut self, request: &Request) -> Result<Option<FaultKind>, Error> {
        if self.state.is_off {
            let source = io::Error::other("the power is off");
            return Err(Error::io(request.op.name(), request.offset, source));
        }
        self.state.stats.count(request);
        if matches!(request.op, Op::Write | Op::Discard) {
            self.state.changes += 1;
        }
        if self.device.options.record {
            self.state.record.push(*request);
        }
        let mut distance = 0;
        let mut moved = 0;
        if matches!(request.op, Op::Read | Op::Write) {
            distance = request.offset.abs_diff(self.state.head);
            moved = request.len;
            self.state.head = request.offset + request.len;
        }
        self.cost.add(
            &self.device.options.timing,
            moved,
            distance,
            self.device.len,
        );
        // Every rule counts, also behind one that strikes.
        let mut struck = self.state.hook.as_mut().and_then(|hook| hook(request));
        for fault in &mut self.state.faults {
            if fault.strikes(request) {
                struck = struck.or(Some(fault.kind));
            }
        }
        Ok(struck)
    }

    /// After a change: lets the power go if it was the last one, else makes it durable where no
    /// cache holds it back.
    fn end_change(&mut self) -> Result<(), Error> {
        if self.state.cut.is_some_and(|cut| self.state.changes >= cut) {
            self.state.is_off = true;
        } else if !self.device.options.volatile_cache {
            self.state.contents.flush()?;
        }
        Ok(())
    }

    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let request = Request {
            op: Op::Read,
            offset,
            len: buf.len() as u64,
        };
        match self.begin(&request)? {
            Some(kind) => Err(Error::io("read", offset, kind.error())),
            None => self.state.contents.current().read_at(offset, buf),
        }
    }

    fn write(&mut self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        let request = Request {
            op: Op::Write,
            offset,
            len: buf.len() as u64,
        };
        let struck = self.begin(&request)?;
        let number = self.state.changes;
        let contents = &mut self.state.contents;
        match struck {
            None => contents.write(number, offset, buf)?,
            Some(FaultKind::NoSpace) => {}
            Some(FaultKind::Io) => {
                let survival = Survival::torn(self.device.options.seed);
                contents.write_torn(number, offset, buf, survival)?;
            }
        }
        self.end_change()?;
        struck.map_or(Ok(()), |kind| Err(Error::io("write", offset, kind.error())))
    }

    fn discard(&mut self, offset: u64, len: u64) -> Result<(), Error> {
        let struck = self.begin(&Request {
            op: Op::Discard,
            offset,
            len,
        })?;
        let number = self.state.changes;
        if struck.is_none() {
            self.state.contents.discard(number, offset, len)?;
        }
        self.end_change()?;
        struck.map_or(Ok(()), |kind| {
            Err(Error::io("discard", offset, kind.error()))
        })
    }

    fn flush(&mut self) -> Result<(), Error> {
        match self.begin(&Request {
            op: Op::Flush,
            offset: 0,
            len: 0,
        })? {
            None => self.state.contents.flush(),
            Some(kind) => {
                if kind == FaultKind::Io {
                    self.state.contents.fail_flush();
                }
                Err(Error::io("flush", 0, kind.error()))
            }
        }
    }
}

impl BlockDevice for SimDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.read_many(&mut [ReadRequest { offset, buf }])
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<(), Error> {
        for request in requests.iter() {
            Error::check_range(request.offset, request.buf.len() as u64, self.len)?;
        }
        self.perform(Op::Read, |batch| {
            requests
                .iter_mut()
                .try_for_each(|request| batch.read(request.offset, request.buf))
        })
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        self.write_many(&[WriteRequest { offset, buf }])
    }

    fn write_many(&self, requests: &[WriteRequest<'_>]) -> Result<(), Error> {
        for request in requests {
            Error::check_range(request.offset, request.buf.len() as u64, self.len)?;
        }
        self.perform(Op::Write, |batch| {
            requests
                .iter()
                .try_for_each(|request| batch.write(request.offset, request.buf))
        })
    }

    fn flush(&self) -> Result<(), Error> {
        self.perform(Op::Flush, |batch| batch.flush())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        Error::check_range(offset, len, self.len)?;
        self.perform(Op::Discard, |batch| batch.discard(offset, len))
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, Error> {
        self.state.lock().contents.current().next_data(offset)
    }
}
