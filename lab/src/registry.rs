//! All claims and all experiments there are.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use crate::claim::Claim;
use crate::experiment::{Experiment, Failure};
use crate::{bh_lru, extent_status, mballoc, mbcache, writeback};

/// Names the files of `lab/claims`, in the order in which they are shown.
macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../claims/", $name, ".toml")))),*]
    };
}

/// A new claim gets its line here.
const FILES: &[(&str, &str)] = files![
    "extent-status-fragmented",
    "extent-status-many-files",
    "extent-status-hits",
    "extent-status-lookups",
    "extent-status-kernel",
    "bh-lru-create-cycle",
    "bh-lru-mdtest",
    "bh-lru-survey",
    "bh-lru-wall",
    "bh-lru-kernel",
    "mballoc-steps",
    "mballoc-switches",
    "mballoc-stripe",
    "mballoc-aged",
    "mballoc-contention",
    "mballoc-build",
    "mballoc-kernel",
    "mbcache-xattr-bench",
    "mbcache-full-blocks",
    "mbcache-memory",
    "mbcache-engine",
    "mbcache-threads",
    "mbcache-kernel",
    "writeback-array",
    "writeback-disk",
    "writeback-small-files",
    "writeback-staggered",
    "writeback-thinking",
    "writeback-realtime",
    "writeback-two-devices",
    "writeback-small-memory",
    "writeback-steps",
    "writeback-removal",
    "writeback-threads",
    "writeback-kernel",
    "writeback-mount",
    "writeback-throttled",
];

/// The claim in a file that is not the lab's.
///
/// # Errors
/// [`Failure::Usage`] for a file that cannot be read or is no claim.
pub fn of_file(file: &Path) -> Result<&'static Claim, Failure> {
    let text = fs::read_to_string(file).map_err(|error| error.to_string());
    let claim = text.and_then(|text| toml::from_str(&text).map_err(|error| error.to_string()));
    let claim: Claim =
        claim.map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))?;
    // The few that a command line names live as long as the process.
    Ok(Box::leak(Box::new(claim)))
}

static CLAIMS: LazyLock<Result<Vec<Claim>, String>> = LazyLock::new(|| {
    let parse = |(name, text): &(&str, &str)| {
        toml::from_str(text).map_err(|error| format!("lab/claims/{name}.toml: {error}"))
    };
    FILES.iter().map(parse).collect()
});

/// Every claim, room by room.
///
/// # Errors
/// [`Failure::Run`] for a file that is no claim.
pub fn claims() -> Result<&'static [Claim], Failure> {
    match &*CLAIMS {
        Ok(claims) => Ok(claims),
        Err(why) => Err(Failure::Run(why.clone())),
    }
}

/// The experiment that tries a claim.
///
/// # Errors
/// [`Failure::Usage`] for an experiment that there is not, with those there are.
pub fn experiment(claim: &Claim) -> Result<&'static Experiment, Failure> {
    let all = [
        bh_lru::EXPERIMENTS,
        extent_status::EXPERIMENTS,
        mballoc::EXPERIMENTS,
        mbcache::EXPERIMENTS,
        writeback::EXPERIMENTS,
    ]
    .concat();
    let found = all.iter().find(|one| one.name == claim.experiment);
    found.copied().ok_or_else(|| {
        let known: Vec<_> = all.iter().map(|one| one.name).collect();
        Failure::Usage(format!(
            "{}: no experiment is called {:?}; there are: {}",
            claim.name,
            claim.experiment,
            known.join(", ")
        ))
    })
}

/// The claims named, in the order of the registry; all of them if none is named.
///
/// # Errors
/// [`Failure::Usage`] for a name that no claim has.
pub fn named(names: &[String]) -> Result<Vec<&'static Claim>, Failure> {
    let all = claims()?;
    for name in names {
        if !all.iter().any(|claim| claim.name == *name) {
            let known: Vec<_> = all.iter().map(|claim| claim.name.as_str()).collect();
            return Err(Failure::Usage(format!(
                "no claim is called {name:?}; there are: {}",
                known.join(", ")
            )));
        }
    }
    let is_wanted = |claim: &&Claim| names.is_empty() || names.contains(&claim.name);
    Ok(all.iter().filter(is_wanted).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn claims_are_well_formed() {
        let all = claims().unwrap();
        for (index, claim) in all.iter().enumerate() {
            assert_eq!(claim.name, FILES[index].0);
            for text in [&claim.name, &claim.title, &claim.source, &claim.analysis] {
                assert!(!text.is_empty() && !text.contains('\n'), "{}", claim.name);
            }
            let experiment = experiment(claim).unwrap();
            assert!(!claim.policies.is_empty(), "{}", claim.name);
            for policy in &claim.policies {
                (experiment.accepts)(policy).unwrap();
            }
            for gate in &claim.gates {
                assert!(!gate.what.contains('\n'), "{}", gate.what);
            }
        }
    }

    /// A file that has no line above would never be run, and would not be missed.
    #[test]
    fn every_file_is_a_claim() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("claims");
        let files = fs::read_dir(folder).unwrap();
        let name = |entry: std::io::Result<fs::DirEntry>| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.strip_suffix(".toml").unwrap().to_owned()
        };
        let files: BTreeSet<_> = files.map(name).collect();
        let listed: BTreeSet<_> = FILES.iter().map(|file| file.0.to_owned()).collect();
        assert_eq!(files, listed);
    }

    #[test]
    fn an_unknown_name_is_refused() {
        let error = named(&["no-such-claim".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("no-such-claim"));
        assert!(matches!(error, Failure::Usage(_)));
    }
}
