//! On which CPUs threads run: those of a ring's queues each on one, those they start on all.

use std::sync::OnceLock;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Those of the process, before any thread was pinned.
static ALL: OnceLock<CpuSet> = OnceLock::new();

/// Has this thread run on one CPU, where that is possible: it may be off, or not for us.
pub fn pin(cpu: usize) {
    if let Ok(all) = sched_getaffinity(None) {
        _ = ALL.set(all);
    }
    if cpu < CpuSet::MAX_CPU {
        let mut one = CpuSet::new();
        one.set(cpu);
        _ = sched_setaffinity(None, &one);
    }
}

/// Has this thread, started by one that is pinned, run everywhere.
pub fn unpin() {
    if let Some(all) = ALL.get() {
        _ = sched_setaffinity(None, all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_started_by_a_pinned_thread_runs_everywhere() {
        let before = sched_getaffinity(None).unwrap();
        let last = (0..CpuSet::MAX_CPU)
            .rfind(|cpu| before.is_set(*cpu))
            .unwrap();
        std::thread::spawn(move || {
            pin(last);
            assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
            let started = std::thread::spawn(|| {
                unpin();
                sched_getaffinity(None).unwrap().count()
            });
            assert_eq!(started.join().unwrap(), before.count());
        })
        .join()
        .unwrap();
    }
}
