//! On which CPUs threads run, and in which class: those that serve requests may be put on one, in
//! a class below the normal one; those that they start run everywhere, in the normal one.

use std::sync::OnceLock;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::scheduling::{self, Class};

/// Those of the process, before any thread was pinned, and whether its class is the normal one.
static ALL: OnceLock<(CpuSet, bool)> = OnceLock::new();

/// Notes how threads run. The first call is by a thread that is not pinned.
fn note() -> Option<(CpuSet, bool)> {
    if ALL.get().is_none()
        && let Ok(all) = sched_getaffinity(None)
    {
        _ = ALL.set((all, scheduling::is_in(Class::Normal)));
    }
    ALL.get().copied()
}

/// The CPUs that the process may use, where its threads may be moved between them and between
/// classes. `None` where an administrator has chosen another class for it.
pub fn movable() -> Option<CpuSet> {
    note().and_then(|(all, is_normal)| is_normal.then_some(all))
}

/// Has this thread run on one CPU, where that is possible: it may be off, or not for us.
pub fn pin(cpu: usize) {
    note();
    if let Some(one) = scheduling::only(cpu) {
        _ = sched_setaffinity(None, &one);
    }
}

/// Has this thread, started by one that is pinned or of another class, run everywhere and as any
/// other.
pub fn unpin() {
    if let Some((all, is_normal)) = ALL.get() {
        _ = sched_setaffinity(None, all);
        if *is_normal {
            scheduling::enter(Class::Normal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_started_by_a_pinned_thread_runs_everywhere_as_any_other() {
        let before = sched_getaffinity(None).unwrap();
        let last = (0..CpuSet::MAX_CPU)
            .rfind(|cpu| before.is_set(*cpu))
            .unwrap();
        std::thread::spawn(move || {
            pin(last);
            assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
            assert!(scheduling::enter(Class::Batch));
            let started = std::thread::spawn(|| {
                assert!(scheduling::is_in(Class::Batch));
                unpin();
                assert!(scheduling::is_in(Class::Normal));
                sched_getaffinity(None).unwrap().count()
            });
            assert_eq!(started.join().unwrap(), before.count());
        })
        .join()
        .unwrap();
    }
}
