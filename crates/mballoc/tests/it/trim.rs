//! Free runs shown to the device.

use uext4_mballoc::{Allocator, Error, Run};
use uext4_ondisk::Pblk;

use crate::model::{Bitmaps, Refused, request, run};

/// Two groups of 256 blocks with a used block in the middle of the first.
fn two_groups() -> (Bitmaps, Allocator) {
    let bitmaps = Bitmaps::new(1 + 512, 256);
    let allocator = Allocator::new(&bitmaps.geometry, &bitmaps).unwrap();
    assert!(allocator.take_at(&bitmaps, run(101, 1)).unwrap());
    (bitmaps, allocator)
}

fn shown(allocator: &Allocator, bitmaps: &Bitmaps, range: (u64, u64), min_len: u32) -> Vec<Run> {
    let mut runs = Vec::new();
    let range = Pblk(range.0)..Pblk(range.1);
    let free = allocator.free_blocks();
    let trimmed = allocator.trim(bitmaps, range, min_len, |run| {
        runs.push(run);
        Ok(())
    });
    let blocks: u64 = runs.iter().map(|run| u64::from(run.len)).sum();
    assert_eq!(trimmed.unwrap(), blocks);
    assert_eq!(allocator.free_blocks(), free);
    runs
}

#[test]
fn free_runs_of_the_range_are_shown() {
    let (bitmaps, allocator) = two_groups();
    let all = [run(1, 100), run(102, 155), run(257, 256)];
    assert_eq!(shown(&allocator, &bitmaps, (0, u64::MAX), 1), all);
    assert_eq!(shown(&allocator, &bitmaps, (0, 513), 101), all[1..]);
    assert_eq!(shown(&allocator, &bitmaps, (0, 513), 0), all);
    let part = [run(50, 51), run(102, 155), run(257, 3)];
    assert_eq!(shown(&allocator, &bitmaps, (50, 260), 1), part);
    assert_eq!(shown(&allocator, &bitmaps, (50, 260), 4), part[..2]);
    assert_eq!(shown(&allocator, &bitmaps, (260, 50), 1), []);
    assert_eq!(allocator.stats().trimmed, 511 + 411 + 511 + 209 + 206);
}

#[test]
fn long_runs_come_in_pieces() {
    let bitmaps = Bitmaps::new(1 + 8192, 8192);
    let allocator = Allocator::new(&bitmaps.geometry, &bitmaps).unwrap();
    assert!(allocator.take_at(&bitmaps, run(1, 10)).unwrap());
    let pieces = [run(11, 4096), run(4107, 4086)];
    assert_eq!(shown(&allocator, &bitmaps, (0, 40_000), 8000), pieces);
}

#[test]
fn a_found_block_is_not_given_away() {
    let (bitmaps, allocator) = two_groups();
    let trimmed = allocator.trim(&bitmaps, Pblk(1)..Pblk(513), 1, |shown| {
        let other = allocator.take(&bitmaps, &request(shown.start.0, shown.len));
        let other = other.unwrap();
        let apart = other.start.0 >= shown.start.0 + u64::from(shown.len)
            || shown.start.0 >= other.start.0 + u64::from(other.len);
        assert!(apart, "{shown:?} {other:?}");
        allocator.cancel(other);
        Ok(())
    });
    assert_eq!(trimmed.unwrap(), 511);
}

#[test]
fn a_device_that_refuses_ends_it_and_loses_nothing() {
    let (bitmaps, allocator) = two_groups();
    let mut left = 2;
    let refused = allocator.trim(&bitmaps, Pblk(1)..Pblk(513), 1, |_| {
        left -= 1;
        if left == 0 { Err(Refused) } else { Ok(()) }
    });
    assert!(matches!(refused, Err(Error::Bitmaps(Refused))));
    assert_eq!(allocator.free_blocks(), 511);
    assert_eq!(allocator.stats().trimmed, 100);
    assert!(allocator.take_at(&bitmaps, run(102, 155)).unwrap());
}

/// What Linux says a thread does: sleeping for many looks in a row.
#[cfg(target_os = "linux")]
fn sleeps(thread: &std::sync::Mutex<Option<std::path::PathBuf>>) {
    let mut in_a_row = 0;
    for _ in 0..20_000 {
        let path = thread.lock().unwrap().clone();
        let stat = path.map(|path| std::fs::read_to_string(path.join("stat")).unwrap());
        let state = stat.as_deref().and_then(|stat| stat.rsplit_once(") "));
        let is_asleep = state.is_some_and(|(_, state)| state.starts_with('S'));
        in_a_row = if is_asleep { in_a_row + 1 } else { 0 };
        if in_a_row == 20 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("it never sleeps");
}

#[cfg(target_os = "linux")]
#[test]
fn trimming_sleeps_while_a_request_is_about_to_be_refused() {
    use std::sync::{Mutex, mpsc};
    let (bitmaps, allocator) = two_groups();
    assert!(allocator.take_at(&bitmaps, run(300, 1)).unwrap());
    let threads = [Mutex::default(), Mutex::default()];
    let threads = &threads;
    let here = move |index: usize| {
        let path = std::fs::read_link("/proc/thread-self").unwrap();
        *threads[index].lock().unwrap() = Some(std::path::Path::new("/proc").join(path));
    };
    let (release, released) = mpsc::channel();
    let (started, start) = mpsc::channel();
    std::thread::scope(|scope| {
        let trim = |mut f: Box<dyn FnMut() + Send>| {
            let (allocator, bitmaps) = (&allocator, &bitmaps);
            move || {
                let all = Pblk(1)..Pblk(513);
                allocator.trim(bitmaps, all, 1, |_| {
                    f();
                    Ok(())
                })
            }
        };
        let mut is_first = true;
        let first = scope.spawn(trim(Box::new(move || {
            if std::mem::take(&mut is_first) {
                started.send(()).unwrap();
                released.recv().unwrap();
            }
        })));
        start.recv().unwrap();
        // There is no such run: it waits for the piece that is being shown.
        let refused = scope.spawn(|| {
            here(0);
            let request = uext4_mballoc::Request {
                min_len: 256,
                ..request(1, 256)
            };
            allocator.take(&bitmaps, &request)
        });
        sleeps(&threads[0]);
        let mut again = trim(Box::new(|| ()));
        let second = scope.spawn(move || {
            here(1);
            again()
        });
        sleeps(&threads[1]);
        release.send(()).unwrap();
        let shown = first.join().unwrap().unwrap();
        assert!(matches!(
            refused.join().unwrap(),
            Err(Error::NoSpace { .. })
        ));
        // What the second has in hand, the first passes by.
        assert!(shown + second.join().unwrap().unwrap() >= 510);
    });
}
