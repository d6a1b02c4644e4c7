//! Mutants of images that the kernel filled, given to every command that writes: what e2fsck could
//! keep before a command, it keeps after it, but for what the command changes; and what was clean
//! is clean.
//!
//! Each command has 20 seconds and 1 GiB, and does not panic.
//! [`uext4_testkit::mutants::comparison`] says how single seeds are tried.

mod table;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use uext4_testkit::cases::assert_none;
use uext4_testkit::mutants::Mutant;
use uext4_testkit::mutants::comparison::{Compared, compare, seeds};
use uext4_testkit::mutants::oracle::{Oracle, Repaired, Says};
use uext4_testkit::{has_tool, said, scratch};

/// Mutants of a quick run, and of a long one.
const MUTANTS: (u64, u64) = (51, 3000);

/// A command that writes.
#[derive(Clone, Copy, Debug)]
struct Writer {
    /// Its words; `IMAGE` and `FILE` stand for the image and for a file of the host.
    words: &'static [&'static str],
    /// The file that it changes or takes away.
    changes: &'static str,
}

const fn writer(words: &'static [&'static str], changes: &'static str) -> Writer {
    Writer { words, changes }
}

const WRITERS: &[Writer] = &[
    writer(&["put", "IMAGE", "FILE", "/put"], ""),
    writer(&["rm", "IMAGE", "/files/file 14"], "/files/file 14"),
    writer(&["mkdir", "IMAGE", "/made"], ""),
    writer(&["mv", "IMAGE", "/files/file 15", "/moved"], ""),
    writer(
        &["truncate", "-s", "10", "IMAGE", "/files/file 16"],
        "/files/file 16",
    ),
    writer(&["grow", "IMAGE", "+2M"], ""),
    writer(&["shrink", "IMAGE", "--min"], ""),
    writer(&["tune", "-L", "other", "IMAGE"], ""),
    writer(
        &[
            "quota", "-u", "--set", "1000", "900M", "1G", "0", "0", "IMAGE",
        ],
        "",
    ),
    writer(&["dedup-xattrs", "IMAGE"], ""),
    writer(&["trim", "IMAGE"], ""),
    writer(
        &["put", "--overwrite", "IMAGE", "FILE", "/files/file 17"],
        "/files/file 17",
    ),
    writer(
        &["rm", "-r", "IMAGE", "/deep/a/directory 5"],
        "/deep/a/directory 5/file",
    ),
];

/// The command that a mutant is given to.
fn writer_of(mutant: &Mutant) -> Writer {
    let number = mutant.seed / uext4_testkit::mutants::bases::ALL.len() as u64;
    WRITERS[(number % WRITERS.len() as u64) as usize]
}

/// Runs a command within its limits.
fn write(writer: Writer, image: &Path, file: &Path) -> Output {
    let mut command = Command::new("timeout");
    command.args([
        "-s",
        "KILL",
        "20",
        "prlimit",
        "--data=1073741824",
        "--core=0",
    ]);
    command.arg(env!("CARGO_BIN_EXE_uext4"));
    for word in writer.words {
        match *word {
            "IMAGE" => command.arg(image),
            "FILE" => command.arg(file),
            word => command.arg(word),
        };
    }
    command.output().unwrap()
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
    let before = settled(oracle, &mutant.bytes);
    let dir = scratch();
    let (image, file) = (dir.path().join("image"), dir.path().join("file"));
    fs::write(&file, vec![0x5A; 30_000]).unwrap();
    fs::write(&image, &mutant.bytes).unwrap();
    let output = write(writer, &image, &file);
    let words = writer.words.join(" ");
    let differ = |what: &str, how: &str| Compared::Differ(format!("{what} | {words} | {how}"));
    match output.status.code() {
        None | Some(101 | 124 | 134 | 137) => return differ("broken", &said(&output)),
        _ => {}
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
    let known = mutant.base.contents.without(writer.changes);
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
