//! The simulated device against a model that keeps every version of every sector.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use uext4_blockdev::{
    BlockDevice, Clock, Error, MemoryDevice, ReadRequest, VirtualClock, WriteRequest,
};
use uext4_testkit::{Fault, FaultKind, Op, Request, SimDevice, SimOptions, Timing};

const SECTOR: usize = 512;
/// Not whole sectors, so that the last one is short.
const LEN: usize = 40 * SECTOR + 100;

fn device(options: SimOptions) -> SimDevice {
    SimDevice::new(&MemoryDevice::new(LEN as u64), options)
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize, Vec<u8>),
    Discard(usize, usize),
    Flush,
    /// A flush, write or discard that fails.
    FailFlush,
    FailWrite(usize, Vec<u8>),
}

fn range() -> impl Strategy<Value = (usize, usize)> {
    (0..=LEN, 0..5 * SECTOR).prop_map(|(offset, len)| (offset, len.min(LEN - offset)))
}

fn step() -> impl Strategy<Value = Step> {
    let write = || (range(), 1_u8..).prop_map(|((offset, len), byte)| (offset, vec![byte; len]));
    prop_oneof![
        8 => write().prop_map(|(offset, bytes)| Step::Write(offset, bytes)),
        2 => range().prop_map(|(offset, len)| Step::Discard(offset, len)),
        2 => Just(Step::Flush),
        1 => Just(Step::FailFlush),
        1 => write().prop_map(|(offset, bytes)| Step::FailWrite(offset, bytes)),
    ]
}

/// What each sector may hold after a power cut.
struct Model {
    current: Vec<u8>,
    durable: Vec<u8>,
    /// All versions since it was last known to be safe.
    versions: Vec<BTreeSet<Vec<u8>>>,
    forsaken: Vec<bool>,
}

impl Model {
    fn new() -> Self {
        let sectors = LEN.div_ceil(SECTOR);
        Self {
            current: vec![0; LEN],
            durable: vec![0; LEN],
            versions: vec![BTreeSet::new(); sectors],
            forsaken: vec![false; sectors],
        }
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.current[offset..offset + bytes.len()].copy_from_slice(bytes);
        for (sector, contents) in self.current.chunks(SECTOR).enumerate() {
            let start = sector * SECTOR;
            if start < offset + bytes.len() && start + SECTOR > offset && !bytes.is_empty() {
                self.versions[sector].insert(contents.to_vec());
                self.forsaken[sector] = false;
            }
        }
    }

    fn flush(&mut self) {
        for (sector, contents) in self.current.chunks(SECTOR).enumerate() {
            if !self.forsaken[sector] {
                let start = sector * SECTOR;
                self.durable[start..start + contents.len()].copy_from_slice(contents);
                self.versions[sector].clear();
            }
        }
    }

    fn fail_flush(&mut self) {
        for (forsaken, versions) in self.forsaken.iter_mut().zip(&self.versions) {
            *forsaken |= !versions.is_empty();
        }
    }

    /// Takes over what a failed write left behind, sector by sector old or new.
    fn put_torn(&mut self, offset: usize, bytes: &[u8], found: &[u8]) {
        let mut new = self.current.clone();
        new[offset..offset + bytes.len()].copy_from_slice(bytes);
        for sector in 0..self.versions.len() {
            let range = sector * SECTOR..(sector * SECTOR + SECTOR).min(LEN);
            if found[range.clone()] == self.current[range.clone()] {
                continue;
            }
            assert_eq!(
                found[range.clone()],
                new[range.clone()],
                "a failed write is torn"
            );
            self.put(range.start, &found[range.clone()]);
        }
    }

    fn check_image(&self, image: &[u8]) {
        let sectors = image.chunks(SECTOR).zip(self.durable.chunks(SECTOR));
        for ((found, durable), versions) in sectors.zip(&self.versions) {
            assert!(found == durable || versions.contains(found));
        }
    }
}

fn run(device: &SimDevice, model: &mut Model, step: &Step) {
    match step {
        Step::Write(offset, bytes) => {
            device.write_at(*offset as u64, bytes).unwrap();
            model.put(*offset, bytes);
        }
        Step::Discard(offset, len) => {
            device.discard(*offset as u64, *len as u64).unwrap();
            model.put(*offset, &vec![0; *len]);
        }
        Step::Flush => {
            device.flush().unwrap();
            model.flush();
        }
        Step::FailFlush => {
            device.inject(Fault::new(Op::Flush));
            assert!(device.flush().is_err());
            model.fail_flush();
        }
        Step::FailWrite(offset, bytes) => {
            // Every byte changes, so that what is found reports which sectors were written.
            let old = &model.current[*offset..];
            let bytes: Vec<u8> = bytes.iter().zip(old).map(|(a, b)| a ^ b).collect();
            device.inject(Fault::new(Op::Write));
            assert!(device.write_at(*offset as u64, &bytes).is_err());
            model.put_torn(*offset, &bytes, &device.contents().to_bytes());
        }
    }
    device.clear_faults();
}

proptest! {
    #[test]
    fn flushed_sectors_survive_and_others_are_old_or_new(
        steps in prop::collection::vec(step(), 1..30),
        seed in any::<u64>(),
    ) {
        let options = SimOptions { seed, ..SimOptions::default() };
        let (first, second) = (device(options.clone()), device(options));
        let (mut model, mut again) = (Model::new(), Model::new());
        for step in &steps {
            run(&first, &mut model, step);
            run(&second, &mut again, step);
            prop_assert!(first.contents().to_bytes() == model.current);
            prop_assert!(first.durable().to_bytes() == model.durable);
            for seed in seed..seed.saturating_add(8) {
                let image = first.power_cut(seed).to_bytes();
                model.check_image(&image);
                prop_assert!(image == second.power_cut(seed).to_bytes(), "the seed decides");
            }
        }
    }

    #[test]
    fn after_a_cut_the_device_is_dead(
        steps in prop::collection::vec(step(), 1..15),
        cut in 0_u64..10,
    ) {
        let device = device(SimOptions::default());
        let mut model = Model::new();
        device.cut_at_write(cut);
        for step in &steps {
            if device.is_off() {
                break;
            }
            run(&device, &mut model, step);
        }
        prop_assert!(device.stats().changes() <= cut);
        if device.is_off() {
            prop_assert_eq!(device.stats().changes(), cut);
            let error = device.read_at(0, &mut [0]).unwrap_err().to_string();
            prop_assert_eq!(error, "read at byte 0: the power is off");
            prop_assert!(device.flush().is_err() && device.discard(0, 1).is_err());
            prop_assert!(device.write_at(0, &[1]).is_err());
            prop_assert_eq!(device.stats().changes(), cut);
        }
        model.check_image(&device.power_cut(cut).to_bytes());
    }
}

/// The first bytes of these sectors over many seeds.
fn outcomes<const N: usize>(device: &SimDevice, sectors: [usize; N]) -> BTreeSet<[u8; N]> {
    let image = |seed| device.power_cut(seed).to_bytes();
    (0..500)
        .map(image)
        .map(|image| sectors.map(|sector| image[sector * SECTOR]))
        .collect()
}

#[test]
fn every_subset_of_writes_is_among_the_cuts() {
    let device = device(SimOptions::default());
    for sector in 0..3 {
        device
            .write_at(sector * SECTOR as u64, &[1; SECTOR])
            .unwrap();
    }
    assert_eq!(
        outcomes(&device, [0, 1, 2]).len(),
        8,
        "reordered as one likes"
    );
    device.flush().unwrap();
    assert_eq!(outcomes(&device, [0, 1, 2]), [[1, 1, 1]].into());

    device.write_at(0, &[2; 4 * SECTOR]).unwrap();
    let torn = outcomes(&device, [0, 1, 2, 3]);
    assert_eq!(torn.len(), 16, "one write is torn at any sector");
    assert!(torn.contains(&[1, 1, 1, 0]) && torn.contains(&[2; 4]));

    device.write_at(0, &[3; 10]).unwrap();
    let versions = outcomes(&device, [0]);
    assert_eq!(
        versions,
        [[1], [2], [3]].into(),
        "any version since the flush"
    );
}

#[test]
fn without_a_cache_only_the_last_write_is_torn() {
    let device = device(SimOptions {
        volatile_cache: false,
        ..SimOptions::default()
    });
    device.cut_at_write(2);
    device.write_at(0, &[1; 2 * SECTOR]).unwrap();
    assert_eq!(outcomes(&device, [0, 1]), [[1, 1]].into());
    device.write_at(0, &[2; 2 * SECTOR]).unwrap();
    assert!(device.is_off());
    assert_eq!(
        outcomes(&device, [0, 1]),
        [[1, 1], [1, 2], [2, 1], [2, 2]].into()
    );
}

#[test]
fn a_huge_discard_costs_what_was_written() {
    let image = MemoryDevice::new(1 << 60);
    let device = SimDevice::new(&image, SimOptions::default());
    device.write_at(1 << 50, &[1; 2 * SECTOR]).unwrap();
    device.flush().unwrap();
    device.discard(0, 1 << 60).unwrap();
    assert_eq!(device.next_data(0).unwrap(), None);
    let first = |image: &MemoryDevice| {
        let mut bytes = [9];
        image.read_at(1 << 50, &mut bytes).unwrap();
        bytes[0]
    };
    assert_eq!(
        (0..50).map(|seed| first(&device.power_cut(seed))).max(),
        Some(1)
    );
    device.flush().unwrap();
    assert_eq!(
        (0..50).map(|seed| first(&device.power_cut(seed))).max(),
        Some(0)
    );
}

#[test]
fn injected_faults_occur_where_requested() {
    let device = device(SimOptions {
        record: true,
        ..SimOptions::default()
    });
    device.inject(Fault::new(Op::Read).after(1));
    device.inject(
        Fault::new(Op::Write)
            .within(1000..1001)
            .with(FaultKind::NoSpace),
    );
    let errno = |done: Result<(), Error>| match done {
        Err(Error::Io { source, .. }) => source.raw_os_error(),
        other => panic!("{other:?}"),
    };
    device.read_at(0, &mut [0]).unwrap();
    assert_eq!(errno(device.read_at(0, &mut [0])), Some(5));
    device.read_at(0, &mut [0]).unwrap();
    let writes = [0, 999, 2000].map(|offset| WriteRequest {
        offset,
        buf: &[7, 7],
    });
    assert_eq!(errno(device.write_many(&writes)), Some(28));
    let bytes = device.contents().to_bytes();
    assert_eq!(
        (bytes[0], bytes[999], bytes[2000]),
        (7, 0, 0),
        "the batch stops there"
    );
    device.write_many(&writes).unwrap();

    let write = |offset| Request {
        op: Op::Write,
        offset,
        len: 2,
    };
    let writes = [0, 999, 0, 999, 2000].map(write);
    assert_eq!(device.take_record()[3..], writes);
    assert_eq!(device.take_record(), []);

    device.set_hook(|request| (request.op == Op::Discard).then_some(FaultKind::Io));
    assert_eq!(errno(device.discard(0, 100)), Some(5));
    device.clear_faults();
    device.discard(0, 100).unwrap();
    let stats = device.stats();
    assert_eq!(
        (stats.reads, stats.writes, stats.discards, stats.flushes),
        (3, 5, 2, 0)
    );
    assert_eq!(
        (stats.bytes_read, stats.bytes_written, stats.bytes_discarded),
        (3, 10, 200)
    );
    assert!(matches!(
        device.write_at(LEN as u64, &[0]),
        Err(Error::OutOfRange { .. })
    ));
    assert_eq!(device.stats(), stats);
    device.reset_stats();
    assert_eq!(device.stats().changes(), 0);
}

#[test]
fn time_passes_on_the_clock_that_is_shared() {
    let clock = Arc::new(VirtualClock::new(0));
    let timing = Timing {
        read_latency: Duration::from_millis(1),
        flush_latency: Duration::from_millis(7),
        bytes_per_second: 1_000_000,
        queue_depth: 2,
        ..Timing::default()
    };
    let options = SimOptions {
        timing,
        ..SimOptions::default()
    };
    let device = SimDevice::with_clock(&MemoryDevice::new(1 << 20), options, clock.clone());
    let (mut one, mut two, mut three) = ([0; 1000], [0; 1000], [0; 1000]);
    let mut reads = [
        ReadRequest {
            offset: 0,
            buf: &mut one,
        },
        ReadRequest {
            offset: 1000,
            buf: &mut two,
        },
        ReadRequest {
            offset: 5000,
            buf: &mut three,
        },
    ];
    device.read_many(&mut reads).unwrap();
    assert_eq!(clock.monotonic(), Duration::from_millis(5));
    device.write_at(0, &[0; 2000]).unwrap();
    assert_eq!(device.clock().monotonic(), Duration::from_millis(7));
    device.flush().unwrap();
    assert_eq!(clock.monotonic(), Duration::from_millis(14));
}

#[test]
fn threads_share_a_device() {
    let device = device(SimOptions::default());
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let device = &device;
            scope.spawn(move || {
                let at = u64::from(thread) * 1000;
                for byte in 0..100 {
                    device.write_at(at, &[byte; 1000]).unwrap();
                    let mut bytes = [0; 1000];
                    device.read_at(at, &mut bytes).unwrap();
                    assert_eq!(bytes, [byte; 1000]);
                    device.flush().unwrap();
                }
            });
        }
    });
    assert_eq!(device.stats().changes(), 400);
    assert_eq!(device.durable().to_bytes(), device.contents().to_bytes());
}
