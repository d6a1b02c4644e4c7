//! Which of the writes since the last flush are on the medium after the power was cut.
//!
//! A seed picks one of three devices: one that keeps or loses each write as a whole, in any
//! order; one that keeps or loses each sector by itself; and one that works in order and stops in
//! the middle of a write. The share that survives is picked too, with "nothing" and "everything"
//! among the choices, because those are the cuts a careless program does not survive.
//!
//! Every decision is a hash of seed, write and sector, so it does not depend on the order in which
//! questions are asked.

use crate::random::{SplitMix64, mix};

/// Shares of 256 that a device may keep.
const SHARES: [u64; 5] = [0, 32, 128, 224, 256];

/// The fate of pending writes, decided by a seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Survival {
    seed: u64,
    fate: Fate,
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    /// Each write as a whole, `share` of 256 of them.
    Writes { share: u64 },
    /// Each sector of each write, `share` of 256 of them.
    Sectors { share: u64 },
    /// All writes before `last`, and half of that one's sectors.
    InOrder { last: u64 },
}

impl Survival {
    /// The fate that `seed` picks for writes numbered `first..=last`.
    pub(super) fn new(seed: u64, first: u64, last: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let choice = random.below(3);
        // OK to unwrap: a number below 5.
        let share = SHARES[usize::try_from(random.below(SHARES.len() as u64)).unwrap()];
        let fate = match choice {
            0 => Fate::Writes { share },
            1 => Fate::Sectors { share },
            _ => Fate::InOrder {
                last: first + random.below((last - first).saturating_add(2)),
            },
        };
        Self {
            seed: random.next_u64(),
            fate,
        }
    }

    /// The fate of a write that failed half way: any sector may be there.
    pub(super) fn torn(seed: u64) -> Self {
        Self {
            seed,
            fate: Fate::Sectors { share: 128 },
        }
    }

    /// Whether what `write` put into `sector` reached the medium.
    pub(super) fn keeps(&self, write: u64, sector: u64) -> bool {
        let draw = |sector: u64| mix(self.seed ^ mix(write ^ mix(sector))) % 256;
        match self.fate {
            Fate::Writes { share } => draw(u64::MAX) < share,
            Fate::Sectors { share } => draw(sector) < share,
            Fate::InOrder { last } => write < last || (write == last && draw(sector) < 128),
        }
    }
}
