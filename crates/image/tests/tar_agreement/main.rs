//! Whether five readers of tar see the same tree in the same archive.

mod archive;
mod classes;
mod generator;
mod readers;
mod sparse;
mod tree;

use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use uext4_testkit::scratch;

use classes::Disagreement;
use generator::Case;
use readers::Reader;
use tree::{Outcome, differences};

#[test]
fn readers_agree() {
    let count = match std::env::var("TAR_CASES").ok().and_then(|c| c.parse().ok()) {
        Some(count) => count,
        None => 600,
    };
    let dir = scratch();
    let cases: Vec<_> = (0..count as u64).map(Case::new).collect();
    for case in &cases {
        fs::write(dir.path().join(format!("{}.tar", case.number)), &case.bytes).unwrap();
    }
    if let Ok(to) = std::env::var("TAR_DUMP") {
        for case in &cases {
            fs::write(format!("{to}/{}.tar", case.number), &case.bytes).unwrap();
        }
    }
    let python = readers::python(dir.path(), count);
    let go = readers::go(dir.path(), count);
    let (gnu, bsd) = (readers::can_extract("tar"), readers::can_extract("bsdtar"));
    let next = AtomicUsize::new(0);
    let results = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (next, results, dir) = (&next, &results, dir.path());
            scope.spawn(move || {
                let scratch = dir.join(format!("scratch-{thread}"));
                fs::create_dir(&scratch).unwrap();
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count {
                        break;
                    }
                    let archive = dir.join(format!("{at}.tar"));
                    let ours = readers::ours(&archive, &scratch);
                    let g = gnu.then(|| readers::gnu(&archive, &scratch));
                    let b = bsd.then(|| readers::bsd(&archive, &scratch));
                    results.lock().unwrap().insert(at, (ours, g, b));
                }
            });
        }
    });
    let results = results.into_inner().unwrap();
    let mut agreed = 0;
    for (at, (ours, gnu, bsd)) in &results {
        let theirs = [
            (Reader::Gnu, gnu.as_ref()),
            (Reader::Bsd, bsd.as_ref()),
            (Reader::Python, python.as_ref().map(|all| &all[*at])),
            (Reader::Go, go.as_ref().map(|all| &all[*at])),
        ];
        for (reader, theirs) in theirs {
            let Some(theirs) = theirs else { continue };
            let differences = match (ours, theirs) {
                (Outcome::Accepted { tree: one, .. }, Outcome::Accepted { tree: other, .. }) => {
                    differences(one, other)
                }
                _ => BTreeMap::new(),
            };
            let same = match (ours, theirs) {
                (_, Outcome::Skipped(_)) => true,
                (Outcome::Refused(_), Outcome::Refused(_)) => true,
                (Outcome::Accepted { .. }, Outcome::Accepted { .. }) => differences.is_empty(),
                _ => false,
            };
            if same {
                agreed += 1;
                continue;
            }
            let d = Disagreement {
                case: &cases[*at],
                reader,
                ours,
                theirs,
                differences,
            };
            println!("{at} {} {:?}: {}", reader.name(), d.case.steps, d.text());
        }
    }
    println!("agreed {agreed}");
}
