//! The trace events have the kernel's names and fields, and come in its order.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Once;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use uext4_mballoc::{Allocator, DataRequest, FileSpace, Run};
use uext4_ondisk::{Lblk, Pblk};

use crate::model::Bitmaps;

/// An event: its name, and its fields as they are written.
type Seen = (&'static str, BTreeMap<&'static str, String>);

thread_local! {
    /// What this thread did since it was last asked; `None` if no caller asks.
    static SEEN: RefCell<Option<Vec<Seen>>> = const { RefCell::new(None) };
}

/// Remembers what threads do that want it. Of the whole process: whether a place in the code has
/// listeners is known for all threads at once.
struct Log;

struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "ext4"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(BTreeMap::new());
        event.record(&mut fields);
        SEEN.with_borrow_mut(|seen| {
            seen.iter_mut()
                .for_each(|seen| seen.push((event.metadata().name(), fields.0.clone())));
        });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The events of this thread since the last call.
fn taken() -> Vec<Seen> {
    SEEN.replace(Some(Vec::new())).unwrap_or_default()
}

fn names(seen: &[Seen]) -> Vec<&'static str> {
    seen.iter().map(|event| event.0).collect()
}

fn field(event: &Seen, name: &str) -> u64 {
    let value = event.1.get(name);
    let number = value.and_then(|value| value.parse().ok());
    number.unwrap_or_else(|| panic!("{name} of {event:?}"))
}

/// For a file that is open, beginning at `lblk` behind what is mapped.
fn request(file: u64, lblk: u32, len: u32, closed: bool) -> DataRequest {
    DataRequest {
        file,
        lblk: Lblk(lblk),
        len,
        goal: Pblk(1),
        left: None,
        right: None,
        size: (lblk + len).into(),
        unwritten: false,
        closed,
    }
}

/// An allocator of two groups of 8192 blocks whose events are remembered.
fn logged() -> (Bitmaps, Allocator) {
    static LISTEN: Once = Once::new();
    LISTEN.call_once(|| tracing::subscriber::set_global_default(Log).unwrap());
    let bitmaps = Bitmaps::new(1 + 2 * 8192, 8192);
    let allocator = Allocator::new(&bitmaps.geometry, &bitmaps).unwrap();
    taken();
    (bitmaps, allocator)
}

#[test]
fn a_growing_file_is_traced() {
    let (bitmaps, allocator) = &logged();
    let space = FileSpace::default();
    let first = allocator
        .take_data(bitmaps, &space, &request(77, 0, 100, false))
        .unwrap();
    let seen = taken();
    assert_eq!(
        names(&seen),
        [
            "ext4_request_blocks",
            "ext4_mb_bitmap_load",
            "ext4_mb_buddy_bitmap_load",
            "ext4_mballoc_alloc",
            "ext4_mb_new_inode_pa",
            "ext4_allocate_blocks",
        ]
    );
    assert!(seen.iter().all(|event| field(event, "dev") > 0));
    assert_eq!(field(&seen[0], "len"), 100);
    assert_eq!(field(&seen[3], "ino"), 77);
    assert_eq!(field(&seen[3], "orig_len"), 100);
    let window = field(&seen[3], "goal_len");
    assert!(window > 100);
    assert_eq!(field(&seen[3], "result_len"), window);
    assert_eq!(field(&seen[4], "pa_lstart"), 100);
    assert_eq!(field(&seen[4], "pa_pstart"), first.end().0);
    assert_eq!(field(&seen[4], "pa_len"), window - 100);
    assert_eq!(field(&seen[5], "block"), first.start.0);
    let second = allocator
        .take_data(bitmaps, &space, &request(77, 100, 10, false))
        .unwrap();
    let seen = taken();
    let all = [
        "ext4_request_blocks",
        "ext4_mballoc_prealloc",
        "ext4_allocate_blocks",
    ];
    assert_eq!(names(&seen), all);
    let place = field(&seen[1], "result_group") * 8192 + field(&seen[1], "result_start");
    assert_eq!(place, second.start.0 - 1);
    allocator.discard(&space);
    let seen = taken();
    let all = [
        "ext4_mb_release_inode_pa",
        "ext4_mballoc_discard",
        "ext4_discard_preallocations",
    ];
    assert_eq!(names(&seen), all);
    assert_eq!(field(&seen[0], "count"), window - 110);
    assert_eq!(field(&seen[2], "len"), 1);
    for run in [first, second] {
        allocator.mark(bitmaps, run).unwrap();
    }
    allocator.free(bitmaps, first).unwrap();
    let seen = taken();
    assert_eq!(names(&seen), ["ext4_free_blocks", "ext4_mballoc_free"]);
    assert_eq!(field(&seen[0], "count"), 100);
}

#[test]
fn small_files_and_trimming_are_traced() {
    let (bitmaps, allocator) = &logged();
    for file in 5..7 {
        let space = FileSpace::default();
        allocator
            .take_data(bitmaps, &space, &request(file, 0, 3, true))
            .unwrap();
    }
    let seen = taken();
    let count = |name| seen.iter().filter(|event| event.0 == name).count();
    assert_eq!(count("ext4_mb_new_group_pa"), 1, "{seen:?}");
    assert_eq!(count("ext4_mballoc_prealloc"), 1);
    allocator.discard_all();
    let seen = taken();
    let all = [
        "ext4_mb_discard_preallocations",
        "ext4_mb_release_group_pa",
        "ext4_mballoc_discard",
    ];
    assert_eq!(names(&seen), all);
    let mut runs: Vec<Run> = Vec::new();
    let shown = allocator.trim(bitmaps, Pblk(1)..Pblk(8193), 1, |run| {
        runs.push(run);
        Ok(())
    });
    let seen = taken();
    assert_eq!(seen[0].0, "ext4_trim_all_free");
    assert_eq!(seen.len(), 1 + runs.len());
    let reported: u64 = seen[1..].iter().map(|event| field(event, "len")).sum();
    assert_eq!(shown.unwrap(), reported);
}
