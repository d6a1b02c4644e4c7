//! How much to read when a block is missing.
//!
//! Decided only when something is missing, never when it is there, so that hits cost nothing. A
//! miss exactly where the last window of a stream ended belongs to that stream, and its window
//! doubles; a miss at the start of the file, or behind blocks that are all there, starts one;
//! any other reads what was asked for. Four streams are remembered a file, so that several readers
//! of one file do not spoil each other's windows.
//!
//! Windows are read by any thread that misses: there is no read that no thread waits for.

const STREAMS: usize = 4;

/// Where a reader is expected next, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    next: u64,
    window: u64,
}

/// The streams of one file, the last used first.
#[derive(Debug)]
pub(crate) struct Readahead {
    /// Bytes a window has at most: 1 MiB, less where memory is small.
    window_max: u64,
    streams: [Stream; STREAMS],
}

impl Readahead {
    pub(crate) fn new(window_max: u64) -> Self {
        Self {
            window_max,
            streams: Default::default(),
        }
    }

    /// Bytes to read from `start` where `want` are wanted; both are whole blocks. `behind` says
    /// whether the blocks before are in the cache.
    pub(crate) fn window(&mut self, start: u64, want: u64, behind: bool) -> u64 {
        let known = self
            .streams
            .iter()
            .position(|stream| stream.window > 0 && stream.next == start);
        let window = match known {
            Some(index) => Some(self.streams[index].window.saturating_mul(2)),
            None if start == 0 || behind => Some(self.initial(want)),
            None => None,
        };
        // Windows end where large folios do, so that the next one begins there.
        let window = window.map(|window| window.max(want).next_power_of_two());
        let window = window.unwrap_or(want).min(self.window_max);
        let aligned = (start + window) & !(window - 1);
        let len = match aligned.checked_sub(start) {
            Some(len) if len >= want && window.is_power_of_two() => len,
            _ => want.min(self.window_max),
        };
        self.streams[..=known.unwrap_or(STREAMS - 1)].rotate_right(1);
        self.streams[0].window = window;
        len
    }

    /// Notes where the window that was asked for last really ended.
    pub(crate) fn ended(&mut self, end: u64) {
        self.streams[0].next = end;
    }

    /// The first window of a stream whose first read wants `want` bytes.
    fn initial(&self, want: u64) -> u64 {
        let want = want.checked_next_power_of_two().unwrap_or(want);
        if want <= self.window_max / 32 {
            want * 4
        } else if want <= self.window_max / 4 {
            want * 2
        } else {
            self.window_max.max(want)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows of reads of 4 KiB that follow each other.
    #[test]
    fn doubles_while_sequential() {
        let mut readahead = Readahead::new(1 << 20);
        let mut at = 0;
        let mut windows = Vec::new();
        for _ in 0..8 {
            let window = readahead.window(at, 4096, at > 0);
            windows.push(window >> 10);
            at += window;
            readahead.ended(at);
        }
        assert_eq!(windows, [16, 16, 32, 64, 128, 256, 512, 1024]);
    }

    #[test]
    fn random_reads_get_what_they_want() {
        let mut readahead = Readahead::new(1 << 20);
        for at in [9u64 << 20, 5 << 20, 70 << 20, 1 << 20] {
            assert_eq!(readahead.window(at, 8192, false), 8192);
            readahead.ended(at + 8192);
        }
        assert_eq!(readahead.window(0, 8 << 20, false), 1 << 20);
    }

    #[test]
    fn keeps_streams_apart() {
        let mut readahead = Readahead::new(1 << 20);
        let mut at = [0u64, 100 << 20, 200 << 20];
        for round in 0..4 {
            for at in &mut at {
                let window = readahead.window(*at, 65536, false);
                assert!(round == 0 || window >= 65536 << (round - 1));
                *at += window;
                readahead.ended(*at);
            }
        }
    }
}
