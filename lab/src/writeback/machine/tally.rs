//! What is counted.

use serde_json::{Value, json};

use super::{MILLI, Nanos, SECOND};

/// Milliseconds that pauses are counted by; longer ones with the last.
const PAUSE_SLOTS: usize = 1024;

/// Counters since the last mark, but for those of writers.
#[derive(Debug)]
pub struct Tally {
    since: Nanos,
    pub writer_time: Nanos,
    pub flusher_time: Nanos,
    pub switches: u64,
    pub handovers: u64,
    /// Pauses of writers that ended.
    pub wakes: u64,
    dirtied: Vec<u64>,
    pauses: Vec<u64>,
    max_pause: Nanos,
    samples: Vec<u64>,
    dirty_max: u64,
}

/// Figures of a stretch of time, a second where they are rates.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Megabytes a second written.
    pub throughput: f64,
    pub requests: f64,
    pub request_bytes: f64,
    pub seeks: f64,
    pub wakes: f64,
    pub switches: f64,
    pub switches_per_page: f64,
    pub pause_p50_ms: u64,
    pub pause_p95_ms: u64,
    pub pause_max_ms: f64,
    pub dirty_min: u64,
    pub dirty_p50: u64,
    pub dirty_max: u64,
    pub jain: f64,
    pub writer_cpu: f64,
    pub flusher_cpu: f64,
    pub handovers: f64,
    /// Part of the time that the busiest device was busy.
    pub busy: f64,
}

fn quantile(slots: &[u64], part: f64) -> u64 {
    let all: u64 = slots.iter().sum();
    let mut left = (all as f64 * part) as u64;
    for (index, count) in slots.iter().enumerate() {
        if *count > left {
            return index as u64;
        }
        left -= count;
    }
    0
}

/// Jain's index of fairness: 1 where all have the same, 1/n where one has all.
pub fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|&s| s as f64).sum();
    let squares: f64 = shares.iter().map(|&s| s as f64 * s as f64).sum();
    if squares == 0.0 {
        return 1.0;
    }
    sum * sum / (squares * shares.len() as f64)
}

impl Tally {
    pub fn new(writers: usize) -> Self {
        Self {
            since: 0,
            writer_time: 0,
            flusher_time: 0,
            switches: 0,
            handovers: 0,
            wakes: 0,
            dirtied: vec![0; writers],
            pauses: vec![0; PAUSE_SLOTS],
            max_pause: 0,
            samples: Vec::new(),
            dirty_max: 0,
        }
    }

    pub fn mark(&mut self, now: Nanos) {
        *self = Self {
            since: now,
            ..Self::new(self.dirtied.len())
        };
    }

    pub fn sample(&mut self, unwritten: u64) {
        self.samples.push(unwritten);
    }

    pub fn dirtied(&mut self, writer: usize, pages: u64, unwritten: u64) {
        self.dirtied[writer] += pages;
        self.dirty_max = self.dirty_max.max(unwritten);
    }

    pub fn pause(&mut self, time: Nanos) {
        let slot = (time / MILLI) as usize;
        self.pauses[slot.min(PAUSE_SLOTS - 1)] += 1;
        self.max_pause = self.max_pause.max(time);
    }

    /// Pages by writer.
    pub fn shares(&self) -> &[u64] {
        &self.dirtied
    }

    /// Pauses by whole milliseconds; the longest are counted with the last.
    pub fn pauses(&self) -> &[u64] {
        &self.pauses
    }

    /// Unwritten pages every 10 ms.
    pub fn samples(&self) -> &[u64] {
        &self.samples
    }

    pub fn summary(&self, now: Nanos, device: (u64, u64, u64, Nanos)) -> Summary {
        let seconds = (now - self.since).max(1) as f64 / SECOND as f64;
        let (requests, seeks, bytes, busy) = device;
        let rate = |count: u64| count as f64 / seconds;
        let mut samples = self.samples.clone();
        samples.sort_unstable();
        Summary {
            throughput: rate(bytes) / 1e6,
            requests: rate(requests),
            request_bytes: bytes as f64 / requests.max(1) as f64,
            seeks: rate(seeks),
            wakes: rate(self.wakes),
            switches: rate(self.switches),
            switches_per_page: self.switches as f64 * 4096.0 / bytes.max(1) as f64,
            pause_p50_ms: quantile(&self.pauses, 0.5),
            pause_p95_ms: quantile(&self.pauses, 0.95),
            pause_max_ms: self.max_pause as f64 / MILLI as f64,
            dirty_min: samples.first().copied().unwrap_or(0),
            dirty_p50: samples.get(samples.len() / 2).copied().unwrap_or(0),
            dirty_max: self.dirty_max,
            jain: jain(&self.dirtied),
            writer_cpu: rate(self.writer_time) / 1e9,
            flusher_cpu: rate(self.flusher_time) / 1e9,
            handovers: rate(self.handovers),
            busy: rate(busy) / 1e9,
        }
    }
}

/// Rounded to so many digits after the point, so that a record is short and the same everywhere.
pub fn round(figure: f64, digits: i32) -> f64 {
    let unit = 10f64.powi(digits);
    (figure * unit).round() / unit
}

impl Summary {
    /// For the record.
    pub fn json(&self) -> Value {
        json!({
            "throughput": round(self.throughput, 2),
            "requests": round(self.requests, 1),
            "request_bytes": round(self.request_bytes, 0),
            "seeks": round(self.seeks, 1),
            "wakes": round(self.wakes, 1),
            "switches": round(self.switches, 1),
            "switches_per_page": round(self.switches_per_page, 4),
            "pause_p50_ms": self.pause_p50_ms,
            "pause_p95_ms": self.pause_p95_ms,
            "pause_max_ms": round(self.pause_max_ms, 2),
            "dirty_min": self.dirty_min,
            "dirty_p50": self.dirty_p50,
            "dirty_max": self.dirty_max,
            "jain": round(self.jain, 4),
            "writer_cpu": round(self.writer_cpu, 5),
            "flusher_cpu": round(self.flusher_cpu, 5),
            "cpu": round(self.writer_cpu + self.flusher_cpu, 5),
            "handovers": round(self.handovers, 1),
            "busy": round(self.busy, 4),
        })
    }
}
