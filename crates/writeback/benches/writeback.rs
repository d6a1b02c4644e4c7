//! How fast bytes go through the cache, in addition to a plain copy of memory: 1 MiB at a time
//! round and round a window of 64 MiB, and 4 KiB at random places in it.

use std::hint::black_box;
use std::sync::{Arc, Weak};
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use uext4_blockdev::SystemClock;
use uext4_ondisk::BlockSize;
use uext4_writeback::{FilePages, Mapping, Options, PageCache};

const WINDOW: usize = 64 << 20;
const LARGE: usize = 1 << 20;
const SMALL: usize = 4096;

#[derive(Debug, thiserror::Error)]
#[error("never")]
struct Never;

/// A device in memory of the window's size.
struct Memory(std::sync::Mutex<Vec<u8>>);

impl Mapping for Memory {
    type Error = Never;

    fn read_blocks(&self, offset: u64, buf: &mut [u8]) -> Result<(), Never> {
        let at = offset as usize % WINDOW;
        buf.copy_from_slice(&self.0.lock().unwrap()[at..at + buf.len()]);
        Ok(())
    }

    fn write_run(&self, offset: u64, run: &[&[u8]]) -> Result<(), Never> {
        let mut at = offset as usize;
        let mut bytes = self.0.lock().unwrap();
        for slice in run {
            bytes[at % WINDOW..][..slice.len()].copy_from_slice(slice);
            at += slice.len();
        }
        Ok(())
    }
}

struct Bench {
    _device: Arc<Memory>,
    _cache: PageCache<Never>,
    pages: FilePages<Never>,
    buf: Vec<u8>,
    at: u64,
}

impl Bench {
    /// A cache of this much memory in which all may be dirty.
    fn new(memory: u64, flushers: usize) -> Self {
        let mut options = Options::with_memory(BlockSize::from_bytes(4096).unwrap(), memory);
        options.tunables.dirty_ratio = 50;
        let cache = PageCache::new(options, Arc::new(SystemClock)).unwrap();
        cache.start_flushers(flushers).unwrap();
        let device = Arc::new(Memory(vec![1; WINDOW].into()));
        let weak: Weak<Memory> = Arc::downgrade(&device);
        Self {
            pages: cache.file(weak),
            _device: device,
            _cache: cache,
            buf: vec![7; LARGE],
            at: 0,
        }
    }

    /// Writes round and round the window; what is there is overwritten.
    fn write(&mut self, len: usize) {
        let at = self.at % WINDOW as u64;
        self.pages
            .write(at, &self.buf[..len], WINDOW as u64)
            .unwrap();
        self.at += len as u64;
    }

    /// Writes on and on, so that each byte needs a new place.
    fn append(&mut self, len: usize) {
        self.pages
            .write(self.at, &self.buf[..len], self.at)
            .unwrap();
        self.at += len as u64;
    }

    fn read(&mut self, at: u64, len: usize) {
        let got = self.pages.read(at, &mut self.buf[..len], u64::MAX).unwrap();
        black_box(got);
    }

    fn random(&mut self) -> u64 {
        self.at = self
            .at
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.at >> 33) % (WINDOW / SMALL) as u64 * SMALL as u64
    }
}

fn sequential(c: &mut Criterion) {
    let mut group = c.benchmark_group("sequential");
    for len in [LARGE, SMALL] {
        group.throughput(Throughput::Bytes(len as u64));
        let name = |name| BenchmarkId::new(name, len >> 10);
        let (from, mut to, mut at) = (vec![7u8; LARGE], vec![1u8; WINDOW], 0);
        group.bench_function(name("memcpy_to_window"), |b| {
            b.iter(|| {
                to[at..at + len].copy_from_slice(black_box(&from[..len]));
                at = (at + len) % WINDOW;
            });
        });
        let mut buf = vec![0u8; LARGE];
        group.bench_function(name("memcpy_from_window"), |b| {
            b.iter(|| {
                buf[..len].copy_from_slice(black_box(&to[at..at + len]));
                at = (at + len) % WINDOW;
            });
        });
        let mut bench = Bench::new(256 << 20, 0);
        group.bench_function(name("overwrite"), |b| b.iter(|| bench.write(len)));
        let mut bench = Bench::new(256 << 20, 0);
        group.bench_function(name("read_hit"), |b| {
            b.iter(|| {
                bench.at += len as u64;
                bench.read(bench.at % WINDOW as u64, len);
            });
        });
        // Every byte is also copied to the device, on this thread.
        let mut bench = Bench::new(64 << 20, 0);
        group.bench_function(name("append_and_flush"), |b| b.iter(|| bench.append(len)));
        // Every byte is also copied from the device.
        let mut bench = Bench::new(64 << 20, 0);
        group.bench_function(name("read_miss"), |b| {
            b.iter(|| {
                bench.at += len as u64;
                bench.read(bench.at, len);
            });
        });
    }
    group.finish();
}

fn random(c: &mut Criterion) {
    let mut group = c.benchmark_group("random_4k");
    group.throughput(Throughput::Bytes(SMALL as u64));
    let mut bench = Bench::new(256 << 20, 0);
    let mut window = vec![1u8; WINDOW];
    group.bench_function("memcpy_to_window", |b| {
        b.iter(|| {
            let at = bench.random() as usize;
            window[at..at + SMALL].copy_from_slice(black_box(&bench.buf[..SMALL]));
        });
    });
    group.bench_function("memcpy_from_window", |b| {
        b.iter(|| {
            let at = bench.random() as usize;
            bench.buf[..SMALL].copy_from_slice(black_box(&window[at..at + SMALL]));
        });
    });
    group.bench_function("read_hit", |b| {
        b.iter(|| {
            let at = bench.random();
            bench.read(at, SMALL);
        });
    });
    let mut bench = Bench::new(256 << 20, 0);
    group.bench_function("write", |b| {
        b.iter(|| {
            let at = bench.random();
            bench
                .pages
                .write(at, &bench.buf[..SMALL], WINDOW as u64)
                .unwrap();
        });
    });
    let mut bench = Bench::new(8 << 20, 0);
    group.bench_function("write_and_flush", |b| {
        b.iter(|| {
            let at = bench.random();
            bench
                .pages
                .write(at, &bench.buf[..SMALL], WINDOW as u64)
                .unwrap();
        });
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = sequential, random
}
criterion_main!(benches);
