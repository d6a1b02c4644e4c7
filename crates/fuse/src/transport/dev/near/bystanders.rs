//! The other threads of the process, which leave the CPU of the caller meanwhile.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::scheduling::{self, ThreadId};

/// Threads, each with the CPUs that it may use otherwise.
#[derive(Debug, Default)]
pub(super) struct Bystanders(Vec<(ThreadId, CpuSet)>);

impl Bystanders {
    /// Finds all threads there are now but these. One that is started later comes everywhere.
    pub(super) fn find(&mut self, but: &[ThreadId]) {
        self.give_back();
        let others = scheduling::threads().filter(|id| !but.contains(id));
        let with_cpus = |id| Some((id, sched_getaffinity(Some(id)).ok()?));
        self.0.extend(others.filter_map(with_cpus));
    }

    /// Has each of them run on other CPUs than this one, if it may use any.
    pub(super) fn leave(&self, cpu: usize) {
        for (id, all) in &self.0 {
            let mut rest = *all;
            rest.unset(cpu);
            if rest.count() > 0 && scheduling::is_ours(*id) {
                _ = sched_setaffinity(Some(*id), &rest);
            }
        }
    }

    /// Has each run where it did before.
    pub(super) fn give_back(&mut self) {
        for (id, all) in self.0.drain(..) {
            if scheduling::is_ours(id) {
                _ = sched_setaffinity(Some(id), &all);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use rustix::thread::{Pid, gettid};

    use super::*;

    #[test]
    fn other_threads_leave_a_cpu_and_come_back() {
        let all = sched_getaffinity(None).unwrap();
        let Some(cpu) = (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu) && all.count() > 1) else {
            println!("skipped: needs two CPUs");
            return;
        };
        // The threads of other tests are left alone.
        let (name, named) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            name.send(gettid()).unwrap();
            _ = ended.recv();
        });
        let id = named.recv().unwrap();
        let but: Vec<ThreadId> = scheduling::threads().filter(|it| *it != id).collect();
        assert!(but.contains(&gettid()));
        let mut bystanders = Bystanders::default();
        bystanders.find(&but);
        let on_it = || sched_getaffinity(Some(id)).unwrap().is_set(cpu);
        bystanders.leave(cpu);
        assert!(!on_it());
        bystanders.give_back();
        assert!(on_it());
        // One that may use no other CPU stays.
        let one = scheduling::only(cpu).unwrap();
        sched_setaffinity(Some(id), &one).unwrap();
        bystanders.find(&but);
        bystanders.leave(cpu);
        assert!(on_it());
        drop(end);
        other.join().unwrap();
        assert!(scheduling::is_ours(gettid()) && !scheduling::is_ours(Pid::INIT));
    }
}
