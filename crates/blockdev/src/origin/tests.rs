//! Snapshots of devices in memory.

use std::sync::atomic::AtomicBool;
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::{MemoryDevice, Snapshot, Writer};

const LEN: usize = 40 * CHUNK as usize + 100;

/// A process that goes on.
#[derive(Debug)]
struct Running;

impl Writer for Running {
    fn is_running(&self) -> bool {
        true
    }
}

/// An origin over a device that counts up, and a snapshot of it.
fn begun(len: usize) -> (Arc<MemoryDevice>, Arc<Origin>, Kept, Snapshot) {
    let bytes = (0..len).map(|at| (at / 7) as u8).collect();
    let device = Arc::new(MemoryDevice::from_bytes(bytes));
    let origin = Arc::new(Origin::new(device.clone()));
    let (kept, snapshot) = another(&device, &origin);
    (device, origin, kept, snapshot)
}

fn another(device: &Arc<MemoryDevice>, origin: &Arc<Origin>) -> (Kept, Snapshot) {
    let store = tempfile::tempfile().unwrap();
    let kept = origin.keep(store.try_clone().unwrap()).unwrap();
    let snapshot = Snapshot::new(device.clone(), store, origin.len(), Box::new(Running)).unwrap();
    (kept, snapshot)
}

fn bytes_of(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn every_way_to_write_is_kept() {
    let (device, origin, _kept, snapshot) = begun(LEN);
    let before = bytes_of(&snapshot);
    origin.write_at(5000, &[1; 9000]).unwrap();
    let requests = [10u64, 100_000, LEN as u64 - 5].map(|offset| WriteRequest {
        offset,
        buf: &[2; 5],
    });
    origin.write_many(&requests).unwrap();
    origin.discard(60_000, 10_000).unwrap();
    origin.trim(80_001, 10_000).unwrap();
    assert!(origin.write_at(LEN as u64, &[1]).is_err());
    assert!(bytes_of(&*device) != before);
    assert!(bytes_of(&snapshot) == before);
    for (offset, len) in [(4999, 3), (8191, 2), (0, 4096), (LEN - 1, 1), (61_000, 7)] {
        let mut part = vec![0; len];
        snapshot.read_at(offset as u64, &mut part).unwrap();
        assert_eq!(part, before[offset..offset + len], "{offset}");
    }
    let mut many = [vec![0; 5000], vec![0; 10], vec![0; 4096]];
    let offsets = [4000, 9000, 60_000];
    let mut requests: Vec<ReadRequest<'_>> = many
        .iter_mut()
        .zip(offsets)
        .map(|(buf, offset)| ReadRequest { offset, buf })
        .collect();
    snapshot.read_many(&mut requests).unwrap();
    for (part, offset) in many.iter().zip(offsets.map(|offset| offset as usize)) {
        assert_eq!(*part, before[offset..offset + part.len()], "{offset}");
    }
}

#[test]
fn holes_of_the_device_that_had_data_are_data_of_the_snapshot() {
    let (_device, origin, _kept, snapshot) = begun(LEN);
    let before = bytes_of(&snapshot);
    origin.discard(0, LEN as u64).unwrap();
    let (mut at, mut found) = (0, vec![0; LEN]);
    while let Some(range) = snapshot.next_data(at).unwrap() {
        let part = range.start as usize..range.end as usize;
        snapshot.read_at(range.start, &mut found[part]).unwrap();
        at = range.end;
    }
    assert!(found == before);
    assert_eq!(snapshot.next_data(LEN as u64).unwrap(), None);
}

#[test]
fn a_snapshot_that_has_ended_cannot_be_read() {
    let (_device, origin, kept, snapshot) = begun(LEN);
    drop(kept);
    origin.discard(0, LEN as u64).unwrap();
    assert!(snapshot.next_data(0).is_err());
    let error = snapshot.read_at(50_000, &mut [0; 10]).unwrap_err();
    assert!(error.to_string().contains("ended"), "{error}");
    assert_eq!(origin.count.load(Ordering::Relaxed), 0);
    assert_eq!(origin.kept.lock().chunks, 0);
}

#[test]
fn a_snapshot_that_would_hold_too_much_ends_and_the_write_is_done() {
    let len = (CHUNKS_MAX + 10) * CHUNK;
    let device = Arc::new(MemoryDevice::new(len));
    let origin = Arc::new(Origin::new(device.clone()));
    let (_kept, full) = another(&device, &origin);
    // Holes are not kept.
    origin.trim(0, len).unwrap();
    assert_eq!(origin.kept.lock().chunks, 0);
    for at in (0..CHUNKS_MAX - 1).step_by(64) {
        origin.write_at(at * CHUNK, &[3; 64 * 4096]).unwrap();
    }
    // The one that holds most ends, not the one that needs more.
    let (_new, small) = another(&device, &origin);
    for at in 0..10 {
        origin.write_at(at * CHUNK, &[4]).unwrap();
    }
    let mut read = [0; 10];
    small.read_at(0, &mut read).unwrap();
    assert_eq!(read, [3; 10]);
    origin.end_all();
    assert!(small.read_at(0, &mut read).is_err());
    let error = full.read_at(0, &mut [0; 10]).unwrap_err();
    assert!(
        error.to_string().contains("more was overwritten"),
        "{error}"
    );
    origin.write_at(0, &[1; 10]).unwrap();
    // There is room for another.
    let (_kept, next) = another(&device, &origin);
    origin.write_at(0, &[2; 10]).unwrap();
    next.read_at(0, &mut read).unwrap();
    assert_eq!(read, [1; 10]);
}

#[test]
fn a_store_of_rubbish_is_an_error() {
    let (device, _origin, _kept, _) = begun(LEN);
    let short = tempfile::tempfile().unwrap();
    let snapshot = Snapshot::new(device.clone(), short, LEN as u64, Box::new(Running)).unwrap();
    assert!(snapshot.read_at(0, &mut [0; 10]).is_err());
    assert!(snapshot.write_at(0, &[0; 10]).is_err());
    let long = tempfile::tempfile().unwrap();
    assert!(Snapshot::new(device, long, LEN as u64 + 1, Box::new(Running)).is_err());
}

proptest! {
    #[test]
    fn snapshots_hold_what_the_device_had(
        steps in prop::collection::vec((0..LEN, 1..30_000usize, any::<u8>(), 0..8u8), 1..40),
    ) {
        let (device, origin, kept, snapshot) = begun(LEN);
        let mut all = vec![(bytes_of(&*device), kept, snapshot)];
        for (offset, len, value, step) in steps {
            let len = len.min(LEN - offset);
            match step {
                0 => {
                    let (kept, snapshot) = another(&device, &origin);
                    all.push((bytes_of(&*device), kept, snapshot));
                }
                1 if all.len() > 1 => drop(all.swap_remove(0)),
                2 => origin.discard(offset as u64, len as u64).unwrap(),
                _ => origin.write_at(offset as u64, &vec![value; len]).unwrap(),
            }
        }
        for (before, _, snapshot) in &all {
            prop_assert!(bytes_of(snapshot) == *before);
        }
    }
}

/// Writers fill whole blocks of their own with one number after the other: a snapshot has each
/// block of one number, the one that was written last when it began, or the next.
#[test]
fn snapshots_are_of_one_moment_while_threads_write() {
    const WRITERS: usize = 4;
    const BLOCK: usize = 3 * CHUNK as usize;
    let device = Arc::new(MemoryDevice::new((WRITERS * BLOCK) as u64));
    let origin = Arc::new(Origin::new(device.clone()));
    let ends = AtomicBool::new(false);
    let done: [AtomicUsize; WRITERS] = Default::default();
    thread::scope(|scope| {
        for (number, done) in done.iter().enumerate() {
            let (origin, ends) = (&origin, &ends);
            scope.spawn(move || {
                for value in 1usize.. {
                    if ends.load(Ordering::Relaxed) {
                        break;
                    }
                    let bytes = vec![value as u8; BLOCK];
                    origin.write_at((number * BLOCK) as u64, &bytes).unwrap();
                    done.store(value, Ordering::SeqCst);
                }
            });
        }
        for _ in 0..200 {
            let least = done.each_ref().map(|done| done.load(Ordering::SeqCst));
            let (_kept, snapshot) = another(&device, &origin);
            let most = done.each_ref().map(|done| done.load(Ordering::SeqCst) + 1);
            let first = bytes_of(&snapshot);
            thread::yield_now();
            assert!(bytes_of(&snapshot) == first);
            for (number, block) in first.chunks(BLOCK).enumerate() {
                assert!(
                    block.iter().all(|byte| *byte == block[0]),
                    "{number} is torn"
                );
                let may_be = (least[number]..=most[number]).map(|value| value as u8);
                assert!(
                    may_be.into_iter().any(|value| value == block[0]),
                    "{number}"
                );
            }
        }
        ends.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_snapshot_keeps_its_length_while_the_device_becomes_longer() {
    let (device, origin, kept, snapshot) = begun(LEN);
    let before = bytes_of(&snapshot);
    assert_eq!(kept.len(), LEN as u64);
    origin.set_len(2 * LEN as u64).unwrap();
    let (_later, longer) = another(&device, &origin);
    // Across the old end, behind it, and everything.
    origin.write_at(LEN as u64 - 50, &[1; 9000]).unwrap();
    origin.write_at(2 * LEN as u64 - 10, &[2; 10]).unwrap();
    origin.discard(0, 2 * LEN as u64).unwrap();
    assert!(bytes_of(&snapshot) == before);
    assert_eq!(snapshot.len(), LEN as u64);
    assert!(snapshot.read_at(LEN as u64, &mut [0]).is_err());
    let mut expected = before.clone();
    expected.resize(2 * LEN, 0);
    assert!(bytes_of(&longer) == expected);
    assert_eq!(origin.measure().unwrap(), 2 * LEN as u64);
}

#[test]
fn a_snapshot_of_bytes_that_the_device_loses_ends() {
    let (device, origin, _kept, snapshot) = begun(LEN);
    origin.set_len(LEN as u64 + 5000).unwrap();
    let (_later, longer) = another(&device, &origin);
    origin.set_len(LEN as u64).unwrap();
    assert!(snapshot.read_at(0, &mut [0]).is_ok());
    let error = longer.read_at(0, &mut [0]).unwrap_err().to_string();
    assert!(error.contains("could not be kept"), "{error}");
    assert!(origin.write_at(LEN as u64, &[1]).is_err());
}
