//! xattr-bench: processes that set one of so many values on their files.

use serde_json::{Map, Value, json};

use super::cost::round;
use super::model;
use super::plan::Plan;
use super::policy::{self, DEFAULT, MAINLINE, MB1, MBCACHE2};
use crate::claim::{Bound, Claim, Failure, Figure, Gate, Measure, Printed, Scale, Setting};

/// The claim.
pub const CLAIM: Claim = Claim {
    name: "mbcache-xattr-bench",
    title: "mbcache2 is faster in pretty much all cases, up to 20 times; ours is not slower in any",
    source: "Jan Kara, [PATCH 1/7] mbcache2: Reimplement mbcache, 15 December 2015",
    analysis: "All 105 cells, with the rooms' caches and modelled blocks and time (docs/lab.md): 200 \
               sets a process (--full: ten thousand) on files that have a value already. Times are those of a \
               set of each process, in microseconds.",
    figures: &[
        Printed {
            what: "seconds, old,new, by P",
            printed: "1 2 4 8 16 32 64",
        },
        Printed {
            what: "V=10, F=10",
            printed: "0.158,0.157 0.208,0.196 0.500,0.277 0.798,0.400 3.258,0.584 13.807,1.047 61.339,2.803",
        },
        Printed {
            what: "V=10, F=100",
            printed: "0.172,0.167 0.279,0.222 0.520,0.275 0.825,0.341 2.981,0.505 12.022,1.202 44.641,2.943",
        },
        Printed {
            what: "V=10, F=1000",
            printed: "0.185,0.174 0.297,0.239 0.445,0.283 0.767,0.340 2.329,0.480 6.342,1.198 16.440,3.888",
        },
        Printed {
            what: "V=100, F=10",
            printed: "0.162,0.153 0.200,0.186 0.362,0.257 0.671,0.496 1.433,0.943 3.801,1.345 7.938,2.501",
        },
        Printed {
            what: "V=100, F=100",
            printed: "0.153,0.160 0.221,0.199 0.404,0.264 0.945,0.379 1.556,0.485 3.761,1.156 7.901,2.484",
        },
        Printed {
            what: "V=100, F=1000",
            printed: "0.215,0.191 0.303,0.246 0.471,0.288 0.960,0.347 1.647,0.479 3.916,1.176 8.058,3.160",
        },
        Printed {
            what: "V=1000, F=10",
            printed: "0.151,0.129 0.210,0.163 0.326,0.245 0.685,0.521 1.284,0.859 3.087,2.251 6.451,4.801",
        },
        Printed {
            what: "V=1000, F=100",
            printed: "0.154,0.153 0.211,0.191 0.276,0.282 0.687,0.506 1.202,0.877 3.259,1.954 8.738,2.887",
        },
        Printed {
            what: "V=1000, F=1000",
            printed: "0.145,0.179 0.202,0.222 0.449,0.319 0.899,0.333 1.577,0.524 4.221,1.240 9.782,3.579",
        },
        Printed {
            what: "V=10000, F=10",
            printed: "0.161,0.154 0.198,0.190 0.296,0.256 0.662,0.480 1.192,0.818 2.989,2.200 6.362,4.746",
        },
        Printed {
            what: "V=10000, F=100",
            printed: "0.176,0.174 0.236,0.203 0.326,0.255 0.696,0.511 1.183,0.855 4.205,3.444 19.510,17.760",
        },
        Printed {
            what: "V=10000, F=1000",
            printed: "0.199,0.183 0.240,0.227 1.159,1.014 2.286,2.154 6.023,6.039 ---,10.933 ---,36.620",
        },
        Printed {
            what: "V=100000, F=10",
            printed: "0.171,0.162 0.204,0.198 0.285,0.230 0.692,0.500 1.225,0.881 2.990,2.243 6.379,4.771",
        },
        Printed {
            what: "V=100000, F=100",
            printed: "0.151,0.171 0.220,0.210 0.295,0.255 0.720,0.518 1.226,0.844 3.423,2.831 19.234,17.544",
        },
        Printed {
            what: "V=100000, F=1000",
            printed: "0.192,0.189 0.249,0.225 1.162,1.043 2.257,2.093 5.853,4.997 ---,10.399 ---,32.198",
        },
    ],
    policies: policy::ALL,
    accepts: policy::accepts,
    parameters: &[],
    gates: GATES,
    measure: Measure::Counted,
    run,
};

const GATES: &[Gate] = &[
    Gate {
        what: "reproduced: locks of all entries a hit takes in mb1, one process",
        figure: Figure::At("/mb1/10-10-1/list_locks_hit"),
        bound: Bound::AtLeast(2.0),
    },
    Gate {
        what: "reproduced: the same of a search in mbcache2, most of any cell",
        figure: Figure::At("/compared/mbcache2_list_locks_find"),
        bound: Bound::AtMost(0.0),
    },
    Gate {
        what: "reproduced: the same of an entry that comes in mbcache2, most of any cell",
        figure: Figure::At("/compared/mbcache2_list_locks_create"),
        bound: Bound::AtMost(1.0),
    },
    Gate {
        what: "reproduced: sleeps a set in mb1, V=10, P>=16, least",
        figure: Figure::At("/compared/mb1_sleeps"),
        bound: Bound::AtLeast(0.001),
    },
    Gate {
        what: "reproduced: wake-ups in vain a set in mb1, V=10, P>=16, least",
        figure: Figure::At("/compared/mb1_wasted"),
        bound: Bound::AtLeast(0.001),
    },
    Gate {
        what: "reproduced: sleeps and wake-ups in vain a set in mbcache2, most of any cell",
        figure: Figure::At("/compared/mbcache2_sleeps"),
        bound: Bound::AtMost(0.0),
    },
    Gate {
        what: "reproduced: time of mb1 over mbcache2, V=10, F=10, P=16",
        figure: Figure::Ratio("/mb1/10-10-16/time_us", "/mbcache2/10-10-16/time_us"),
        bound: Bound::AtLeast(2.0),
    },
    Gate {
        what: "reproduced: growth of that ratio from P to 2P, P from 4, V<=1000, least",
        figure: Figure::At("/compared/growth_least"),
        bound: Bound::AtLeast(1.0),
    },
    Gate {
        what: "reproduced: that ratio with one process, least",
        figure: Figure::At("/compared/alone_least"),
        bound: Bound::AtLeast(0.9),
    },
    Gate {
        what: "reproduced: that ratio with one process, most",
        figure: Figure::At("/compared/alone_most"),
        bound: Bound::AtMost(1.1),
    },
    Gate {
        what: "reproduced: that ratio with many values, V=100000, F=1000, least",
        figure: Figure::At("/compared/unique_least"),
        bound: Bound::AtLeast(0.9),
    },
    Gate {
        what: "reproduced: that ratio with many values, V=100000, F=1000, most",
        figure: Figure::At("/compared/unique_most"),
        bound: Bound::AtMost(1.4),
    },
    Gate {
        what: "beaten: locks over mainline's, most of any cell",
        figure: Figure::At("/compared/locks_most"),
        bound: Bound::AtMost(0.5),
    },
    Gate {
        what: "beaten: blocks compared a set, most of any cell",
        figure: Figure::At("/compared/compares_most"),
        bound: Bound::AtMost(1.05),
    },
    Gate {
        what: "beaten: locks handed on, over mainline's, V=10, P=64, most",
        figure: Figure::At("/compared/handoffs_most"),
        bound: Bound::AtMost(0.5),
    },
    Gate {
        what: "beaten: locks and updates of buffers over mainline's, V=10, P=64, most",
        figure: Figure::At("/compared/buffer_work_most"),
        bound: Bound::AtMost(0.25),
    },
    Gate {
        what: "beaten: files a block over mainline's, least of any cell",
        figure: Figure::At("/compared/sharing_least"),
        bound: Bound::AtLeast(1.0),
    },
    Gate {
        what: "beaten: time over mainline's, most of any cell",
        figure: Figure::At("/compared/time_most"),
        bound: Bound::AtMost(1.02),
    },
    Gate {
        what: "beaten: mainline's time over ours, geometric mean over P>=8",
        figure: Figure::At("/compared/gain_mean"),
        bound: Bound::AtLeast(1.5),
    },
    Gate {
        what: "beaten: mainline's time over ours, V>=10000, F=1000, P>=8, least",
        figure: Figure::At("/compared/gain_unique"),
        bound: Bound::AtLeast(1.5),
    },
];

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
        "gain_mean": mean(cells().filter(|c| c.2 >= 8).map(gain)),
        "gain_unique": least(
            cells().filter(|&(v, f, p)| v >= 10_000 && f == 1000 && p >= 8).map(gain)
        ),
    })
}
