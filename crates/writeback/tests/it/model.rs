//! Random calls against a small cache, compared with a plain vector of bytes.

use std::sync::Arc;

use proptest::prelude::*;
use uext4_blockdev::VirtualClock;
use uext4_writeback::PageCache;

use crate::mapping::{BLOCK, Injected, TestFile, pattern};

#[derive(Clone, Debug)]
enum Op {
    Read(u64, usize),
    /// Past the cache, with so many bytes of room beyond what is wanted.
    ReadUncached(u64, usize, usize),
    /// The same of whole blocks, while something else is done.
    ReadWith(u64, u64, Box<Op>),
    Write(u64, usize, u64),
    Append(usize, u64),
    Truncate(u64),
    Punch(u64, u64),
    Flush(u64, u64),
    Scan(u64),
    Expire,
}

const SPAN: u64 = 160 << 10;

fn op() -> impl Strategy<Value = Op> {
    let blocks = (0..SPAN / BLOCK, 1..40u64);
    prop_oneof![
        12 => plain(),
        1 => (blocks, plain()).prop_map(|((at, blocks), op)| {
            Op::ReadWith(at * BLOCK, blocks * BLOCK, Box::new(op))
        }),
    ]
}

fn plain() -> impl Strategy<Value = Op> {
    let len = prop_oneof![4 => 0..3000usize, 2 => Just(4096usize), 1 => 0..60_000usize];
    let offset = prop_oneof![0..SPAN, (0..SPAN / BLOCK).prop_map(|b| b * BLOCK)];
    prop_oneof![
        3 => (offset.clone(), len.clone()).prop_map(|(o, l)| Op::Read(o, l)),
        3 => (offset.clone(), len.clone(), prop_oneof![Just(0), 0..5000usize])
            .prop_map(|(o, l, r)| Op::ReadUncached(o, l, r)),
        6 => (offset.clone(), len.clone(), any::<u16>())
            .prop_map(|(o, l, s)| Op::Write(o, l, s.into())),
        3 => (len.clone(), any::<u16>()).prop_map(|(l, s)| Op::Append(l, s.into())),
        2 => offset.clone().prop_map(Op::Truncate),
        2 => (offset.clone(), len.clone()).prop_map(|(o, l)| Op::Punch(o, l as u64)),
        2 => (offset, len).prop_map(|(o, l)| Op::Flush(o, l as u64)),
        2 => (0..200_000u64).prop_map(Op::Scan),
        1 => Just(Op::Expire),
    ]
}

struct Model {
    file: Arc<TestFile>,
    bytes: Vec<u8>,
}

impl Model {
    fn write(&mut self, offset: u64, len: usize, seed: u64) {
        let data = pattern(len, seed);
        assert_eq!(self.file.write(offset, &data).unwrap(), len);
        let end = offset as usize + len;
        if len > 0 {
            self.bytes.resize(self.bytes.len().max(end), 0);
            self.bytes[offset as usize..end].copy_from_slice(&data);
        }
    }

    fn check(&self, offset: u64, len: usize) {
        let got = self.file.read(offset, len).unwrap();
        assert!(got == part(&self.bytes, offset, len), "{offset} + {len}");
    }

    fn punch(&mut self, offset: u64, len: u64) {
        self.file.punch(offset..offset + len).unwrap();
        let start = (offset as usize).min(self.bytes.len());
        let end = ((offset + len) as usize).min(self.bytes.len());
        self.bytes[start..end].fill(0);
    }
}

/// What there is of a range.
fn part(bytes: &[u8], offset: u64, len: usize) -> &[u8] {
    let start = (offset as usize).min(bytes.len());
    &bytes[start..(start + len).min(bytes.len())]
}

/// A cache on its clock, and a file of it.
struct Run {
    cache: PageCache<Injected>,
    clock: Arc<VirtualClock>,
    model: Model,
}

impl Run {
    fn step(&mut self, op: Op) {
        let model = &mut self.model;
        match op {
            Op::Read(offset, len) => model.check(offset, len),
            Op::ReadUncached(offset, len, room) => {
                let got = model.file.read_uncached(offset, len, room).unwrap();
                assert!(
                    got == part(&model.bytes, offset, len),
                    "{offset} + {len} past the cache"
                );
            }
            Op::ReadWith(offset, len, op) => self.next_to(offset, len as usize, *op),
            Op::Write(offset, len, seed) => model.write(offset, len, seed),
            Op::Append(len, seed) => model.write(model.bytes.len() as u64, len, seed),
            Op::Truncate(size) => {
                model.file.truncate(size);
                model.bytes.resize(size as usize, 0);
            }
            Op::Punch(offset, len) => model.punch(offset, len),
            Op::Flush(offset, len) => {
                let range = offset..offset + len;
                model.file.pages.flush(range.clone()).unwrap();
                let next = model.file.pages.next_dirty(offset);
                assert!(len == 0 || next.is_none_or(|next| next.start >= range.end));
            }
            Op::Scan(bytes) => {
                self.cache.scan(bytes);
            }
            Op::Expire => {
                self.clock.advance(std::time::Duration::from_secs(31));
                self.cache.flush_expired();
                assert_eq!(self.cache.dirty_bytes(), 0);
            }
        }
    }

    /// What came from the cache before the device was asked is what it was then; all else is as
    /// it is after, zero if it is no more.
    fn next_to(&mut self, offset: u64, len: usize, op: Op) {
        let file = Arc::clone(&self.model.file);
        let mut expected = part(&self.model.bytes, offset, len).to_vec();
        let mut asked = None;
        let got = file.read_uncached_with(offset, len, |at| {
            asked = at;
            self.step(op);
        });
        if let Some(at) = asked {
            let new = &mut expected[(at - offset) as usize..];
            let after = part(&self.model.bytes, at, new.len());
            new.fill(0);
            new[..after.len()].copy_from_slice(after);
        }
        assert!(got.unwrap() == expected, "{offset} + {len}");
    }
}

fn run(memory: u64, start: usize, ops: Vec<Op>) {
    let (cache, clock) = crate::mapping::cache(memory);
    let bytes = pattern(start, 7);
    let model = Model {
        file: Arc::new(TestFile::new(&cache, bytes.clone())),
        bytes,
    };
    let mut run = Run {
        cache,
        clock,
        model,
    };
    for op in ops {
        run.step(op);
        let (model, cache) = (&run.model, &run.cache);
        assert_eq!(model.file.pages.dirty_bytes(), cache.dirty_bytes());
        assert!(
            cache.resident() <= memory + memory / 10,
            "{}",
            cache.resident()
        );
        assert_eq!(sum_of_dirty(&model.file), cache.dirty_bytes());
        let pages = cache.limits().domain().nr_dirty();
        assert_eq!(pages, cache.dirty_bytes().div_ceil(4096));
    }
    let Run { cache, model, .. } = run;
    model.check(0, usize::try_from(SPAN * 2).unwrap());
    cache.sync_all().unwrap();
    assert!(!model.file.pages.is_dirty());
    assert!(model.file.disk.content() == model.bytes);
    drop(model);
    let stats = cache.stats();
    assert_eq!(
        (stats.nr_file_pages, stats.nr_dirty, stats.nr_writeback),
        (0, 0, 0)
    );
    assert_eq!(stats.nr_lost, 0);
}

fn sum_of_dirty(file: &TestFile) -> u64 {
    let (mut at, mut sum) = (0, 0);
    while let Some(range) = file.pages.next_dirty(at) {
        sum += range.end - range.start;
        at = range.end;
    }
    sum
}

proptest! {
    #[test]
    fn answers_like_a_vector(
        small in any::<bool>(),
        start in prop_oneof![Just(0usize), 0..100_000usize],
        ops in prop::collection::vec(op(), 1..80),
    ) {
        run(if small { 64 << 10 } else { 4 << 20 }, start, ops);
    }
}
