//! How fast two threads look up while a third shrinks.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::policy;
use super::tally::round;
use super::volume::{Shape, Volume, Zipf};
use crate::experiment::{Experiment, Failure, Measure, Parameter, Scale, Setting};
use crate::ministat::Summary;
use uext4_testkit::SplitMix64;

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "extent-status-lookups",
    accepts: policy::accepts,
    parameters: &[Parameter {
        name: "memory",
        what: "extents that memory holds, of a hundred",
        values: &["50", "25", "90"],
    }],
    has_subjects: false,
    measure: Measure::Timed,
    run,
};

const PAIRS: usize = 10;
const READERS: u64 = 2;

fn run(setting: &Setting) -> Result<Value, Failure> {
    let (files, each) = match setting.scale {
        Scale::Quick => (250, Duration::from_millis(200)),
        Scale::Full => (2_500, Duration::from_secs(2)),
    };
    let shape = Shape {
        files,
        leaves: 40,
        extents: 40,
        delayed: 0,
    };
    let memory: usize = setting.value("memory").parse().unwrap_or(50);
    let mut random = SplitMix64::new(setting.seed);
    let zipf = Zipf::new(shape.all_leaves(), &mut random);
    let mut rates = vec![Vec::new(); setting.policies.len()];
    let mut volumes = Vec::new();
    for policy in &setting.policies {
        let shrinker = policy::parse(policy).map_err(Failure::Usage)?;
        let volume = Volume::new(shape, shrinker, shape.all_extents() * memory / 100);
        // Not timed: what is known at first.
        look_up(&volume, &zipf, &shape, setting.seed, each * 3)?;
        volumes.push(volume);
    }
    for pair in 0..PAIRS as u64 {
        for (volume, rates) in volumes.iter().zip(&mut rates) {
            let seed = setting.seed.wrapping_add(1 + pair);
            rates.push(look_up(volume, &zipf, &shape, seed, each)?);
        }
    }
    let mut results = Map::new();
    let reference = Summary::of(&rates[0]);
    for ((policy, rate), volume) in setting.policies.iter().zip(&rates).zip(&volumes) {
        let reported = report(rate, &rates[0], reference.as_ref(), volume);
        results.insert(policy.clone(), reported);
    }
    Ok(Value::Object(results))
}

fn report(rates: &[f64], first: &[f64], reference: Option<&Summary>, volume: &Volume) -> Value {
    let summary = Summary::of(rates);
    let said = summary.zip(reference).map(|(this, reference)| {
        let difference = this.against(reference).to_string();
        difference.lines().map(str::to_owned).collect::<Vec<_>>()
    });
    let ratios: Vec<f64> = rates.iter().zip(first).map(|(a, b)| a / b).collect();
    let stats = volume.room.stats();
    json!({
        "lookups_per_second": summary.map(|s| s.to_string()),
        "to_the_first": said,
        "median_to_the_first": Summary::of(&ratios).map(|s| round(s.median)),
        "hits": stats.es_stats_cache_hits,
        "misses": stats.es_stats_cache_misses,
        "lookup_hit_locks": stats.lookup_hit_locks,
        "scans": stats.scans,
        "trylock_failed": stats.trylock_failed,
    })
}

/// Lookups a second of all readers together, over so long a time.
fn look_up(
    volume: &Volume,
    zipf: &Zipf,
    shape: &Shape,
    seed: u64,
    time: Duration,
) -> Result<f64, Failure> {
    let over = AtomicBool::new(false);
    let start = Instant::now();
    let done: Option<u64> = std::thread::scope(|scope| {
        let over = &over;
        let readers: Vec<_> = (0..READERS)
            .map(|reader| {
                let mut random = SplitMix64::new(seed * READERS + reader);
                scope.spawn(move || {
                    let mut count = 0;
                    while !over.load(Relaxed) {
                        let extent = random.below(shape.extents as u64) as usize;
                        volume.read(zipf.next(&mut random), extent);
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        scope.spawn(move || {
            while !over.load(Relaxed) {
                volume.shrink();
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        std::thread::sleep(time);
        over.store(true, Relaxed);
        readers.into_iter().map(|reader| reader.join().ok()).sum()
    });
    let done = done.ok_or_else(|| Failure::Run("a reader panicked".to_owned()))?;
    Ok(done as f64 / start.elapsed().as_secs_f64())
}
