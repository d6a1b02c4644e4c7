//! Progress of work in phases, which making an image and copying into one are: one bar for each.

use std::cell::RefCell;
use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};
use uext4_image::{Amount, Phase, Progress};

use crate::show::size_text;

/// The bar of the phase that runs now.
pub struct PhaseBar {
    shown: bool,
    bar: RefCell<ProgressBar>,
    total: RefCell<Option<Amount>>,
}

impl PhaseBar {
    /// A bar that appears if standard error is a terminal and `is_wanted`.
    pub fn new(is_wanted: bool) -> Self {
        Self {
            shown: is_wanted && std::io::stderr().is_terminal(),
            bar: RefCell::new(ProgressBar::hidden()),
            total: RefCell::new(None),
        }
    }

    /// Removes it from the terminal.
    pub fn clear(&self) {
        self.bar.borrow().finish_and_clear();
    }
}

impl Progress for PhaseBar {
    fn begin(&self, phase: Phase, total: Option<Amount>) {
        if !self.shown {
            return;
        }
        self.clear();
        let words = match phase {
            Phase::Listing => "listing",
            Phase::Sizing => "sizing",
            Phase::Formatting => "formatting",
            Phase::Writing => "writing",
            Phase::Hashing => "hashing",
            Phase::Syncing => "syncing",
        };
        let (bar, template) = match total {
            Some(total) => (
                ProgressBar::new(total.bytes.saturating_add(total.entries)),
                "{msg:10} {wide_bar} {percent:>3} %, {bytes_per_sec}, {eta} left",
            ),
            None => (ProgressBar::new_spinner(), "{spinner} {msg}"),
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(words);
        self.bar.replace(bar);
        self.total.replace(total);
    }

    fn update(&self, done: Amount) {
        if !self.shown {
            return;
        }
        let bar = self.bar.borrow();
        match *self.total.borrow() {
            // An entry without contents is work too.
            Some(_) => bar.set_position(done.bytes.saturating_add(done.entries)),
            None => {
                bar.set_message(format!(
                    "{} entries, {}",
                    done.entries,
                    size_text(done.bytes)
                ));
                bar.tick();
            }
        }
    }
}

impl Drop for PhaseBar {
    fn drop(&mut self) {
        self.clear();
    }
}
