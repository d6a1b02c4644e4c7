//! Whether readers of tar see the same tree in the same archive: uext4, by an image that it builds,
//! GNU tar and bsdtar, by what they extract as root, and the libraries of Python and Go.
//!
//! Archives come from a seed. Where another reader disagrees, the disagreement belongs to a class
//! of `classes.rs`, which `docs/tar-reader.md` explains. Where GNU tar accepts an archive, our tree
//! is never another one (but for times as `1e-09`, a class too).

mod archive;
mod classes;
mod docs;
mod features;
mod generator;
mod readers;
mod sparse;
mod tree;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use uext4_testkit::scratch;

use classes::{CLASSES, Disagreement, class_of};
use generator::Case;
use readers::Reader;
use tree::{Outcome, differences};

/// Archives in a quick run and in a long one.
const CASES: usize = 600;
const CASES_LONG: usize = 20_000;
/// Disagreements without a class that are shown.
const SHOWN: usize = 40;

/// What all readers make of one archive; `None` if a reader is not there.
struct Result {
    ours: Outcome,
    theirs: Vec<(Reader, Option<Outcome>)>,
}

/// Builds and extracts all archives, with two threads.
fn results(dir: &Path, count: usize) -> Vec<Result> {
    let (python, go) = (readers::python(dir, count), readers::go(dir, count));
    let (gnu, bsd) = (readers::can_extract("tar"), readers::can_extract("bsdtar"));
    let (next, results) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let scratch = dir.join(format!("scratch-{thread}"));
            let (next, results, python, go) = (&next, &results, &python, &go);
            scope.spawn(move || {
                fs::create_dir(&scratch).unwrap();
                let take = || next.fetch_add(1, Ordering::Relaxed);
                for at in std::iter::from_fn(|| Some(take()).filter(|&at| at < count)) {
                    let archive = dir.join(format!("{at}.tar"));
                    let one = |all: &Option<Vec<Outcome>>| Some(all.as_ref()?[at].clone());
                    let result = Result {
                        ours: readers::ours(&archive, &scratch),
                        theirs: vec![
                            (Reader::Gnu, gnu.then(|| readers::gnu(&archive, &scratch))),
                            (Reader::Bsd, bsd.then(|| readers::bsd(&archive, &scratch))),
                            (Reader::Python, one(python)),
                            (Reader::Go, one(go)),
                        ],
                    };
                    results.lock().unwrap().insert(at, result);
                }
            });
        }
    });
    results.into_inner().unwrap().into_values().collect()
}

/// How two outcomes disagree, if they do: what differs if both accept.
fn disagreement(ours: &Outcome, theirs: &Outcome) -> Option<BTreeMap<&'static str, String>> {
    match (ours, theirs) {
        (Outcome::Accepted { tree: one, .. }, Outcome::Accepted { tree: other, .. }) => {
            Some(differences(one, other)).filter(|found| !found.is_empty())
        }
        (Outcome::Refused(_), Outcome::Refused(_)) | (_, Outcome::Skipped) => None,
        _ => Some(BTreeMap::new()),
    }
}

/// Stores an archive that the failure names.
fn keep(case: &Case) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tar_agreement");
    fs::create_dir_all(&dir).unwrap();
    let path = dir.join(format!("{}.tar", case.number));
    fs::write(&path, &case.bytes).unwrap();
    path
}

#[test]
fn readers_agree_or_their_disagreement_has_a_name() {
    let long = std::env::var_os("UEXT4_LONG").is_some();
    let count = if long { CASES_LONG } else { CASES };
    let dir = scratch();
    let cases: Vec<_> = (0..count as u64).map(Case::new).collect();
    for case in &cases {
        let path = dir.path().join(format!("{}.tar", case.number));
        fs::write(path, &case.bytes).unwrap();
    }
    let results = results(dir.path(), count);
    let (mut agreed, mut seen, mut unnamed) = (0, BTreeMap::new(), Vec::new());
    for (case, result) in cases.iter().zip(&results) {
        let features = features::features(&case.bytes);
        for (reader, theirs) in &result.theirs {
            let Some(theirs) = theirs else { continue };
            let Some(differences) = disagreement(&result.ours, theirs) else {
                agreed += 1;
                continue;
            };
            let (ours, features, reader) = (&result.ours, &features, *reader);
            let it = Disagreement {
                reader,
                ours,
                theirs,
                differences,
                features,
            };
            match class_of(&it) {
                Some(class) => *seen.entry(class.name).or_insert(0) += 1,
                None => {
                    let (path, steps) = (keep(case), &case.steps);
                    let name = reader.name();
                    unnamed.push(format!(
                        "{}: {name}: {} {steps:?}",
                        path.display(),
                        it.text()
                    ));
                }
            }
        }
    }
    println!("{count} archives, {agreed} times agreed; by class: {seen:#?}");
    let shown = &unnamed[..unnamed.len().min(SHOWN)];
    assert!(
        unnamed.is_empty(),
        "{} without a class:\n{}",
        unnamed.len(),
        shown.join("\n")
    );
    let complete = results
        .iter()
        .all(|result| result.theirs.iter().all(|(_, o)| o.is_some()));
    if long && complete {
        for class in CLASSES {
            assert!(seen.contains_key(class.name), "{} was not met", class.name);
        }
    }
}
