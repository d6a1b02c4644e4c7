//! Mounts compared: this one's over both transports, the kernel's ext4, fuse2fs, libfuse's
//! `passthrough_hp` and a file system that does nothing, taking turns in one run.
//!
//! ```text
//! make bench-fuse
//! cargo bench -p uext4-cli --bench mounts -- [SUBJECT]…
//!     [names|tree|bytes|small|writers|sqlite|git|compile]…
//!     [--rounds N] [--names N] [--mib N] [--json FILE]
//! ```
//! What it shows: what a program waits for, everything in memory (images in `/dev/shm`, a journal
//! in each). What it does not: a disk's speed. Figures are medians of the rounds; each round
//! begins with another subject, and every figure is taken on a fresh file system. Images are
//! judged by e2fsck, and trees by the number of their entries. At the end, the targets: held or
//! fallen short of, and by how much.
//!
//! It takes root, for the loop device and to empty the kernel's caches. What is not there is said
//! to be skipped: `passthrough_hp` is looked for in `$UEXT4_PASSTHROUGH_HP`
//! (`scripts/passthrough-hp` builds one), the ceiling among the examples of `uext4-fuse`, the
//! Linux source below `/usr/src`; a ring takes `/sys/module/fuse/parameters/enable_uring`.

mod figures;
mod input;
mod subject;
mod targets;
mod tasks;
mod work;

use std::process::ExitCode;

use figures::Figures;
use input::Input;
use subject::{ALL, Subject};
use tasks::TASKS;

/// What is asked for.
#[derive(Debug)]
pub struct Asked {
    subjects: Vec<Subject>,
    tasks: Vec<&'static tasks::Task>,
    rounds: usize,
    /// Names that are made in a directory.
    pub names: usize,
    /// Of the sequential file.
    pub mib: usize,
    json: Option<String>,
}

impl Asked {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut asked = Self {
            subjects: Vec::new(),
            tasks: Vec::new(),
            rounds: 3,
            names: 10_000,
            mib: 4096,
            json: None,
        };
        while let Some(arg) = args.next() {
            let mut number = || {
                let number = args.next().and_then(|arg| arg.parse().ok());
                number.filter(|n| *n > 0).ok_or(format!("{arg} N"))
            };
            match &*arg {
                "--rounds" => asked.rounds = number()?,
                "--names" => asked.names = number()?,
                "--mib" => asked.mib = number()?,
                "--json" => asked.json = Some(args.next().ok_or("--json FILE")?),
                // `cargo bench` says so.
                "--bench" => {}
                word => {
                    let subject = ALL.iter().find(|subject| subject.name() == word);
                    let task = TASKS.iter().find(|task| task.name == word);
                    asked.subjects.extend(subject);
                    asked.tasks.extend(task);
                    if subject.is_none() && task.is_none() {
                        return Err(format!("what is {word}?"));
                    }
                }
            }
        }
        if asked.subjects.is_empty() {
            asked.subjects.extend(ALL);
        }
        if asked.tasks.is_empty() {
            asked.tasks.extend(TASKS);
        }
        Ok(asked)
    }
}

/// All figures, and what failed.
fn measure(asked: &Asked, input: &Input) -> (Figures, Vec<String>) {
    let mut figures = Figures::default();
    let mut failed = Vec::new();
    let mut subjects = Vec::new();
    for subject in &asked.subjects {
        match subject.missing() {
            None => subjects.push(*subject),
            Some(why) => eprintln!("{}: skipped, {why}", subject.name()),
        }
    }
    for round in 0..asked.rounds {
        for turn in 0..subjects.len() {
            let subject = subjects[(turn + round) % subjects.len()];
            for task in &asked.tasks {
                eprintln!("round {}: {}, {}", round + 1, subject.name(), task.name);
                let printed = (task.run)(subject, asked, input, &mut |what, unit, figure| {
                    figures.add(what, unit, subject.name(), figure);
                });
                // The figures of the others are worth having all the same.
                if let Err(why) = printed {
                    let why = format!("{}, {}: {why}", subject.name(), task.name);
                    eprintln!("{why}");
                    failed.push(why);
                }
            }
        }
    }
    (figures, failed)
}

fn main() -> ExitCode {
    let run = || {
        let asked = Asked::parse(std::env::args().skip(1))?;
        let input = Input::new()?;
        let (figures, failed) = measure(&asked, &input);
        print!("{}", figures.text());
        let verdicts = targets::verdicts(&figures);
        print!("\n{}", targets::text(&verdicts));
        if let Some(path) = &asked.json {
            let all = serde_json::json!({
                "figures": figures.json(),
                "targets": targets::json(&verdicts),
            });
            let written = std::fs::write(path, format!("{all:#}\n"));
            written.map_err(|error| format!("{path}: {error}"))?;
        }
        match failed.is_empty() {
            true => Ok(()),
            false => Err(format!("failed: {}", failed.join("; "))),
        }
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
