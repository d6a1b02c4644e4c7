//! Where a command may leave less than there was, and why.

use uext4_testkit::mutants::Mutant;

/// A part of what e2fsck says or of a change, and why that may be.
type Row = (&'static str, &'static str);

/// What e2fsck objects to after a command on a mutant, though it did not before, and why that may
/// be.
const WORSE: &[(&str, &str, &str)] = &[
    (
        "Padding at end of inode bitmap is not set. Fix? no; IMAGE: ***",
        "on fast-commit",
        MENDED,
    ),
    (
        "Inode bitmap for group 2 is not in group",
        "on fast-commit: node of inode 7, block 133: number[0] 0x885 becomes 0x2e2",
        MENDED,
    ),
];
const MENDED: &str = "the damage was there before, in the log too: e2fsck's replay of fast commits \
                      writes descriptors and bitmaps anew, and so mends it without a word";

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

/// Why e2fsck objects to this after a command on a mutant.
pub fn worse(mutant: &Mutant, said: &str) -> Option<&'static str> {
    let shown = mutant.to_string();
    let row = WORSE
        .iter()
        .find(|(part, of, _)| said.contains(part) && shown.contains(of));
    row.map(|&(_, _, why)| why)
}

/// Why less is kept of this mutant.
pub fn loses(mutant: &Mutant) -> Option<&'static str> {
    within(LOSES, &mutant.to_string())
}

/// Why a command on this mutant takes longer than others.
pub fn waits(mutant: &Mutant) -> Option<&'static str> {
    within(WAITS, &mutant.to_string())
}
