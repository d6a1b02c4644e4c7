//! The other threads of the process, which leave the CPU of the caller meanwhile.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::scheduling::{self, ThreadId};

/// Threads, each with the CPUs that it may use otherwise.
#[derive(Debug, Default)]
pub(super) struct Bystanders(Vec<(ThreadId, CpuSet)>);

impl Bystanders {
    /// Finds all threads there are now but these.
    pub(super) fn find(&mut self, own: &[ThreadId]) {
        debug_assert!(self.0.is_empty(), "what they may use is recorded before");
        let others = scheduling::threads().filter(|id| !own.contains(id));
        let with_cpus = |id| Some((id, sched_getaffinity(Some(id)).ok()?));
        self.0 = others.filter_map(with_cpus).collect();
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

    /// Has each run where it did before. A thread that one of them started meanwhile has inherited
    /// what was left to it: it runs on `home` from now on.
    pub(super) fn give_back(&mut self, home: &CpuSet, own: &[ThreadId]) {
        if self.0.is_empty() {
            return;
        }
        let known = std::mem::take(&mut self.0);
        // Before the others are looked for: those that it starts from now on inherit all, and a
        // table of threads that cannot be read keeps nothing from it.
        for (id, all) in &known {
            if scheduling::is_ours(*id) {
                _ = sched_setaffinity(Some(*id), all);
            }
        }
        let is_known = |id: &ThreadId| known.iter().any(|(other, _)| other == id);
        for id in scheduling::threads().filter(|id| !own.contains(id) && !is_known(id)) {
            // It fails for one that has ended.
            _ = sched_setaffinity(Some(id), home);
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
        let own: Vec<ThreadId> = scheduling::threads().filter(|it| *it != id).collect();
        assert!(own.contains(&gettid()));
        let mut bystanders = Bystanders::default();
        bystanders.find(&own);
        let on_it = || sched_getaffinity(Some(id)).unwrap().is_set(cpu);
        bystanders.leave(cpu);
        assert!(!on_it());
        bystanders.give_back(&all, &own);
        assert!(on_it());
        // One that may use no other CPU stays.
        let one = scheduling::only(cpu).unwrap();
        sched_setaffinity(Some(id), &one).unwrap();
        bystanders.find(&own);
        bystanders.leave(cpu);
        assert!(on_it());
        // One that was started since has what it inherited, and gets all.
        let mut rest = all;
        rest.unset(cpu);
        bystanders.0 = vec![(gettid(), all)];
        sched_setaffinity(Some(id), &rest).unwrap();
        bystanders.give_back(&all, &own);
        assert!(on_it() && sched_getaffinity(Some(id)).unwrap().count() == all.count());
        drop(end);
        other.join().unwrap();
        assert!(scheduling::is_ours(gettid()) && !scheduling::is_ours(Pid::INIT));
    }
}
