//! What the shipped design remembers of one writer: it lies in the task itself, so that no call
//! allocates.

use std::time::Duration;

/// The clock of a writer and the credits it holds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pacing {
    /// Credits taken for pages not dirty yet.
    pub(super) credits: u64,
    /// Pages it is ahead of its rate, below 0 where it lags, and when that was so.
    pub(super) ahead: f64,
    pub(super) ahead_at: Duration,
    /// Its number among all there ever were; 0: none yet.
    pub(super) number: u64,
    /// When it last counted as a writer.
    pub(super) activity: Activity,
}

/// When a writer last counted as one, and as what.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Activity {
    /// The window it last counted in, from 1; 0: never.
    pub(super) window: u64,
    /// It counts as heavy in that window, and did in the one before.
    pub(super) heavy: bool,
    pub(super) heavy_before: bool,
    /// It was paused in that window.
    pub(super) paused: bool,
}
