//! After a repair the image is clean to e2fsck and to a second run, and what `e2fsck -fy` keeps of
//! the files of before, and of their names, is kept.

use uext4_testkit::has_tool;
use uext4_testkit::mutants::Mutant;
use uext4_testkit::mutants::comparison::{Compared, compare, seeds};
use uext4_testkit::mutants::oracle::{Oracle, Repaired, Says, contents};

use super::table;
use crate::cases::assert_none;
use crate::judge::{Asked, Fault, applied, ask, first_findings};

/// Mutants of a quick run, and of a long one.
const MUTANTS: (u64, u64) = (170, 3000);
/// Mutants that more was lost of, or that were refused or left unclean, and why.
const FAULTS: &[u64] = &[
    2534, // the size of a journal that has block numbers
    2823, // a number of the journal's map that stands there twice
    3266, // the flag ENCRYPT of a plain symbolic link
    3568, // fast commits where blocks are shared
    3789, // a directory whose mode, flags and size are noise
    4095, // a fast commit's new file in what is no directory
    4209, // a count of extents that is too large
];

fn judged(oracle: &Oracle, mutant: &Mutant) -> Compared {
    let outcome = match ask(Asked::Plan, &mutant.bytes) {
        Ok(outcome) if outcome.is_clean => outcome,
        Ok(outcome) => return refused(oracle, mutant, &first_findings(&outcome)),
        Err(complaint) if complaint.fault == Fault::NoPlan => {
            return refused(oracle, mutant, &complaint.said);
        }
        Err(complaint) => return Compared::Differ(complaint.to_string()),
    };
    let mended = applied(&mutant.bytes, &outcome);
    let findings = super::check::found(&outcome).1;
    match oracle.examined(&mended) {
        Says::Clean | Says::Mentions => {}
        Says::Nothing => return Compared::Undecided("e2fsck does not end, or crashes"),
        Says::Objects(said) => {
            return match table::unclean(&said) {
                Some(why) => Compared::Explained(why),
                None => Compared::Differ(format!("unclean | {said} | {findings}")),
            };
        }
    }
    match ask(Asked::Plan, &mended) {
        Ok(again) if applied(&mended, &again) == mended => {}
        Ok(again) => {
            return Compared::Differ(format!("again | {}", first_findings(&again)));
        }
        Err(complaint) => return Compared::Differ(format!("again | {complaint}")),
    }
    let ours = match contents(mended) {
        Ok(contents) => contents,
        Err(why) => return Compared::Differ(format!("unread | {why}")),
    };
    let theirs = match oracle.repaired(&mutant.bytes) {
        Repaired::Clean(contents) => contents,
        Repaired::Never => return Compared::Undecided("e2fsck makes no clean image of it"),
        Repaired::Unread(_) => {
            return Compared::Undecided("what e2fsck makes of it cannot be surveyed");
        }
    };
    let mut lost = ours.loses(&theirs, &mutant.base.contents);
    lost.extend(ours.loses_names(&theirs, &mutant.base.contents));
    if lost.is_empty() {
        return Compared::Same;
    }
    match table::lossier(mutant) {
        Some(why) => Compared::Explained(why),
        None => Compared::Differ(format!("lost | {} | {findings}", lost.join("; "))),
    }
}

/// No plan leads to a clean image: e2fsck must not have one either.
fn refused(oracle: &Oracle, mutant: &Mutant, said: &str) -> Compared {
    if let Some(why) = table::refused(said) {
        return Compared::Explained(why);
    }
    match oracle.repaired(&mutant.bytes) {
        Repaired::Never => Compared::Undecided("neither makes a clean image of it"),
        _ => Compared::Differ(format!("refused | {said}")),
    }
}

#[test]
fn repairs_of_mutants_keep_what_e2fsck_keeps() {
    if !has_tool("e2fsck") {
        return;
    }
    let counts = compare("repair", &seeds(MUTANTS.0, MUTANTS.1, FAULTS), judged);
    assert_none(&counts.differ, counts.all() as usize);
}
