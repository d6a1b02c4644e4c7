//! How the scheduler sees threads: their class, and on which CPU they are.

use rustix::thread::{CpuSet, Pid};
use uext4_blockdev::{scheduling_class, set_scheduling_class};

/// Fields of `/proc/PID/stat`, counted from the one behind the name in parentheses.
const NICENESS: usize = 16;
const PROCESSOR: usize = 36;
const CLASS: usize = 38;

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
    fn number(self) -> i32 {
        match self {
            Self::Normal => libc::SCHED_OTHER,
            Self::Batch => libc::SCHED_BATCH,
            Self::Idle => libc::SCHED_IDLE,
        }
    }
}

/// Whether this thread is in a class.
pub fn is_in(class: Class) -> bool {
    scheduling_class().is_ok_and(|number| number == class.number())
}

/// Puts this thread into a class. False where that is not possible.
pub fn enter(class: Class) -> bool {
    set_scheduling_class(0, class.number()).is_ok()
}

/// Puts another thread of this process into a class, where that is possible.
pub fn put(thread: ThreadId, class: Class) {
    _ = set_scheduling_class(thread.as_raw_nonzero().get(), class.number());
}

/// Whether a thread gets out of SCHED_IDLE: a privilege, or the limit RLIMIT_NICE.
pub fn can_leave_idle() -> bool {
    let trial = std::thread::Builder::new().spawn(|| enter(Class::Idle) && enter(Class::Normal));
    trial.is_ok_and(|trial| trial.join().unwrap_or(false))
}

/// The CPU that a thread of any process runs on, or ran on last. `None` where `/proc` does not
/// show the thread, and where it has more of the processor than others by its class or niceness:
/// a thread that shares its CPU would wait.
pub fn cpu_of(thread: u32) -> Option<usize> {
    let stat = std::fs::read(format!("/proc/{thread}/stat")).ok()?;
    cpu_in(&stat)
}

/// The threads of this process.
pub fn threads() -> impl Iterator<Item = ThreadId> {
    let all = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    all.flatten().filter_map(|task| {
        let number = task.file_name().to_str()?.parse().ok()?;
        Pid::from_raw(number)
    })
}

/// Whether a thread is one of this process still: another may have got its number.
pub fn is_ours(thread: ThreadId) -> bool {
    std::fs::exists(format!("/proc/self/task/{}", thread.as_raw_nonzero())).unwrap_or(false)
}

/// Whether a thread of this process runs, or would if it had a CPU.
pub fn can_run(thread: ThreadId) -> bool {
    let stat = std::fs::read(format!("/proc/self/task/{}/stat", thread.as_raw_nonzero()));
    stat.is_ok_and(|stat| fields(&stat).is_some_and(|mut fields| fields.next() == Some("R")))
}

/// Those behind the name, which may hold anything.
fn fields(stat: &[u8]) -> Option<impl Iterator<Item = &str>> {
    let behind = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let rest = std::str::from_utf8(stat.get(behind..)?).ok()?;
    Some(rest.split_ascii_whitespace())
}

fn cpu_in(stat: &[u8]) -> Option<usize> {
    let fields: Vec<&str> = fields(stat)?.take(CLASS + 1).collect();
    let number = |at: usize| fields.get(at)?.parse::<i32>().ok();
    let is_ordinary = [Class::Normal, Class::Batch, Class::Idle]
        .iter()
        .any(|class| number(CLASS) == Some(class.number()));
    let cpu = number(PROCESSOR).filter(|_| is_ordinary && number(NICENESS) >= Some(0))?;
    usize::try_from(cpu).ok()
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
    use rustix::process::getpriority_process;
    use rustix::thread::{gettid, sched_getcpu};

    use super::*;

    #[test]
    fn classes_are_entered_and_niceness_stays() {
        std::thread::spawn(|| {
            let niceness = getpriority_process(None).unwrap();
            for class in [Class::Batch, Class::Normal, Class::Idle] {
                assert!(enter(class) && is_in(class), "{class:?}");
                assert_eq!(getpriority_process(None).unwrap(), niceness);
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn the_cpu_of_a_thread() {
        std::thread::spawn(|| {
            let cpu = sched_getcpu();
            rustix::thread::sched_setaffinity(None, &only(cpu).unwrap()).unwrap();
            let id = gettid();
            assert_eq!(cpu_of(id.as_raw_nonzero().get().unsigned_abs()), Some(cpu));
            assert!(can_run(id));
        })
        .join()
        .unwrap();
        assert_eq!(cpu_of(u32::MAX), None);
    }

    #[test]
    fn any_text_of_a_stat() {
        let of = |name: &str, niceness: i32, class: i32| {
            let field = |number: i32| match number {
                19 => niceness,
                41 => class,
                number => number,
            };
            let fields: Vec<String> = (3..=52).map(|number| field(number).to_string()).collect();
            cpu_in(format!("7 ({name}) {}\n", fields.join(" ")).as_bytes())
        };
        assert_eq!(of("tar", 0, 0), Some(39));
        assert_eq!(of("a) S 1 (b", 19, 3), Some(39));
        // Less nice than others, and of real time.
        assert_eq!((of("tar", -1, 0), of("tar", 0, 1)), (None, None));
        for text in ["", "7", "7 (tar", "7 (tar)", "7 (tar) S 1"] {
            assert_eq!(cpu_in(text.as_bytes()), None, "{text}");
        }
    }
}
