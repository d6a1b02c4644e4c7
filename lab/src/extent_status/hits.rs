//! What the shrinkers keep: how many lookups are answered, alone and during a sweep.

use serde_json::{Map, Value, json};

use super::tally::round;
use super::volume::{Shape, Volume, Zipf};
use super::{jobs, policy};
use crate::experiment::{Experiment, Failure, Measure, Parameter, Scale, Setting};
use uext4_testkit::SplitMix64;

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "extent-status-hits",
    accepts: policy::accepts,
    parameters: &[Parameter {
        name: "leaf",
        what: "extents of a leaf of a map on the device",
        values: &["40", "4", "170"],
    }],
    has_subjects: false,
    measure: Measure::Counted,
    run,
};

const MEMORY: [usize; 3] = [10, 25, 50];
const SHARES: [usize; 4] = [0, 50, 90, 99];

/// One run of one policy.
#[derive(Clone, Copy, Debug)]
struct Cell {
    kind: &'static str,
    /// Per cent of all extents that memory holds.
    memory: usize,
    /// Per cent of the extents in memory that are delayed.
    share: usize,
    sweep: bool,
}

fn cells() -> Vec<Cell> {
    let cell = |kind, memory, share, sweep| Cell {
        kind,
        memory,
        share,
        sweep,
    };
    let plain = MEMORY.map(|memory| cell("zipf", memory, 0, false));
    let swept = MEMORY.map(|memory| cell("sweep", memory, 0, true));
    let shares = SHARES.map(|share| cell("shares-zipf", 25, share, false));
    let both = SHARES.map(|share| cell("shares-sweep", 25, share, true));
    [&plain[..], &swept, &shares, &both].concat()
}

impl Cell {
    fn name(&self) -> String {
        match self.kind {
            "zipf" | "sweep" => self.memory.to_string(),
            _ => self.share.to_string(),
        }
    }

    fn shape(&self, setting: &Setting) -> Shape {
        let extents = setting.value("leaf").parse().unwrap_or(40);
        let leaves = match (setting.scale, self.kind) {
            (Scale::Quick, "zipf" | "sweep") => 1_200,
            (Scale::Quick, _) => 300,
            (Scale::Full, "zipf" | "sweep") => 100_000,
            (Scale::Full, _) => 6_000,
        };
        Shape {
            files: leaves / 12,
            leaves: 12,
            extents,
            // Among what memory holds, but never dropped: spread over all files.
            delayed: extents * self.memory * self.share / (100 - self.share) / 100,
        }
    }
}

fn run(setting: &Setting) -> Result<Value, Failure> {
    let cells = cells();
    let runs: Vec<(&String, Cell)> = setting
        .policies
        .iter()
        .flat_map(|policy| cells.iter().map(move |cell| (policy, *cell)))
        .collect();
    let done = jobs::all(&runs, |(policy, cell)| once(setting, policy, *cell))?;
    let mut results = Map::new();
    for ((policy, cell), reported) in runs.iter().zip(done) {
        let of = results
            .entry((*policy).clone())
            .or_insert_with(|| json!({}));
        of[cell.kind][cell.name()] = reported;
    }
    if let (Some(ours), Some(mainline)) =
        (results.get(policy::DEFAULT), results.get(policy::MAINLINE))
    {
        let compared = compare(&cells, ours, mainline);
        results.insert("compared".to_owned(), compared);
    }
    Ok(Value::Object(results))
}

/// The fewest points that the first has more than the second, of every kind of cell.
fn compare(cells: &[Cell], ours: &Value, mainline: &Value) -> Value {
    let mut compared = Map::new();
    let mut locks = 0;
    for cell in cells {
        let hits = |of: &Value| of[cell.kind][cell.name()]["hits"].as_f64();
        let more = hits(ours).zip(hits(mainline)).map(|(a, b)| a - b);
        let more = round(more.unwrap_or(f64::NEG_INFINITY));
        let fewest = compared.get(cell.kind).and_then(Value::as_f64);
        let fewest = fewest.map_or(more, |fewest| fewest.min(more));
        compared.insert(cell.kind.to_owned(), json!(fewest));
        let took = ours[cell.kind][cell.name()]["lookup_hit_locks"].as_u64();
        locks += took.unwrap_or(u64::MAX / 64);
    }
    compared.insert("lookup_hit_locks".to_owned(), json!(locks));
    Value::Object(compared)
}

fn once(setting: &Setting, policy: &str, cell: Cell) -> Result<Value, Failure> {
    let shrinker = policy::parse(policy).map_err(Failure::Usage)?;
    let shape = cell.shape(setting);
    let leaves = shape.all_leaves();
    // As many files again are swept; no other thread asks for them.
    let both = Shape {
        files: shape.files * 2,
        ..shape
    };
    let volume = Volume::new(both, shrinker, shape.all_extents() * cell.memory / 100);
    let mut random = SplitMix64::new(setting.seed);
    let zipf = Zipf::new(leaves, &mut random);
    let requests = leaves * 45;
    let warm = requests / 3;
    let (mut hits, mut swept, mut steps, mut freed) = (0, 0, 0, 0);
    for request in 0..requests {
        let extent = random.below(shape.extents as u64) as usize;
        let hit = volume.read(zipf.next(&mut random), extent);
        hits += usize::from(hit && request >= warm);
        if cell.sweep && request >= warm / 2 {
            volume.read(
                leaves + swept / shape.extents % leaves,
                swept % shape.extents,
            );
            swept += 1;
        }
        let done = volume.shrink();
        (steps, freed) = (steps + done.0, freed + done.1);
    }
    Ok(json!({
        "hits": round(100.0 * hits as f64 / (requests - warm) as f64),
        "steps_per_freed": round(steps as f64 / freed as f64),
        "memory": volume.room.memory(),
        "lookup_hit_locks": volume.room.stats().lookup_hit_locks,
    }))
}
