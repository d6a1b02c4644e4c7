//! Trace events of throttling, the kernel's and ours: both have the same names and nearly the same
//! fields, ours without the task and the CPU.
//!
//! ```text
//!   dd-4711  [001] .....  8133.215001: balance_dirty_pages: bdi 7:0: limit=25600 ... pause=40 ...
//! 0.998197 balance_dirty_pages: bdi=0 limit=25600 ... pause=40 ...
//! ```

use crate::kernel::trace::{self, Clock, Trace};

/// What is traced.
pub const NAMES: [&str; 2] = ["balance_dirty_pages", "global_dirty_state"];
/// A line that [`Tracing::mark`] writes.
const MARK: &str = "tracing_mark_write";
/// KiB for each CPU: some 400,000 lines.
const BUFFER: u32 = 65536;

/// The kernel's tracing of throttling.
#[derive(Debug)]
pub struct Tracing(Trace);

/// A line of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Seconds of the trace's own clock.
    pub at: f64,
    /// What happened: one of [`NAMES`], or a mark.
    pub name: &'static str,
    fields: String,
}

impl Tracing {
    /// Traces the events of throttling from now on.
    ///
    /// # Errors
    /// What this machine lacks: root, tracefs, these events.
    pub fn new() -> Result<Self, String> {
        let trace = Trace::new(Clock::Global)?;
        trace.resize(BUFFER)?;
        trace.enable(&NAMES.map(|name| format!("writeback/{name}")))?;
        Ok(Self(trace))
    }

    /// Puts a line with this text into the trace.
    ///
    /// # Errors
    /// What writing it failed with.
    pub fn mark(&self, text: &str) -> Result<(), String> {
        self.0.mark(text)
    }

    /// Ends tracing and returns all that was traced.
    ///
    /// # Errors
    /// What reading it failed with.
    pub fn end(self) -> Result<Vec<Event>, String> {
        self.0.record(false)?;
        Ok(kernel_events(self.0.drain()?))
    }
}

/// Those of these events that are about throttling, and the marks.
fn kernel_events(events: Vec<trace::Event>) -> Vec<Event> {
    let event = |event: trace::Event| {
        let mut known = NAMES.into_iter().chain([MARK]);
        Some(Event {
            // OK to cast: nanoseconds since the machine started, to a microsecond.
            at: event.time as f64 / 1e9,
            name: known.find(|known| *known == event.name)?,
            fields: event.fields,
        })
    };
    events.into_iter().filter_map(event).collect()
}

/// The events in what a mount of ours printed; other lines are left out.
pub fn our_events(text: &str) -> Vec<Event> {
    let event = |line: &str| {
        let (at, rest) = line.split_once(' ')?;
        let (name, fields) = rest.split_once(':')?;
        Some(Event {
            at: at.parse().ok()?,
            name: NAMES.into_iter().find(|known| *known == name)?,
            fields: fields.to_owned(),
        })
    };
    text.lines().filter_map(event).collect()
}

impl Event {
    fn field(&self, name: &str) -> Option<f64> {
        let mut words = self.fields.split_whitespace();
        let text = words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))?;
        text.parse().ok()
    }

    /// Whether it is a mark of this text.
    pub fn is_mark(&self, text: &str) -> bool {
        self.name == MARK && self.fields.trim() == text
    }

    /// Milliseconds of a pause that begins, if it is one of a writer on this device; `None` as
    /// `device` means any.
    pub fn pause(&self, device: Option<&str>) -> Option<f64> {
        let is_there = device.is_none_or(|device| {
            let place = self.fields.strip_prefix("bdi ");
            let rest = place.and_then(|place| place.strip_prefix(device));
            rest.is_some_and(|rest| rest.starts_with(": "))
        });
        let pause = self.field("pause").filter(|pause| *pause > 0.0)?;
        (self.name == NAMES[0] && is_there).then_some(pause)
    }

    /// Pages that are dirty or under writeback, as throttling counts them.
    pub fn dirty(&self) -> Option<f64> {
        match self.name == NAMES[0] {
            true => self.field("dirty"),
            false => {
                let dirty = self.field("dirty").or_else(|| self.field("nr_dirty"))?;
                let writeback = self.field("writeback");
                Some(dirty + writeback.or_else(|| self.field("nr_writeback"))?)
            }
        }
    }

    /// Pages that are dirty for other devices than the one whose writer begins a pause.
    pub fn dirty_elsewhere(&self) -> Option<f64> {
        let own = self.field("wb_dirty").filter(|_| self.name == NAMES[0])?;
        // The kernel counts both a little late.
        Some((self.field("dirty")? - own).max(0.0))
    }

    /// The limit in pages, and where throttling aims at.
    pub fn limits(&self) -> Option<Limits> {
        Some(Limits {
            limit: self.field("limit").filter(|_| self.name == NAMES[0])?,
            setpoint: self.field("setpoint")?,
        })
    }
}

/// Where throttling holds what is dirty, in pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Writers stop here.
    pub limit: f64,
    /// Half way from where throttling begins to the limit.
    pub setpoint: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: &str = "# tracer: nop\n\
        a: b-c-4711    [001] .....  8133.215001: balance_dirty_pages: bdi 7:1: limit=25600 \
        setpoint=22400 dirty=19225 wb_dirty=19000 dirtied=4 paused=0 pause=140 period=0 think=0\n\
        <...>-12       [000] .....  8133.215003: global_dirty_state: dirty=100 writeback=20 \
        bg_thresh=1 thresh=2 limit=3 dirtied=4 written=5\n\
        lab-1          [000] .....  8134.000000: tracing_mark_write: counted\n";

    #[test]
    fn events_of_the_kernel_are_read() {
        let events = kernel_events(trace::parse(KERNEL.as_bytes()));
        assert_eq!(events.len(), 3);
        assert!((events[0].at - 8_133.215_001).abs() < 1e-7);
        let limits = Limits {
            limit: 25600.0,
            setpoint: 22400.0,
        };
        assert_eq!(events[0].limits(), Some(limits));
        assert_eq!(events[0].dirty(), Some(19225.0));
        assert_eq!(events[0].dirty_elsewhere(), Some(225.0));
        assert_eq!(events[1].dirty_elsewhere(), None);
        assert_eq!(events[0].pause(Some("7:1")), Some(140.0));
        assert_eq!(events[0].pause(Some("7:10")), None);
        assert_eq!((events[1].dirty(), events[1].limits()), (Some(120.0), None));
        assert!(events[2].is_mark("counted") && !events[1].is_mark("counted"));
    }

    #[test]
    fn events_of_a_mount_are_read() {
        let text = "uext4: a message\n\
                    0.5 balance_dirty_pages: bdi=0 limit=10 setpoint=8 dirty=7 pause=3\n\
                    0.6 global_dirty_state: nr_dirty=5 nr_writeback=2 dirty_limit=10\n\
                    0.7 writeback_start: bdi=0\n";
        let events = our_events(text);
        assert_eq!(events.len(), 2);
        assert_eq!(events[0].pause(None), Some(3.0));
        assert_eq!(
            (events[0].dirty(), events[1].dirty()),
            (Some(7.0), Some(7.0))
        );
    }
}
