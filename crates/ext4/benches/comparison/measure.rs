//! What is measured, any thread that does it.

use std::hint::black_box;

use rustix::time::{ClockId, clock_gettime};

/// Bytes written and read one after the other, and how many in one call.
pub const BYTES: usize = 256 << 20;
pub const CALL: usize = 1 << 20;

/// What time is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// That passes.
    Wall,
    /// That this process's threads use the processor.
    Processor,
    /// That the calling thread uses it.
    Thread,
}

/// Two directories with names, by any file system.
pub trait Names: Sync {
    fn subject(&self) -> &'static str;
    fn create(&self, dir: usize, name: &str);
    fn stat(&self, dir: usize, name: &str);
    fn rename(&self, dir: usize, name: &str, to: &str);
    fn unlink(&self, dir: usize, name: &str);
}

/// Times a second that `f`, which does something `count` times, does it.
pub fn rate(clock: Clock, count: usize, f: impl FnOnce()) -> f64 {
    let start = clock.seconds();
    f();
    count as f64 / (clock.seconds() - start)
}

impl Clock {
    fn seconds(self) -> f64 {
        let time = clock_gettime(match self {
            Self::Wall => ClockId::Monotonic,
            Self::Processor => ClockId::ProcessCPUTime,
            Self::Thread => ClockId::ThreadCPUTime,
        });
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    }
}

/// `count` names in one directory by one thread.
pub fn names(tree: &dyn Names, clock: Clock, count: usize) -> [(&'static str, f64); 4] {
    let name = |i| (format!("file-{i:06}"), format!("moved-{i:06}"));
    let names: Vec<(String, String)> = (0..count).map(name).collect();
    let rate = |f: &dyn Fn(&str, &str)| {
        rate(clock, count, || {
            for (name, to) in &names {
                f(name, to);
            }
        })
    };
    [
        ("create", rate(&|name, _| tree.create(0, name))),
        ("stat", rate(&|name, _| tree.stat(0, name))),
        ("rename", rate(&|name, to| tree.rename(0, name, to))),
        ("unlink", rate(&|_, to| tree.unlink(0, to))),
    ]
}

/// Names made and taken in two directories, by one thread in turn and by a thread for each: the
/// same work. By the processor's time, what two would do if they never waited for one another.
pub fn threads(tree: &dyn Names, clock: Clock, count: usize) -> (f64, f64) {
    let names: Vec<String> = (0..count).map(|i| format!("file-{i:06}")).collect();
    let work = |dirs: &[usize]| {
        for name in &names {
            dirs.iter().for_each(|dir| tree.create(*dir, name));
        }
        for name in &names {
            dirs.iter().for_each(|dir| tree.unlink(*dir, name));
        }
    };
    // Once before, so that neither finds fresh memory.
    work(&[0, 1]);
    let one = rate(clock, 4 * count, || work(&[0, 1]));
    let two = rate(clock, 4 * count, || {
        std::thread::scope(|scope| {
            scope.spawn(|| work(&[0]));
            scope.spawn(|| work(&[1]));
        });
    });
    match clock {
        Clock::Wall => (one, two),
        Clock::Processor | Clock::Thread => (one, 2.0 * two),
    }
}

/// Megabytes that are copied in memory in a second, from and to memory in use.
pub fn memcpy(clock: Clock) -> f64 {
    let source = vec![1u8; CALL];
    let mut target = vec![0u8; BYTES];
    target.fill(2);
    rate(clock, BYTES, || {
        for chunk in target.chunks_exact_mut(CALL) {
            chunk.copy_from_slice(black_box(&source));
        }
        black_box(&mut target);
    }) / 1e6
}
