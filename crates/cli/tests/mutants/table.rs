//! Where a command may leave less than there was, and why.

use uext4_testkit::mutants::Mutant;

/// A part of what e2fsck says or of a change, and why that may be.
type Row = (&'static str, &'static str);

/// What e2fsck objects to after a command, though it did not before.
const WORSE: &[Row] = &[];

/// What e2fsck keeps less of after a command.
const LOSES: &[Row] = &[];

fn within(rows: &'static [Row], said: &str) -> Option<&'static str> {
    let row = rows.iter().find(|(part, _)| said.contains(part));
    row.map(|&(_, why)| why)
}

/// Why e2fsck objects to this after a command.
pub fn worse(said: &str) -> Option<&'static str> {
    within(WORSE, said)
}

/// Why less is kept of this mutant.
pub fn loses(mutant: &Mutant) -> Option<&'static str> {
    within(LOSES, &mutant.to_string())
}
