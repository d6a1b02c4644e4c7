//! Mutants of images that the kernel filled, given to every command that writes, and mounted: what
//! e2fsck could keep before a command, it keeps after it, but for what the command changes; and
//! what was clean is clean.
//!
//! Each command has 20 seconds and 1 GiB, and does not panic.
//! [`uext4_testkit::mutants::comparison`] says how single seeds are tried.

mod table;
mod writers;

use std::fs;

use uext4_testkit::cases::assert_none;
use uext4_testkit::mutants::Mutant;
use uext4_testkit::mutants::comparison::{Compared, compare, seeds};
use uext4_testkit::mutants::oracle::{Oracle, Repaired, Says};
use uext4_testkit::{has_tool, scratch};

use writers::{SCRIPT, WRITERS, Writer};

/// Mutants of a quick run, and of a long one.
const MUTANTS: (u64, u64) = (51, 3000);

/// The command that a mutant is given to.
fn writer_of(mutant: &Mutant) -> Writer {
    // Seventeen images have no divisor in common with the number of writers: each meets each.
    WRITERS[(mutant.seed % WRITERS.len() as u64) as usize]
}

/// What e2fsck says where the log is replayed first.
fn settled(oracle: &Oracle, image: &[u8]) -> Says {
    match oracle.examined(image) {
        Says::Objects(said) => oracle.settled(image).unwrap_or(Says::Objects(said)),
        says => says,
    }
}

fn judged(oracle: &Oracle, mutant: &Mutant) -> Compared {
    let writer = writer_of(mutant);
    if !writer.is_possible() {
        return Compared::Undecided("this machine cannot mount it");
    }
    let before = settled(oracle, &mutant.bytes);
    let dir = scratch();
    let image = dir.path().join("IMAGE");
    fs::write(&image, &mutant.bytes).unwrap();
    fs::write(dir.path().join("FILE"), vec![0x5A; 30_000]).unwrap();
    fs::write(dir.path().join("SCRIPT"), SCRIPT).unwrap();
    fs::create_dir(dir.path().join("POINT")).unwrap();
    let words = writer.name();
    let differ = |what: &str, how: &str| Compared::Differ(format!("{what} | {words} | {how}"));
    if let Err(how) = writer.write(dir.path()) {
        return differ("broken", &how);
    }
    let after = fs::read(&image).unwrap();
    if after == mutant.bytes {
        return Compared::Same;
    }
    if before == Says::Clean
        && let Says::Objects(said) = settled(oracle, &after)
    {
        return match table::worse(&said) {
            Some(why) => Compared::Explained(why),
            None => differ("worse", &said),
        };
    }
    let Repaired::Clean(before) = oracle.repaired(&mutant.bytes) else {
        return Compared::Undecided("e2fsck makes no clean image of it before the command");
    };
    let after = match oracle.repaired(&after) {
        Repaired::Clean(after) => after,
        Repaired::Never => return differ("spoilt", "e2fsck makes no clean image of it any more"),
        Repaired::Unread(why) => return differ("unread", &why),
    };
    let all = mutant.base.contents.clone();
    let changes = writer.changes.iter();
    let known = changes.fold(all, |known, path| known.without(path));
    let lost = after.loses(&before, &known);
    if lost.is_empty() {
        return Compared::Same;
    }
    match table::loses(mutant) {
        Some(why) => Compared::Explained(why),
        None => differ("lost", &lost.join("; ")),
    }
}

#[test]
fn commands_that_write_lose_nothing_of_mutants() {
    if !has_tool("e2fsck") || !has_tool("prlimit") {
        return;
    }
    let counts = compare("writers", &seeds(MUTANTS.0, MUTANTS.1), judged);
    assert_none(&counts.differ, counts.all() as usize);
}
