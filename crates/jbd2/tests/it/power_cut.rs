//! The write side against power cuts, errors of the device, and many threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use uext4_blockdev::SystemClock;
use uext4_jbd2::Error;
use uext4_ondisk::journal::JournalIncompat;
use uext4_testkit::{Fault, FaultKind, Op, SimDevice, SimOptions, Timing};

use crate::behind::left;
use crate::maker::{Kind, PLAIN, Place, V1, V3};
use crate::toy::{Model, Toy, judge, place, recovered, recovered_twice};

const OPERATIONS: u64 = 150;
/// Images made of each cut.
const SEEDS: u64 = 6;

/// Cuts after every change of a run; returns how many images were recovered.
fn cut_everywhere(kind: Kind, seed: u64) -> usize {
    let place = place(kind);
    let whole = Arc::new(SimDevice::new(&place.device, SimOptions::default()));
    let toy = Toy::open(&place, Arc::clone(&whole) as _).unwrap();
    toy.work(seed, OPERATIONS).unwrap();
    let stats = toy.journal.stats();
    let len = u64::from(place.journal_len());
    assert!(
        stats.log_blocks > 3 * len,
        "the log does not wrap: {stats:?}"
    );
    assert!(stats.checkpoints > 3, "{stats:?}");
    let mut states = 0;
    for cut in 0..whole.stats().changes() {
        let device = Arc::new(SimDevice::new(&place.device, SimOptions::default()));
        device.cut_at_write(cut + 1);
        let toy = match Toy::open(&place, Arc::clone(&device) as _) {
            Ok(toy) => toy,
            Err(_) => continue,
        };
        _ = toy.work(seed, OPERATIONS);
        let model = toy.model.lock();
        for image_seed in 0..SEEDS {
            let what = format!("{kind:?}, run {seed}, cut {cut}, image {image_seed}");
            let image = device.power_cut(image_seed);
            let number = judge(&place, &recovered(&place, &image), &model, &what);
            let again = recovered_twice(&place, &image, cut % 9, image_seed);
            assert_eq!(judge(&place, &again, &model, &what), number, "{what}");
            states += 2;
        }
    }
    states
}

#[test]
fn after_a_cut_blocks_are_as_after_a_transaction_that_was_durable() {
    let long = std::env::var_os("UEXT4_LONG").is_some();
    let mut states = 0;
    for seed in 0..if long { 50 } else { 2 } {
        for kind in [PLAIN, V1, V3] {
            states += cut_everywhere(kind, seed);
        }
    }
    println!("{states} states");
    assert!(states > 10_000, "{states}");
}

/// Judges what a cut may leave now; returns how many images that were.
fn judge_images(place: &Place, device: &SimDevice, model: &Model, what: &str) -> usize {
    for image_seed in 0..SEEDS {
        let what = format!("{what}, image {image_seed}");
        let image = device.power_cut(image_seed);
        judge(place, &recovered(place, &image), model, &what);
    }
    SEEDS as usize
}

/// The same from a log on that holds transactions when it is opened.
fn cut_everywhere_after_a_replay(kind: Kind, seed: u64) -> usize {
    let place = place(kind);
    let (image, model) = left(&place, seed, 20 + 7 * seed);
    let whole = Arc::new(SimDevice::new(&image, SimOptions::default()));
    let toy = Toy::reopen(&place, Arc::clone(&whole) as _, model.clone()).unwrap();
    toy.work(seed, 20).unwrap();
    let mut states = 0;
    for cut in 0..whole.stats().changes() {
        let device = Arc::new(SimDevice::new(&image, SimOptions::default()));
        device.cut_at_write(cut + 1);
        let model = match Toy::reopen(&place, Arc::clone(&device) as _, model.clone()) {
            Ok(toy) => {
                _ = toy.work(seed, 20);
                std::mem::take(&mut *toy.model.lock())
            }
            Err(_) => model.clone(),
        };
        let what = format!("{kind:?}, run {seed}, cut {cut}");
        states += judge_images(&place, &device, &model, &what);
    }
    states
}

#[test]
fn a_log_that_was_replayed_is_written_over_only_when_it_is_durably_empty() {
    let mut states = 0;
    for kind in [PLAIN, V1, V3] {
        for seed in 0..6 {
            states += cut_everywhere_after_a_replay(kind, seed);
        }
    }
    println!("{states} states");
    assert!(states > 5000, "{states}");
}

/// A process is killed before one of its flushes, and what it wrote stays in the memory of the
/// machine. The power goes while the next process replays the log.
fn cut_replay_after_a_kill(kind: Kind, seed: u64) -> usize {
    let place = place(kind);
    let killed = || {
        let device = Arc::new(SimDevice::new(&place.device, SimOptions::default()));
        let toy = Toy::open(&place, Arc::clone(&device) as _).unwrap();
        // Of this fault nothing is lost.
        let fault = Fault::new(Op::Flush).with(FaultKind::NoSpace);
        device.inject(fault.after(1 + seed));
        assert!(toy.work(seed, OPERATIONS).is_err());
        device.clear_faults();
        let model = std::mem::take(&mut *toy.model.lock());
        (device, model)
    };
    let (whole, model) = killed();
    whole.reset_stats();
    Toy::reopen(&place, Arc::clone(&whole) as _, model).unwrap();
    let mut states = 0;
    for cut in 0..=whole.stats().changes() {
        let (device, model) = killed();
        device.cut_at_write(cut + 1);
        _ = Toy::reopen(&place, Arc::clone(&device) as _, model.clone());
        let what = format!("{kind:?}, run {seed}, cut {cut}");
        states += judge_images(&place, &device, &model, &what);
    }
    states
}

#[test]
fn what_a_killed_process_did_not_flush_is_durable_before_it_is_home() {
    let mut states = 0;
    for kind in [PLAIN, V1, V3] {
        for seed in 0..12 {
            states += cut_replay_after_a_kill(kind, seed);
        }
    }
    println!("{states} states");
    assert!(states > 1000, "{states}");
}

#[test]
fn nothing_is_flushed_where_nothing_was_written() {
    let place = place(V3);
    let (image, model) = left(&place, 3, 40);
    let device = Arc::new(SimDevice::new(&image, SimOptions::default()));
    let counted = || {
        let flushes = device.stats().flushes;
        device.reset_stats();
        flushes
    };
    let toy = Toy::reopen(&place, Arc::clone(&device) as _, model.clone()).unwrap();
    assert_eq!(
        counted(),
        2,
        "what the log holds, blocks that were replayed"
    );
    toy.journal.set_features(JournalIncompat::CSUM_V3).unwrap();
    assert_eq!(device.stats().writes, 0, "the log has the feature already");
    toy.journal.set_features(JournalIncompat::BIT64).unwrap();
    assert_eq!((device.stats().writes, counted()), (1, 0));
    toy.journal.flush_device().unwrap();
    assert_eq!(counted(), 1);
    let handle = toy.journal.start(1, &toy).unwrap();
    toy.write(&handle, 1, 1000).unwrap();
    drop(handle);
    toy.journal.flush(&toy).unwrap();
    assert_eq!(counted(), 4, "log, commit, blocks at home, empty log");
    toy.journal.checkpoint().unwrap();
    assert_eq!(device.stats().changes() + counted(), 0);
    let toy = Toy::reopen(&place, Arc::clone(&device) as _, model).unwrap();
    assert_eq!(device.stats().changes() + counted(), 0);
    toy.journal.checkpoint().unwrap();
    // The process that left the log may not have flushed.
    assert_eq!((device.stats().writes, counted()), (0, 1));
    toy.journal.checkpoint().unwrap();
    assert_eq!(counted(), 0);
}

#[test]
fn a_block_that_goes_home_last_goes_there_after_a_flush() {
    let place = place(V3);
    let device = Arc::new(SimDevice::new(&place.device, SimOptions::default()));
    let toy = Toy::open(&place, Arc::clone(&device) as _).unwrap();
    toy.journal.barrier().note_flush();
    let handle = toy.journal.start(2, &toy).unwrap();
    toy.write(&handle, 1, 1000).unwrap();
    toy.write(&handle, 2, 1000).unwrap();
    drop(handle);
    toy.journal.commit_now(&toy).unwrap();
    assert_eq!(device.stats().flushes, 2, "log, commit");
    toy.journal.checkpoint_but(place.homes[2]).unwrap();
    assert_eq!(device.stats().flushes, 3);
    let is_new = |index: usize| {
        let before = place.read(&*place.device, place.homes[index]);
        place.read(&device.durable(), place.homes[index]) != before
    };
    assert_eq!([is_new(1), is_new(2)], [true, false]);
    // The log has both until both are there.
    let model = toy.model.lock();
    let left = recovered(&place, &device.durable());
    judge(&place, &left, &model, "one at home");
    drop(model);
    device.reset_stats();
    toy.journal.checkpoint().unwrap();
    assert_eq!(device.stats().flushes, 2, "the other one at home, tail");
    assert!(is_new(2));
}

#[test]
fn the_first_error_of_a_write_or_flush_ends_all_writing() {
    let place = place(V3);
    for op in [Op::Write, Op::Flush] {
        for skip in 0.. {
            let device = Arc::new(SimDevice::new(&place.device, SimOptions::default()));
            let toy = Toy::open(&place, Arc::clone(&device) as _).unwrap();
            device.inject(Fault::new(op).after(skip));
            // Data goes past the journal, so its errors are not the journal's.
            if toy.work(5, OPERATIONS).is_ok() {
                assert!(skip > 50, "only {skip} requests");
                break;
            }
            let what = format!("{op:?} {skip}");
            if toy.journal.is_aborted() {
                let before = device.stats();
                assert!(
                    matches!(toy.journal.start(1, &toy), Err(Error::Aborted { .. })),
                    "{what}"
                );
                assert!(toy.journal.commit_now(&toy).is_err(), "{what}");
                assert!(toy.journal.checkpoint().is_err(), "{what}");
                assert!(toy.journal.flush(&toy).is_err(), "{what}");
                assert_eq!(device.stats(), before, "{what}");
            }
            let model = toy.model.lock();
            for seed in 0..SEEDS {
                judge(
                    &place,
                    &recovered(&place, &device.power_cut(seed)),
                    &model,
                    &what,
                );
            }
        }
    }
}

#[test]
fn many_threads_share_commits() {
    const THREADS: u64 = 8;
    const EACH: u64 = 25;
    let place = place(V3);
    let options = SimOptions {
        timing: Timing {
            flush_latency: Duration::from_millis(4),
            ..Timing::default()
        },
        ..SimOptions::default()
    };
    let clock = Arc::new(SystemClock);
    let device = Arc::new(SimDevice::with_clock(&place.device, options, clock));
    let toy = Toy::open(&place, Arc::clone(&device) as _).unwrap();
    let version = AtomicU64::new(1);
    device.reset_stats();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (toy, version) = (&toy, &version);
            scope.spawn(move || {
                for _ in 0..EACH {
                    let handle = toy.journal.start(1, toy).unwrap();
                    let number = version.fetch_add(1, Relaxed);
                    toy.write(&handle, 1 + thread as usize, number).unwrap();
                    let tid = handle.tid();
                    drop(handle);
                    toy.journal.commit(tid, toy).unwrap();
                    assert!(toy.journal.committed() >= tid);
                }
            });
        }
    });
    let (commits, flushes) = (toy.journal.stats().commits, device.stats().flushes);
    let wanted = THREADS * EACH;
    assert!(commits * 3 < wanted, "{commits} commits for {wanted}");
    let checkpoints = toy.journal.stats().checkpoints;
    // The first commit makes sure that the log is durably empty.
    assert_eq!(flushes, 1 + 2 * commits + 2 * checkpoints);
    let model = toy.model.lock();
    assert_eq!(model.durable, model.closed.len() - 1);
    let number = judge(
        &place,
        &recovered(&place, &device.durable()),
        &model,
        "threads",
    );
    assert_eq!(number, model.durable);
}

#[test]
fn a_change_aborted_during_a_commit_is_not_committed() {
    let place = place(V3);
    let device = Arc::new(place.device.snapshot());
    let toy = Toy::open(&place, Arc::clone(&device) as _).unwrap();
    let handle = toy.journal.start(4, &toy).unwrap();
    toy.write(&handle, 3, 1).unwrap();
    std::thread::scope(|scope| {
        let commit = scope.spawn(|| toy.journal.commit_now(&toy));
        // Long enough for the commit to have begun to wait for the handle.
        std::thread::sleep(Duration::from_millis(200));
        toy.journal.abort(&"half-done");
        drop(handle);
        let committed = commit.join().unwrap();
        assert!(matches!(committed, Err(Error::Aborted { .. })));
    });
    assert_eq!(toy.model.lock().durable, 0);
    let found = place.read(&recovered(&place, &device), place.homes[3]);
    assert_eq!(found, place.read(&*place.device, place.homes[3]));
}
