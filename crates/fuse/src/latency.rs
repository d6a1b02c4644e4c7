//! How long requests take, by kind: counted where they are answered, without a lock.
//!
//! A time falls into one of 4 steps between a power of two and the next, so a percentile is
//! reported 25 % too high at most. Cost: two looks at the clock and three additions, to memory
//! that few other threads write: threads of the process share `SHARDS` parts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::abi::opcode;
use crate::errno::{Errno, Result};

/// Kinds that are counted by number; the highest of the protocol is below.
const KINDS: usize = 64;
/// Powers of two up to 2^40 ns, 18 minutes, in 4 steps each; what takes longer is counted with
/// these.
const BUCKETS: usize = 41 * 4;
/// Numbers of errors that are counted each by itself, and one for all others.
const ERRNOS: usize = Errno::ALL.len() + 1;
/// Parts that threads count in.
const SHARDS: usize = 8;

/// What some threads count of one kind.
#[derive(Debug)]
#[repr(align(128))]
struct Kind {
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
    errnos: [AtomicU64; ERRNOS],
}

/// What is counted of all requests.
#[derive(Debug)]
pub struct Latencies {
    shards: Vec<[Kind; KINDS]>,
    pauses: AtomicU64,
    paused_nanos: AtomicU64,
}

/// One kind of request, as it was until now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// Its name.
    pub name: &'static str,
    /// Requests answered.
    pub count: u64,
    /// What they took together.
    pub total: Duration,
    /// What half of them took at most, nine of ten, 99 of 100, all.
    pub percentiles: [Duration; 4],
}

/// Requests of one kind that were answered with the same errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errors {
    /// The kind of request.
    pub op: &'static str,
    /// The name of the errno.
    pub errno: &'static str,
    /// How many.
    pub count: u64,
    /// Whether they failed ([`Errno::is_failure`]).
    pub is_failure: bool,
}

/// Writers that had to wait for the dirty limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    /// How often one was asked to wait.
    pub count: u64,
    /// How long, together.
    pub total: Duration,
}

/// The shares of requests that [`Latency::percentiles`] reports.
pub const SHARES: [f64; 4] = [0.5, 0.9, 0.99, 1.0];

const NAMES: [(u32, &str); 36] = [
    (opcode::LOOKUP, "lookup"),
    (opcode::GETATTR, "getattr"),
    (opcode::SETATTR, "setattr"),
    (opcode::READLINK, "readlink"),
    (opcode::SYMLINK, "symlink"),
    (opcode::MKNOD, "mknod"),
    (opcode::MKDIR, "mkdir"),
    (opcode::UNLINK, "unlink"),
    (opcode::RMDIR, "rmdir"),
    (opcode::RENAME, "rename"),
    (opcode::RENAME2, "rename2"),
    (opcode::LINK, "link"),
    (opcode::OPEN, "open"),
    (opcode::READ, "read"),
    (opcode::WRITE, "write"),
    (opcode::STATFS, "statfs"),
    (opcode::RELEASE, "release"),
    (opcode::FSYNC, "fsync"),
    (opcode::SETXATTR, "setxattr"),
    (opcode::GETXATTR, "getxattr"),
    (opcode::LISTXATTR, "listxattr"),
    (opcode::REMOVEXATTR, "removexattr"),
    (opcode::READDIR, "readdir"),
    (opcode::READDIRPLUS, "readdirplus"),
    (opcode::FSYNCDIR, "fsyncdir"),
    (opcode::CREATE, "create"),
    (opcode::BMAP, "bmap"),
    (opcode::IOCTL, "ioctl"),
    (opcode::FALLOCATE, "fallocate"),
    (opcode::LSEEK, "lseek"),
    (opcode::COPY_FILE_RANGE, "copy_file_range"),
    (opcode::COPY_FILE_RANGE_64, "copy_file_range_64"),
    (opcode::SYNCFS, "syncfs"),
    (opcode::TMPFILE, "tmpfile"),
    (opcode::STATX, "statx"),
    (opcode::FORGET, "forget"),
];

impl Default for Latencies {
    fn default() -> Self {
        let kind = |_| Kind {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            nanos: AtomicU64::new(0),
            errnos: [const { AtomicU64::new(0) }; ERRNOS],
        };
        let shards = (0..SHARDS).map(|_| std::array::from_fn(kind));
        Self {
            shards: shards.collect(),
            pauses: AtomicU64::new(0),
            paused_nanos: AtomicU64::new(0),
        }
    }
}

/// The bucket of a time: its power of two, and the two bits behind the first.
fn bucket_of(nanos: u64) -> usize {
    let power = nanos.max(1).ilog2();
    let step = match power {
        0 | 1 => 0,
        _ => nanos >> (power - 2) & 3,
    };
    // OK to truncate: a power has six bits, a step two.
    (power as usize * 4 + step as usize).min(BUCKETS - 1)
}

/// The end of a bucket.
fn end_of(bucket: usize) -> Duration {
    let (power, step) = (bucket / 4, bucket as u64 % 4);
    let start = 1u64 << power;
    Duration::from_nanos(start + (start * (step + 1)).div_ceil(4))
}

impl Latencies {
    /// A request of a kind that began then has been answered so.
    pub fn record(&self, kind: u32, began: Instant, answer: &Result<()>) {
        // OK to truncate: it would take centuries.
        let nanos = began.elapsed().as_nanos() as u64;
        // OK to index: a part is one of them.
        let Some(kind) = self.shards[uext4_support::slot() % SHARDS].get(kind as usize) else {
            return;
        };
        kind.buckets[bucket_of(nanos)].fetch_add(1, Relaxed);
        kind.nanos.fetch_add(nanos, Relaxed);
        if let Err(errno) = answer {
            let known = Errno::ALL.iter().position(|(one, _)| one == errno);
            kind.errnos[known.unwrap_or(ERRNOS - 1)].fetch_add(1, Relaxed);
        }
    }

    /// A writer was asked to wait.
    pub fn paused(&self, pause: Duration) {
        self.pauses.fetch_add(1, Relaxed);
        // OK to truncate: pauses have limits.
        self.paused_nanos
            .fetch_add(pause.as_nanos() as u64, Relaxed);
    }

    /// All kinds of which there were any.
    pub fn all(&self) -> Vec<Latency> {
        let reported = NAMES.iter().filter_map(|(kind, name)| {
            let reported = self.reported(*kind as usize, name);
            (reported.count > 0).then_some(reported)
        });
        reported.collect()
    }

    /// What was answered with an errno, by kind and errno; only what there was.
    pub fn errors(&self) -> Vec<Errors> {
        let known = Errno::ALL
            .iter()
            .map(|(errno, name)| (*name, errno.is_failure()));
        // What has no name here is no answer to rely on.
        let errnos: Vec<_> = known.chain([("other", true)]).collect();
        let mut all = Vec::new();
        for (kind, op) in NAMES {
            for (at, &(errno, is_failure)) in errnos.iter().enumerate() {
                // OK to index: a kind is less than `KINDS`, and there are as many errnos.
                let of_part = |part: &[Kind; KINDS]| part[kind as usize].errnos[at].load(Relaxed);
                let count = self.shards.iter().map(of_part).sum();
                if count > 0 {
                    all.push(Errors {
                        op,
                        errno,
                        count,
                        is_failure,
                    });
                }
            }
        }
        all
    }

    /// One kind, which is less than [`KINDS`].
    fn reported(&self, kind: usize, name: &'static str) -> Latency {
        let sum = |of: &dyn Fn(&Kind) -> u64| -> u64 {
            // OK to index: there are as many of each part.
            self.shards.iter().map(|shard| of(&shard[kind])).sum()
        };
        let counts: [u64; BUCKETS] =
            std::array::from_fn(|bucket| sum(&|kind| kind.buckets[bucket].load(Relaxed)));
        Latency {
            name,
            count: counts.iter().sum(),
            total: Duration::from_nanos(sum(&|kind| kind.nanos.load(Relaxed))),
            percentiles: percentiles_of(&counts),
        }
    }

    /// How often, and how long, writers had to wait.
    pub fn pauses(&self) -> Pauses {
        Pauses {
            count: self.pauses.load(Relaxed),
            total: Duration::from_nanos(self.paused_nanos.load(Relaxed)),
        }
    }
}

fn percentiles_of(counts: &[u64; BUCKETS]) -> [Duration; SHARES.len()] {
    let count: u64 = counts.iter().sum();
    SHARES.map(|share| {
        // OK to truncate: no more than the count.
        let rank = ((count as f64 * share).ceil() as u64).max(1);
        let mut below = 0;
        let bucket = counts.iter().position(|in_bucket| {
            below += in_bucket;
            below >= rank
        });
        bucket.map_or(Duration::ZERO, end_of)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno::Errno;

    #[test]
    fn every_time_is_within_a_quarter_of_its_buckets_end() {
        for nanos in (0..36).flat_map(|power| {
            let start = 1u64 << power;
            [start, start + start / 3, start + start / 2, 2 * start - 1]
        }) {
            let end = end_of(bucket_of(nanos)).as_nanos() as f64;
            let is_near = end >= nanos as f64 && end <= nanos as f64 * 1.25 + 1.0;
            assert!(is_near, "{nanos} in a bucket that ends at {end}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!(bucket_of(0), bucket_of(1));
    }

    #[test]
    fn percentiles_agree_with_the_recorded_times() {
        let latencies = Latencies::default();
        let ago = |millis| Instant::now() - Duration::from_millis(millis);
        for number in 0..100 {
            let millis = if number < 95 { 10 } else { 1000 };
            latencies.record(opcode::READ, ago(millis), &Ok(()));
        }
        latencies.record(opcode::READ, ago(10), &Err(Errno::EIO));
        latencies.record(opcode::GETXATTR, ago(10), &Err(Errno::ENODATA));
        latencies.record(99, ago(1), &Ok(()));
        let all = latencies.all();
        assert_eq!(all.len(), 2);
        let read = all[0];
        assert_eq!((read.name, read.count), ("read", 101));
        let of = |op, errno, is_failure| Errors {
            op,
            errno,
            count: 1,
            is_failure,
        };
        let errors = [of("read", "EIO", true), of("getxattr", "ENODATA", false)];
        assert_eq!(latencies.errors(), errors);
        let [half, most, nearly_all, longest] = read.percentiles;
        for (time, millis) in [(half, 10), (most, 10), (nearly_all, 1000), (longest, 1000)] {
            let expected = Duration::from_millis(millis);
            assert!(time >= expected && time < expected * 3 / 2, "{read:?}");
        }
        assert!(read.total >= Duration::from_millis(5960));
        latencies.paused(Duration::from_millis(3));
        latencies.paused(Duration::from_millis(4));
        let total = Duration::from_millis(7);
        assert_eq!(latencies.pauses(), Pauses { count: 2, total });
    }

    #[test]
    fn what_many_threads_count_is_summed() {
        let latencies = Latencies::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * SHARDS {
                scope.spawn(|| latencies.record(opcode::READ, Instant::now(), &Err(Errno::EIO)));
            }
        });
        let reported = latencies.all();
        let many = 2 * SHARDS as u64;
        let errors = latencies.errors();
        assert_eq!((reported[0].count, errors[0].count), (many, many));
        let written = |shard: &[Kind; KINDS]| {
            let read = &shard[opcode::READ as usize];
            read.errnos.iter().any(|count| count.load(Relaxed) > 0)
        };
        assert!(
            latencies
                .shards
                .iter()
                .filter(|shard| written(shard))
                .count()
                > 1
        );
    }

    #[test]
    fn every_kind_has_its_name() {
        let mut kinds: Vec<_> = NAMES.iter().map(|(kind, _)| *kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!(kinds.len(), NAMES.len());
        assert!(kinds.iter().all(|kind| (*kind as usize) < KINDS));
    }
}
