//! A line of progress on standard error, where that is a terminal and the work takes a while.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::show::size_text;

/// Work shorter than this shows nothing.
const PATIENCE: Duration = Duration::from_millis(700);

/// Files and bytes done so far.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    begun: Instant,
    verb: &'static str,
    files: u64,
    bytes: u64,
}

impl Progress {
    /// Begins; `verb` is what is done to the files ("copied").
    pub fn new(verb: &'static str) -> Self {
        Self {
            bar: std::io::stderr().is_terminal().then(ProgressBar::hidden),
            begun: Instant::now(),
            verb,
            files: 0,
            bytes: 0,
        }
    }

    /// One file more, of so many bytes.
    pub fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        let Some(bar) = &self.bar else {
            return;
        };
        if bar.is_hidden() && self.begun.elapsed() > PATIENCE {
            let shown = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} in {elapsed}") {
                shown.set_style(style);
            }
            shown.enable_steady_tick(Duration::from_millis(100));
            self.bar = Some(shown);
        }
        if let Some(bar) = self.bar.as_ref().filter(|bar| !bar.is_hidden()) {
            let size = size_text(self.bytes);
            bar.set_message(format!("{} files {}, {size}", self.files, self.verb));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
