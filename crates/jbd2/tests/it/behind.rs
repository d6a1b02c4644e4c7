//! Logs that are gone on with behind what they hold, so that fast commits stay valid up to the
//! first commit.

use std::sync::Arc;

use uext4_blockdev::MemoryDevice;
use uext4_jbd2::{Recovery, recover};
use uext4_testkit::{SimDevice, SimOptions};

use crate::maker::{Kind, PLAIN, Place, V1, V3};
use crate::toy::{Model, Toy, judge, place, recovered};

/// Images made of each cut.
const SEEDS: u64 = 6;

fn found(place: &Place, image: &MemoryDevice) -> Recovery {
    recover(image, place.size, place.blocks_count, &place.runs).unwrap()
}

/// A log with transactions in it, and what they did.
pub fn left(place: &Place, seed: u64, operations: u64) -> (MemoryDevice, Model) {
    let device = Arc::new(place.device.snapshot());
    let toy = Toy::open(place, Arc::clone(&device) as _).unwrap();
    toy.work(seed, operations).unwrap();
    let model = std::mem::take(&mut *toy.model.lock());
    (device.snapshot(), model)
}

/// One commit behind what is there, and all of it home.
fn go_on(toy: &Toy) -> Result<(), uext4_jbd2::Error> {
    let handle = toy.journal.start(4, toy)?;
    for index in 1..5 {
        toy.write(&handle, index, 1000)?;
    }
    drop(handle);
    toy.journal.flush(toy)
}

fn cut_everywhere(kind: Kind, seed: u64, operations: u64) -> (usize, bool) {
    let place = place(kind);
    let (image, model) = left(&place, seed, operations);
    let before = found(&place, &image);
    let spare = place.journal_len() - before.log_blocks;
    let whole = Arc::new(SimDevice::new(&image, SimOptions::default()));
    let toy = Toy::open_behind(&place, Arc::clone(&whole) as _, model.clone()).unwrap();
    go_on(&toy).unwrap();
    let mut states = 0;
    for cut in 0..whole.stats().changes() {
        let device = Arc::new(SimDevice::new(&image, SimOptions::default()));
        device.cut_at_write(cut + 1);
        let toy = Toy::open_behind(&place, Arc::clone(&device) as _, model.clone());
        let model = match toy {
            Ok(toy) => {
                _ = go_on(&toy);
                std::mem::take(&mut *toy.model.lock())
            }
            Err(_) => model.clone(),
        };
        for image_seed in 0..SEEDS {
            let what = format!("{kind:?}, run {seed}, cut {cut}, image {image_seed}");
            let image = device.power_cut(image_seed);
            let now = found(&place, &image);
            let number = judge(&place, &recovered(&place, &image), &model, &what);
            let is_new = number == model.closed.len() - 1 && model.now[1] != model.closed[0][1];
            // Fast commits count as long as the log is not empty and their sequence comes next.
            let counts = now.next_sequence == before.next_sequence;
            assert!(!counts || now.superblock.s_start.get() != 0, "{what}");
            let behind = before.next_sequence.wrapping_add(1);
            assert!(counts || now.next_sequence == behind, "{what}");
            assert!(counts || is_new, "{what}: stale before the commit");
            states += 1;
        }
    }
    (states, spare < 12)
}

#[test]
fn the_sequence_comes_next_until_the_commit_is_durable() {
    let (mut states, mut full) = (0, 0);
    for kind in [PLAIN, V1, V3] {
        for seed in 0..6 {
            let (more, was_full) = cut_everywhere(kind, seed, 20 + 7 * seed);
            states += more;
            full += usize::from(was_full);
        }
    }
    println!("{states} states, {full} logs without room");
    assert!(states > 1000);
}
