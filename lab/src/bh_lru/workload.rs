//! What mdtest and mds-survey do: each task makes its files, looks at them, removes them.
//!
//! Tasks take turns, one operation each; they run on two cores. So the order is the same for every
//! policy, and the same twice.

use std::sync::Arc;

use serde_json::{Map, Value};
use uext4::{Filesystem, NewInode, OpenInode, bind_core};
use uext4_blockdev::MemoryDevice;

use super::cost::Counted;
use super::volume::{self, BY, failed};
use crate::claim::Failure;

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
}

/// The three phases, in the order in which they are run.
pub const PHASES: [&str; 3] = ["create", "stat", "remove"];

/// Runs all phases on a copy of an image; what each cost.
///
/// # Errors
/// [`Failure::Run`] as the engine says.
pub fn run(image: &MemoryDevice, policy: &str, plan: &Plan) -> Result<Value, Failure> {
    let fs = volume::open(Arc::new(image.snapshot()), policy)?;
    let root = fs.root().map_err(failed)?;
    let dirs: Result<Vec<OpenInode>, Failure> = (0..plan.directories)
        .map(|number| root.lookup(&volume::directory(number)).map_err(failed))
        .collect();
    let dirs = dirs?;
    fs.count_bh_lru(true);
    let mut results = Map::new();
    for phase in PHASES {
        let before = fs.buffer_stats();
        each(&fs, plan, |task, name| {
            let dir = &dirs[(task % plan.directories) as usize];
            one(&fs, dir, phase, name, plan.selinux)
        })?;
        let counted = Counted::between(plan.files, &before, &fs.buffer_stats());
        results.insert(phase.to_owned(), counted.json());
    }
    bind_core(None);
    fs.close().map_err(failed)?;
    Ok(Value::Object(results))
}

/// Calls `operation` for each file in turn, as if its task ran on its core.
fn each(
    fs: &Filesystem,
    plan: &Plan,
    mut operation: impl FnMut(u64, &[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for number in 0..plan.files {
        let task = number % plan.tasks;
        bind_core(Some((task % CORES) as usize));
        let name = format!("file.mdtest.{task}.{}", number / plan.tasks);
        operation(task, name.as_bytes())?;
        if number % COMMIT_EVERY == COMMIT_EVERY - 1 {
            fs.sync().map_err(failed)?;
        }
    }
    Ok(())
}

fn one(
    fs: &Filesystem,
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
    use crate::bh_lru::policy;

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
        let plan = Plan {
            tasks: 3,
            files: 400,
            selinux: true,
            directories: 1,
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
    }
}
