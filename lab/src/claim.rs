//! The definition of a claim: what is claimed, by whom, with which figures, and what must hold.
//!
//! A claim is data, one file of `lab/claims` each. It holds no result: what a run produced is a
//! [`crate::record`], what became of each gate is said by [`crate::judge`].

use serde::{Deserialize, Serialize};

use crate::view::{Plot, Table};

/// A claim.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Its name on the command line: `room-what`, in lower case.
    pub name: String,
    /// What is claimed, in one line.
    pub title: String,
    /// The author of the claim, where and when.
    pub source: String,
    /// The subsystem it is about.
    pub room: Subsystem,
    /// The number of the thread whose figures it tries; none if it is our own.
    #[serde(default)]
    pub thread: Option<String>,
    /// The experiment that tries it.
    pub experiment: String,
    /// What the experiment shows, and what it does not.
    pub analysis: String,
    /// What is done: files, sizes, order.
    #[serde(default)]
    pub workload: String,
    /// The device, or the model of one.
    #[serde(default)]
    pub device: String,
    /// How many threads or processes, and what they are.
    #[serde(default)]
    pub threads: String,
    /// What was tuned for our design and not for the others.
    #[serde(default)]
    pub tuned: String,
    /// Seconds that a quick run takes on two processors: an estimate for those who wait.
    #[serde(default)]
    pub seconds: f64,
    /// The policies that are run if none is named.
    pub policies: Vec<String>,
    /// The source's own figures, exactly as printed there.
    #[serde(default)]
    pub printed: Vec<Printed>,
    /// What must hold.
    #[serde(default, rename = "gate")]
    pub gates: Vec<Gate>,
    /// Whether the running kernel is one of its subjects.
    #[serde(default)]
    pub is_compared_with_kernel: bool,
    /// Whether real devices, processes and the clock decide its gates: `gate` leaves it out
    /// unless it is named, because other work on the machine would change what it says.
    #[serde(default)]
    pub is_live: bool,
    /// What of the results is shown as tables.
    #[serde(default, rename = "table")]
    pub tables: Vec<Table>,
    /// What of the results is drawn.
    #[serde(default, rename = "plot")]
    pub plots: Vec<Plot>,
}

/// A subsystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subsystem {
    /// The buffer cache's LRU.
    BhLru,
    /// The cache of extents and its shrinker.
    ExtentStatus,
    /// The allocator of blocks.
    Mballoc,
    /// The cache of attribute blocks.
    Mbcache,
    /// The throttling of writers.
    Writeback,
}

impl Subsystem {
    /// Its name in claims, and of its part of the page.
    pub fn id(self) -> &'static str {
        match self {
            Self::BhLru => "bh-lru",
            Self::ExtentStatus => "extent-status",
            Self::Mballoc => "mballoc",
            Self::Mbcache => "mbcache",
            Self::Writeback => "writeback",
        }
    }
}

/// Figures of the source.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Printed {
    /// What they are.
    pub what: String,
    /// The figures as printed.
    pub printed: String,
}

/// A condition on the results.
#[derive(Debug, Deserialize)]
#[serde(try_from = "RawGate")]
pub struct Gate {
    /// What it says, in one line.
    pub what: String,
    /// What it means when it holds.
    pub kind: Kind,
    /// The figure that is judged.
    pub figure: Figure,
    /// What it must be; meaningless for a [`Figure::Difference`].
    pub bound: Bound,
    /// What it must be at least for the direction to be right, if that is less than the bound asks.
    pub direction: Option<Bound>,
    /// Why the bound is given up: the proof that it cannot be met. It is measured and shown all
    /// the same.
    pub struck: Option<String>,
}

/// What it means that a gate holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The source's effect is there.
    Reproduced,
    /// Our design is better than that of the source or of the kernel.
    Beaten,
    /// What must be true anyway: nothing is lost, a limit holds.
    Holds,
}

/// How a figure is read from the results. A place is a JSON pointer (RFC 6901) into them.
#[derive(Clone, Debug, PartialEq)]
pub enum Figure {
    /// The number at a place.
    At(String),
    /// The number at the first place, divided by the one at the second.
    Ratio([String; 2]),
    /// The largest of these ratios.
    Largest(Vec<[String; 2]>),
    /// The smallest of these ratios.
    Smallest(Vec<[String; 2]>),
    /// The mean of the samples at the first place over that at the second, judged by `ministat`'s
    /// rule and the machine's own noise.
    Difference {
        /// Where the samples are, and those they are held against.
        samples: [String; 2],
        /// Whether less is better.
        lower_is_better: bool,
    },
}

/// What a figure must be; the bound itself is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// No less than.
    #[serde(default)]
    pub at_least: Option<f64>,
    /// No more than.
    #[serde(default)]
    pub at_most: Option<f64>,
}

impl Bound {
    /// Whether a figure is within.
    pub fn holds(&self, figure: f64) -> bool {
        self.at_least.is_none_or(|least| figure >= least)
            && self.at_most.is_none_or(|most| figure <= most)
    }

    fn is_none(&self) -> bool {
        self.at_least.is_none() && self.at_most.is_none()
    }
}

/// A gate as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawGate {
    what: String,
    kind: Kind,
    at: Option<String>,
    ratio: Option<[String; 2]>,
    largest: Option<Vec<[String; 2]>>,
    smallest: Option<Vec<[String; 2]>>,
    difference: Option<[String; 2]>,
    lower_is_better: Option<bool>,
    at_least: Option<f64>,
    at_most: Option<f64>,
    direction: Option<Bound>,
    struck: Option<String>,
}

impl TryFrom<RawGate> for Gate {
    type Error = String;

    fn try_from(raw: RawGate) -> Result<Self, String> {
        let refused = |why: &str| Err(format!("gate {:?}: {why}", raw.what));
        let difference = raw.difference.zip(Some(raw.lower_is_better == Some(true)));
        let mut figures = [
            raw.at.map(Figure::At),
            raw.ratio.map(Figure::Ratio),
            raw.largest.map(Figure::Largest),
            raw.smallest.map(Figure::Smallest),
            difference.map(|(samples, lower_is_better)| Figure::Difference {
                samples,
                lower_is_better,
            }),
        ]
        .into_iter()
        .flatten();
        let (Some(figure), None) = (figures.next(), figures.next()) else {
            return refused("needs one of at, ratio, largest, smallest, difference");
        };
        let bound = Bound {
            at_least: raw.at_least,
            at_most: raw.at_most,
        };
        let is_difference = matches!(figure, Figure::Difference { .. });
        if is_difference != raw.lower_is_better.is_some() {
            return refused("a difference says lower_is_better, and nothing else does");
        }
        if is_difference != bound.is_none() {
            return refused("needs at_least or at_most, unless it is a difference");
        }
        if raw.direction.is_some_and(|direction| direction.is_none()) {
            return refused("its direction needs at_least or at_most");
        }
        Ok(Self {
            what: raw.what,
            kind: raw.kind,
            figure,
            bound,
            direction: raw.direction,
            struck: raw.struck,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(text: &str) -> Result<Gate, String> {
        let text = format!("what = 'x'\nkind = 'holds'\n{text}");
        toml::from_str(&text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_gate_has_one_figure_and_a_bound() {
        let good = gate("at = '/a'\nat_most = 1.0").unwrap();
        assert_eq!(good.figure, Figure::At("/a".to_owned()));
        assert!(good.bound.holds(1.0) && !good.bound.holds(1.1));
        gate("difference = ['/a', '/b']\nlower_is_better = true").unwrap();
        for bad in [
            "at_most = 1.0",
            "at = '/a'",
            "at = '/a'\nratio = ['/a', '/b']\nat_most = 1.0",
            "difference = ['/a', '/b']",
            "at = '/a'\nat_most = 1.0\nlower_is_better = true",
            "at = '/a'\nat_most = 1.0\ndirection = {}",
            "at = '/a'\nat_most = 1.0\nbound = 2",
        ] {
            assert!(gate(bad).is_err(), "{bad}");
        }
    }
}
