//! mds-survey: with quota, in one directory or in one for each thread.

use serde_json::{Map, Value, json};

use super::mdtest::compare;
use super::policy;
use super::volume::{self, Shape};
use super::workload::{self, Plan};
use crate::experiment::{Experiment, Failure, Measure, Setting};

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "bh-lru-survey",
    accepts: policy::accepts,
    parameters: &[policy::SCOPE, policy::FILES],
    has_subjects: false,
    measure: Measure::Counted,
    run,
};

/// Files of all threads, as in the thread.
const FILES: u64 = 1_000_000;
/// Threads, one directory; threads with one each.
const SHARED: [u64; 5] = [1, 2, 4, 8, 16];
const OWN: [u64; 3] = [4, 8, 16];

fn run(setting: &Setting) -> Result<Value, Failure> {
    let files = FILES / policy::divisor(setting);
    let shape = Shape {
        files,
        directories: 16,
        prefill: 0,
        acl: true,
        quota: true,
    };
    let image = volume::make(&shape)?;
    let shared = SHARED.map(|tasks| ("c", tasks, 1));
    let own = OWN.map(|tasks| ("d", tasks, tasks));
    let mut results = Map::new();
    for policy in &setting.policies {
        let mut cells = Map::new();
        for (kind, tasks, directories) in shared.into_iter().chain(own) {
            let plan = Plan {
                tasks,
                files,
                selinux: true,
                directories,
                scope: policy::scope(setting),
            };
            let measured = workload::run(&image, policy, &plan)?;
            cells.insert(format!("{kind}-{tasks}"), measured);
        }
        results.insert(policy.clone(), json!(cells));
    }
    if let Some(compared) = compare(&results)? {
        results.insert("compared".to_owned(), compared);
    }
    Ok(Value::Object(results))
}
