//! How the scheduler sees threads: their class, and on which CPU they are.

use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;

use rustix::process::getpriority_process;
use rustix::thread::{CpuSet, Pid};
use thread_priority::{
    NormalThreadSchedulePolicy as Policy, ThreadPriority, ThreadPriorityValue,
    ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id, thread_schedule_policy,
};

/// The niceness 0, of 0 (nicest) to 99.
const NICENESS_0: u8 = 48;

/// Field 39 of `/proc/PID/stat`, counted from the one behind the name in parentheses.
const PROCESSOR: usize = 36;

/// A class of threads that share the processor fairly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// SCHED_OTHER: what every thread has.
    Normal,
    /// SCHED_BATCH: the same share, but a thread that wakes does not interrupt another.
    Batch,
    /// SCHED_IDLE: only what all others leave. A thread without privileges cannot get out of it.
    Idle,
}

impl Class {
    fn policy(self) -> ThreadSchedulePolicy {
        ThreadSchedulePolicy::Normal(match self {
            Self::Normal => Policy::Other,
            Self::Batch => Policy::Batch,
            Self::Idle => Policy::Idle,
        })
    }
}

/// Whether this thread is in a class.
pub fn is_in(class: Class) -> bool {
    thread_schedule_policy().is_ok_and(|policy| policy == class.policy())
}

/// Puts this thread into a class. False where that is not possible: a class but the idle one is
/// entered with the niceness 0, so only by a thread that has it.
pub fn enter(class: Class) -> bool {
    // The class is set before the niceness, and holds where that cannot be set.
    _ = put(thread_native_id(), class);
    is_in(class)
}

/// Whether a thread gets out of SCHED_IDLE: a privilege, or the limit RLIMIT_NICE.
pub fn can_leave_idle() -> bool {
    let trial = std::thread::Builder::new().spawn(|| enter(Class::Idle) && enter(Class::Normal));
    trial.is_ok_and(|trial| trial.join().unwrap_or(false))
}

/// A running thread that another may put into a class.
#[derive(Debug)]
pub struct Subject(JoinHandle<()>);

impl Subject {
    /// The thread of a handle, which is kept: its identity is the thread's as long.
    pub fn new(handle: JoinHandle<()>) -> Self {
        Self(handle)
    }

    /// Puts it into the normal class, where [`can_leave_idle`].
    pub fn lift(&self) {
        _ = put(self.0.as_pthread_t(), Class::Normal);
    }
}

/// A class but the idle one comes with the niceness 0 for this thread.
fn put(thread: thread_priority::ThreadId, class: Class) -> Option<()> {
    let priority = match class {
        Class::Idle => ThreadPriority::Min,
        Class::Normal | Class::Batch => {
            getpriority_process(None).ok().filter(|own| *own == 0)?;
            ThreadPriority::Crossplatform(ThreadPriorityValue::try_from(NICENESS_0).ok()?)
        }
    };
    set_thread_priority_and_policy(thread, priority, class.policy()).ok()
}

/// The CPU that a thread of any process runs on, or ran on last; `None` where `/proc` does not
/// show the thread.
pub fn cpu_of(thread: u32) -> Option<usize> {
    let stat = std::fs::read(format!("/proc/{thread}/stat")).ok()?;
    cpu_in(&stat)
}

/// Whether a thread of this process runs, or would if it had a CPU.
pub fn can_run(thread: i32) -> bool {
    let stat = std::fs::read(format!("/proc/self/task/{thread}/stat"));
    stat.is_ok_and(|stat| {
        let behind = stat.iter().rposition(|byte| *byte == b')');
        behind.is_some_and(|at| stat.get(at..).is_some_and(|rest| rest.starts_with(b") R")))
    })
}

fn cpu_in(stat: &[u8]) -> Option<usize> {
    // The name may hold anything.
    let behind = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let mut fields = stat.get(behind..)?.split(u8::is_ascii_whitespace);
    let field = fields
        .by_ref()
        .filter(|field| !field.is_empty())
        .nth(PROCESSOR)?;
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// The set of one CPU; `None` where no set has it.
pub fn only(cpu: usize) -> Option<CpuSet> {
    (cpu < CpuSet::MAX_CPU).then(|| {
        let mut one = CpuSet::new();
        one.set(cpu);
        one
    })
}

/// A thread that others place.
pub type ThreadId = Pid;

#[cfg(test)]
mod tests {
    use rustix::thread::{gettid, sched_getcpu};

    use super::*;

    #[test]
    fn classes_are_entered_and_niceness_stays() {
        std::thread::spawn(|| {
            let niceness = getpriority_process(None).unwrap();
            assert!(enter(Class::Batch));
            assert!(enter(Class::Normal));
            assert_eq!(getpriority_process(None).unwrap(), niceness);
            assert!(enter(Class::Idle));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn the_cpu_of_a_thread() {
        std::thread::spawn(|| {
            let cpu = sched_getcpu();
            rustix::thread::sched_setaffinity(None, &only(cpu).unwrap()).unwrap();
            let id = gettid().as_raw_nonzero().get().unsigned_abs();
            assert_eq!(cpu_of(id), Some(cpu));
        })
        .join()
        .unwrap();
        assert_eq!(cpu_of(u32::MAX), None);
    }

    #[test]
    fn any_text_of_a_stat() {
        let fields: Vec<String> = (3..=52).map(|number| number.to_string()).collect();
        let of = |name: &str| format!("7 ({name}) {}\n", fields.join(" "));
        assert_eq!(cpu_in(of("tar").as_bytes()), Some(39));
        assert_eq!(cpu_in(of("a) S 1 (b").as_bytes()), Some(39));
        for text in ["", "7", "7 (tar", "7 (tar)", "7 (tar) S 1"] {
            assert_eq!(cpu_in(text.as_bytes()), None, "{text}");
        }
    }
}
