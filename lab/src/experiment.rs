//! An experiment: how a claim is tried. What is claimed, and what must hold, is a [`crate::claim`].

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::claim::Claim;
use crate::subject::Subject;

/// Something that can be run.
pub struct Experiment {
    /// Its name, by which claims name it.
    pub name: &'static str,
    /// Whether a policy's spelling is one that the experiment can run.
    pub accepts: fn(&str) -> Result<(), String>,
    /// What can be set with `--set`.
    pub parameters: &'static [Parameter],
    /// Whether it runs on subjects that `--on` chooses, not on models alone.
    pub has_subjects: bool,
    /// How its figures come about.
    pub measure: Measure,
    /// Runs it: the same setting gives the same results, unless it is timed.
    pub run: fn(&Setting) -> Result<Value, Failure>,
}

impl fmt::Debug for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Experiment")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Something that can be set.
#[derive(Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub what: &'static str,
    /// The values it can have; the first is the default.
    pub values: &'static [&'static str],
}

/// How figures come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// Counted, at a fixed seed and on a virtual clock: the same in every run.
    Counted,
    /// Counted, but among real threads or processes: differs from run to run.
    Threads,
    /// Timed, or counted by the running kernel: samples in turns.
    Timed,
}

impl Measure {
    /// In one line, for people.
    pub fn text(self) -> &'static str {
        match self {
            Self::Counted => "counted, the same in every run",
            Self::Threads => "counted among real threads, differ from run to run",
            Self::Timed => "timed in turns, differ from run to run",
        }
    }
}

/// What the user asks of every claim that is to be run.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// How much is done.
    pub scale: Scale,
    /// What everything random is made from.
    pub seed: u64,
    /// Policies in place of the claim's own list, if any.
    pub policies: Vec<String>,
    /// Parameters, as `name=value`.
    pub set: Vec<String>,
    /// Subjects, as `--on` spells them; all that the experiment knows if none is named.
    pub on: Vec<String>,
}

/// What a run is given.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// How much is done.
    pub scale: Scale,
    /// What everything random is made from.
    pub seed: u64,
    /// The policies to run, at least one.
    pub policies: Vec<String>,
    /// The value of every parameter of the experiment, in its order.
    pub values: Vec<(&'static str, String)>,
    /// Subjects; all that the experiment knows by itself if empty.
    pub on: Vec<Subject>,
}

/// How much is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Small enough that all claims together take minutes.
    Quick,
    /// As the source did it, as far as memory allows.
    Full,
}

/// Why there are no results.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line asks for what there is not.
    #[error("{0}")]
    Usage(String),
    /// The experiment could not be run to its end.
    #[error("{0}")]
    Run(String),
    /// This machine has not what the experiment needs: no root, no trace events, no loop device.
    #[error("not run: {0}")]
    NotRun(String),
}

impl Setting {
    /// What `claim` is run with: the defaults of `experiment`'s parameters, changed by the wish.
    ///
    /// # Errors
    /// [`Failure::Usage`] for a policy, parameter or value that the experiment does not know.
    pub fn new(claim: &Claim, experiment: &Experiment, wish: &Wish) -> Result<Self, Failure> {
        for policy in &wish.policies {
            (experiment.accepts)(policy).map_err(|why| {
                Failure::Usage(format!("{}: policy {policy:?}: {why}", claim.name))
            })?;
        }
        let default = |p: &Parameter| p.values.first().copied().unwrap_or_default().to_owned();
        let parameters = experiment.parameters.iter();
        let mut values: Vec<_> = parameters.map(|p| (p.name, default(p))).collect();
        for word in &wish.set {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let index = experiment.parameters.iter().position(|p| p.name == name);
            let index = index.ok_or_else(|| no_parameter(claim, experiment, name))?;
            let known = experiment.parameters[index].values;
            if !known.contains(&value) {
                return Err(Failure::Usage(format!(
                    "{}: {name} cannot be {value:?}, only one of {}",
                    claim.name,
                    known.join(", ")
                )));
            }
            values[index].1 = value.to_owned();
        }
        let on: Result<Vec<Subject>, String> = wish.on.iter().map(|word| word.parse()).collect();
        let chosen = match wish.policies.is_empty() {
            true => &claim.policies,
            false => &wish.policies,
        };
        Ok(Self {
            scale: wish.scale,
            seed: wish.seed,
            policies: chosen.clone(),
            values,
            on: on.map_err(Failure::Usage)?,
        })
    }

    /// The value of a parameter; empty if the experiment does not have it.
    pub fn value(&self, name: &str) -> &str {
        let found = self.values.iter().find(|(known, _)| *known == name);
        found.map_or("", |(_, value)| value)
    }
}

fn no_parameter(claim: &Claim, experiment: &Experiment, name: &str) -> Failure {
    let known: Vec<_> = experiment.parameters.iter().map(|p| p.name).collect();
    let known = match known.len() {
        0 => "it has none".to_owned(),
        _ => format!("it has {}", known.join(", ")),
    };
    Failure::Usage(format!("{} has no parameter {name:?}; {known}", claim.name))
}
