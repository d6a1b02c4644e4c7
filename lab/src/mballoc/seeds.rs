//! The same experiment at several seeds: what holds at one may be luck.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use serde_json::{Map, Value, json};

use crate::experiment::{Failure, Parameter, Setting};

/// How many.
pub const SEEDS: Parameter = Parameter {
    name: "seeds",
    what: "seeds at which it is run, from the one given on",
    values: &["5", "1"],
};

/// Runs `one` at each seed, as many at once as there are processors: the results of each by its
/// seed under `seeds`, their means under `mean`, and the largest of each figure under `largest`.
///
/// # Errors
/// Those of `one`, of the lowest seed that had one.
pub fn run(
    setting: &Setting,
    one: impl Fn(&Setting) -> Result<Value, Failure> + Sync,
) -> Result<Value, Failure> {
    let count: u64 = setting.value("seeds").parse().unwrap_or(1);
    let next = AtomicU64::new(0);
    let done = Mutex::new(Vec::new());
    let work = || {
        loop {
            let index = next.fetch_add(1, Relaxed);
            if index >= count {
                return;
            }
            let mut here = setting.clone();
            here.seed = setting.seed.wrapping_add(index);
            let result = one(&here);
            if let Ok(mut done) = done.lock() {
                done.push((index, here.seed, result));
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|(index, ..)| *index);
    let (mut seeds, mut results) = (Map::new(), Vec::new());
    for (_, seed, result) in done {
        let result = result?;
        seeds.insert(seed.to_string(), result.clone());
        results.push(result);
    }
    let mean = |figures: &[f64]| figures.iter().sum::<f64>() / count as f64;
    let largest = |figures: &[f64]| figures.iter().copied().fold(f64::MIN, f64::max);
    let results: Vec<_> = results.iter().collect();
    Ok(json!({
        "mean": joined(&results, &mean),
        "largest": joined(&results, &largest),
        "seeds": seeds,
    }))
}

/// Each figure made of those at its place; one that some of the values do not have counts as 0
/// there in the mean.
fn joined(values: &[&Value], join: &dyn Fn(&[f64]) -> f64) -> Value {
    match values.first() {
        Some(Value::Object(_)) => {
            let maps = values.iter().filter_map(|value| value.as_object());
            let keys: BTreeSet<&String> = maps.flat_map(Map::keys).collect();
            let of = |key: &String| {
                let inner: Vec<_> = values.iter().filter_map(|value| value.get(key)).collect();
                (key.clone(), joined(&inner, join))
            };
            Value::Object(keys.into_iter().map(of).collect())
        }
        Some(Value::Array(first)) => {
            let at = |index| {
                let inner: Vec<_> = values.iter().filter_map(|value| value.get(index)).collect();
                joined(&inner, join)
            };
            (0..first.len()).map(at).collect()
        }
        Some(Value::Number(_)) => {
            let figures: Vec<f64> = values.iter().filter_map(|value| value.as_f64()).collect();
            json!(join(&figures))
        }
        other => other.map_or(Value::Null, |&value| value.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Scale;

    fn setting(seeds: &str) -> Setting {
        Setting {
            scale: Scale::Quick,
            seed: 7,
            policies: vec!["p".to_owned()],
            values: vec![("seeds", seeds.to_owned())],
            on: Vec::new(),
        }
    }

    #[test]
    fn figures_of_all_seeds_are_joined() {
        let one = |setting: &Setting| {
            let seed = setting.seed;
            let mut value = json!({ "p": { "n": seed, "pair": [seed, 2], "text": "same" } });
            if seed == 9 {
                value["p"]["sometimes"] = json!(10);
            }
            Ok(value)
        };
        let results = run(&setting("5"), one).unwrap();
        assert_eq!(results["mean"]["p"]["n"], 9.0);
        assert_eq!(results["largest"]["p"]["n"], 11.0);
        assert_eq!(results["mean"]["p"]["pair"], json!([9.0, 2.0]));
        assert_eq!(results["mean"]["p"]["text"], "same");
        // Nothing at four seeds, ten at one.
        assert_eq!(results["mean"]["p"]["sometimes"], 2.0);
        assert_eq!(results["seeds"]["8"]["p"]["n"], 8);
        assert_eq!(results["seeds"].as_object().unwrap().len(), 5);
        let alone = run(&setting("1"), one).unwrap();
        assert_eq!(alone["mean"]["p"]["n"], 7.0);
    }

    #[test]
    fn one_that_fails_fails_all() {
        let one = |setting: &Setting| match setting.seed {
            9 => Err(Failure::Run("at nine".to_owned())),
            _ => Ok(json!({})),
        };
        assert_eq!(run(&setting("5"), one).unwrap_err().to_string(), "at nine");
    }
}
