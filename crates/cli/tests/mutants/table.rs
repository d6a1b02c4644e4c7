//! Where a command may leave less than there was, and why.

use uext4_testkit::mutants::Mutant;

/// A part of what e2fsck says or of a change, and why that may be.
type Row = (&'static str, &'static str);

/// What e2fsck keeps less of after a command.
const LOSES: &[Row] = &[(
    "inode 58: becomes a copy of inode",
    "the file that is cut has the blocks of another one: neither the kernel nor a command knows it",
)];

/// What a command waits for.
const WAITS: &[Row] = &[(
    "MMP block: mmp_check_interval",
    "another host is waited for as long as the image says that it may need, as by the kernel",
)];

fn within(rows: &'static [Row], said: &str) -> Option<&'static str> {
    let row = rows.iter().find(|(part, _)| said.contains(part));
    row.map(|&(_, why)| why)
}

/// Why less is kept of this mutant.
pub fn loses(mutant: &Mutant) -> Option<&'static str> {
    within(LOSES, &mutant.to_string())
}

/// Why a command on this mutant takes longer than others.
pub fn waits(mutant: &Mutant) -> Option<&'static str> {
    within(WAITS, &mutant.to_string())
}
