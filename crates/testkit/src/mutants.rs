//! Mutants: images that a kernel filled, with one to six fields of their structures changed.
//!
//! Where [`damage`](crate::damage) has named kinds of damage, of which each is known to be found
//! and mended, a mutant is any change that the format's fields allow; what it is, is for oracles to
//! say. A seed decides the image, the structures, the fields and their values:
//!
//! ```text
//! seed ─▶ bases::get ─▶ Atlas: every structure ─▶ pieces: its fields ─▶ change ─▶ Mutant
//! ```
//! A change is a field that gets another value (a number at the edge of something, of another
//! structure, or its own: a loop), bits, wiped and random runs, a copy of another structure of its
//! kind, or an exchange with one. Of four changes one leaves the checksum as it was.
//!
//! The images are stored: a seed is the same bytes in every run, on every machine.

pub mod bases;
mod change;
pub mod comparison;
mod fields;
#[cfg(test)]
mod fill;
mod kinds;
mod limits;
mod log;
#[cfg(test)]
mod making;
pub mod oracle;
mod pieces;
mod places;
mod quota;

use std::fmt;

pub use change::Change;
pub use places::Atlas;

use crate::damage::{Sums, Target};
use crate::random::SplitMix64;
use bases::Base;

/// Most changes of one image.
const CHANGES_MAX: u64 = 6;

/// A changed image.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// What decides it.
    pub seed: u64,
    /// The image that was changed.
    pub base: &'static Base,
    /// What was done to it.
    pub changes: Vec<Change>,
    /// All of the image.
    pub bytes: Vec<u8>,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {} on {}", self.seed, self.base.kind.name)?;
        for (change, before) in self
            .changes
            .iter()
            .zip([": "].into_iter().chain(["; "].into_iter().cycle()))
        {
            write!(f, "{before}{change}")?;
        }
        Ok(())
    }
}

impl Mutant {
    /// The mutant of a seed.
    pub fn new(seed: u64) -> Self {
        let base = bases::get((seed % bases::ALL.len() as u64) as usize);
        let mut t = Target::new(&base.survey, Sums::Right, seed);
        let mut random = SplitMix64::new(!seed);
        // Few changes are frequent: what a single one does is the clearest.
        let more = [(); 3].map(|()| random.below(CHANGES_MAX));
        let count = 1 + more.into_iter().min().unwrap_or(0);
        let changes = (0..count)
            .map(|_| change::change(&mut t, &base.atlas))
            .collect();
        Self {
            seed,
            base,
            changes,
            bytes: t.bytes,
        }
    }
}

#[cfg(test)]
mod tests;
