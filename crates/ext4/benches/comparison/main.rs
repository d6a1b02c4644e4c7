//! This engine, the kernel's ext4 and fuse2fs side by side, in one run.
//!
//! ```text
//! cargo bench -p uext4 --bench comparison -- [ours|kernel|fuse2fs]…
//!     [names|threads|fsync|bytes|xattrs|extents|slow]…
//!     [--rounds N] [--names N] [--processor-time] [--json]
//! ```
//! Without words all that can be measured here is. Ours works in this process on an image in
//! memory; the others are called through the system, on a loop device or a file, both in
//! `/dev/shm`, which takes root. Figures are medians of the rounds. `--processor-time` measures
//! what one thread does by the processor time of the process (ours alone, all its threads)
//! instead of the clock: so that a machine which has other things to do gives figures too.
//! `xattrs` and `extents` put ours on an image file in `/dev/shm` as well, take turns, and print
//! tables of their own. `slow` puts ours and the kernel's on the same throttled disk; it takes
//! minutes, and is only measured when asked for. Whatever cannot be measured here is said to be
//! skipped; an image that e2fsck does not call clean is an error.

mod extents;
mod loop_mount;
mod measure;
mod ours;
mod slow;
mod system;
mod table;
mod xattrs;

use std::process::ExitCode;

use measure::{Clock, Names};
use table::Table;

/// What is asked for.
#[derive(Clone, Debug)]
struct Asked {
    words: Vec<String>,
    rounds: usize,
    names: usize,
    clock: Clock,
    json: bool,
}

const SUBJECTS: [&str; 3] = ["ours", "kernel", "fuse2fs"];
const PARTS: [&str; 7] = [
    "names", "threads", "fsync", "bytes", "xattrs", "extents", "slow",
];

impl Asked {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut asked = Self {
            words: Vec::new(),
            rounds: 5,
            names: 100_000,
            clock: Clock::Wall,
            json: false,
        };
        while let Some(arg) = args.next() {
            let mut number = || {
                let number = args.next().and_then(|arg| arg.parse().ok());
                number.filter(|n| *n > 0).ok_or(format!("{arg} N"))
            };
            match &*arg {
                "--rounds" => asked.rounds = number()?,
                "--names" => asked.names = number()?,
                "--processor-time" => asked.clock = Clock::Processor,
                "--json" => asked.json = true,
                // `cargo bench` says so.
                "--bench" => {}
                word if SUBJECTS.contains(&word) || PARTS.contains(&word) => {
                    asked.words.push(arg);
                }
                _ => return Err(format!("what is {arg}?")),
            }
        }
        Ok(asked)
    }

    /// Whether a word was given, or none of its kind.
    fn wants(&self, word: &str, kind: &[&str]) -> bool {
        let mut given = self.words.iter().filter(|w| kind.contains(&&***w));
        given.clone().next().is_none() || given.any(|w| w == word)
    }

    fn subject(&self, word: &str) -> bool {
        self.wants(word, &SUBJECTS)
    }

    fn part(&self, word: &str) -> bool {
        self.wants(word, &PARTS)
    }
}

/// One round of everything that uses names.
fn names(asked: &Asked, clock: Clock, count: usize, tree: &dyn Names, table: &mut Table) {
    if asked.part("names") {
        for (what, rate) in measure::names(tree, clock, count) {
            table.add(&format!("{what}/s"), tree.subject(), rate);
        }
    }
    if asked.part("threads") {
        let half = count / 2;
        let (one, two) = measure::threads(tree, clock, half);
        table.add("create+unlink/s, 1 thread", tree.subject(), one);
        table.add("create+unlink/s, 2 threads", tree.subject(), two);
        table.add("2 threads : 1", tree.subject(), two / one);
    }
}

fn ours(asked: &Asked, table: &mut Table) {
    for _ in 0..asked.rounds {
        if asked.part("names") || asked.part("threads") {
            let tree = ours::Ours::new();
            names(asked, asked.clock, asked.names, &tree, table);
        }
        if asked.part("fsync") {
            let (one, many) = (ours::fsyncs(1, 100), ours::fsyncs(64, 100));
            table.add("fsync/s, 1 writer, 2 ms flush", "ours", one);
            table.add("fsync/s, 64 writers, 2 ms flush", "ours", many);
            table.add("64 writers : 1", "ours", many / one);
        }
        if asked.part("bytes") {
            // Not what the flusher does meanwhile.
            let clock = match asked.clock {
                Clock::Wall => Clock::Wall,
                _ => Clock::Thread,
            };
            let copy = measure::memcpy(clock);
            let (write, read) = ours::bytes(clock);
            table.add("memcpy MB/s", "ours", copy);
            table.add("write MB/s", "ours", write);
            table.add("read MB/s", "ours", read);
            table.add("write : memcpy", "ours", write / copy);
            table.add("read : memcpy", "ours", read / copy);
        }
    }
}

fn system(asked: &Asked, subject: system::Kind, table: &mut Table) {
    // It takes milliseconds for each, and longer the more there are.
    let (rounds, count) = match subject {
        system::Kind::Kernel => (asked.rounds, asked.names),
        system::Kind::Fuse => (asked.rounds.min(2), asked.names / 20),
    };
    for _ in 0..rounds {
        let mounted = match system::Mounted::new(subject) {
            Ok(mounted) => mounted,
            Err(why) => {
                eprintln!("{}: skipped, {why}", subject.name());
                return;
            }
        };
        names(asked, Clock::Wall, count, &mounted, table);
        if asked.part("bytes") {
            let (write, read) = mounted.bytes();
            table.add("write MB/s", subject.name(), write);
            table.add("read MB/s", subject.name(), read);
        }
    }
}

/// Ours and the kernel's in turn on one slow disk.
fn slow(asked: &Asked, table: &mut Table) {
    for _ in 0..asked.rounds {
        for subject in &SUBJECTS[..2] {
            if !asked.subject(subject) {
                continue;
            }
            let figures = slow::SlowDisk::new().and_then(|disk| match *subject {
                "ours" => Ok(disk.ours()),
                _ => disk.kernel(),
            });
            match figures {
                Ok(figures) => {
                    for (what, rate) in figures {
                        table.add(what, subject, rate);
                    }
                }
                Err(why) => eprintln!("{subject} on a slow disk: skipped, {why}"),
            }
        }
    }
}

fn main() -> ExitCode {
    let asked = match Asked::parse(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    let mut table = Table::new(&SUBJECTS);
    if asked.words.iter().any(|word| word == "slow") {
        slow(&asked, &mut table);
    }
    if asked.subject("ours") {
        ours(&asked, &mut table);
    }
    let by_system = ["names", "threads", "bytes"];
    for kind in [system::Kind::Kernel, system::Kind::Fuse] {
        if asked.subject(kind.name()) && by_system.iter().any(|part| asked.part(part)) {
            system(&asked, kind, &mut table);
        }
    }
    let mut tables = vec![table];
    if asked.part("xattrs") {
        match xattrs::run(asked.rounds, |subject| asked.subject(subject)) {
            Ok(table) => tables.push(table),
            Err(why) => {
                eprintln!("attributes: {why}");
                return ExitCode::FAILURE;
            }
        }
    }
    if asked.part("extents") {
        tables.push(extents::run(asked.rounds, |subject| asked.subject(subject)));
    }
    for table in tables.iter().filter(|table| !table.is_empty()) {
        if asked.json {
            println!("{}", table.json());
        } else {
            print!("{}", table.text());
        }
    }
    ExitCode::SUCCESS
}
