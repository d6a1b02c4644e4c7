//! How the switches are written down.

use std::fmt;
use std::str::FromStr;

use super::normalize::{Cap, Rule, StripeRule, Switches};

/// The designs by name.
const DESIGNS: [(&str, Switches); 5] = [
    ("table", Switches::TABLE),
    ("pow2", Switches::POW2),
    ("pow2-stripe", Switches::POW2_STRIPE),
    ("stripe", Switches::STRIPE),
    ("exact", Switches::EXACT),
];
const RULES: [(&str, Rule); 3] = [
    ("exact", Rule::Exact),
    ("table", Rule::Table),
    ("pow2", Rule::Pow2),
];
const CAPS: [(&str, Cap); 2] = [("table", Cap::Table), ("group", Cap::Group)];
const STRIPES: [(&str, StripeRule); 3] = [
    ("none", StripeRule::None),
    ("after", StripeRule::AfterRule),
    ("only", StripeRule::Only),
];

/// A word that is no design or switch of request normalisation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{word}' is no request normalisation: a design is one of exact, table, pow2, pow2-stripe, \
     stripe; then +rule=exact|table|pow2, +cap=table|group, +stripe=none|after|only, \
     +[no]unwritten, +[no]logical, +[no]adapt"
)]
pub struct ParseSwitchesError {
    word: String,
}

fn named<T: Copy>(names: &[(&str, T)], word: &str) -> Option<T> {
    names.iter().find(|(name, _)| *name == word).map(|n| n.1)
}

fn name_of<T: PartialEq>(names: &[(&'static str, T)], value: &T) -> &'static str {
    // Every value of these types has a name.
    names.iter().find(|n| n.1 == *value).map_or("", |n| n.0)
}

impl Switches {
    /// The designs: each one's name and decisions.
    pub fn designs() -> impl Iterator<Item = (&'static str, Self)> {
        DESIGNS.into_iter()
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

impl FromStr for Switches {
    type Err = ParseSwitchesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = text.split('+');
        let refuse = |word: &str| ParseSwitchesError {
            word: word.chars().take(64).collect(),
        };
        let design = words.next().unwrap_or_default();
        let mut this = named(&DESIGNS, design).ok_or_else(|| refuse(design))?;
        for word in words {
            this.switch(word).ok_or_else(|| refuse(word))?;
        }
        Ok(this)
    }
}

impl fmt::Display for Switches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nearest = DESIGNS
            .iter()
            .map(|(name, design)| (name, self.differences(design)))
            .min_by_key(|(_, differences)| differences.len());
        let Some((name, differences)) = nearest else {
            return Ok(());
        };
        f.write_str(name)?;
        differences.iter().try_for_each(|word| write!(f, "+{word}"))
    }
}
