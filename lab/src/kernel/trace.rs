//! The kernel's trace events, read through an instance of tracefs that nothing else uses.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::undo::Undo;

/// Where tracefs is mounted.
const ROOT: &str = "/sys/kernel/tracing";
/// Bytes that are read from the ring buffer at once.
const CHUNK: usize = 1 << 16;
/// How long a follower sleeps when the ring buffer is empty.
const PAUSE: Duration = Duration::from_millis(2);

/// Makes instances with different names.
static MADE: AtomicU64 = AtomicU64::new(0);

/// Where the times of events come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Seconds since boot, alike on all processors; events are printed to the microsecond.
    Global,
    /// The number of the event, whichever processor it was on: a total order, and no time.
    Counter,
}

/// An instance of tracefs: its own ring buffer, its own events. Removed when dropped, also if this
/// process is killed.
#[derive(Debug)]
pub struct Trace {
    dir: PathBuf,
    /// Of a mount of ours, if tracefs was not mounted; undone after the instance is removed.
    _undo: Vec<Undo>,
}

/// An event as the ring buffer printed it.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The name of the task, at most 15 bytes.
    pub task: String,
    /// The thread's number.
    pub pid: u32,
    /// The processor.
    pub cpu: u32,
    /// Nanoseconds of [`Clock::Global`], or the number of [`Clock::Counter`].
    pub time: u64,
    /// The event's name, without that of its system: `ext4_es_shrink`.
    pub name: String,
    /// Everything after the name.
    pub fields: String,
}

/// Reads the events of an instance while they happen.
#[derive(Debug)]
pub struct Follower {
    text: Arc<Mutex<Vec<u8>>>,
    is_over: Arc<AtomicBool>,
    reader: Option<JoinHandle<Result<(), String>>>,
}

fn store(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

impl Trace {
    /// An instance in which no event is enabled. Mounts tracefs until it is dropped if it is not
    /// mounted.
    ///
    /// # Errors
    /// Why there can be none: no root, no tracefs in this kernel.
    pub fn new(clock: Clock) -> Result<Self, String> {
        let root = Path::new(ROOT);
        let mut undo = Vec::new();
        if !root.join("instances").exists() {
            undo.push(Undo::command(["umount", ROOT])?);
            uext4_testkit::try_run("mount", ["-t", "tracefs", "tracefs", ROOT])
                .map_err(|error| format!("tracefs cannot be mounted: {error}"))?;
        }
        let number = MADE.fetch_add(1, Relaxed);
        let dir = root.join(format!(
            "instances/uext4-lab-{}-{number}",
            std::process::id()
        ));
        // The instance goes before the mount does.
        undo.insert(0, Undo::command(["rmdir".as_ref(), dir.as_os_str()])?);
        fs::create_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let trace = Self { dir, _undo: undo };
        trace.set(
            "trace_clock",
            match clock {
                Clock::Global => "global",
                Clock::Counter => "counter",
            },
        )?;
        Ok(trace)
    }

    /// Writes a file of the instance, for example `options/overwrite` or `set_event_pid`.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn set(&self, file: &str, value: &str) -> Result<(), String> {
        store(&self.dir.join(file), value)
    }

    /// Sets the size of the ring buffer, in KiB for each processor. It is memory of the kernel's.
    ///
    /// # Errors
    /// What the kernel answered: there is not so much memory.
    pub fn resize(&self, kib: u32) -> Result<(), String> {
        self.set("buffer_size_kb", &kib.to_string())
    }

    /// Records these events from now on, each spelled `system/event` or `system` for all of it.
    ///
    /// # Errors
    /// The event that this kernel does not have.
    pub fn enable(&self, events: &[impl AsRef<str>]) -> Result<(), String> {
        let mut events = events.iter().map(AsRef::as_ref);
        events.try_for_each(|event| self.set(&format!("events/{event}/enable"), "1"))
    }

    /// Records of this event only what a filter passes, for example `dev == 7340032`.
    ///
    /// # Errors
    /// What the kernel found wrong with the filter.
    pub fn filter(&self, event: &str, filter: &str) -> Result<(), String> {
        self.set(&format!("events/{event}/filter"), filter)
    }

    /// Stops and starts recording, without a change of what is enabled.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn record(&self, is_on: bool) -> Result<(), String> {
        self.set("tracing_on", if is_on { "1" } else { "0" })
    }

    /// Has a text recorded between the events, as an event `tracing_mark_write` whose fields it is.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn mark(&self, text: &str) -> Result<(), String> {
        self.set("trace_marker", text)
    }

    /// Takes all events that were recorded out of the ring buffer, the oldest first.
    ///
    /// # Errors
    /// What reading failed with.
    pub fn drain(&self) -> Result<Vec<Event>, String> {
        let mut pipe = self.pipe()?;
        let mut text = Vec::new();
        while read_some(&mut pipe, &mut text)? {}
        Ok(parse(&text))
    }

    /// Reads the events in a thread of its own, so that the ring buffer need not hold them all.
    ///
    /// # Errors
    /// What opening the ring buffer failed with.
    pub fn follow(&self) -> Result<Follower, String> {
        let mut pipe = self.pipe()?;
        let text = Arc::new(Mutex::new(Vec::new()));
        let is_over = Arc::new(AtomicBool::new(false));
        let (ours, over) = (Arc::clone(&text), Arc::clone(&is_over));
        let reader = thread::spawn(move || {
            loop {
                // What was recorded before the end was asked for is read before this ends.
                let is_last = over.load(Relaxed);
                let mut some = Vec::new();
                let is_more = read_some(&mut pipe, &mut some)?;
                ours.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .append(&mut some);
                if !is_more && is_last {
                    return Ok(());
                }
                if !is_more {
                    thread::sleep(PAUSE);
                }
            }
        });
        Ok(Follower {
            text,
            is_over,
            reader: Some(reader),
        })
    }

    fn pipe(&self) -> Result<File, String> {
        let path = self.dir.join("trace_pipe");
        let mut options = File::options();
        // Else a read of an empty ring buffer sleeps until the next event.
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let opened = options.read(true).custom_flags(flags).open(&path);
        opened.map_err(|error| format!("{}: {error}", path.display()))
    }

    /// How many events were lost since the instance was made, because the ring buffer was full.
    ///
    /// # Errors
    /// What reading the statistics failed with.
    pub fn lost(&self) -> Result<u64, String> {
        let dir = self.dir.join("per_cpu");
        let wrong = |error| format!("{}: {error}", dir.display());
        let mut lost = 0;
        for entry in fs::read_dir(&dir).map_err(wrong)? {
            let stats = entry.map_err(wrong)?.path().join("stats");
            let text = fs::read_to_string(stats).map_err(wrong)?;
            let counts = text.lines().filter_map(|line| line.split_once(": "));
            lost += counts
                .filter(|(name, _)| ["overrun", "dropped events"].contains(name))
                .filter_map(|(_, count)| count.trim().parse::<u64>().ok())
                .sum::<u64>();
        }
        Ok(lost)
    }
}

/// Appends what is there to `text`; false if there was nothing.
fn read_some(pipe: &mut File, text: &mut Vec<u8>) -> Result<bool, String> {
    let begin = text.len();
    text.resize(begin + CHUNK, 0);
    let read = match pipe.read(&mut text[begin..]) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(0),
        other => other.map_err(|error| format!("trace_pipe: {error}")),
    };
    text.truncate(begin + *read.as_ref().unwrap_or(&0));
    read.map(|bytes| bytes > 0)
}

impl Follower {
    /// Stops, and returns all events that were recorded until now, the oldest first.
    ///
    /// # Errors
    /// What reading the ring buffer failed with.
    pub fn finish(mut self) -> Result<Vec<Event>, String> {
        self.stop()?;
        let text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(parse(&text))
    }

    fn stop(&mut self) -> Result<(), String> {
        self.is_over.store(true, Relaxed);
        match self.reader.take().map(JoinHandle::join) {
            Some(Ok(ended)) => ended,
            Some(Err(_)) => Err("the reader of the trace events panicked".to_owned()),
            None => Ok(()),
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        _ = self.stop();
    }
}

/// All events of a text, in the order of their times; lines that are none are left out.
pub fn parse(text: &[u8]) -> Vec<Event> {
    let text = String::from_utf8_lossy(text);
    let mut events: Vec<Event> = text.lines().filter_map(Event::parse).collect();
    // The buffers of the processors are read one after another when they fill at once.
    events.sort_by_key(|event| event.time);
    events
}

impl Event {
    /// Reads a line of `trace` or `trace_pipe`:
    /// `kworker/0:1-9 [000] d..1. 12.345678: ext4_es_shrink: dev 7,0 nr_shrunk 1`.
    ///
    /// Returns `None` for a line that is no event: a comment, or a note about lost ones.
    pub fn parse(line: &str) -> Option<Self> {
        let (head, rest) = line.split_once("] ")?;
        let (who, cpu) = head.rsplit_once(" [")?;
        let (task, pid) = who.trim().rsplit_once('-')?;
        let (_flags, rest) = rest.split_once(' ')?;
        let (time, rest) = rest.trim_start().split_once(": ")?;
        let (name, fields) = rest.split_once(": ").unwrap_or((rest, ""));
        Some(Self {
            task: task.to_owned(),
            pid: pid.parse().ok()?,
            cpu: cpu.parse().ok()?,
            time: nanoseconds(time)?,
            name: name.to_owned(),
            fields: fields.trim_end().to_owned(),
        })
    }

    /// The word that belongs to a key: the one after it, or after its `=`.
    pub fn word(&self, key: &str) -> Option<&str> {
        let mut words = self.fields.split_ascii_whitespace();
        while let Some(word) = words.next() {
            let value = match word.split_once('=') {
                Some((name, value)) if name == key => Some(value),
                _ if word == key => words.next(),
                _ => None,
            };
            if let Some(value) = value {
                return Some(value.trim_end_matches(','));
            }
        }
        None
    }

    /// The number that belongs to a key.
    pub fn number(&self, key: &str) -> Option<i64> {
        self.word(key)?.parse().ok()
    }

    /// Whether it is about this device, as `7:0` or `7,0`: its field `dev`.
    pub fn is_on(&self, device: &str) -> bool {
        let numbers = |text: &str| text.replace(',', ":");
        self.word("dev").map(numbers) == Some(numbers(device))
    }
}

/// Seconds with six decimals in nanoseconds; a number without a point is taken as it is.
fn nanoseconds(time: &str) -> Option<u64> {
    match time.split_once('.') {
        None => time.parse().ok(),
        Some((seconds, rest)) if rest.len() == 6 => {
            let (seconds, rest): (u64, u64) = (seconds.parse().ok()?, rest.parse().ok()?);
            seconds.checked_mul(1_000_000_000)?.checked_add(rest * 1000)
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHRINK: &str = "     kworker/u8:1-flu-123   [001] d..2.  4567.000089: ext4_es_shrink: \
                          dev 7,0 nr_shrunk 12, scan_time 3456 nr_skipped 0 retried 1";

    #[test]
    fn a_line_is_taken_apart() {
        let event = Event::parse(SHRINK).unwrap();
        assert_eq!(event.task, "kworker/u8:1-flu");
        assert_eq!((event.pid, event.cpu), (123, 1));
        assert_eq!(event.time, 4_567_000_089_000);
        assert_eq!(event.name, "ext4_es_shrink");
        assert_eq!(event.number("nr_shrunk"), Some(12));
        assert_eq!(event.number("scan_time"), Some(3456));
        assert_eq!(event.number("retried"), Some(1));
        assert_eq!(event.number("no_such"), None);
        assert!(event.is_on("7:0") && event.is_on("7,0") && !event.is_on("7:1"));
    }

    #[test]
    fn fields_with_an_equals_sign_and_a_counted_clock_are_read() {
        let line = "dd-9 [000] ..... 42: balance_dirty_pages: bdi 7:0: limit=10 dirty=7 pause=-3";
        let event = Event::parse(line).unwrap();
        assert_eq!((event.time, event.number("limit")), (42, Some(10)));
        assert_eq!(event.number("pause"), Some(-3));
        assert_eq!(event.word("bdi"), Some("7:0:"));
    }

    #[test]
    fn unknown_events_are_left_out_and_order_is_by_time() {
        let text = "# tracer: nop\nCPU:1 [LOST 4 EVENTS]\n\n\
                    a-1 [000] ..... 7: second: x 1\na-1 [001] ..... 6: first: x 1\n\
                    a-x [000] ..... 8: third: x\na-1 [000] ..... 1.5: third: x\n";
        let names: Vec<_> = parse(text.as_bytes())
            .into_iter()
            .map(|event| event.name)
            .collect();
        assert_eq!(names, ["first", "second"]);
    }

    #[test]
    fn an_instance_records_and_is_removed() {
        if !uext4_testkit::is_root() {
            println!("skipped: needs root");
            return;
        }
        let trace = match Trace::new(Clock::Counter) {
            Ok(trace) => trace,
            Err(why) => return println!("skipped: {why}"),
        };
        let dir = trace.dir.clone();
        assert!(trace.enable(&["no/such"]).unwrap_err().contains("no/such"));
        trace.enable(&["sched/sched_process_exit"]).unwrap();
        let follower = trace.follow().unwrap();
        uext4_testkit::run("true", [""; 0]);
        let events = follower.finish().unwrap();
        // Not by its task: the kernel has forgotten the names of some tasks when it prints.
        let ended = |event: &Event| event.word("comm=true").is_some();
        assert!(events.iter().any(ended), "{events:?}");
        assert!(events.is_sorted_by_key(|event| event.time));
        assert_eq!(trace.lost(), Ok(0));
        drop(trace);
        assert!(!dir.exists());
    }
}
