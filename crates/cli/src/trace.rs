//! `--trace`: what the parts of the engine do, a line an event on standard error.

use std::fmt::{Debug, Write as _};
use std::io::Write as _;
use std::time::Instant;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Prints the events that are wanted.
struct Trace {
    /// Names of events, and targets.
    wanted: Vec<String>,
    began: Instant,
}

/// An event: its name, and its fields as they are printed.
struct Line {
    name: String,
    fields: String,
}

/// Prints, from now on, the events with these names, and all with these targets.
pub fn start(wanted: &[String]) {
    if !wanted.is_empty() {
        let trace = Trace {
            wanted: wanted.to_vec(),
            began: Instant::now(),
        };
        // A process runs one command, so this is the first.
        _ = tracing::subscriber::set_global_default(trace);
    }
}

impl Trace {
    /// A target stands for those below it, too.
    fn wants(&self, name: &str, target: &str) -> bool {
        let root = target.split("::").next();
        self.wanted
            .iter()
            .any(|word| word == name || Some(&**word) == root)
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string cannot fail.
        _ = write!(self.fields, " {}={value:?}", field.name());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "name" => value.clone_into(&mut self.name),
            _ => self.record_debug(field, &value),
        }
    }
}

impl Subscriber for Trace {
    /// Events whose name is a field are chosen when they come. Code that asks before it makes an
    /// event names no fields.
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let fields = metadata.fields();
        fields.is_empty()
            || fields.field("name").is_some()
            || self.wants(metadata.name(), metadata.target())
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let mut line = Line {
            name: metadata.name().to_owned(),
            fields: String::new(),
        };
        event.record(&mut line);
        if self.wants(&line.name, metadata.target()) {
            let time = self.began.elapsed().as_secs_f64();
            let text = format!("{time:.6} {}:{}\n", line.name, line.fields);
            // Nothing depends on a line that cannot be printed.
            _ = std::io::stderr().write_all(text.as_bytes());
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
