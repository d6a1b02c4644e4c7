//! Devices that take long, or for ever: who is reported, and the thread that must not be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread::yield_now;
use std::time::Duration;

use uext4_blockdev::{Clock, VirtualClock};
use uext4_writeback::throttle::{Bdi, Class, Domain, Outcome, Task, Tunables, Verdict};
use uext4_writeback::{Error, FilePages, Mapping, PageCache, Writer};

use crate::mapping::{Injected, TestFile, eager, pattern};

fn cache() -> (PageCache<Injected>, Arc<VirtualClock>) {
    let clock = Arc::new(VirtualClock::new(0));
    let for_cache: Arc<dyn Clock> = clock.clone();
    let cache = PageCache::new(eager(1 << 20), for_cache).unwrap();
    cache.start_flushers(1).unwrap();
    (cache, clock)
}

fn is_stalled<T>(result: &Result<T, Error<Injected>>) -> bool {
    matches!(result, Err(Error::Stalled))
}

/// A device that reports of parts of a run, as many as it is let.
struct Slow {
    asked: AtomicU64,
    reported: AtomicU64,
}

impl Mapping for Slow {
    type Error = Injected;

    fn read_blocks(&self, _: u64, buf: &mut [u8]) -> Result<(), Injected> {
        buf.fill(0);
        Ok(())
    }

    fn write_run(&self, _: u64, _: &[&[u8]]) -> Result<(), Injected> {
        Ok(())
    }

    fn write_run_reporting(
        &self,
        _: u64,
        _: &[&[u8]],
        reported: &dyn Fn(),
    ) -> Result<(), Injected> {
        loop {
            let (asked, before) = (self.asked.load(SeqCst), self.reported.load(SeqCst));
            if asked == u64::MAX {
                return Ok(());
            }
            if asked > before {
                reported();
                self.reported.store(before + 1, SeqCst);
            }
            yield_now();
        }
    }
}

#[test]
fn a_long_run_is_no_stall_while_it_reports_progress() {
    let (cache, clock) = cache();
    let slow = Arc::new(Slow {
        asked: AtomicU64::new(0),
        reported: AtomicU64::new(0),
    });
    let weak = Arc::downgrade(&slow);
    let pages: FilePages<Injected> = cache.file(weak);
    pages.write(0, &pattern(300 << 10, 1), 0).unwrap();
    while cache.stats().nr_writeback == 0 {
        yield_now();
    }
    let other = TestFile::new(&cache, Vec::new());
    let mut writer = Writer::default();
    let mut write = |at: u64| {
        clock.advance(Duration::from_secs(1));
        other.write_paced(&mut writer, at * 4096, &pattern(4096, 2))
    };
    // Ten minutes, and nothing is completed; a part every twenty seconds.
    for part in 0..30 {
        for second in 0..20 {
            let result = write(part * 20 + second);
            if result.is_err() {
                slow.asked.store(u64::MAX, SeqCst);
            }
            result.unwrap();
        }
        slow.asked.store(part + 1, SeqCst);
        while slow.reported.load(SeqCst) <= part {
            yield_now();
        }
    }
    // Then none any more.
    let reported = (600..800).map(write).find(Result::is_err);
    slow.asked.store(u64::MAX, SeqCst);
    assert!(reported.is_some_and(|reported| is_stalled(&reported)));
}

/// Devices that took all they could get and write nothing, not dead: the next one works all the
/// same.
#[test]
fn devices_that_get_nowhere_leave_credits_to_others() {
    let tunables = Tunables::default();
    let domain = Domain::new(&tunables, 1 << 30, 4).unwrap();
    let devices = [(); 3].map(|()| Bdi::new(&domain, &tunables).unwrap());
    let mut now = Duration::from_secs(1);
    let mut task = Task::new(Class::Normal, 0);
    for stuck in &devices[..2] {
        // Its writers try for twenty seconds, without a pause.
        let end = now + Duration::from_secs(20);
        while now < end {
            now += Duration::from_millis(10);
            let pages = stuck.allowance(&task, now);
            if stuck.admit(&mut task, pages, now) == Verdict::Go {
                stuck.dirtied(&mut task, pages, now);
                stuck.writeback_started(pages, now);
            }
        }
        stuck.exited(&mut task, now);
    }
    let held = domain.unwritten();
    assert!(held > domain.thresh() / 2, "{held}");
    // One that writes 10,000 pages a second.
    let (works, mut written) = (&devices[2], 0);
    for _ in 0..1000 {
        now += Duration::from_millis(10);
        let pages = works.allowance(&task, now).min(100);
        if works.admit(&mut task, pages, now) == Verdict::Go {
            works.dirtied(&mut task, pages, now);
            works.writeback_started(pages, now);
            works.completed(pages, Outcome::Written, now);
            written += pages;
        }
        assert!(domain.unwritten() <= domain.thresh());
    }
    assert!(written > 10_000, "{written} of {}", domain.thresh());
}
