//! The threads of a file system that is open for writing: flushers, one that commits and
//! checkpoints, one that reclaims memory, one that discards freed blocks.

use std::sync::Arc;
use std::time::Duration;

use crate::base::background::Background;
use crate::base::error::{Error, Result};
use crate::journal::rw::Rw;
use crate::journal::sbi::Sbi;
use crate::mount::super_::tick;
use crate::mount::writeback_options::flushers;

/// How often the thread looks that commits.
const TICK: Duration = Duration::from_secs(1);
/// How often the thread looks that reclaims memory, unless it is woken.
const RECLAIM_INTERVAL: Duration = Duration::from_secs(2);

/// Starts the threads that flush, commit and shrink: all of them, or none. Nothing if they run.
pub(crate) fn start_background(sbi: &Arc<Sbi>) -> Result<()> {
    let rw = sbi.writable()?;
    // Locked to the end: of two callers one starts them.
    let mut threads = rw.background.lock();
    if threads.is_empty() {
        let started = start_threads(sbi, rw);
        *threads = started.map_err(|source| {
            rw.pages.stop_flushers();
            Error::NoThreads { source }
        })?;
    }
    Ok(())
}

fn start_threads(sbi: &Arc<Sbi>, rw: &Rw) -> std::io::Result<Vec<Background>> {
    let flushers = flushers(rw.wb_flushers, sbi.device().is_rotational());
    rw.pages.start_flushers(flushers)?;
    let weak = Arc::downgrade(sbi);
    let commit = move || {
        let sbi = weak.upgrade();
        // A failure has aborted the journal: the next operation returns it.
        sbi.map(|sbi| _ = tick(&sbi)).is_some()
    };
    let weak = Arc::downgrade(sbi);
    let reclaim = move || {
        let sbi = weak.upgrade();
        let reclaim = |sbi: Arc<Sbi>| (sbi.watch_pressure(), sbi.reclaim());
        sbi.map(reclaim).is_some()
    };
    let weak = Arc::downgrade(sbi);
    let discard = move || {
        let sbi = weak.upgrade();
        let parts = sbi.as_deref().and_then(|sbi| Some((sbi.rw()?, sbi)));
        parts.map(|(rw, sbi)| rw.settle_freed(sbi)).is_some()
    };
    let committer = Background::start("uext4-journal", TICK, commit)?;
    let reclaimer = Background::start("uext4-reclaim", RECLAIM_INTERVAL, reclaim)?;
    let discarder = match rw.discards.is_on() {
        true => Some(Background::start("uext4-discard", TICK, discard)?),
        false => None,
    };
    // All run: from here on others may wake them.
    rw.memory.set_waker(reclaimer.waker());
    let waker = discarder.as_ref().map(Background::waker);
    rw.discards.set_waker(waker);
    Ok([committer, reclaimer]
        .into_iter()
        .chain(discarder)
        .collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;
    use crate::testing::{mke2fs, mount, unmount_and_check};

    #[test]
    fn of_callers_at_the_same_time_one_starts_the_threads() {
        let device = mke2fs("-t ext4", 8192);
        for _ in 0..20 {
            let sbi = mount(&device);
            let together = Barrier::new(4);
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        together.wait();
                        start_background(&sbi).unwrap();
                    });
                }
            });
            assert_eq!(sbi.writable().unwrap().background.lock().len(), 2);
            unmount_and_check(&sbi, &device);
        }
    }
}
