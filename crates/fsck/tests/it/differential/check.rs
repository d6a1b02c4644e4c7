//! The examination says "damaged" exactly where `e2fsck -fn` objects.

use uext4_fsck::{Outcome, Severity};
use uext4_testkit::has_tool;
use uext4_testkit::mutants::Mutant;
use uext4_testkit::mutants::comparison::{Compared, compare, seeds};
use uext4_testkit::mutants::oracle::{Oracle, Says};

use super::table;
use crate::cases::assert_none;
use crate::judge::{Asked, Fault, ask};

/// Mutants of a quick run, and of a long one.
const MUTANTS: (u64, u64) = (340, 20_000);

/// What the examination says.
enum Ours {
    Clean,
    /// The names of what it found, and the first of it in words.
    Damaged(Vec<&'static str>, String),
    Refused(String),
}

fn ours(mutant: &Mutant) -> Result<Ours, String> {
    match ask(Asked::Examination, &mutant.bytes) {
        Ok(outcome) if outcome.is_clean => Ok(Ours::Clean),
        Ok(outcome) => {
            let (names, words) = found(&outcome);
            Ok(Ours::Damaged(names, words))
        }
        Err(complaint) if complaint.fault == Fault::NoPlan => Ok(Ours::Refused(complaint.said)),
        Err(complaint) => Err(complaint.to_string()),
    }
}

/// What an examination found that is more than a note: the names, and the first in words.
pub fn found(outcome: &Outcome) -> (Vec<&'static str>, String) {
    let more = outcome.findings.iter().map(|(_, finding)| finding);
    let more = more.filter(|finding| finding.problem.info().severity > Severity::Note);
    let mut names: Vec<_> = more
        .clone()
        .map(|finding| finding.problem.info().name)
        .collect();
    names.sort_unstable();
    names.dedup();
    let words: Vec<_> = more.take(2).map(|finding| finding.to_string()).collect();
    (names, words.join("; "))
}

fn judged(oracle: &Oracle, mutant: &Mutant) -> Compared {
    let ours = match ours(mutant) {
        Ok(ours) => ours,
        Err(why) => return Compared::Differ(why),
    };
    let theirs = oracle.examined(&mutant.bytes);
    match (&ours, &theirs) {
        (_, Says::Nothing) => return Compared::Undecided("e2fsck does not end, or crashes"),
        (_, Says::Mentions) | (Ours::Clean, Says::Clean) => return Compared::Same,
        (Ours::Damaged(..) | Ours::Refused(_), Says::Objects(_)) => return Compared::Same,
        _ => {}
    }
    // With -n it completes nothing: it may object to what waits only for that, and does not see
    // what a replay would bring.
    let theirs = match oracle.settled(&mutant.bytes) {
        Some(Says::Nothing) => return Compared::Undecided("e2fsck does not end, or crashes"),
        Some(settled) => settled,
        None => theirs,
    };
    match (ours, theirs) {
        (Ours::Clean, Says::Objects(said)) => match table::missed(&said) {
            Some(why) => Compared::Explained(why),
            None => Compared::Differ(format!("false clean | {said}")),
        },
        (Ours::Damaged(names, words), Says::Clean) => match table::stricter(&names) {
            Some(why) => Compared::Explained(why),
            None => Compared::Differ(format!("false damaged | {} | {words}", names.join(" "))),
        },
        (Ours::Refused(said), Says::Clean) => match table::refused(&said) {
            Some(why) => Compared::Explained(why),
            None => Compared::Differ(format!("false damaged | refused | {said}")),
        },
        _ => Compared::Same,
    }
}

#[test]
fn mutants_are_damaged_exactly_where_e2fsck_objects() {
    if !has_tool("e2fsck") {
        return;
    }
    let counts = compare("check", &seeds(MUTANTS.0, MUTANTS.1, &[]), judged);
    assert_none(&counts.differ, counts.all() as usize);
}
