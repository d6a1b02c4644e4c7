//! The trace events have the kernel's names and fields.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::mapping::{TestFile, live_cache, pattern};

/// The names of events, and of the fields they came with.
type Seen = BTreeMap<&'static str, BTreeSet<&'static str>>;

static SEEN: Mutex<Seen> = Mutex::new(Seen::new());

/// Remembers the names of what it is shown.
struct Names;

struct Fields(BTreeSet<&'static str>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, _: &dyn std::fmt::Debug) {
        self.0.insert(field.name());
    }
}

impl Subscriber for Names {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "writeback"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(BTreeSet::new());
        event.record(&mut fields);
        let mut seen = SEEN.lock().unwrap();
        seen.entry(event.metadata().name())
            .or_default()
            .extend(fields.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn fields_of(name: &str) -> BTreeSet<&'static str> {
    let seen = SEEN.lock().unwrap();
    seen.get(name).cloned().unwrap_or_default()
}

#[test]
fn events_have_the_kernels_names_and_fields() {
    // Of the whole process: flushers have threads of their own.
    tracing::subscriber::set_global_default(Names).unwrap();
    let cache = live_cache(1 << 20, 1);
    let file = TestFile::new(&cache, Vec::new());
    *file.disk.delay.lock().unwrap() = std::time::Duration::from_millis(2);
    file.write(0, &pattern(3 << 20, 1)).unwrap();
    cache.sync_all().unwrap();
    for name in [
        "bdi_dirty_ratelimit",
        "global_dirty_state",
        "writeback_queue",
        "writeback_start",
        "writeback_written",
        "writeback_wait",
        "writeback_single_inode_start",
        "writeback_single_inode",
    ] {
        assert!(!fields_of(name).is_empty(), "{name}");
    }
    let balance = fields_of("balance_dirty_pages");
    for field in [
        "limit",
        "setpoint",
        "dirty",
        "wb_setpoint",
        "wb_dirty",
        "dirty_ratelimit",
        "task_ratelimit",
        "paused",
        "pause",
        "period",
        "think",
    ] {
        assert!(balance.contains(field), "{field}");
    }
}
