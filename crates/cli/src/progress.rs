//! Progress on standard error, if that is a terminal and the work takes a while.

use std::io::IsTerminal;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use uext4::{Image, Ino, Inode};
use uext4_fsck::Progress as CheckProgress;

use crate::show::size_text;

/// Work that ends before this time shows nothing.
const PATIENCE: Duration = Duration::from_millis(700);
/// Time between two redraws.
const REDRAW: Duration = Duration::from_millis(100);
/// A bar for work whose end is known.
const EXAMINING: &str = "{msg:22} {wide_bar} {percent:>3} %, {eta} left, {prefix}";
/// Steps of the bar of an examination for each hundredth.
const STEPS: u64 = 1000;

/// A bar that appears when the work has taken [`PATIENCE`], even if one file takes that long.
#[derive(Debug)]
struct Bar {
    bar: ProgressBar,
    /// Dropping it ends the thread that waits to show the bar.
    _pending: Option<Sender<()>>,
}

impl Bar {
    /// None if standard error is no terminal.
    fn new(total: Option<u64>, template: &str) -> Option<Self> {
        if !std::io::stderr().is_terminal() {
            return None;
        }
        let hidden = ProgressDrawTarget::hidden();
        let bar = ProgressBar::with_draw_target(total, hidden);
        // OK to ignore: the templates are constants, which a test parses.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        let (pending, ended) = mpsc::channel();
        let shown = bar.clone();
        let named = thread::Builder::new().name("uext4-progress".to_owned());
        // Without a thread there is no bar.
        let waiting = named.spawn(move || {
            if ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                shown.set_draw_target(ProgressDrawTarget::stderr());
                shown.enable_steady_tick(REDRAW);
            }
        });
        let _pending = waiting.is_ok().then_some(pending);
        Some(Self { bar, _pending })
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A bar for copying, with the rate.
const COPYING: &str = "{msg} {wide_bar} {percent:>3} %, {bytes_per_sec}, {eta} left";
/// The same without a known end.
const COPYING_PART: &str = "{spinner} {msg} in {elapsed}, {bytes_per_sec}";

/// Files and bytes that have been read from an image.
#[derive(Debug)]
pub struct Progress {
    bar: Option<Bar>,
    verb: &'static str,
    /// Bytes of all files, where that is known.
    total: Option<u64>,
    files: u64,
    bytes: u64,
}

impl Progress {
    /// Begins at `top`; `verb` is what is done to the files ("copied"). The end is known only for
    /// the whole image: what a directory holds would have to be counted first.
    pub fn new(verb: &'static str, fs: &Image, top: &Inode) -> Self {
        let space = fs.statfs();
        let used = space.blocks.saturating_sub(space.free);
        let used = used.saturating_mul(space.block_size.into());
        let total = (top.ino == Ino::ROOT).then_some(used);
        let template = match total {
            Some(_) => COPYING,
            None => COPYING_PART,
        };
        Self {
            bar: Bar::new(total, template),
            verb,
            total,
            files: 0,
            bytes: 0,
        }
    }

    /// One file more, of so many bytes, is read from now on.
    pub fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        let Some(Bar { bar, .. }) = &self.bar else {
            return;
        };
        // Holes count as bytes of a file, but not as used.
        bar.set_position(self.bytes.min(self.total.unwrap_or(u64::MAX)));
        let size = size_text(self.bytes);
        bar.set_message(format!("{} files {}, {size}", self.files, self.verb));
    }
}

/// How much of an image has been copied.
#[derive(Debug)]
pub struct Copying(Option<Bar>);

impl Copying {
    /// Begins with an image of so many bytes.
    pub fn new(len: u64) -> Self {
        Self(Bar::new(Some(len), COPYING))
    }

    /// Shows that the copy has come to `at`.
    pub fn show(&self, at: u64) {
        if let Some(Bar { bar, .. }) = &self.0 {
            bar.set_position(at);
            bar.set_message(format!("{} copied", size_text(at)));
        }
    }
}

impl Copying {
    /// Shows that a search has come to `at`.
    pub fn show_searched(&self, at: u64) {
        if let Some(Bar { bar, .. }) = &self.0 {
            bar.set_position(at);
            bar.set_message(format!("{} searched", size_text(at)));
        }
    }
}

/// How many groups have been looked at.
#[derive(Debug)]
pub struct Groups(Option<Bar>);

impl Groups {
    /// Begins.
    pub fn new() -> Self {
        Self(Bar::new(Some(0), EXAMINING))
    }

    /// Shows that so many are done.
    pub fn show(&self, done: u64, of: u64) {
        if let Some(Bar { bar, .. }) = &self.0 {
            bar.set_length(of);
            bar.set_position(done);
            bar.set_message("moving");
        }
    }
}

/// How far an examination is: one bar for all passes of a round.
#[derive(Debug)]
pub struct Examining {
    bar: Option<Bar>,
}

impl Examining {
    /// Begins.
    pub fn new() -> Self {
        Self {
            bar: Bar::new(Some(100 * STEPS), EXAMINING),
        }
    }

    /// Says how much memory it takes.
    pub fn state_memory(&mut self, bytes: u64) {
        if let Some(Bar { bar, .. }) = &self.bar {
            bar.set_prefix(format!("{} of memory", size_text(bytes)));
        }
    }

    /// Shows it.
    pub fn show(&mut self, progress: CheckProgress) {
        let Some(Bar { bar, .. }) = &self.bar else {
            return;
        };
        let at = position(progress);
        if at < bar.position() {
            // The next round of a repair, the passes after a replay of fast commits, or the walk
            // of the journal for older copies: each counts anew.
            bar.reset();
        }
        bar.set_message(progress.pass.name());
        bar.set_position(at);
    }
}

/// Where the bar is, in steps of all passes.
fn position(progress: CheckProgress) -> u64 {
    let CheckProgress { pass, done, total } = progress;
    let share = pass.share();
    let steps = (share.end - share.start) * STEPS;
    let done = u128::from(done.min(total)) * u128::from(steps) / u128::from(total.max(1));
    share.start * STEPS + u64::try_from(done).unwrap_or(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_are_valid() {
        for template in [EXAMINING, COPYING, COPYING_PART] {
            ProgressStyle::with_template(template).unwrap();
        }
    }

    #[test]
    fn the_bar_of_an_examination_never_goes_back_in_a_round() {
        use uext4_fsck::Pass::*;
        let mut last = 0;
        for pass in [
            Super,
            Inodes,
            Shared,
            Directories,
            Connected,
            Links,
            Bitmaps,
        ] {
            for done in 0..=3 {
                let at = position(CheckProgress {
                    pass,
                    done,
                    total: 3,
                });
                assert!(at >= last, "{pass:?} {done}");
                last = at;
            }
        }
        assert_eq!(last, 100 * STEPS);
    }
}
