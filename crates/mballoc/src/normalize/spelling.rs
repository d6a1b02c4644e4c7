//! How the decisions are written down.

use std::fmt;
use std::str::FromStr;

use super::{Cap, Normalize, Rule, StripeRule};

/// The policies by name.
const POLICIES: [(&str, Normalize); 6] = [
    ("table", Normalize::TABLE),
    ("pow2", Normalize::POW2),
    ("pow2-stripe", Normalize::POW2_STRIPE),
    ("stripe", Normalize::STRIPE),
    ("predict", Normalize::PREDICT),
    ("exact", Normalize::EXACT),
];
const RULES: [(&str, Rule); 4] = [
    ("exact", Rule::Exact),
    ("table", Rule::Table),
    ("pow2", Rule::Pow2),
    ("predict", Rule::Predict),
];
const CAPS: [(&str, Cap); 2] = [("table", Cap::Table), ("group", Cap::Group)];
const STRIPES: [(&str, StripeRule); 3] = [
    ("none", StripeRule::None),
    ("after", StripeRule::AfterRule),
    ("only", StripeRule::Only),
];

/// A word that is no policy or switch of request normalisation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{word}' is no request normalisation: a policy is one of exact, table, pow2, pow2-stripe, \
     stripe, predict; then +rule=exact|table|pow2|predict, +cap=table|group, \
     +stripe=none|after|only, +[no]unwritten, +[no]logical, +[no]adapt"
)]
pub struct ParseNormalizeError {
    word: String,
}

fn named<T: Copy>(names: &[(&str, T)], word: &str) -> Option<T> {
    names.iter().find(|(name, _)| *name == word).map(|n| n.1)
}

fn name_of<T: PartialEq>(names: &[(&'static str, T)], value: &T) -> &'static str {
    // Every value of these types has a name.
    names.iter().find(|n| n.1 == *value).map_or("", |n| n.0)
}

impl Normalize {
    /// The policies: each one's name and decisions.
    pub fn policies() -> impl Iterator<Item = (&'static str, Self)> {
        POLICIES.into_iter()
    }

    /// Sets one switch; `None` if there is no such.
    fn switch(&mut self, word: &str) -> Option<()> {
        if let Some((name, value)) = word.split_once('=') {
            match name {
                "rule" => self.rule = named(&RULES, value)?,
                "cap" => self.cap = named(&CAPS, value)?,
                "stripe" => self.stripe = named(&STRIPES, value)?,
                _ => return None,
            }
            return Some(());
        }
        let (name, on) = match word.strip_prefix("no") {
            Some(name) => (name, false),
            None => (word, true),
        };
        match name {
            "unwritten" => self.unwritten = on,
            "logical" => self.logical = on,
            "adapt" => self.adapt = on,
            _ => return None,
        }
        Some(())
    }

    /// The switches in which `self` differs from `from`.
    fn differences(&self, from: &Self) -> Vec<String> {
        let mut words = Vec::new();
        let mut flag = |name: &str, ours: bool, theirs: bool| {
            if ours != theirs {
                words.push(format!("{}{name}", if ours { "" } else { "no" }));
            }
        };
        flag("unwritten", self.unwritten, from.unwritten);
        flag("logical", self.logical, from.logical);
        flag("adapt", self.adapt, from.adapt);
        if self.rule != from.rule {
            words.push(format!("rule={}", name_of(&RULES, &self.rule)));
        }
        if self.cap != from.cap {
            words.push(format!("cap={}", name_of(&CAPS, &self.cap)));
        }
        if self.stripe != from.stripe {
            words.push(format!("stripe={}", name_of(&STRIPES, &self.stripe)));
        }
        words
    }
}

impl FromStr for Normalize {
    type Err = ParseNormalizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = text.split('+');
        let refuse = |word: &str| ParseNormalizeError {
            word: word.chars().take(64).collect(),
        };
        let policy = words.next().unwrap_or_default();
        let mut this = named(&POLICIES, policy).ok_or_else(|| refuse(policy))?;
        for word in words {
            this.switch(word).ok_or_else(|| refuse(word))?;
        }
        Ok(this)
    }
}

impl fmt::Display for Normalize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nearest = POLICIES
            .iter()
            .map(|(name, policy)| (name, self.differences(policy)))
            .min_by_key(|(_, differences)| differences.len());
        let Some((name, differences)) = nearest else {
            return Ok(());
        };
        f.write_str(name)?;
        differences.iter().try_for_each(|word| write!(f, "+{word}"))
    }
}
