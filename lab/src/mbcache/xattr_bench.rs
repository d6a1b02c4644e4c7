//! xattr-bench: processes that set one of so many values on their files.

use serde_json::{Map, Value, json};

use super::cost::round;
use super::model;
use super::plan::Plan;
use super::policy::{self, DEFAULT, MAINLINE, MAINLINE_GATHERED, MB1, MBCACHE2};
use crate::experiment::{Experiment, Failure, Measure, Scale, Setting};

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "mbcache-xattr-bench",
    accepts: policy::accepts,
    parameters: &[],
    has_subjects: false,
    measure: Measure::Counted,
    run,
};

const VALUES: [u64; 5] = [10, 100, 1000, 10_000, 100_000];
const FILES: [u64; 3] = [10, 100, 1000];
const TASKS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];
/// The cells in which the thread's new code was slower.
const SLOWER: [Cell; 6] = [
    (100, 100, 1),
    (1000, 100, 4),
    (1000, 1000, 1),
    (1000, 1000, 2),
    (10_000, 1000, 16),
    (100_000, 100, 1),
];

/// V, F, P.
type Cell = (u64, u64, u64);

fn name((values, files, tasks): Cell) -> String {
    format!("{values}-{files}-{tasks}")
}

fn cells() -> impl Iterator<Item = Cell> {
    let pairs = VALUES.into_iter().flat_map(|v| FILES.map(|f| (v, f)));
    pairs.flat_map(|(v, f)| TASKS.map(|p| (v, f, p)))
}

fn run(setting: &Setting) -> Result<Value, Failure> {
    let sets = match setting.scale {
        Scale::Quick => 200,
        Scale::Full => 10_000,
    };
    let mut results = Map::new();
    for policy in &setting.policies {
        let mut measured = Map::new();
        for cell in cells() {
            let (values, files, tasks) = cell;
            let plan = Plan {
                values,
                files,
                tasks,
                sets,
                zipf: 0.0,
                cap: None,
            };
            measured.insert(name(cell), model::run(policy, &plan, setting.seed)?);
        }
        results.insert(policy.clone(), Value::Object(measured));
    }
    if policy::ALL.iter().all(|p| results.contains_key(*p)) {
        let compared = compare(&Table(&results));
        results.insert("compared".to_owned(), compared);
    }
    Ok(Value::Object(results))
}

/// What was measured, by policy and cell.
struct Table<'a>(&'a Map<String, Value>);

impl Table<'_> {
    fn at(&self, policy: &str, cell: Cell, what: &str) -> f64 {
        let found = self.0[policy][&name(cell)][what].as_f64();
        found.unwrap_or(f64::NAN)
    }

    fn ratio(&self, (of, to): (&str, &str), cell: Cell, what: &str) -> f64 {
        self.at(of, cell, what) / self.at(to, cell, what)
    }

    fn old_to_new(&self, cell: Cell) -> f64 {
        self.ratio((MB1, MBCACHE2), cell, "time_us")
    }

    fn ours(&self, cell: Cell, what: &str) -> f64 {
        self.ratio((DEFAULT, MAINLINE), cell, what)
    }
}

fn most(figures: impl Iterator<Item = f64>) -> Value {
    json!(round(figures.fold(f64::MIN, f64::max)))
}

fn least(figures: impl Iterator<Item = f64>) -> Value {
    json!(round(figures.fold(f64::MAX, f64::min)))
}

fn mean(figures: impl Iterator<Item = f64>) -> Value {
    let (sum, count) = figures.fold((0.0, 0.0), |(s, n), f: f64| (s + f.ln(), n + 1.0));
    json!(round((sum / count).exp()))
}

fn compare(table: &Table<'_>) -> Value {
    let crowd = || cells().filter(|&(v, _, p)| v == 10 && p >= 16);
    let most_crowded = || cells().filter(|&(v, _, p)| v == 10 && p == 64);
    let alone = || cells().filter(|c| c.2 == 1).map(|c| table.old_to_new(c));
    let corner = || cells().filter(|c| (c.0, c.1) == (100_000, 1000));
    let new = |cell, what| table.at(MBCACHE2, cell, what);
    let growing = cells().filter(|&(v, _, p)| v <= 1000 && (4..64).contains(&p));
    let growth =
        growing.map(|(v, f, p)| table.old_to_new((v, f, 2 * p)) / table.old_to_new((v, f, p)));
    let gain = |cell| 1.0 / table.ours(cell, "time_us");
    let slower = SLOWER.map(|cell| (name(cell), json!(round(table.old_to_new(cell)))));
    let by_tasks = TASKS.map(|tasks| {
        let of = cells().filter(|cell| cell.2 == tasks);
        (
            tasks.to_string(),
            mean(of.map(|cell| table.old_to_new(cell))),
        )
    });
    json!({
        "mbcache2_list_locks_find": most(cells().map(|c| new(c, "list_locks_find"))),
        "mbcache2_list_locks_create": most(cells().map(|c| new(c, "list_locks_create"))),
        "mbcache2_sleeps": most(cells().map(|c| new(c, "sleeps") + new(c, "wakeups_wasted"))),
        "mb1_sleeps": least(crowd().map(|c| table.at(MB1, c, "sleeps"))),
        "mb1_wasted": least(crowd().map(|c| table.at(MB1, c, "wakeups_wasted"))),
        "growth_least": least(growth),
        "alone_least": least(alone()),
        "alone_most": most(alone()),
        "unique_least": least(corner().map(|c| table.old_to_new(c))),
        "unique_most": most(corner().map(|c| table.old_to_new(c))),
        "slower_in_the_thread": Map::from_iter(slower),
        "old_to_new_by_processes": Map::from_iter(by_tasks),
        "locks_most": most(cells().map(|c| table.ours(c, "locks"))),
        "compares_most": most(cells().map(|c| table.at(DEFAULT, c, "compares"))),
        "handoffs_most": most(most_crowded().map(|c| table.ours(c, "handoffs"))),
        "buffer_work_most": most(most_crowded().map(|c| table.ours(c, "buffer_work"))),
        "sharing_least": least(cells().map(|c| table.ours(c, "sharing"))),
        "time_most": most(cells().map(|c| table.ours(c, "time_us"))),
        "sharing_mean": mean(cells().map(|c| table.ours(c, "sharing"))),
        "gain_mean_gathered": mean(cells().filter(|c| c.2 >= 8).map(|c| {
            table.ratio((MAINLINE_GATHERED, DEFAULT), c, "time_us")
        })),
        "gain_mean": mean(cells().filter(|c| c.2 >= 8).map(gain)),
        "gain_unique": least(
            cells().filter(|&(v, f, p)| v >= 10_000 && f == 1000 && p >= 8).map(gain)
        ),
    })
}
