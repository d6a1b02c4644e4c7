//! What a run gave: the same figures of the kernel, of our mount and of the model.

use serde_json::{Value, json};

use super::events::{Event, Limits};
use crate::writeback::machine::{jain, round};

/// Bytes of a page, as throttling counts.
pub const PAGE: f64 = 4096.0;
/// Seconds between two samples of what is dirty.
pub const SAMPLE: f64 = 0.01;
/// Points of a series in the record.
const POINTS: usize = 150;

/// A run: all of it, and the part at its end that is counted.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Milliseconds of each pause that began in the counted part.
    pub pauses: Vec<f64>,
    /// Bytes dirty or under writeback, every [`SAMPLE`] from the start on.
    pub dirty: Vec<f64>,
    /// Samples before the counted part.
    pub skipped: usize,
    /// Bytes at which writers stop, and at which throttling aims.
    pub limit: f64,
    /// See [`Limits::setpoint`], in bytes.
    pub setpoint: f64,
    /// Seconds of the counted part.
    pub seconds: f64,
    /// Bytes that the device wrote in the counted part.
    pub written: f64,
    /// Bytes that each writer got rid of in the counted part.
    pub shares: Vec<u64>,
}

/// Where a run begins, where its counted part begins and where it ends, in seconds of one clock.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The first writer starts.
    pub start: f64,
    /// From here on it is counted.
    pub counted: f64,
    /// The writers are killed.
    pub end: f64,
}

/// The value below which a part of the sorted figures lies.
pub fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let index = (sorted.len() as f64 * part) as usize;
    sorted
        .get(index.min(sorted.len().saturating_sub(1)))
        .copied()
}

/// The same of figures in any order.
pub fn quantile_of(figures: &[f64], part: f64) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile(&sorted, part)
}

fn mean(figures: &[f64]) -> Option<f64> {
    let sum: f64 = figures.iter().sum();
    (!figures.is_empty()).then(|| sum / figures.len() as f64)
}

/// Seconds after which averages of a tenth of a second stay within a tenth of `aim` to the end;
/// `None` if they never do.
fn settled(samples: &[f64], aim: f64) -> Option<f64> {
    let near = |window: &[f64]| mean(window).is_some_and(|mean| (mean / aim - 1.0).abs() <= 0.1);
    let windows: Vec<bool> = samples.chunks(10).map(near).collect();
    let last = windows.iter().rposition(|near| !near);
    let first = last.map_or(0, |last| last + 1);
    (first < windows.len()).then(|| round(first as f64 / 10.0, 1))
}

impl Figures {
    /// What the events of a run say; bytes that were written are set by the caller. `device` is the
    /// one whose writers count, `None` for all.
    pub fn of_events(events: &[Event], span: Span, device: Option<&str>) -> Self {
        let limits = events.iter().rev().find_map(Event::limits);
        let Limits { limit, setpoint } = limits.unwrap_or(Limits {
            limit: f64::NAN,
            setpoint: f64::NAN,
        });
        let is_counted = |event: &&Event| (span.counted..span.end).contains(&event.at);
        let pause = |event: &Event| event.pause(device);
        let samples = ((span.end - span.start) / SAMPLE).max(0.0) as usize;
        let mut states = events
            .iter()
            .filter_map(|event| Some((event.at, event.dirty()?)))
            .peekable();
        let mut now = 0.0;
        let dirty = (0..samples).map(|sample| {
            let end = span.start + SAMPLE * sample as f64;
            while let Some((_, dirty)) = states.next_if(|(at, _)| *at <= end) {
                now = dirty * PAGE;
            }
            now
        });
        Self {
            pauses: events.iter().filter(is_counted).filter_map(pause).collect(),
            dirty: dirty.collect(),
            skipped: ((span.counted - span.start) / SAMPLE).max(0.0) as usize,
            limit: limit * PAGE,
            setpoint: setpoint * PAGE,
            seconds: span.end - span.counted,
            ..Self::default()
        }
    }

    /// For the record. Rates are by the second, sizes in bytes, pauses in milliseconds; `settled_s`
    /// is null if what is dirty never stays near the setpoint.
    pub fn json(&self) -> Value {
        let mut pauses = self.pauses.clone();
        pauses.sort_by(f64::total_cmp);
        let counted = self.dirty.get(self.skipped..).unwrap_or_default();
        let most = self.dirty.iter().copied().fold(0.0, f64::max);
        let rate = |count: f64| count / self.seconds;
        let of_limit = |bytes: f64| round(bytes / self.limit, 4);
        json!({
            "throughput": round(rate(self.written) / 1e6, 2),
            "jain": round(jain(&self.shares), 4),
            "wakes": round(rate(pauses.len() as f64), 1),
            "pause_mean_ms": mean(&pauses).map(|ms| round(ms, 2)),
            "pause_p50_ms": quantile(&pauses, 0.5),
            "pause_p95_ms": quantile(&pauses, 0.95),
            "pause_max_ms": pauses.last(),
            "paused_part": round(rate(pauses.iter().sum::<f64>() / 1e3)
                / self.shares.len().max(1) as f64, 4),
            "pauses": histogram(&pauses),
            "limit": self.limit,
            "setpoint": self.setpoint,
            "dirty_of_limit": mean(counted).map(of_limit),
            "dirty_max": most,
            "dirty_max_of_limit": of_limit(most),
            "settled_s": settled(&self.dirty, self.setpoint),
            "series": self.series(),
        })
    }

    /// Seconds from the start and bytes dirty, at most [`POINTS`] of them.
    fn series(&self) -> Vec<(f64, f64)> {
        let step = self.dirty.len().div_ceil(POINTS).max(1);
        let point = |(index, dirty): (usize, &f64)| (round(index as f64 * SAMPLE, 2), *dirty);
        self.dirty
            .iter()
            .enumerate()
            .step_by(step)
            .map(point)
            .collect()
    }
}

/// Whole milliseconds, and how many pauses were so long; of sorted pauses.
fn histogram(sorted: &[f64]) -> Vec<(u64, usize)> {
    let same = |one: &f64, other: &f64| one.floor() == other.floor();
    let bar = |pauses: &[f64]| (pauses[0] as u64, pauses.len());
    sorted.chunk_by(same).map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::super::events::our_events;
    use super::*;

    #[test]
    fn a_trace_becomes_figures() {
        let text = "1.0 global_dirty_state: nr_dirty=50 nr_writeback=0\n\
                    1.5 balance_dirty_pages: bdi=0 limit=100 setpoint=80 dirty=120 pause=9\n\
                    2.5 balance_dirty_pages: bdi=0 limit=100 setpoint=80 dirty=80 pause=4\n\
                    2.6 balance_dirty_pages: bdi=0 limit=100 setpoint=80 dirty=80 pause=7\n\
                    3.5 balance_dirty_pages: bdi=0 limit=100 setpoint=80 dirty=80 pause=99\n";
        let span = Span {
            start: 1.0,
            counted: 2.0,
            end: 3.0,
        };
        let mut figures = Figures::of_events(&our_events(text), span, None);
        figures.written = 2e6;
        figures.shares = vec![1, 1, 0];
        let json = figures.json();
        assert_eq!(json["wakes"], 2.0);
        assert_eq!(json["pause_max_ms"], 7.0);
        assert_eq!(json["pauses"], json!([[4, 1], [7, 1]]));
        assert_eq!(json["throughput"], 2.0);
        assert_eq!(json["dirty_max_of_limit"], 1.2);
        assert_eq!(json["dirty_of_limit"], 1.0);
        assert_eq!(json["settled_s"], 1.5);
        assert_eq!(json["jain"], 0.6667);
        assert_eq!(figures.dirty.len(), 200);
    }

    #[test]
    fn what_never_settles_has_no_time() {
        assert_eq!(settled(&[1.0; 40], 1.0), Some(0.0));
        assert_eq!(settled(&[2.0; 40], 1.0), None);
        assert_eq!(settled(&[], 1.0), None);
    }
}
