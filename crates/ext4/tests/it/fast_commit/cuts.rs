//! The power goes at every write of the replay: what was reported by the fast commits is there
//! all the same, any thread that mounts next.

use std::sync::Arc;

use uext4::{FileType, Ino};
use uext4_blockdev::{BlockDevice, MemoryDevice};
use uext4_ondisk::journal::JournalSuperblock;
use uext4_testkit::SplitMix64;
use zerocopy::FromBytes;

use super::maker::{Left, Raw, Record, add, creat, one_of_everything};
use super::{complaints, open_and_close, tree};
use crate::log_place::places;
use crate::power_cut::recorder::{Cuts, Event, Recorder};
use crate::tree::{Tree, assert_equal};
use crate::writing::device::{judge, steps};

/// Everything done to an image by opening it for writing and closing it.
pub fn record(image: &MemoryDevice) -> Vec<Event> {
    let device = Arc::new(Recorder::new(image));
    open_and_close(Arc::clone(&device) as Arc<dyn BlockDevice>).unwrap();
    let events = device.take_events().into_iter();
    events.map(|(_, event)| event).collect()
}

/// Calls `f` with every state that a cut may leave: without loss, and `seeds` with some.
pub fn for_each_cut(image: &MemoryDevice, seeds: u64, mut f: impl FnMut(MemoryDevice, String)) {
    let events = record(image);
    let mut cuts = Cuts::new(image);
    for (at, event) in events.iter().enumerate() {
        cuts.push(event);
        let seeds = if cuts.is_durable() { 0 } else { seeds };
        for seed in 0..seeds {
            let image = cuts.some((at as u64) << 8 | seed);
            f(
                image,
                format!("after {at} of {}, seed {seed}", events.len()),
            );
        }
        f(cuts.all(), format!("after {at} of {}", events.len()));
    }
}

/// What is redone after a cut, cut again if `again`, must be what was reported.
fn judge_cut(image: &MemoryDevice, expected: &Tree, what: &str, again: Option<u64>) {
    assert_equal(expected, &tree(image), &format!("{what}, read"));
    let mut redone = image.snapshot();
    if let Some(seed) = again {
        let events = record(image);
        let last = SplitMix64::new(seed).below(events.len() as u64 + 1) as usize;
        let mut cuts = Cuts::new(image);
        events[..last].iter().for_each(|event| cuts.push(event));
        redone = cuts.some(seed);
    }
    let redone = Arc::new(redone);
    open_and_close(Arc::clone(&redone) as _).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_equal(expected, &tree(&redone), &format!("{what}, redone"));
    let complaints = complaints(&redone);
    assert!(complaints.is_empty(), "{what}: {complaints:#?}");
}

fn cut_everywhere(left: &Left, records: &[Record], what: &str) {
    let image = left.with(records);
    let expected = tree(&image);
    let mut number = 0;
    for_each_cut(&image, steps(4, 100), |image, at| {
        number += 1;
        let what = format!("{what}, {at}");
        judge_cut(
            &image,
            &expected,
            &what,
            (number % 3 == 0).then_some(number),
        );
    });
    println!("{what}: {number} states");
    let redone = Arc::new(image.snapshot());
    open_and_close(Arc::clone(&redone) as _).unwrap();
    judge(&redone, what);
}

const FLAGS: [&str; 5] = [
    "-t ext4 -b 1024 -J size=2",
    "-t ext4 -b 4096 -J size=4",
    "-t ext4 -b 1024 -J size=2 -O orphan_file,inline_data",
    "-t ext4 -b 1024 -J size=2 -O ^metadata_csum,^64bit",
    "-t ext4 -b 2048 -J size=2 -O ^dir_index",
];

#[test]
fn one_of_everything_is_there_after_any_cut() {
    for flags in FLAGS {
        let left = Left::usual(flags);
        cut_everywhere(&left, &one_of_everything(&left), flags);
    }
}

#[test]
fn a_full_log_makes_space_for_redone_changes() {
    let flags = "-t ext4 -b 1024 -J size=1,fast_commit_size=100";
    let left = Left::with_full_log(flags, 20);
    let (file, free) = (left.ino("file"), left.free_blocks(40));
    let mut raw = Raw::of(&left.fs(), file);
    raw.put32(4, 100 << 10);
    // As many extents as make a tree of it.
    let mut records: Vec<Record> = (0..20u16)
        .map(|i| add(file, 10 + 3 * u32::from(i), 1, free + 2 * u64::from(i)))
        .collect();
    records.push(raw.record(file));
    let new = left.free_inodes().0;
    for i in 0..40 {
        let ino = Ino(new + i);
        let name = [&[b'n'; 200][..], format!("{i}").as_bytes()].concat();
        records.push(Raw::new(FileType::Regular, 0, 900 + i).record(ino));
        records.push(creat(Ino::ROOT, ino, &name));
    }
    let before = Left::journal_superblock(&left.image);
    cut_everywhere(&left, &records, flags);
    // It was full: the first thing that happened to the log was that its start moved.
    let starts = starts_of_log(&left, &records);
    let [moved, .., 0] = starts[..] else {
        panic!("{starts:?}");
    };
    assert!(moved != 0 && moved != before.s_start.get(), "{starts:?}");
}

/// Where the log begins after each write of the journal's superblock.
fn starts_of_log(left: &Left, records: &[Record]) -> Vec<u32> {
    let image = left.with(records);
    let place = places(&image)[0].start;
    let start = |event: &Event| match event {
        Event::Write { offset, bytes } if *offset == place => {
            let (sb, _) = JournalSuperblock::read_from_prefix(bytes).unwrap();
            Some(sb.s_start.get())
        }
        _ => None,
    };
    record(&image).iter().filter_map(start).collect()
}
