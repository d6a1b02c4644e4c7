//! What mdtest and mds-survey do: each task makes its files, looks at them, removes them.
//!
//! Tasks take turns, one operation each, so the order is the same for every policy, and the same
//! twice. LRUs by core: one thread plays all tasks, as if on two cores. LRUs by thread: each task
//! has a thread of its own, which waits for its turn.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use uext4::{NewInode, OpenInode, Volume};
use uext4_blockdev::MemoryDevice;
use uext4_lab_policies::bh_lru::{Lrus, Options, Scope as LruScope, bind_core};

use super::cost::Counted;
use super::policy;
use super::volume::{self, BY, failed};
use crate::experiment::Failure;

/// Cores that the tasks share.
const CORES: u64 = 2;
/// Operations between two commits.
const COMMIT_EVERY: u64 = 5_000;

/// What is done.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub tasks: u64,
    /// Of all tasks together.
    pub files: u64,
    /// Files are labelled as SELinux does.
    pub selinux: bool,
    /// The directories are the first so many; the tasks share them evenly.
    pub directories: u64,
    /// Which tasks share an LRU.
    pub scope: LruScope,
}

/// The three phases, in the order in which they are run.
pub const PHASES: [&str; 3] = ["create", "stat", "remove"];

/// Runs all phases on a copy of an image; what each cost.
///
/// # Errors
/// [`Failure::Run`] as the engine says.
pub fn run(image: &MemoryDevice, policy: &str, plan: &Plan) -> Result<Value, Failure> {
    on_first_core(plan);
    let lrus = Arc::new(Lrus::new(options(policy, plan)?));
    let bench = Bench::new(image, Some(Arc::clone(&lrus)), plan)?;
    let mut results = Map::new();
    bench.with_tasks(|turn| {
        for phase in PHASES {
            let before = lrus.stats();
            bench.each(phase, turn)?;
            let counted = Counted::between(plan.files, &before, &lrus.stats());
            results.insert(phase.to_owned(), counted.json());
        }
        Ok(())
    })?;
    bench.fs.close().map_err(failed)?;
    bind_core(None);
    Ok(Value::Object(results))
}

/// Runs all phases on a copy of an image, with nothing counted; nanoseconds of an operation in
/// each.
///
/// # Errors
/// [`Failure::Run`] as the engine says.
pub fn time(image: &MemoryDevice, design: &str, plan: &Plan) -> Result<[f64; 3], Failure> {
    on_first_core(plan);
    let bench = Bench::new(image, uncounted(design, plan)?, plan)?;
    let mut times = [0.0; 3];
    bench.with_tasks(|turn| {
        for (phase, time) in PHASES.into_iter().zip(&mut times) {
            let all = bench.each(phase, turn)?;
            *time = all.as_nanos() as f64 / plan.files.max(1) as f64;
        }
        Ok(())
    })?;
    bench.fs.close().map_err(failed)?;
    bind_core(None);
    Ok(times)
}

/// As [`time`], with tasks that do not take turns: each is a thread that goes on as fast as it can.
///
/// # Errors
/// [`Failure::Run`] as the engine says.
pub fn time_at_once(image: &MemoryDevice, design: &str, plan: &Plan) -> Result<[f64; 3], Failure> {
    bind_core(None);
    let bench = Bench::new(image, uncounted(design, plan)?, plan)?;
    let mut times = [0.0; 3];
    for (phase, time) in PHASES.into_iter().zip(&mut times) {
        let task = |first: u64| {
            let mut numbers = (first..plan.files).step_by(plan.tasks as usize);
            numbers.try_for_each(|number| bench.operation((phase, number)).map(|_| ()))
        };
        let start = Instant::now();
        std::thread::scope(|scope| {
            let tasks: Vec<_> = (0..plan.tasks)
                .map(|first| scope.spawn(move || task(first)))
                .collect();
            let panicked = |_| Err(Failure::Run("a task panicked".to_owned()));
            let mut ended = tasks
                .into_iter()
                .map(|task| task.join().unwrap_or_else(panicked));
            ended.try_for_each(|ended| ended)
        })?;
        *time = start.elapsed().as_nanos() as f64 / plan.files.max(1) as f64;
        bench.fs.sync().map_err(failed)?;
    }
    bench.fs.close().map_err(failed)?;
    Ok(times)
}

/// The LRUs of a design, which count nothing; `None` for the product's own by thread: a
/// thread-local variable without a lock.
fn uncounted(design: &str, plan: &Plan) -> Result<Option<Arc<Lrus>>, Failure> {
    if design == policy::PRODUCT && plan.scope == LruScope::Thread {
        return Ok(None);
    }
    let lrus = Arc::new(Lrus::new(options(design, plan)?));
    lrus.count(false);
    Ok(Some(lrus))
}

fn options(design: &str, plan: &Plan) -> Result<Options, Failure> {
    policy::parse(design, plan.scope).map_err(Failure::Usage)
}

/// LRUs by core: whatever this thread does outside the operations, too, it does on the first
/// core. Opening fills an LRU, so the core that the thread happens to run on would change what is
/// counted.
fn on_first_core(plan: &Plan) {
    bind_core((plan.scope == LruScope::Core).then_some(0));
}

/// A phase and the number of an operation in it.
type Turn = (&'static str, u64);

/// The file system that is worked on, and by which plan.
struct Bench {
    fs: Volume,
    dirs: Vec<OpenInode>,
    plan: Plan,
}

impl Bench {
    fn new(image: &MemoryDevice, lrus: Option<Arc<Lrus>>, plan: &Plan) -> Result<Self, Failure> {
        let fs = volume::open(Arc::new(image.snapshot()), lrus)?;
        let root = fs.root().map_err(failed)?;
        let dirs: Result<Vec<OpenInode>, Failure> = (0..plan.directories)
            .map(|number| root.lookup(&volume::directory(number)).map_err(failed))
            .collect();
        let dirs = dirs?;
        Ok(Self {
            fs,
            dirs,
            plan: *plan,
        })
    }

    /// Calls `work` with what does one operation and returns how long it took.
    fn with_tasks(
        &self,
        work: impl FnOnce(&dyn Fn(Turn) -> Result<Duration, Failure>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match self.plan.scope {
            LruScope::Core => work(&|turn| {
                bind_core(Some((turn.1 % self.plan.tasks % CORES) as usize));
                let done = self.operation(turn);
                bind_core(Some(0));
                done
            }),
            LruScope::Thread => std::thread::scope(|scope| {
                let tasks: Vec<Task> = (0..self.plan.tasks)
                    .map(|_| Task::spawn(scope, self))
                    .collect();
                work(&|turn| tasks[(turn.1 % self.plan.tasks) as usize].take(turn))
            }),
        }
    }

    /// Does all operations of a phase in turn. Returns how long they took together.
    fn each(
        &self,
        phase: &'static str,
        turn: &dyn Fn(Turn) -> Result<Duration, Failure>,
    ) -> Result<Duration, Failure> {
        let mut all = Duration::ZERO;
        for number in 0..self.plan.files {
            all += turn((phase, number))?;
            if number % COMMIT_EVERY == COMMIT_EVERY - 1 {
                self.fs.sync().map_err(failed)?;
            }
        }
        Ok(all)
    }

    fn operation(&self, (phase, number): Turn) -> Result<Duration, Failure> {
        let task = number % self.plan.tasks;
        let dir = &self.dirs[(task % self.plan.directories) as usize];
        let name = format!("file.mdtest.{task}.{}", number / self.plan.tasks);
        let start = Instant::now();
        one(&self.fs, dir, phase, name.as_bytes(), self.plan.selinux)?;
        Ok(start.elapsed())
    }
}

/// A thread that does one operation at a time.
struct Task {
    turns: Sender<Turn>,
    done: Receiver<Result<Duration, Failure>>,
}

impl Task {
    fn spawn<'scope>(scope: &'scope Scope<'scope, '_>, bench: &'scope Bench) -> Self {
        let (turns, asked) = channel::<Turn>();
        let (report, done) = channel();
        scope.spawn(move || {
            // Until the task, or who waits for it, is gone.
            for turn in asked {
                if report.send(bench.operation(turn)).is_err() {
                    break;
                }
            }
        });
        Self { turns, done }
    }

    fn take(&self, turn: Turn) -> Result<Duration, Failure> {
        let gone = || Failure::Run("a task panicked".to_owned());
        self.turns.send(turn).map_err(|_| gone())?;
        self.done.recv().map_err(|_| gone())?
    }
}

fn one(
    fs: &Volume,
    dir: &OpenInode,
    phase: &str,
    name: &[u8],
    selinux: bool,
) -> Result<(), Failure> {
    match phase {
        "create" => {
            let file = dir.create(name, NewInode::File, &BY).map_err(failed)?;
            if selinux {
                volume::label(dir, &file)?;
            }
        }
        // Past the cache of names, as a server looks names up that it was asked for once.
        "stat" => {
            let ino = fs.lookup(&dir.inode(), name).map_err(failed)?;
            let inode = fs.inode(ino).map_err(failed)?;
            if selinux {
                fs.xattrs(&inode).map_err(failed)?;
            }
        }
        _ => dir.unlink(name).map_err(failed)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_counts_twice_and_the_same_lookups_for_all() {
        let shape = volume::Shape {
            files: 400,
            directories: 1,
            prefill: 50,
            acl: true,
            quota: true,
        };
        let image = volume::make(&shape).unwrap();
        for scope in [LruScope::Core, LruScope::Thread] {
            let plan = Plan {
                tasks: 3,
                files: 400,
                selinux: true,
                directories: 1,
                scope,
            };
            let all = policy::ALL.iter().map(|policy| {
                let first = run(&image, policy, &plan).unwrap();
                assert_eq!(first, run(&image, policy, &plan).unwrap(), "{policy}");
                first
            });
            let all: Vec<Value> = all.collect();
            for phase in PHASES {
                for other in &all {
                    assert_eq!(other[phase]["lookups"], all[0][phase]["lookups"], "{phase}");
                }
                assert!(all[0][phase]["lookups"].as_f64() > Some(0.5), "{phase}");
            }
            let times = time(&image, policy::PRODUCT, &plan).unwrap();
            assert!(times.iter().all(|time| *time > 0.0), "{times:?}");
        }
    }
}
