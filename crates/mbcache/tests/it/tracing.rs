//! What a block goes through is reported, event by event.

use std::cell::RefCell;
use std::fmt::Write;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use uext4_mbcache::{Cache, Options};

thread_local! {
    /// What this thread was notified: a line each.
    static SEEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Of the whole process: whether a place in the code has listeners is known for all threads at
/// once.
struct Log;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "mbcache"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().name().to_owned());
        event.record(&mut line);
        SEEN.with_borrow_mut(|seen| seen.push(line.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn a_block_is_made_shared_and_freed() {
    _ = tracing::subscriber::set_global_default(Log);
    let cache = Cache::new(&Options::default()).unwrap();
    SEEN.take();
    let key = cache.key(7, b"body");
    _ = cache.created(key, 70, 1);
    let found = cache.find(key).unwrap();
    let other = cache.find(key).unwrap();
    found.taken(2).unwrap();
    let in_use = cache.release_read(7, b"body", 70).remove().unwrap_err();
    drop(other);
    in_use.wait();
    cache.release_read(7, b"body", 70).remove().unwrap();
    _ = cache.created(key, 71, 1);
    assert_eq!(cache.scan(9), 1);
    let expected = [
        "mbcache_create key=7 value=70 users=1 created=Inserted",
        "mbcache_hit key=7 value=70",
        "mbcache_hit key=7 value=70",
        "mbcache_reuse key=7 value=70 users=2 taken=true",
        "mbcache_delete key=7 value=70 removed=false",
        "mbcache_wait_unused key=7 value=70",
        "mbcache_delete key=7 value=70 removed=true",
        "mbcache_create key=7 value=71 users=1 created=Inserted",
        "mbcache_evict freed=1 left=0",
    ];
    assert_eq!(SEEN.take(), expected);
}
