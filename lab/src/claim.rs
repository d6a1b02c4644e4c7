//! The definition of a claim: what is claimed, by whom, with which figures, and what must hold.
//!
//! A definition holds no result. What a run produced is a [`crate::record::Record`]; how both are
//! shown is [`crate::report`]'s business.

use serde_json::Value;

/// A claim and the experiment that tries it.
#[derive(Debug)]
pub struct Claim {
    /// Its name on the command line: `room-what`, in lower case.
    pub name: &'static str,
    /// What is claimed, in one line.
    pub title: &'static str,
    /// Who claimed it, where and when.
    pub source: &'static str,
    /// What the experiment shows, and what it does not.
    pub analysis: &'static str,
    /// The source's own figures, exactly as printed there.
    pub figures: &'static [Printed],
    /// The policies that are run if none is named.
    pub policies: &'static [&'static str],
    /// Whether a policy's spelling is one that the experiment can run.
    pub accepts: fn(&str) -> Result<(), String>,
    /// What can be set with `--set`.
    pub parameters: &'static [Parameter],
    /// What must hold.
    pub gates: &'static [Gate],
    /// How its figures come about.
    pub measure: Measure,
    /// Runs it: the same setting gives the same results, unless it is timed.
    pub run: fn(&Setting) -> Result<Value, Failure>,
}

/// A figure of the source.
#[derive(Debug)]
pub struct Printed {
    /// What it is.
    pub what: &'static str,
    /// The figure as printed.
    pub printed: &'static str,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Counted, at a fixed seed and on a virtual clock: the same in every run.
    Counted,
    /// Counted, but among real threads: differs from run to run.
    Threads,
}

/// A condition on the results.
#[derive(Debug)]
pub struct Gate {
    /// What it says, in one line.
    pub what: &'static str,
    /// The figure that is judged.
    pub figure: Figure,
    /// What it must be.
    pub bound: Bound,
}

/// How a figure is read from the results. A place is a JSON pointer (RFC 6901) into them.
#[derive(Debug)]
pub enum Figure {
    /// The number at a place.
    At(&'static str),
    /// The number at the first place, divided by the one at the second.
    Ratio(&'static str, &'static str),
    /// The largest of these ratios.
    LargestRatio(&'static [(&'static str, &'static str)]),
    /// The smallest of these ratios.
    SmallestRatio(&'static [(&'static str, &'static str)]),
}

/// What a figure must be; the bound itself is allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// No more than.
    AtMost(f64),
    /// No less than.
    AtLeast(f64),
    /// From the first to the second.
    Within(f64, f64),
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
    /// The value of every parameter of the claim, in its order.
    pub values: Vec<(&'static str, String)>,
}

/// How much is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Small enough that all gates together take minutes.
    Quick,
    /// As the source did it, as far as memory allows.
    Full,
}

/// Why there is no record.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line asks for what there is not.
    #[error("{0}")]
    Usage(String),
    /// The experiment could not be run to its end.
    #[error("{0}")]
    Run(String),
}

impl Claim {
    /// The default of every parameter, changed by `set` (`name=value`), for these policies.
    ///
    /// # Errors
    /// [`Failure::Usage`] for a policy, parameter or value the claim does not know.
    pub fn setting(
        &self,
        (scale, seed): (Scale, u64),
        policies: &[String],
        set: &[String],
    ) -> Result<Setting, Failure> {
        for policy in policies {
            (self.accepts)(policy).map_err(|why| {
                Failure::Usage(format!("{}: policy {policy:?}: {why}", self.name))
            })?;
        }
        let mut values: Vec<_> = self
            .parameters
            .iter()
            .map(|p| {
                (
                    p.name,
                    p.values.first().copied().unwrap_or_default().to_owned(),
                )
            })
            .collect();
        for word in set {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let parameter = self.parameters.iter().position(|p| p.name == name);
            let index = parameter.ok_or_else(|| self.no_parameter(name))?;
            let known = self.parameters[index].values;
            if !known.contains(&value) {
                return Err(Failure::Usage(format!(
                    "{}: {name} cannot be {value:?}, only one of {}",
                    self.name,
                    known.join(", ")
                )));
            }
            values[index].1 = value.to_owned();
        }
        let policies = if policies.is_empty() {
            self.policies.iter().map(|&p| p.to_owned()).collect()
        } else {
            policies.to_vec()
        };
        Ok(Setting {
            scale,
            seed,
            policies,
            values,
        })
    }

    fn no_parameter(&self, name: &str) -> Failure {
        let known: Vec<_> = self.parameters.iter().map(|p| p.name).collect();
        let known = match known.len() {
            0 => "it has none".to_owned(),
            _ => format!("it has {}", known.join(", ")),
        };
        Failure::Usage(format!("{} has no parameter {name:?}; {known}", self.name))
    }
}

impl Setting {
    /// The value of a parameter; empty if the claim does not have it.
    pub fn value(&self, name: &str) -> &str {
        let found = self.values.iter().find(|(known, _)| *known == name);
        found.map_or("", |(_, value)| value)
    }
}
