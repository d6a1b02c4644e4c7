//! The blocks that the kernel looks up, made whole from those that its LRU has answered.
//!
//! The kernel has no counter of its LRU, and the only trace of a lookup is `block_touch_buffer`:
//! it says which block was found in the LRU, and nothing of a lookup that went on to the page
//! cache.
//!
//! But operations of one kind look up the same *roles* in the same order. Most are the same block
//! for all (a bitmap, the root of a directory's index), the others change with the file (a leaf,
//! a block of the inode table). What is looked up a second time within an operation is answered;
//! so what an operation lacks is the first lookup of blocks that change. A sequence of roles that
//! is common, and is no other common one without such first lookups, is whole; every operation
//! that can come of a whole one so is explained by it.

use std::collections::{HashMap, HashSet};

/// The part of the operations in which a sequence must be met to be taken as one of several.
const COMMON: f64 = 0.005;
/// Blocks that more than so many of a hundred operations meet are the same for all.
const FIXED_PERCENT: usize = 60;
/// Operations with more changing blocks than these are not explained.
const CHANGING_MAX: usize = 4;
/// Blocks of which nothing is known have numbers from here down.
const UNKNOWN: u64 = u64::MAX;

/// An operation as it was traced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traced {
    /// The file that it was done to.
    pub file: usize,
    /// The blocks that the LRU has answered.
    pub hits: Vec<u64>,
}

/// What a block is to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Role {
    /// The same for nearly all operations.
    Fixed(u64),
    /// One that changes, by the order in which they are met.
    Changing(usize),
}

/// A lookup, and whether the kernel's LRU answered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The block.
    pub block: u64,
    /// Whether it was found.
    pub was_hit: bool,
    /// Whether it changes with the file, as a directory's leaf does.
    pub changes: bool,
}

/// The operations of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Phase {
    /// The lookups of each operation; those of one that is not explained are its answers alone.
    pub operations: Vec<Vec<Lookup>>,
    /// Operations that are explained.
    pub explained: usize,
}

/// How answers come of a whole sequence.
#[derive(Clone, Debug)]
struct Origin {
    whole: Vec<Role>,
    /// For each changing block of the whole one: its number among those of the answers, if it is
    /// among them.
    numbers: Vec<Option<usize>>,
    /// Places of the lookups that were not answered.
    missing: HashSet<usize>,
}

/// Makes the lookups of a phase whole. `known` has the changing blocks of files, by file, where
/// an operation does not report all of them; what operations report is added.
pub fn whole(traced: &[Traced], known: &mut HashMap<usize, Vec<u64>>) -> Phase {
    let fixed = fixed_blocks(traced);
    let roles: Vec<_> = traced.iter().map(|one| roles(&one.hits, &fixed)).collect();
    let origins = origins(&roles);
    let mut phase = Phase::default();
    let mut unknown = UNKNOWN;
    for (operation, (sequence, blocks)) in traced.iter().zip(&roles) {
        let named = known.get(&operation.file);
        let made = origins
            .get(sequence)
            .into_iter()
            .flatten()
            .find_map(|origin| Some((origin, origin.blocks(blocks, named, &mut unknown)?)));
        let Some((origin, blocks)) = made else {
            let alone = sequence.iter().map(|role| lookup(*role, blocks, true));
            phase.operations.push(alone.collect());
            continue;
        };
        phase.explained += 1;
        let places = origin.whole.iter().enumerate();
        let all = places.map(|(at, role)| lookup(*role, &blocks, !origin.missing.contains(&at)));
        phase.operations.push(all.collect());
        if named.is_none() && blocks.iter().all(|block| *block < unknown) {
            known.insert(operation.file, blocks);
        }
    }
    phase
}

fn lookup(role: Role, blocks: &[u64], was_hit: bool) -> Lookup {
    let (block, changes) = match role {
        Role::Fixed(block) => (block, false),
        Role::Changing(at) => (blocks.get(at).copied().unwrap_or(UNKNOWN), true),
    };
    Lookup {
        block,
        was_hit,
        changes,
    }
}

impl Origin {
    /// The changing blocks of the whole sequence, of those that were answered and of what is known
    /// of the file. `None` if one contradicts the other.
    fn blocks(
        &self,
        answered: &[u64],
        known: Option<&Vec<u64>>,
        unknown: &mut u64,
    ) -> Option<Vec<u64>> {
        let mut blocks = Vec::with_capacity(self.numbers.len());
        for (at, number) in self.numbers.iter().enumerate() {
            let named = known.and_then(|known| known.get(at)).copied();
            let block = match (number.and_then(|number| answered.get(number)), named) {
                (Some(block), Some(named)) if *block != named => return None,
                (Some(block), _) => *block,
                (None, Some(named)) => named,
                (None, None) => {
                    *unknown -= 1;
                    *unknown
                }
            };
            blocks.push(block);
        }
        Some(blocks)
    }
}

/// The blocks that most operations meet.
fn fixed_blocks(traced: &[Traced]) -> HashSet<u64> {
    let mut met: HashMap<u64, usize> = HashMap::new();
    for operation in traced {
        for block in operation.hits.iter().collect::<HashSet<_>>() {
            *met.entry(*block).or_default() += 1;
        }
    }
    let most = traced.len() * FIXED_PERCENT / 100;
    let often = met.into_iter().filter(|(_, count)| *count > most);
    often.map(|(block, _)| block).collect()
}

/// What each answer is to its operation, and the changing blocks in order.
fn roles(hits: &[u64], fixed: &HashSet<u64>) -> (Vec<Role>, Vec<u64>) {
    let mut changing: Vec<u64> = Vec::new();
    let role = |block: &u64| {
        if fixed.contains(block) {
            return Role::Fixed(*block);
        }
        let at = changing.iter().position(|known| known == block);
        let at = at.unwrap_or_else(|| {
            changing.push(*block);
            changing.len() - 1
        });
        Role::Changing(at)
    };
    let roles = hits.iter().map(role).collect();
    (roles, changing)
}

/// How each sequence of answers may come of a whole one.
fn origins(roles: &[(Vec<Role>, Vec<u64>)]) -> HashMap<Vec<Role>, Vec<Origin>> {
    let mut met: HashMap<&Vec<Role>, usize> = HashMap::new();
    for (sequence, blocks) in roles {
        if blocks.len() <= CHANGING_MAX {
            *met.entry(sequence).or_default() += 1;
        }
    }
    let least = (roles.len() as f64 * COMMON).ceil() as usize;
    let mut common: Vec<_> = met
        .into_iter()
        .filter(|(_, count)| *count >= least.max(2))
        .collect();
    // The longest first, and of equally long ones that met most often.
    common.sort_by_key(|(sequence, count)| std::cmp::Reverse((sequence.len(), *count)));
    let mut origins: HashMap<Vec<Role>, Vec<Origin>> = HashMap::new();
    for (sequence, _) in common {
        // What comes of a longer one is not whole.
        if origins.contains_key(sequence) {
            continue;
        }
        for origin in Origin::all(sequence) {
            let answers = origin.answers();
            origins.entry(answers).or_default().push(origin);
        }
    }
    origins
}

impl Origin {
    /// A whole sequence, and what is left of it if first lookups were not answered.
    fn all(whole: &[Role]) -> Vec<Self> {
        let changing = whole.iter().filter_map(|role| match role {
            Role::Changing(at) => Some(*at),
            Role::Fixed(_) => None,
        });
        let count = changing.max().map_or(0, |last| last + 1);
        (0..1u32 << count.min(CHANGING_MAX))
            .map(|missed| Self::without(whole, count, missed))
            .collect()
    }

    /// Without the first lookups of those changing blocks whose bits are set.
    fn without(whole: &[Role], count: usize, missed: u32) -> Self {
        let is_missed = |at: usize| missed >> at & 1 == 1;
        let first = |at: usize| whole.iter().position(|role| *role == Role::Changing(at));
        let missing: HashSet<usize> = (0..count)
            .filter(|at| is_missed(*at))
            .filter_map(first)
            .collect();
        let mut numbers = vec![None; count];
        let mut next = 0;
        for (place, role) in whole.iter().enumerate() {
            if let Role::Changing(at) = role
                && !missing.contains(&place)
                && numbers[*at].is_none()
            {
                numbers[*at] = Some(next);
                next += 1;
            }
        }
        Self {
            whole: whole.to_vec(),
            numbers,
            missing,
        }
    }

    /// The roles that were answered, as an operation has them.
    fn answers(&self) -> Vec<Role> {
        let places = self.whole.iter().enumerate();
        let answered = places.filter(|(place, _)| !self.missing.contains(place));
        let renamed = answered.map(|(_, role)| match role {
            Role::Changing(at) => Role::Changing(self.numbers[*at].unwrap_or(*at)),
            fixed => *fixed,
        });
        renamed.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Root 1, leaf, bitmap 2, table, table, root, leaf: the leaf and the table change.
    fn create(leaf: u64, table: u64, missed: &[usize], file: usize) -> Traced {
        let all = [1, leaf, 2, table, table, 1, leaf];
        let hits = (0..all.len()).filter(|at| !missed.contains(at));
        Traced {
            file,
            hits: hits.map(|at| all[at]).collect(),
        }
    }

    fn of(phase: &Phase, operation: usize) -> Vec<(u64, bool)> {
        let lookups = phase.operations[operation].iter();
        lookups
            .map(|lookup| (lookup.block, lookup.was_hit))
            .collect()
    }

    #[test]
    fn what_was_not_answered_is_found_by_what_was() {
        let mut traced: Vec<_> = (0..50)
            .map(|file| create(100 + file as u64 % 3, 200 + file as u64 / 4, &[], file))
            .collect();
        // The table is met before the leaf where the leaf's first lookup was not answered.
        traced.push(create(150, 250, &[1, 3], 50));
        traced.push(create(151, 251, &[1], 51));
        traced.push(Traced {
            file: 52,
            hits: vec![9, 9],
        });
        // A second kind, with one lookup of the bitmap more.
        for file in 53..60 {
            let mut more = create(150, 250, &[], file);
            more.hits.insert(2, 2);
            traced.push(more);
        }
        let mut known = HashMap::new();
        let phase = whole(&traced, &mut known);
        assert_eq!(phase.explained, 59);
        let expected = [
            (1, true),
            (150, false),
            (2, true),
            (250, false),
            (250, true),
            (1, true),
            (150, true),
        ];
        assert_eq!(of(&phase, 50), expected);
        assert_eq!(of(&phase, 51)[1], (151, false));
        assert_eq!(of(&phase, 52), [(9, true), (9, true)]);
        assert_eq!(phase.operations[53].len(), 8);
        assert_eq!(
            (&known[&50], &known[&51]),
            (&vec![150, 250], &vec![151, 251])
        );
    }

    #[test]
    fn known_blocks_of_a_file_are_distinguished() {
        let stat = |file: usize, hits: &[u64]| Traced {
            file,
            hits: hits.to_vec(),
        };
        let mut traced: Vec<_> = (0..20)
            .map(|file| stat(file, &[1, 100 + file as u64 / 2, 200 + file as u64 / 3]))
            .collect();
        traced.extend([
            stat(20, &[1, 120]),
            stat(21, &[1, 221]),
            stat(22, &[1]),
            stat(23, &[1]),
        ]);
        let mut known: HashMap<usize, Vec<u64>> = (20..23)
            .map(|file| (file, vec![100 + file as u64, 200 + file as u64]))
            .collect();
        let phase = whole(&traced, &mut known);
        assert_eq!(phase.explained, traced.len());
        assert_eq!(of(&phase, 20), [(1, true), (120, true), (220, false)]);
        assert_eq!(of(&phase, 21), [(1, true), (121, false), (221, true)]);
        assert_eq!(of(&phase, 22), [(1, true), (122, false), (222, false)]);
        // Nothing is known of the last one's: blocks that no other has.
        let last = of(&phase, 23);
        assert!(last[1].0 != last[2].0 && last[1].0 > 1 << 60, "{last:?}");
    }

    #[test]
    fn nothing_traced_is_an_empty_phase() {
        assert_eq!(whole(&[], &mut HashMap::new()), Phase::default());
    }
}
