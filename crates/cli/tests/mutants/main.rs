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
use uext4_testkit::damage::Contents;
use uext4_testkit::mutants::Mutant;
use uext4_testkit::mutants::comparison::{Compared, compare, seeds};
use uext4_testkit::mutants::oracle::{Oracle, Repaired, Says};
use uext4_testkit::{has_tool, scratch};

use writers::{SCRIPT, WRITERS, Writer};

/// Mutants of a quick run, and of a long one.
const MUTANTS: (u64, u64) = (51, 3000);
/// Mutants that a command destroyed, and how.
const FAULTS: &[u64] = &[
    3808, // mount: inode tables in other groups than theirs, without flex_bg
    2557, // tune: the log went where a wrong bitmap said that nothing was, over an inode table
    4094, // truncate: the end of a block was zeroed that was the superblock's
];

/// The command that a mutant is given to.
fn writer_of(mutant: &Mutant) -> Writer {
    // Seventeen images have no divisor in common with the number of writers: each meets each.
    WRITERS[(mutant.seed % WRITERS.len() as u64) as usize]
}

/// What e2fsck says once the log is replayed: what a damaged log leaves is no fault of the command.
fn settled(oracle: &Oracle, image: &[u8]) -> Says {
    let settled = oracle.settled(image);
    settled.unwrap_or_else(|| oracle.examined(image))
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
        return match table::waits(mutant) {
            Some(why) => Compared::Explained(why),
            None => differ("broken", &how),
        };
    }
    let after = fs::read(&image).unwrap();
    if after == mutant.bytes {
        return Compared::Same;
    }
    if before == Says::Clean
        && let Says::Objects(said) = settled(oracle, &after)
    {
        return differ("worse", &said);
    }
    let Repaired::Clean(before) = oracle.repaired(&mutant.bytes) else {
        return Compared::Undecided("e2fsck makes no clean image of it before the command");
    };
    let after = match oracle.repaired(&after) {
        Repaired::Clean(after) => after,
        Repaired::Never => return differ("spoilt", "e2fsck makes no clean image of it any more"),
        Repaired::Unread(why) => return differ("unread", &why),
    };
    let others = |contents: Contents| {
        let changes = writer.changes.iter();
        changes.fold(contents, |contents, path| contents.without(path))
    };
    let lost = after.loses(&others(before), &others(mutant.base.contents.clone()));
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
    let counts = compare("writers", &seeds(MUTANTS.0, MUTANTS.1, FAULTS), judged);
    assert_none(&counts.differ, counts.all() as usize);
}
