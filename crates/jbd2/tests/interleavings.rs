//! Handles, commits, checkpoints and flushes of several threads in many orders, as the model
//! checker `shuttle` chooses them: nothing hangs, nothing durable is missing, nothing half-done
//! is there. `UEXT4_LONG=1` tries many more.

// The locks of the model checker, under the name of the product's.
extern crate shuttle_parking_lot as parking_lot;

#[path = "it/maker.rs"]
#[allow(dead_code, reason = "made for other tests too")]
mod maker;
#[path = "it/toy.rs"]
#[allow(dead_code, reason = "made for other tests too")]
mod toy;

use std::sync::Arc;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};
use uext4_blockdev::MemoryDevice;

use maker::{V1, V3};
use toy::{Toy, judge, place, recovered};

/// Schedules for each test.
fn schedules() -> usize {
    match std::env::var_os("UEXT4_LONG") {
        Some(_) => 20_000,
        None => 400,
    }
}

/// Tries random schedules, and some that switch at few unlikely places.
fn check(test: impl Fn() + Send + Sync + Copy + 'static) {
    let mut config = Config::new();
    // The journal and its device are made on a thread's stack, more than 32 KiB without
    // optimisation.
    config.stack_size = 256 << 10;
    Runner::new(RandomScheduler::new(schedules()), config.clone()).run(test);
    Runner::new(PctScheduler::new(3, schedules()), config).run(test);
}

/// What a power cut at this moment would leave is as after one of the transactions.
fn cut(toy: &Toy, device: &MemoryDevice) {
    let place = &toy.place;
    let model = toy.model.lock();
    let image = device.snapshot();
    judge(place, &recovered(place, &image), &model, "cut");
}

fn world() -> (Arc<Toy>, Arc<MemoryDevice>) {
    let place = place(V3);
    let device = Arc::new(place.device.snapshot());
    let toy = Toy::open(&place, Arc::clone(&device) as _).unwrap();
    (Arc::new(toy), device)
}

#[test]
fn a_commit_is_durable_and_whole() {
    check(|| {
        let (toy, device) = world();
        let threads: Vec<_> = (0..3u64)
            .map(|number| {
                let (toy, device) = (Arc::clone(&toy), Arc::clone(&device));
                thread::spawn(move || {
                    for version in 1..3 {
                        let handle = toy.journal.start(2, &*toy).unwrap();
                        let tid = handle.tid();
                        // Two blocks of its own, changed together.
                        for block in 0..2 {
                            let index = 1 + 2 * number as usize + block;
                            toy.write(&handle, index, version * 10 + number).unwrap();
                        }
                        drop(handle);
                        toy.journal.commit(tid, &*toy).unwrap();
                        assert!(toy.journal.committed() >= tid);
                        if number == 0 {
                            cut(&toy, &device);
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let model = toy.model.lock();
        assert_eq!(model.durable, model.closed.len() - 1);
        let image = recovered(&toy.place, &device.snapshot());
        assert_eq!(judge(&toy.place, &image, &model, "end"), model.durable);
    });
}

#[test]
fn checkpoints_run_during_handles_and_commits() {
    check(|| {
        let (toy, device) = world();
        let writer = {
            let toy = Arc::clone(&toy);
            thread::spawn(move || {
                for version in 1..4 {
                    let handle = toy.journal.start(1, &*toy).unwrap();
                    toy.write(&handle, 1, version).unwrap();
                    drop(handle);
                    if version % 2 == 1 {
                        toy.journal.commit_now(&*toy).unwrap();
                    }
                }
            })
        };
        let keeper = {
            let toy = Arc::clone(&toy);
            thread::spawn(move || {
                toy.journal.checkpoint().unwrap();
                toy.journal.flush(&*toy).unwrap();
            })
        };
        cut(&toy, &device);
        writer.join().unwrap();
        keeper.join().unwrap();
        cut(&toy, &device);
        toy.journal.flush(&*toy).unwrap();
        cut(&toy, &device);
    });
}

#[test]
fn flushes_are_shared_by_waiters_only() {
    check(|| {
        let place = place(V1);
        let device = Arc::new(uext4_testkit::SimDevice::new(
            &place.device,
            uext4_testkit::SimOptions::default(),
        ));
        let toy = Arc::new(Toy::open(&place, Arc::clone(&device) as _).unwrap());
        let block = place.homes[20];
        let threads: Vec<_> = (0..3u64)
            .map(|number| {
                let (toy, device) = (Arc::clone(&toy), Arc::clone(&device));
                let offset = (block.0 + number) * 1024;
                thread::spawn(move || {
                    use uext4_blockdev::BlockDevice;
                    device.write_at(offset, &[number as u8 + 1; 1024]).unwrap();
                    let seq = toy.journal.barrier().seq();
                    toy.journal.barrier().wait(seq).unwrap();
                    let mut bytes = [0; 1024];
                    device.durable().read_at(offset, &mut bytes).unwrap();
                    assert!(bytes == [number as u8 + 1; 1024], "not durable");
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}
