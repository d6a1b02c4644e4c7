//! The record of a run: what was run, with which setting, and what came out. Nothing is judged
//! here.
//!
//! A folder of records (`lab/records/<date>-<machine>/`) has the machine's page, `machine.json`,
//! and one file a claim. Files appear whole or not at all, and are never changed: a run that
//! finds another run's file in its place keeps it or refuses.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::claim::Claim;
use crate::experiment::{Experiment, Failure, Setting};

/// The form of these files; a file of another form is shown as such and not mixed with others.
pub const FORMAT: u32 = 1;

/// What one run of one claim produced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`FORMAT`] of the lab that wrote it.
    pub format: u32,
    /// The claim's name.
    pub claim: String,
    /// `quick` or `full`.
    pub scale: String,
    /// What everything random was made from.
    pub seed: u64,
    /// The policies that were run.
    pub policies: Vec<String>,
    /// The value of each parameter of the experiment.
    pub parameters: Map<String, Value>,
    /// The subjects named by `--on`.
    #[serde(default)]
    pub on: Vec<String>,
    /// How the figures came about: `counted`, `threads` or `timed`.
    pub measure: String,
    /// What came out; objects are sorted by key, so equal results are equal bytes.
    pub results: Option<Value>,
    /// Why nothing came out.
    #[serde(default)]
    pub not_run: Option<String>,
    /// The source that was built, as git names it; empty if it is not known.
    #[serde(default)]
    pub commit: String,
    /// Seconds the run took.
    #[serde(default)]
    pub seconds: f64,
}

impl Record {
    /// Of a run that is about to begin: without results.
    pub fn new(claim: &Claim, experiment: &Experiment, setting: &Setting) -> Self {
        let word = |value: Value| value.as_str().unwrap_or_default().to_owned();
        let parameters = setting.values.iter();
        Self {
            format: FORMAT,
            claim: claim.name.clone(),
            scale: word(json!(setting.scale)),
            seed: setting.seed,
            policies: setting.policies.clone(),
            parameters: parameters
                .map(|(name, value)| ((*name).to_owned(), Value::from(value.as_str())))
                .collect(),
            on: setting.on.iter().map(ToString::to_string).collect(),
            measure: word(json!(experiment.measure)),
            results: None,
            not_run: None,
            commit: String::new(),
            seconds: 0.0,
        }
    }

    /// Whether both were asked for the same: what came out of them can be compared.
    pub fn is_same_setting(&self, other: &Self) -> bool {
        self.format == other.format
            && self.claim == other.claim
            && self.scale == other.scale
            && self.seed == other.seed
            && self.policies == other.policies
            && self.parameters == other.parameters
            && self.on == other.on
    }

    /// As JSON without what differs from run to run: the same seed gives the same bytes, if
    /// counted.
    pub fn to_json(&self) -> Value {
        let mut value = json!(self);
        if let Some(object) = value.as_object_mut() {
            object.remove("seconds");
            object.remove("commit");
        }
        value
    }

    /// The command that makes this record again.
    pub fn command(&self) -> String {
        let mut words = format!("uext4-lab run {}", self.claim);
        if self.scale == "full" {
            words.push_str(" --full");
        }
        words.push_str(&format!(" --seed {}", self.seed));
        for (name, value) in &self.parameters {
            words.push_str(&format!(" --set {name}={}", value.as_str().unwrap_or("")));
        }
        for policy in &self.policies {
            words.push_str(&format!(" --policy {policy}"));
        }
        for on in &self.on {
            words.push_str(&format!(" --on {on}"));
        }
        words
    }
}

/// A folder of records.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// The folder at `path`, which is made if it is not there.
    ///
    /// # Errors
    /// [`Failure::Run`] if it cannot be made.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        fs::create_dir_all(path).map_err(|error| at(path, &error))?;
        Ok(Self {
            path: path.to_owned(),
        })
    }

    /// The folder at `path`, which must be there.
    ///
    /// # Errors
    /// [`Failure::Usage`] if there is none.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        if !path.is_dir() {
            let why = "no folder of records is there; `uext4-lab run --into` makes one";
            return Err(Failure::Usage(format!("{}: {why}", path.display())));
        }
        Ok(Self {
            path: path.to_owned(),
        })
    }

    /// The folder of the latest name below `path`: names begin with the day.
    ///
    /// # Errors
    /// [`Failure::Usage`] if there is none.
    pub fn newest(path: &Path) -> Result<Self, Failure> {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let folders = entries
            .map(|entry| entry.path())
            .filter(|path| path.is_dir());
        match folders.max() {
            Some(path) => Ok(Self { path }),
            None => Err(Failure::Usage(format!(
                "{}: no folder of records is there; `uext4-lab run --all --into` makes one",
                path.display()
            ))),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder's own name: the first part of the id of its records.
    pub fn name(&self) -> String {
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// The record of a claim, if there is one.
    ///
    /// # Errors
    /// [`Failure::Run`] for a file that cannot be read or is no record.
    pub fn record(&self, claim: &str) -> Result<Option<Record>, Failure> {
        let Some(value) = self.json(&format!("{claim}.json"))? else {
            return Ok(None);
        };
        let record = serde_json::from_value(value);
        let refused = |error| Failure::Run(format!("{}: {error}", self.path.join(claim).display()));
        record.map(Some).map_err(refused)
    }

    /// A file of the folder, if it is there.
    ///
    /// # Errors
    /// [`Failure::Run`] for a file that cannot be read or is no JSON.
    pub fn json(&self, name: &str) -> Result<Option<Value>, Failure> {
        let path = self.path.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => {
                let parsed = serde_json::from_str(&text);
                let refused = |error| Failure::Run(format!("{}: {error}", path.display()));
                parsed.map(Some).map_err(refused)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(at(&path, &error)),
        }
    }

    /// Writes a file that is not there yet: whole, or not at all.
    ///
    /// # Errors
    /// [`Failure::Run`] if it is there, or cannot be written.
    pub fn write(&self, name: &str, value: &Value) -> Result<(), Failure> {
        let path = self.path.join(name);
        let text = serde_json::to_string_pretty(value).unwrap_or_default();
        let written = tempfile::NamedTempFile::new_in(&self.path).and_then(|mut file| {
            writeln!(file, "{text}")?;
            file.as_file().sync_all()?;
            // The name comes last: who reads it finds all of it.
            file.persist_noclobber(&path)
                .map_err(|refused| refused.error)
        });
        written.map(drop).map_err(|error| at(&path, &error))
    }
}

fn at(path: &Path, error: &io::Error) -> Failure {
    Failure::Run(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_never_written_over() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::create(&place.path().join("made")).unwrap();
        assert_eq!(folder.json("a.json").unwrap(), None);
        folder.write("a.json", &json!({"n": 1})).unwrap();
        assert!(folder.write("a.json", &json!({"n": 2})).is_err());
        assert_eq!(folder.json("a.json").unwrap(), Some(json!({"n": 1})));
        // No half file is left behind.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn invalid_records_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(place.path()).unwrap();
        fs::write(place.path().join("a.json"), "{").unwrap();
        fs::write(place.path().join("b.json"), "{}").unwrap();
        assert!(folder.record("a").is_err() && folder.record("b").is_err());
        assert_eq!(folder.record("c").unwrap(), None);
        assert!(Folder::open(&place.path().join("none")).is_err());
    }
}
