//! Where e2fsck and we differ, and why: the judge accepts these differences and no other. The seed
//! is the smallest mutant that shows it.

use uext4_testkit::mutants::Mutant;

/// One difference.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// The name of our finding, a part of what e2fsck says, or of a change.
    of: &'static str,
    /// Which of the two is right.
    why: &'static str,
}

/// What the examination finds and e2fsck does not: the names of findings.
const STRICTER: &[Row] = &[];

/// What e2fsck objects to and the examination does not.
const MISSED: &[Row] = &[];

/// What no examination and no plan is made for, where e2fsck has no objection or cleans it.
const REFUSED: &[Row] = &[];

/// What e2fsck objects to after a repair.
const UNCLEAN: &[Row] = &[];

/// What a repair keeps less of than e2fsck.
const LOSSIER: &[Row] = &[];

/// Why e2fsck makes none of these findings, if there is a reason for each.
pub fn stricter(names: &[&str]) -> Option<&'static str> {
    let why = |name: &&str| {
        STRICTER
            .iter()
            .find(|row| row.of == *name)
            .map(|row| row.why)
    };
    let all: Option<Vec<_>> = names.iter().map(why).collect();
    all?.first().copied()
}

fn within(rows: &'static [Row], said: &str) -> Option<&'static str> {
    let row = rows.iter().find(|row| said.contains(row.of));
    row.map(|row| row.why)
}

/// Why we do not object to what e2fsck says.
pub fn missed(said: &str) -> Option<&'static str> {
    within(MISSED, said)
}

/// Why we refuse it.
pub fn refused(said: &str) -> Option<&'static str> {
    within(REFUSED, said)
}

/// Why e2fsck objects to what was repaired.
pub fn unclean(said: &str) -> Option<&'static str> {
    within(UNCLEAN, said)
}

/// Why less is kept of this mutant.
pub fn lossier(mutant: &Mutant) -> Option<&'static str> {
    within(LOSSIER, &mutant.to_string())
}
