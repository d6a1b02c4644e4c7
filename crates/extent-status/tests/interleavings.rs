//! Look-ups, changes and reclaim of several threads in many orders, as the model checker `shuttle`
//! chooses them: delayed extents stay, nothing is told that was never so, counts add up at the end.
//! `UEXT4_LONG=1` tries many more.

use std::sync::Arc;
use std::time::Duration;

use shuttle::thread;
use uext4_extent_status::{Extent, Room, Status, Tree};
use uext4_ondisk::{Lblk, Pblk};

/// Schedules for each test.
fn schedules() -> usize {
    match std::env::var_os("UEXT4_LONG") {
        Some(_) => 50_000,
        None => 2000,
    }
}

/// Tries random schedules, and some that switch at few unlikely places.
fn check(test: impl Fn() + Send + Sync + Copy + 'static) {
    shuttle::check_random(test, schedules());
    shuttle::check_pct(test, schedules(), 3);
}

fn room() -> Arc<Room> {
    Room::new(|| Duration::ZERO)
}

fn extent(lblk: u32, len: u32, status: Status) -> Extent {
    let pblk = match status {
        Status::Written | Status::Unwritten => Pblk(1000 + u64::from(lblk)),
        Status::Delayed | Status::Hole => Pblk(0),
    };
    Extent {
        lblk: Lblk(lblk),
        len,
        pblk,
        status,
    }
}

#[test]
fn reclaim_takes_nothing_that_is_truth() {
    check(|| {
        let room = room();
        let tree = Arc::new(Tree::new(&room));
        tree.insert(extent(10, 5, Status::Delayed));
        let reader = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || {
                tree.cache(extent(0, 10, Status::Written));
                if let Some(found) = tree.lookup(Lblk(3)) {
                    assert_eq!(found.pblk_at(Lblk(3)), Some(Pblk(1003)));
                }
                let found = tree.lookup(Lblk(12)).map(|found| found.status);
                assert_eq!(found, Some(Status::Delayed));
            })
        };
        let writer = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || {
                assert_eq!(tree.insert(extent(20, 4, Status::Delayed)), 0);
                assert_eq!(tree.insert(extent(21, 2, Status::Written)), 2);
                assert_eq!(tree.remove(Lblk(23), 1), 1);
            })
        };
        room.scan(100);
        room.scan(1);
        reader.join().unwrap();
        writer.join().unwrap();
        assert_eq!(tree.delayed_blocks(), 6);
        let kept: Vec<_> = [10, 14, 20]
            .iter()
            .filter_map(|&at| tree.lookup(Lblk(at)))
            .collect();
        assert!(kept.iter().all(|found| found.status == Status::Delayed));
        assert_eq!(kept.len(), 3);
        // The first visit may only clear a mark of use.
        (0..3).for_each(|_| _ = room.scan(100));
        assert_eq!(room.count(), 0, "all else can go");
        assert_eq!(tree.extents().len(), 2);
    });
}

#[test]
fn trees_come_and_go_while_others_are_scanned() {
    check(|| {
        let room = room();
        let threads: Vec<_> = (0..2)
            .map(|number| {
                let room = Arc::clone(&room);
                thread::spawn(move || {
                    let tree = Tree::new(&room);
                    tree.cache(extent(number, 1, Status::Written));
                    tree.cache(extent(5 + number, 1, Status::Hole));
                    if number == 1 {
                        tree.remove(Lblk(0), 100);
                        tree.cache(extent(7, 1, Status::Unwritten));
                    }
                    drop(tree);
                })
            })
            .collect();
        room.scan(2);
        room.scan(2);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(room.count(), 0);
        assert_eq!(room.scan(10), 0);
    });
}
