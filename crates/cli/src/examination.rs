//! What `check`, `repair`, `salvage` and `fsck` share: options, progress, and counts in words.

use std::fmt;
use std::io::{self, Write};
use std::num::NonZeroUsize;

use clap::Args;
use parking_lot::Mutex;
use uext4_blockdev::{Clock as _, Error as BlockError, SystemClock};
use uext4_fsck::tune::Make;
use uext4_fsck::{Error, Finding, Observer, Options, Outcome, Progress, SharedBlocks};

use crate::args::{ImageArgs, parse_size};
use crate::failure::{DROP_VERITY, Exit, Failure};
use crate::interrupt;
use crate::json::Json;
use crate::progress::Examining;

/// How an image is examined.
#[derive(Args, Debug)]
pub struct ExamineArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Bytes of a block, to find the superblock that --superblock names
    #[arg(long, value_name = "BYTES")]
    pub block_size: Option<u32>,
    /// Show at most N findings; the rest is counted
    #[arg(long, value_name = "N", default_value_t = 10_000, alias = "issues")]
    pub max_findings: usize,
    /// Use at most this much memory; what does not fit goes to a temporary file [default: 1G,
    /// or half of what this process may take]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memory: Option<u64>,
    /// Examine with N threads [default: one for each processor]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
}

impl ExamineArgs {
    /// For the library.
    pub fn options(&self) -> Options {
        let default = Options::default();
        Options {
            threads: self.threads.unwrap_or(default.threads),
            memory: self.memory.unwrap_or(default.memory),
            findings_max: self.max_findings,
            superblock: self.image.superblock,
            block_size: self.block_size,
            remake: false,
            replay: !self.image.no_replay,
            older_copies: false,
            shared_blocks: SharedBlocks::Clone,
            loss_max: default.loss_max,
            rebuild_directories: false,
            abandoned_mmp: None,
            now: now(),
            make: Make::default(),
        }
    }

    /// The failure of an examination of this image.
    pub fn failure(&self, error: &Error) -> Failure {
        failure(self.image.place.image.display(), error)
    }
}

/// The failure of an examination or a repair.
pub fn failure(image: impl fmt::Display, error: &Error) -> Failure {
    let exit = match error {
        Error::NotExt4 { .. }
        | Error::CutOff { .. }
        | Error::NoSpace { .. }
        | Error::NoLogRoom { .. } => Exit::Damaged,
        Error::Cancelled => Exit::Interrupted,
        _ => Exit::CouldNot,
    };
    let failure = Failure::new(exit, format_args!("{image}: {error}"));
    match error {
        Error::Device(
            BlockError::Verified { .. }
            | BlockError::VerifiedBoot { .. }
            | BlockError::ReadOnlyPartition { .. },
        ) => failure.hint(DROP_VERITY),
        Error::NotExt4 { .. } => {
            failure.hint("--superblock and --block-size name a backup that is known")
        }
        _ => failure,
    }
}

/// "1 finding", "2 findings".
pub fn counted(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// Says how many blocks were written: as JSON, or in these words.
pub fn print_written(
    blocks: u64,
    as_json: bool,
    said: fmt::Arguments<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    if !as_json {
        return writeln!(out, "{said}");
    }
    let mut json = Json::new();
    json.open_object();
    json.key("blocks").number(blocks);
    json.close_object();
    json.end_line();
    out.write_all(json.as_bytes())
}

/// Seconds since 1970, as the superblock stores them.
pub fn now() -> u32 {
    let (seconds, _) = SystemClock.now();
    u32::try_from(seconds.max(0)).unwrap_or(u32::MAX)
}

/// Says how many findings there are besides those that were shown.
pub fn print_hidden(outcome: &Outcome, shown: usize, out: &mut dyn Write) -> io::Result<()> {
    match outcome.summary.findings.saturating_sub(shown as u64) {
        0 => Ok(()),
        hidden => writeln!(out, "… {hidden} more"),
    }
}

/// Shows progress, and hands each finding on.
pub struct Watching<F> {
    bar: Mutex<Examining>,
    each: Mutex<F>,
}

impl Watching<fn(&Finding)> {
    /// Shows progress only.
    pub fn progress() -> Self {
        Self::new(|_| ())
    }
}

impl<F: FnMut(&Finding) + Send> Watching<F> {
    /// Calls `each` for every finding.
    pub fn new(each: F) -> Self {
        Self {
            bar: Mutex::new(Examining::new()),
            each: Mutex::new(each),
        }
    }
}

impl<F: FnMut(&Finding) + Send> Observer for Watching<F> {
    fn finding(&self, finding: &Finding) {
        (self.each.lock())(finding);
    }

    fn memory(&self, bytes: u64) {
        self.bar.lock().state_memory(bytes);
    }

    fn progress(&self, progress: Progress) {
        self.bar.lock().show(progress);
    }

    fn is_cancelled(&self) -> bool {
        interrupt::is_requested()
    }
}
